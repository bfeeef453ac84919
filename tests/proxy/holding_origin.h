#pragma once

// An origin for ten thousand exchanges that stay open.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"

namespace sluice::proxy::testing {

/// Answers every request with the beginning of a body, and with its end when told to. One thread, however many connections.
class HoldingOrigin {
 public:
  HoldingOrigin() : epoll_(epoll_create1(EPOLL_CLOEXEC)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_.get(), 4096) != 0)
      std::abort();
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    Watch(listener_.get());
    thread_ = std::thread([this] { Run(); });
  }
  ~HoldingOrigin() {
    stop_ = true;
    thread_.join();
  }
  HoldingOrigin(const HoldingOrigin&) = delete;
  HoldingOrigin& operator=(const HoldingOrigin&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] size_t open() {
    const std::lock_guard lock(mutex_);
    return open_.size();
  }
  void FinishAll() {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, owned] : open_) (void)send(fd, "3\r\nend\r\n0\r\n\r\n", 13, MSG_NOSIGNAL);
  }

 private:
  void Watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  void Run() {
    std::vector<epoll_event> events(256);
    while (!stop_) {
      const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 50);
      const std::lock_guard lock(mutex_);
      for (int i = 0; i < n; ++i) Serve(events[static_cast<size_t>(i)].data.fd);
    }
  }
  void Serve(int fd) {
    if (fd == listener_.get()) {
      UniqueFd accepted(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (!accepted.valid()) return;
      Watch(accepted.get());
      const int key = accepted.get();
      open_[key] = std::move(accepted);
      return;
    }
    char bytes[4096];
    const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
      open_.erase(fd);
      return;
    }
    // A request has no body and arrives whole: it is short.
    constexpr std::string_view kBegin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n";
    (void)send(fd, kBegin.data(), kBegin.size(), MSG_NOSIGNAL);
  }

  std::mutex mutex_;
  std::unordered_map<int, UniqueFd> open_;
  UniqueFd epoll_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// As many exchanges, or as four descriptors each leave room for: the limit is raised as far as it may be.
inline size_t RoomForExchanges(size_t wanted_exchanges) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = 4 * wanted_exchanges + 400;
  if (limit.rlim_max < wanted) {
    const rlimit more{wanted, wanted};  // only root may
    (void)setrlimit(RLIMIT_NOFILE, &more);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<size_t>(wanted_exchanges, (limit.rlim_cur - 200) / 4);
}

}  // namespace sluice::proxy::testing
