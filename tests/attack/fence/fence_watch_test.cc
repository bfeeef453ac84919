// The fence's watcher in a process that is short of what it needs for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>

#include "tests/attack/fence/fixture.h"
#include "tests/base/no_waiting.h"

namespace sluice::supervisor {
namespace {

using namespace std::chrono_literals;

class FenceWatch : public FenceAttack {
 protected:
  void SetUp() override {
    plan_.hold = FenceHold::kPlain;
    FenceAttack::SetUp();
    if (IsSkipped() || !pod_.ready()) return;
    Install();
    RunIn(pod_.inner(), [&] {
      const auto told = [&](const FenceChange& change) {
        ::pthread_getcpuclockid(::pthread_self(), &watcher_);
        restored_ += change.restored ? 1 : 0;
      };
      ASSERT_TRUE(fence_->Watch(told).has_value());
    });
  }
  int Restored(int wanted) {
    for (int i = 0; i < 500 && restored_ < wanted; ++i) std::this_thread::sleep_for(20ms);
    return restored_;
  }
  /// Somebody else's command, a while from now: what it needs of this process it has by then.
  std::thread Later(const std::string& command) {
    return std::thread([&, command] { EXPECT_EQ(CommandIn(pod_.inner(), "sleep 1; " + command), ""); });
  }

  clockid_t watcher_{};  ///< its thread's, once it has told of something
  std::atomic<int> restored_ = 0;
};

TEST_F(FenceWatch, RestsWhereItCannotWaitAndGoesOn) {
  std::thread other = Later("nft insert rule inet sluice outgoing accept");
  std::this_thread::sleep_for(500ms);
  {
    const NoWaiting here;
    EXPECT_EQ(Restored(1), 1);
    const auto before = ProcessorTime(watcher_);
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(ProcessorTime(watcher_) - before, 50ms);
  }
  other.join();
  EXPECT_EQ(CommandIn(pod_.inner(), "nft insert rule inet sluice outgoing accept"), "");
  EXPECT_EQ(Restored(2), 2);
  EXPECT_TRUE(fence_->Check().has_value());
}

TEST_F(FenceWatch, KeepsDevicesFencedThatItIsNotToldOf) {
  const auto fenced = [&] {
    return CommandIn(pod_.inner(), "nft list table netdev sluice_egress | grep -o 'hook egress device.*;'");
  };
  const std::string before = fenced();
  ASSERT_THAT(before, testing::HasSubstr("eth0"));
  std::thread other = Later("nft insert rule inet sluice outgoing accept");
  std::this_thread::sleep_for(500ms);
  {
    const NoWaiting here(1);  // nor can the devices be asked for
    EXPECT_EQ(Restored(1), 1);
  }
  other.join();
  EXPECT_EQ(fenced(), before);
  EXPECT_TRUE(fence_->Check().has_value());
  EXPECT_EQ(CommandIn(pod_.inner(), "ip link add eth7 type veth peer name peer7"), "");
  for (int i = 0; i < 500 && fenced().find("eth7") == std::string::npos; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_THAT(fenced(), testing::HasSubstr("eth7"));
}

}  // namespace
}  // namespace sluice::supervisor
