// What a sidecar keeps of names for the next one.

#include "app/kept_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "app/file.h"
#include "app/policy_state.h"

namespace sluice::app {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

const WallTime kNow{std::chrono::seconds(1'800'000'000)};
IpAddress At(uint32_t n) { return IpAddress::FromV4(0x97650100 + n); }

TEST(KeptNames, AreReadAsTheyWereWritten) {
  const std::string text = GivenLine(2, "c.test") + GivenLine(0, "a.test") + ToldLine({At(1), "x.test", kNow + 1h}) +
                           ToldLine({*IpAddress::Parse("2a04:4e42::10"), "x.test", kNow + 2h});
  const KeptNames names = ParseKeptNames(text, 4, kNow);
  EXPECT_THAT(names.given, ElementsAre("a.test", "", "c.test", "")) << "two of which nothing is known";
  ASSERT_EQ(names.told.size(), 2u);
  EXPECT_EQ(names.told[0], (KeptNames::Told{At(1), "x.test", kNow + 1h}));
  const std::string again = KeptNamesText(names, 1 << 20);
  EXPECT_EQ(ParseKeptNames(again, 4, kNow).told, names.told);
  EXPECT_EQ(ParseKeptNames(again, 4, kNow).given, names.given);
}

TEST(KeptNames, WhatIsPastOrDamagedOrBeyondSaysNothing) {
  const std::string good = ToldLine({At(1), "x.test", kNow + 1h});
  std::string turned = good;
  turned[turned.size() - 3] ^= 1;
  for (const std::string& text : {turned, good.substr(0, good.size() - 2), std::string("R 1 2 3\n"), std::string("\n\n"),
                                  ToldLine({At(1), "x.test", kNow})})
    EXPECT_THAT(ParseKeptNames(text, 9, kNow).told, IsEmpty()) << text;
  EXPECT_EQ(ParseKeptNames(turned + good, 9, kNow).told.size(), 1u) << "the next line counts";
  EXPECT_THAT(ParseKeptNames(GivenLine(3, "a.test"), 3, kNow).given, ElementsAre("", "", "")) << "never given";
  EXPECT_EQ(ParseKeptNames(ToldLine({At(1), "x.test", kNow + 9000h}), 0, kNow).told[0].until, kNow + dns::kHistoryLifetime)
      << "by a clock that was set";
}

TEST(KeptNames, TheLaterOfTwoCountsAndTheNewestFitIn) {
  std::string text;
  for (uint32_t i = 0; i < 100; ++i) text += ToldLine({At(i), "n.test", kNow + 1h});
  text += ToldLine({At(0), "n.test", kNow + 2h});
  const KeptNames names = ParseKeptNames(text, 0, kNow);
  ASSERT_EQ(names.told.size(), 100u);
  EXPECT_EQ(names.told.back(), (KeptNames::Told{At(0), "n.test", kNow + 2h}));
  const std::string half = KeptNamesText(names, text.size() / 2);
  EXPECT_LE(half.size(), text.size() / 2);
  const KeptNames kept = ParseKeptNames(half, 0, kNow);
  ASSERT_FALSE(kept.told.empty());
  EXPECT_EQ(kept.told.back().address, At(0));
}

class Store : public testing::Test {
 protected:
  Store() {
    std::string made = "/tmp/kept_names_XXXXXX";
    folder_ = ::mkdtemp(made.data());
  }
  ~Store() override { std::filesystem::remove_all(folder_); }

  // A sidecar's part of it.
  struct Running {
    std::unique_ptr<NameStore> store;
    std::unique_ptr<dns::NameHistory> history = std::make_unique<dns::NameHistory>();
    std::unique_ptr<dns::SyntheticPool> pool;
    ~Running() {
      pool.reset();
      history.reset();
    }
  };
  std::unique_ptr<Running> Run() {
    auto store = NameStore::Open(folder_);
    EXPECT_TRUE(store) << store.error().message;
    auto running = std::make_unique<Running>();
    running->store = *std::move(store);
    running->pool = std::make_unique<dns::SyntheticPool>(0, running->store->place());
    running->store->Restore(*running->pool, *running->history);
    return running;
  }
  std::string folder_;
};

TEST_F(Store, TheNextGoesOnWhereThisOneEnded) {
  auto first = Run();
  const SteadyTime now = SystemClock().Steady();
  const IpAddress a4 = *first->pool->AddressFor("a.test", dns::Family::kV4);
  const IpAddress a6 = *first->pool->AddressFor("a.test", dns::Family::kV6);
  first->history->Note("db.test", At(1), now + 24h);
  first->history->Note("other.test", At(1), now + 24h);
  first.reset();
  auto next = Run();
  EXPECT_EQ(next->pool->NameOf(a4), "a.test");
  EXPECT_EQ(next->pool->NameOf(a6), "a.test");
  EXPECT_NE(*next->pool->AddressFor("b.test", dns::Family::kV4), a4);
  EXPECT_EQ(*next->pool->AddressFor("a.test", dns::Family::kV4), a4);
  EXPECT_THAT(next->history->NamesOf(At(1), SystemClock().Steady()), ElementsAre("other.test", "db.test"));
  EXPECT_THAT(next->history->NamesOf(At(1), SystemClock().Steady() + 25h), IsEmpty());
  next.reset();
  EXPECT_EQ(Run()->pool->size(), 2u) << "and the one after it";
  for (const char* name : {"names", "synthetic"}) {
    struct stat about{};
    ASSERT_EQ(::stat((folder_ + "/" + name).c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u) << name;
  }
}

// Killed at once: whose the addresses are may be lost, and none is given again.
TEST_F(Store, WhatACrashLosesIsMissingAndNobodyElses) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto running = Run();
    std::array<IpAddress, 3> given{};
    for (size_t i = 0; i < given.size(); ++i)
      given[i] = *running->pool->AddressFor("n" + std::to_string(i) + ".test", dns::Family::kV4);
    if (::write(ends[1], given.data(), sizeof given) != sizeof given) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  std::array<IpAddress, 3> given{};
  ASSERT_EQ(::read(ends[0], given.data(), sizeof given), static_cast<ssize_t>(sizeof given));
  ::waitpid(child, nullptr, 0);
  ::truncate((folder_ + "/names").c_str(), 0);
  const auto next = Run();
  for (int i = 0; i < 50; ++i) {
    const IpAddress address = *next->pool->AddressFor("other" + std::to_string(i) + ".test", dns::Family::kV4);
    EXPECT_THAT(given, testing::Not(testing::Contains(address)));
  }
  for (const IpAddress& address : given) EXPECT_FALSE(next->pool->NameOf(address));
}

TEST_F(Store, DamageBeginsAnewAtAnotherPlace) {
  auto first = Run();
  const IpAddress a6 = *first->pool->AddressFor("a.test", dns::Family::kV6);
  first.reset();
  {
    std::fstream file(folder_ + "/synthetic", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(9);
    file.put('x');
  }
  const auto next = Run();
  EXPECT_EQ(next->pool->size(), 0u);
  EXPECT_FALSE(next->pool->NameOf(a6));
}

TEST_F(Store, WhatOthersMayWriteAndWhatAnotherHasIsRefused) {
  auto first = Run();
  const auto second = NameStore::Open(folder_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kExhausted);
  first.reset();
  ASSERT_EQ(::chmod((folder_ + "/names").c_str(), 0666), 0);
  const auto open = NameStore::Open(folder_);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, Code::kInvalid);
  std::filesystem::remove(folder_ + "/names");
  std::filesystem::create_symlink("/etc/hostname", folder_ + "/names");
  const auto linked = NameStore::Open(folder_);
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().code, Code::kInvalid);
}

TEST_F(Store, TheFileStaysWithinItsBound) {
  auto running = Run();
  const SteadyTime until = SystemClock().Steady() + 24h;
  const std::string tail(180, 'x');
  for (uint32_t i = 0; i < 60'000; ++i) {
    running->history->Note(std::to_string(i) + tail, IpAddress::FromV4(0x0b000000 + i), until);
    if (i % 500 == 0) ::usleep(5'000);
  }
  running.reset();
  EXPECT_LE(std::filesystem::file_size(folder_ + "/names"), kMaxKeptNameBytes + kMaxUnwrittenNameBytes);
  running = Run();
  EXPECT_THAT(running->history->NamesOf(IpAddress::FromV4(0x0b000000 + 59'999), SystemClock().Steady()),
              ElementsAre("59999" + tail));
  EXPECT_LE(std::filesystem::file_size(folder_ + "/names"), kMaxKeptNameBytes / 2);
}

}  // namespace
}  // namespace sluice::app
