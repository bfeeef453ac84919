// A load of short tunnels: each connection asks for one by CONNECT (or speaks to the port directly), sends one GET in it, reads
// the answer to its end and closes. For explicit.py; not part of the product.
//
//   connect_load PORT ORIGIN_PORT CONNECTIONS SECONDS connect|direct     prints: requests requests/s p50_us p99_us

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Load {
  sockaddr_in address{};
  std::string ask;  // empty: no tunnel is asked for
  std::string get;
};

class Exchange {
 public:
  bool Begin(const Load& load, int epoll) {
    began_ = Clock::now();
    fd_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&load.address), sizeof load.address) != 0 && errno != EINPROGRESS)
      return false;
    tunnel_ = load.ask.empty();
    sent_ = false;
    in_.clear();
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = this;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd_.get(), &event) == 0;
  }

  enum class Step { kGoesOn, kDone, kFailed };
  Step Move(const Load& load, uint32_t events) {
    if ((events & EPOLLOUT) != 0 && !sent_ && !Send(tunnel_ ? load.get : load.ask)) return Step::kFailed;
    for (;;) {
      char buffer[16384];
      const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n < 0) return errno == EAGAIN ? Step::kGoesOn : Step::kFailed;
      if (n == 0) return Step::kFailed;
      in_.append(buffer, static_cast<size_t>(n));
      if (!tunnel_) {
        if (in_.find("\r\n\r\n") == std::string::npos) continue;
        if (in_.find(" 200 ") != 8) return Step::kFailed;
        tunnel_ = true;
        in_.clear();
        if (!Send(load.get)) return Step::kFailed;
        continue;
      }
      const size_t end = in_.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      if (in_.find(" 200 ") != 8) return Step::kFailed;
      const size_t field = in_.find("Content-Length: ");
      if (field == std::string::npos) return Step::kFailed;
      if (in_.size() < end + 4 + std::strtoul(in_.c_str() + field + 16, nullptr, 10)) continue;
      fd_.Reset();
      return Step::kDone;
    }
  }
  [[nodiscard]] Clock::duration took() const { return Clock::now() - began_; }

 private:
  bool Send(std::string_view text) {
    sent_ = send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
    return sent_;
  }

  sluice::UniqueFd fd_;
  Clock::time_point began_;
  std::string in_;
  bool tunnel_ = false;
  bool sent_ = false;
};

int Run(const Load& load, size_t connections, std::chrono::seconds seconds) {
  const sluice::UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  std::vector<Exchange> exchanges(connections);
  for (Exchange& exchange : exchanges)
    if (!exchange.Begin(load, epoll.get())) return 1;
  std::vector<double> took;
  const auto begun = Clock::now();
  while (Clock::now() - begun < seconds) {
    std::array<epoll_event, 64> events;
    const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 1000);
    for (int i = 0; i < n; ++i) {
      auto* exchange = static_cast<Exchange*>(events[static_cast<size_t>(i)].data.ptr);
      const auto step = exchange->Move(load, events[static_cast<size_t>(i)].events);
      if (step == Exchange::Step::kGoesOn) continue;
      if (step == Exchange::Step::kFailed) {
        std::fprintf(stderr, "an exchange failed\n");
        return 1;
      }
      took.push_back(std::chrono::duration<double, std::micro>(exchange->took()).count());
      if (!exchange->Begin(load, epoll.get())) return 1;
    }
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - begun).count();
  if (took.empty()) return 1;
  std::ranges::sort(took);
  fmt::print("{} {:.0f} {:.0f} {:.0f}\n", took.size(), static_cast<double>(took.size()) / elapsed, took[took.size() / 2],
             took[took.size() * 99 / 100]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: connect_load PORT ORIGIN_PORT CONNECTIONS SECONDS connect|direct\n");
    return 2;
  }
  Load load;
  load.address.sin_family = AF_INET;
  load.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  load.address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  const std::string origin = fmt::format("127.0.0.1:{}", argv[2]);
  if (std::string_view(argv[5]) == "connect") load.ask = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin);
  load.get = fmt::format("GET /1k HTTP/1.1\r\nHost: {}\r\n\r\n", origin);
  return Run(load, static_cast<size_t>(std::atoi(argv[3])), std::chrono::seconds(std::atoi(argv[4])));
}
