#include "app/accept_loop.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "tests/base/no_waiting.h"

namespace sluice::app {
namespace {

using namespace std::chrono_literals;

struct Listener {
  UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_in at{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};

  Listener() {
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(socket.get(), 4), 0);
    EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  }
};

TEST(AcceptLoop, RestsWhereItCannotWaitAndGoesOnAfterwards) {
  Listener listener;
  std::vector<UniqueFd> listeners;
  listeners.push_back(std::move(listener.socket));
  auto loop = AcceptLoop::Create(std::move(listeners));
  ASSERT_TRUE(loop) << loop.error().message;
  std::atomic<int> taken{0};
  {
    const NoWaiting here;
    (*loop)->Start([&](UniqueFd, const sockaddr_storage&, socklen_t) { ++taken; });
    const auto before = ProcessorTime();
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(ProcessorTime() - before, 100ms);
  }
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&listener.at), sizeof listener.at), 0);
  for (int i = 0; i < 500 && taken == 0; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_EQ(taken, 1);
}

TEST(AcceptLoop, EndsWhereItCannotWait) {
  Listener listener;
  std::vector<UniqueFd> listeners;
  listeners.push_back(std::move(listener.socket));
  auto loop = AcceptLoop::Create(std::move(listeners));
  ASSERT_TRUE(loop) << loop.error().message;
  const NoWaiting here;
  (*loop)->Start([](UniqueFd, const sockaddr_storage&, socklen_t) {});
  (*loop)->Stop();
}

}  // namespace
}  // namespace sluice::app
