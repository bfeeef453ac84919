// Which of the host's sockets a file is, and how often that is looked for.
#include "supervisor/io/host_socket_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/wake_timer.h"

namespace sluice::supervisor {
namespace {

using namespace std::chrono_literals;
using Identity = HostSocketTable::Identity;

// A view of sockets of which each look takes a while, by a clock of its own.
struct View {
  explicit View(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const std::string place = "/run/" + std::to_string(i);
      sockets.emplace(place, "/var" + place);
      files[place] = {1, i};
    }
  }
  HostSocketTable Table() {
    return HostSocketTable(sockets, {.look = [this](const std::string& there) -> std::optional<Identity> {
                                       ++looks;
                                       time += 3us;
                                       const auto found = files.find(there);
                                       if (found == files.end()) return std::nullopt;
                                       return found->second;
                                     },
                                     .now = [this] { return time += 1us; },
                                     .rest =
                                         [this](SteadyTime until) {
                                           longest = std::max(longest, until - time);
                                           time = until;
                                         }});
  }

  std::map<std::string, std::string> sockets;
  std::map<std::string, Identity> files;
  size_t looks = 0;
  SteadyTime time{1h};
  SteadyTime::duration longest{};
};

std::string Found(HostSocketTable& table, const std::string& path, Identity identity) {
  const std::string* named = table.Find(path, identity);
  return named == nullptr ? "none" : *named;
}

TEST(HostSocketTable, KnowsThemByNameAndWhereverTheyAreMounted) {
  View view(3);
  HostSocketTable table = view.Table();
  EXPECT_EQ(Found(table, "/run/1", {9, 9}), "/var/run/1");
  EXPECT_EQ(Found(table, "/tmp/bound", {1, 1}), "/var/run/1");
  EXPECT_EQ(Found(table, "/tmp/own", {2, 1}), "none");
}

TEST(HostSocketTable, KnowsOneThatItsServiceHasReplacedAtOnce) {
  for (const size_t count : {size_t{3}, 4 * kFewHostSockets}) {
    View view(count);
    HostSocketTable table = view.Table();
    EXPECT_EQ(Found(table, "/tmp/bound", {1, 1000}), "none");
    view.files["/run/1"] = {1, 1000};
    EXPECT_EQ(Found(table, "/tmp/bound", {1, 1000}), "/var/run/1");
    EXPECT_EQ(Found(table, "/tmp/bound", {1, 1}), "/var/run/1") << "the first one may still be served";
    view.files.erase("/run/1");
    EXPECT_EQ(Found(table, "/tmp/own", {1, 1000}), "none") << "the number is another file's by now";
  }
}

TEST(HostSocketTable, LooksAtManyForATenthOfTheTimeAtMost) {
  View view(256);
  HostSocketTable table = view.Table();
  const SteadyTime begin = view.time;
  view.looks = 0;
  constexpr size_t kQuestions = 1000;
  for (size_t i = 0; i < kQuestions; ++i) EXPECT_EQ(Found(table, "/tmp/own", {2, i}), "none");
  EXPECT_LE(view.looks * 3us, (view.time - begin) / 10 + 256 * 3us);
  EXPECT_LE(view.longest, kWakeInterval);
}

TEST(HostSocketTable, LetsNobodyWaitWhereThereAreFew) {
  View view(kFewHostSockets);
  HostSocketTable table = view.Table();
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(Found(table, "/tmp/own", {2, i}), "none");
  EXPECT_EQ(view.longest, 0us);
}

TEST(HostSocketTable, LooksForNobodyWhereNamesAloneTell) {
  HostSocketTable table({{"/run/1", "/var/run/1"}}, -1);
  EXPECT_EQ(Found(table, "/run/1", {1, 1}), "/var/run/1");
  EXPECT_EQ(Found(table, "/tmp/bound", {1, 1}), "none");
}

TEST(HostSocketTable, OneLookAnswersAllWhoWaitForIt) {
  std::map<std::string, std::string> sockets;
  for (size_t i = 0; i < 2 * kFewHostSockets; ++i) sockets.emplace("/run/" + std::to_string(i), "named");
  const auto first = std::this_thread::get_id();
  std::atomic<int64_t> time = 1'000'000;
  std::atomic<bool> other_asked = false;
  size_t looks = 0;
  std::thread other;
  HostSocketTable* asked = nullptr;
  HostSocketTable table(sockets, {.look = [&](const std::string&) -> std::optional<Identity> {
                                    ++looks;
                                    time += 3;
                                    return std::nullopt;
                                  },
                                  .now =
                                      [&] {
                                        const SteadyTime now{std::chrono::microseconds(++time)};
                                        if (std::this_thread::get_id() != first) other_asked = true;
                                        return now;
                                      },
                                  // While one rests before it looks, another asks.
                                  .rest =
                                      [&](SteadyTime) {
                                        other = std::thread([&] { EXPECT_EQ(Found(*asked, "/tmp/own", {2, 1}), "none"); });
                                        while (!other_asked) std::this_thread::yield();
                                      }});
  asked = &table;
  EXPECT_EQ(Found(table, "/tmp/own", {2, 0}), "none");
  looks = 0;
  EXPECT_EQ(Found(table, "/tmp/own", {2, 0}), "none");
  other.join();
  EXPECT_EQ(looks, sockets.size());
}

}  // namespace
}  // namespace sluice::supervisor
