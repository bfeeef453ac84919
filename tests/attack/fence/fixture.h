#pragma once

// A pod with a fence, and servers and clients on both sides of it.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "supervisor/io/fence.h"
#include "tests/attack/fence/pod.h"

namespace sluice::supervisor {

class FenceAttack : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: the workload here is root in a namespace that it does not own";
    ASSERT_TRUE(pod_.ready());
    plan_.seal = DrawSeal();
    plan_.passage = DrawSeal();
    plan_.proxy_port = kProxyPort;
    plan_.dns_port = 15053;
  }
  void Install() {
    RunIn(pod_.inner(), [&] {
      auto fence = Fence::Install(plan_);
      ASSERT_TRUE(fence.has_value()) << fence.error().message;
      fence_ = std::move(*fence);
    });
    ASSERT_NE(fence_, nullptr);
    pod_.Forget();
  }
  // What attempts got out of the pod, by name. One after the other only where something got out.
  std::vector<std::string> Successes() {
    const std::vector<Attack> attacks = Attacks();
    pod_.Forget();
    for (const Attack& attack : attacks) Try(attack);
    std::vector<std::string> names;
    if (Pod::Escaped(pod_.Taken()).empty()) return names;
    for (const Attack& attack : attacks) {
      pod_.Forget();
      Try(attack);
      if (!Pod::Escaped(pod_.Taken()).empty()) names.emplace_back(attack.name);
    }
    return names;
  }
  void Try(const Attack& attack) {
    EXPECT_LT(pod_.Workload([&] {
      attack.run();
      return 0;
    }),
              200)
        << attack.name;
  }
  uint64_t Count(const std::string& name) {
    const auto counters = fence_->Counters();
    EXPECT_TRUE(counters.has_value());
    for (const FenceCounter& counter : *counters)
      if (counter.name == name) return counter.packets;
    return 0;
  }

  // Counts what the fence tells of itself, which it does until it is gone.
  void CountChanges() {
    RunIn(pod_.inner(), [&] {
      const auto count = [&](const FenceChange& change) {
        ++changes_;
        restored_ += change.restored ? 1 : 0;
      };
      ASSERT_TRUE(fence_->Watch(count).has_value());
    });
  }
  [[nodiscard]] int RestoredOf(int wanted) const {
    for (int i = 0; i < 100 && restored_ < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return restored_;
  }

  Pod pod_;
  FencePlan plan_;
  std::atomic<int> changes_ = 0;
  std::atomic<int> restored_ = 0;
  std::unique_ptr<Fence> fence_;
};

// A server that answers with what it gets, to any number of connections.
class Echo {
 public:
  Echo(const UniqueFd& network, uint16_t port) {
    RunIn(network, [&] {
      listener_ = UniqueFd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int on = 1;
      ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      sockaddr_in6 any{};
      any.sin6_family = AF_INET6;
      any.sin6_port = htons(port);
      EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
      EXPECT_EQ(::listen(listener_.get(), 16), 0);
    });
    thread_ = std::thread([this] { Serve(); });
  }
  ~Echo() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Serve() {
    std::vector<UniqueFd> clients;
    while (!stop_) {
      std::vector<pollfd> ready{{listener_.get(), POLLIN, 0}};
      for (const UniqueFd& client : clients) ready.push_back({client.get(), POLLIN, 0});
      if (::poll(ready.data(), ready.size(), 20) <= 0) continue;
      for (size_t i = 1; i < ready.size(); ++i) {
        if (ready[i].revents == 0) continue;
        std::array<char, 256> text{};
        const ssize_t got = ::recv(ready[i].fd, text.data(), text.size(), MSG_DONTWAIT);
        if (got <= 0 || ::send(ready[i].fd, text.data(), static_cast<size_t>(got), MSG_NOSIGNAL) < 0) clients[i - 1].Reset();
      }
      std::erase_if(clients, [](const UniqueFd& client) { return !client; });
      if (ready[0].revents != 0) clients.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  }

  UniqueFd listener_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Connects and asks for an echo of `text`: 0, or an errno.
inline int Ask(const char* address, uint16_t port, const SocketSeal& seal, const std::string& text) {
  sockaddr_storage to{};
  const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(address).value(), port}.ToSockaddr(&to));
  const UniqueFd socket(::socket(to.ss_family, SOCK_STREAM, 0));
  if (!ApplySeal(socket.get(), seal)) return errno;
  const timeval timeout{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) return errno;
  if (::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return errno;
  std::array<char, 256> back{};
  return ::recv(socket.get(), back.data(), back.size(), 0) < 0 ? errno : 0;
}

inline int AskIn(const UniqueFd& network, const char* address, uint16_t port, const SocketSeal& seal, const std::string& text) {
  int error = -1;
  RunIn(network, [&] { error = Ask(address, port, seal, text); });
  return error;
}

}  // namespace sluice::supervisor
