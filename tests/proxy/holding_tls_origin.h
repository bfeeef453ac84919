#pragma once

// An origin of HTTP/1.1 under TLS for ten thousand exchanges that stay open, each on a connection of its own, in a process of its
// own: what it holds is counted neither as the test's descriptors nor as its memory.

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {

class HoldingTlsOrigin {
 public:
  /// Before the test starts a thread: what the child inherits is then whole.
  HoldingTlsOrigin() {
    (void)SharedAuthority();  // one for both processes
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    control_.Reset(ends[0]);
    UniqueFd theirs(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      control_.Reset();
      std::signal(SIGPIPE, SIG_IGN);
      Served::Loop(std::move(theirs));
      _exit(0);
    }
    theirs.Reset();
    port_ = static_cast<uint16_t>(Answer());
  }
  ~HoldingTlsOrigin() {
    control_.Reset();
    waitpid(pid_, nullptr, 0);
  }
  HoldingTlsOrigin(const HoldingTlsOrigin&) = delete;
  HoldingTlsOrigin& operator=(const HoldingTlsOrigin&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  /// Answers that have begun and not ended, and connections.
  [[nodiscard]] size_t streams() { return Ask('s'); }
  [[nodiscard]] size_t connections() { return Ask('c'); }
  /// The rest of every answer.
  void FinishAll() { (void)Ask('f'); }

 private:
  class Served {
   public:
    static void Loop(UniqueFd control);
    Served(UniqueFd fd, SSL_CTX* context) : fd_(std::move(fd)), ssl_(SSL_new(context)) {
      SSL_set_fd(ssl_, fd_.get());
      SSL_set_accept_state(ssl_);
    }
    ~Served() { SSL_free(ssl_); }
    Served(const Served&) = delete;
    Served& operator=(const Served&) = delete;
    // False: the client has left. Requests have no body and are short, so that one never shares its record with another.
    bool Turn() {
      char bytes[4096];
      for (;;) {
        ERR_clear_error();
        const int n = SSL_read(ssl_, bytes, sizeof bytes);
        if (n <= 0) return SSL_get_error(ssl_, n) == SSL_ERROR_WANT_READ;
        head_.append(bytes, static_cast<size_t>(n));
        if (!head_.ends_with("\r\n\r\n")) continue;
        head_.clear();
        open_ = true;
        Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n");
      }
    }
    void Finish() {
      if (open_) Say("3\r\nend\r\n0\r\n\r\n");
      open_ = false;
    }
    [[nodiscard]] bool open() const { return open_; }

   private:
    void Say(std::string_view text) { (void)SSL_write(ssl_, text.data(), static_cast<int>(text.size())); }
    UniqueFd fd_;
    SSL* ssl_;
    std::string head_;
    bool open_ = false;
  };

  [[nodiscard]] size_t Answer() {
    size_t answer = 0;
    return read(control_.get(), &answer, sizeof answer) == sizeof answer ? answer : 0;
  }
  [[nodiscard]] size_t Ask(char what) {
    (void)!write(control_.get(), &what, 1);
    return Answer();
  }

  UniqueFd control_;
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

inline void HoldingTlsOrigin::Served::Loop(UniqueFd control) {
  const std::shared_ptr<SSL_CTX> context = SharedAuthority().ServerContext("DNS:a.test");
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_num_tickets(context.get(), 1);
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener.get(), 4096) != 0) return;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto tell = [&](size_t answer) { (void)!write(control.get(), &answer, sizeof answer); };
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  const auto watch = [&](int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event);
  };
  watch(control.get());
  watch(listener.get());
  tell(ntohs(address.sin_port));
  std::unordered_map<int, std::unique_ptr<Served>> served;
  std::vector<epoll_event> events(256);
  for (;;) {
    const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == listener.get()) {
        UniqueFd accepted(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!accepted.valid()) continue;
        const int key = accepted.get();
        watch(key);
        served[key] = std::make_unique<Served>(std::move(accepted), context.get());
        continue;
      }
      if (fd != control.get()) {
        if (const auto found = served.find(fd); found != served.end() && !found->second->Turn()) served.erase(found);
        continue;
      }
      char what = 0;
      if (read(fd, &what, 1) != 1) return;
      size_t open = 0;
      for (auto& [key, one] : served) {
        if (what == 'f') one->Finish();
        open += one->open() ? 1 : 0;
      }
      tell(what == 'c' ? served.size() : open);
    }
  }
}

}  // namespace sluice::proxy::testing
