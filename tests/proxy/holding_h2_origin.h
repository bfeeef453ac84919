#pragma once

// An origin of HTTP/2 with prior knowledge for ten thousand exchanges that stay open, in a process of its own: what it holds is
// counted neither as the test's descriptors nor as its memory.

#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <list>
#include <vector>

#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {

class HoldingH2Origin {
 public:
  /// Before the test starts a thread: what the child inherits is then whole.
  HoldingH2Origin() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    control_.Reset(ends[0]);
    UniqueFd theirs(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      control_.Reset();
      Serve(std::move(theirs));
      _exit(0);
    }
    theirs.Reset();
    port_ = static_cast<uint16_t>(Answer());
  }
  ~HoldingH2Origin() {
    control_.Reset();
    waitpid(pid_, nullptr, 0);
  }
  HoldingH2Origin(const HoldingH2Origin&) = delete;
  HoldingH2Origin& operator=(const HoldingH2Origin&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  /// Streams that are open, and connections.
  [[nodiscard]] size_t streams() { return Ask('s'); }
  [[nodiscard]] size_t connections() { return Ask('c'); }
  /// The rest of every answer.
  void FinishAll() { (void)Ask('f'); }

 private:
  class Served final : public H2Talker {
   public:
    explicit Served(Peer peer) : H2Talker(std::move(peer), H2Role::kServer) {}
    // False: the client has left.
    bool Serve() {
      if (!Turn()) return false;
      H2Output head;
      head.Reset(0);
      head.Add(":status", "200");
      head.Add("content-type", "text/event-stream");
      for (const int32_t id : fresh_) {
        session.Respond(id, head, H2End::kOpen);
        Say(id, "begin");
      }
      fresh_.clear();
      return true;
    }
    void Finish() {
      for (const auto& [id, message] : messages)
        if (!message.closed) Say(id, "end", true);
    }
    [[nodiscard]] size_t open() const {
      size_t open = 0;
      for (const auto& [id, message] : messages) open += message.closed ? 0 : 1;
      return open;
    }

   private:
    void OnHead(int32_t id, H2Section& section, H2End end) override {
      H2Talker::OnHead(id, section, end);
      fresh_.push_back(id);
    }
    std::vector<int32_t> fresh_;
  };

  [[nodiscard]] size_t Answer() {
    size_t answer = 0;
    return read(control_.get(), &answer, sizeof answer) == sizeof answer ? answer : 0;
  }
  [[nodiscard]] size_t Ask(char what) {
    (void)!write(control_.get(), &what, 1);
    return Answer();
  }

  static void Serve(UniqueFd control) {
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener.get(), 4096) != 0) return;
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    const auto tell = [&](size_t answer) { (void)!write(control.get(), &answer, sizeof answer); };
    tell(ntohs(address.sin_port));
    std::list<Served> served;
    for (;;) {
      std::vector<pollfd> polled{{control.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
      for (Served& one : served) polled.push_back({one.peer().fd(), POLLIN, 0});
      if (poll(polled.data(), polled.size(), -1) < 0) return;
      size_t at = 2;
      for (auto it = served.begin(); it != served.end(); ++at)
        it = polled[at].revents != 0 && !it->Serve() ? served.erase(it) : std::next(it);
      if (polled[1].revents != 0)
        served.emplace_back(Peer(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)), nullptr));
      if (polled[0].revents == 0) continue;
      char what = 0;
      if (read(control.get(), &what, 1) != 1) return;
      size_t streams = 0;
      for (Served& one : served) {
        if (what == 'f') one.Finish();
        streams += one.open();
      }
      tell(what == 'c' ? served.size() : streams);
    }
  }

  UniqueFd control_;
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

}  // namespace sluice::proxy::testing
