#include "tests/proxy/forked_origin.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/socket_pair.h"
#include "tests/proxy/h2_peer.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

void Watch(const UniqueFd& epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event);
}

void Serve(const UniqueFd& control, const ForkedOrigin::Accept& accept) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener.get(), 4096) != 0) return;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto tell = [&](size_t answer) { (void)!write(control.get(), &answer, sizeof answer); };
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  Watch(epoll, control.get());
  Watch(epoll, listener.get());
  tell(ntohs(address.sin_port));
  std::unordered_map<int, std::unique_ptr<HeldConnection>> held;
  std::vector<epoll_event> events(256);
  for (;;) {
    const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == listener.get()) {
        UniqueFd accepted(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
        if (!accepted.valid()) continue;
        const int key = accepted.get();
        Watch(epoll, key);
        held[key] = accept(std::move(accepted));
        continue;
      }
      if (fd != control.get()) {
        if (const auto found = held.find(fd); found != held.end() && !found->second->Turn()) held.erase(found);
        continue;
      }
      char what = 0;
      if (read(fd, &what, 1) != 1) return;
      size_t open = 0;
      for (auto& [key, one] : held) {
        if (what == 'f') one->Finish();
        open += one->open();
      }
      tell(what == 'c' ? held.size() : open);
    }
  }
}

class HeldH2 final : public H2Talker, public HeldConnection {
 public:
  explicit HeldH2(Peer peer) : H2Talker(std::move(peer), H2Role::kServer) {}
  bool Turn() override {
    if (!H2Talker::Turn()) return false;
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
  void Finish() override {
    for (const auto& [id, message] : messages)
      if (!message.closed) Say(id, "end", true);
  }
  [[nodiscard]] size_t open() const override {
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

class HeldTls final : public HeldConnection {
 public:
  HeldTls(UniqueFd fd, SSL_CTX* context) : fd_(std::move(fd)), ssl_(SSL_new(context)) {
    fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
    SSL_set_fd(ssl_, fd_.get());
    SSL_set_accept_state(ssl_);
  }
  ~HeldTls() override { SSL_free(ssl_); }
  HeldTls(const HeldTls&) = delete;
  HeldTls& operator=(const HeldTls&) = delete;
  // Requests have no body and are short, so that one never shares its record with another.
  bool Turn() override {
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
  void Finish() override {
    if (open_) Say("3\r\nend\r\n0\r\n\r\n");
    open_ = false;
  }
  [[nodiscard]] size_t open() const override { return open_ ? 1 : 0; }

 private:
  void Say(std::string_view text) { (void)SSL_write(ssl_, text.data(), static_cast<int>(text.size())); }
  UniqueFd fd_;
  SSL* ssl_;
  std::string head_;
  bool open_ = false;
};

}  // namespace

ForkedOrigin::ForkedOrigin(const Accept& accept) {
  (void)SharedAuthority();  // one for both processes
  auto ends = MakeSocketPair();
  if (!ends) std::abort();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ends->mine.Reset();
    std::signal(SIGPIPE, SIG_IGN);
    Serve(ends->theirs, accept);
    _exit(0);
  }
  control_ = std::move(ends->mine);
  ends->theirs.Reset();
  port_ = static_cast<uint16_t>(Answer());
}

ForkedOrigin::~ForkedOrigin() {
  control_.Reset();
  waitpid(pid_, nullptr, 0);
}

size_t ForkedOrigin::Answer() {
  size_t answer = 0;
  return read(control_.get(), &answer, sizeof answer) == sizeof answer ? answer : 0;
}

size_t ForkedOrigin::Ask(char what) {
  (void)!write(control_.get(), &what, 1);
  return Answer();
}

std::unique_ptr<HeldConnection> HoldH2(UniqueFd fd) { return std::make_unique<HeldH2>(Peer(std::move(fd), nullptr)); }

std::unique_ptr<HeldConnection> HoldTls(UniqueFd fd) {
  static const std::shared_ptr<SSL_CTX> context = [] {
    auto made = SharedAuthority().ServerContext("DNS:a.test");
    SSL_CTX_set_mode(made.get(), SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_num_tickets(made.get(), 1);
    return made;
  }();
  return std::make_unique<HeldTls>(std::move(fd), context.get());
}

}  // namespace sluice::proxy::testing
