#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "app/reload.h"
#include "app/watched_names.h"
#include "policy/io/load.h"
#include "tests/app/command_capture.h"
#include "tests/base/no_waiting.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Policy(const std::string& host) { return "version: 1\nrules:\n  - allow: GET " + host + "\n"; }

bool Allows(const policy::Snapshot& snapshot, const std::string& host) {
  return std::ranges::any_of(snapshot.rules(), [&](const policy::RuleInfo& rule) { return rule.text.contains(host); });
}

class PolicyWatching : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &hangup, nullptr), 0);
  }

  /// One version of a ConfigMap's content, as the kubelet writes it before it swaps `..data`.
  void Version(const std::string& version, const std::string& name, const std::string& text) {
    fs::create_directory(folder_ + "/" + version);
    Write(version + "/" + name, text);
  }
  void Swap(const std::string& version, const std::string& link) {
    fs::create_directory_symlink(version, folder_ + "/" + link + "_tmp");
    fs::rename(folder_ + "/" + link + "_tmp", folder_ + "/" + link);
  }

  void Start(const std::string& path, milliseconds unwatched = {}) {
    auto own = policy::LoadFile(path);
    ASSERT_TRUE(own) << own.error().message;
    Watch(*std::move(own), path, {}, unwatched);
  }
  void Watch(policy::SnapshotPtr own, const std::string& path, PolicyWatcher::Load load = {}, milliseconds unwatched = {}) {
    if (!load) load = [path] { return policy::LoadFile(path); };
    auto watcher = PolicyWatcher::Start(
        std::move(own), std::move(load),
        [this](policy::SnapshotPtr next) -> Result<uint64_t> {
          const std::lock_guard lock(mutex_);
          put_ = std::move(next);
          all_.push_back(put_);
          changed_.notify_all();
          return ++revision_;
        },
        ReloadNotice::kNone, unwatched);
    ASSERT_TRUE(watcher) << watcher.error().message;
    watcher_ = *std::move(watcher);
  }
  /// What was put in force at any time has that rule alone.
  bool EverAllowedOnly(const std::string& host) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(all_, [&](const auto& put) { return Allows(*put, host) && put->rules().size() == 1; });
  }
  void StopWatching() { watcher_.reset(); }
  bool Comes(const std::string& host) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(10), [&] { return put_ && Allows(*put_, host); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  policy::SnapshotPtr put_;
  std::vector<policy::SnapshotPtr> all_;
  uint64_t revision_ = 1;
  std::unique_ptr<PolicyWatcher> watcher_;  // its thread uses what is above
};

TEST_F(PolicyWatching, AConfigMapThatIsSwappedIsReadAnewEachTime) {
  Version("..1", "policy.yaml", Policy("one.test"));
  Swap("..1", "..data");
  fs::create_symlink("..data/policy.yaml", folder_ + "/policy.yaml");
  Start(folder_ + "/policy.yaml");
  for (const auto& [version, gone, host] : {std::tuple{"..2", "..1", "two.test"}, {"..3", "..2", "three.test"}}) {
    Version(version, "policy.yaml", Policy(host));
    Swap(version, "..data");
    fs::remove_all(folder_ + "/" + gone);
    EXPECT_TRUE(Comes(host)) << version;
  }
}

// How many inotify instances this process has.
size_t Instances() {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += fs::read_symlink(entry.path(), gone) == "anon_inode:inotify" ? 1 : 0;
  }
  return count;
}

TEST_F(PolicyWatching, WhatIsShortHasNoWatchToEnd) {
  Write("policy.yaml", Policy("one.test"));
  const size_t before = Instances();
  Start(folder_ + "/policy.yaml", std::chrono::hours(1));
  EXPECT_EQ(Instances(), before);
  StopWatching();
}

TEST_F(PolicyWatching, WhatChangedBeforeTheWatchIsFound) {
  Write("policy.yaml", Policy("one.test"));
  Start(folder_ + "/policy.yaml", milliseconds(200));
  Write("policy.yaml", Policy("two.test"));
  EXPECT_TRUE(Comes("two.test"));
  Write("policy.yaml", Policy("three.test"));
  EXPECT_TRUE(Comes("three.test"));
}

TEST_F(PolicyWatching, ALinkAnywhereOnTheWayMayBeSwapped) {
  Version("release1", "policy.yaml", Policy("one.test"));
  Version("release2", "policy.yaml", Policy("two.test"));
  Swap("release1", "current");
  Start(folder_ + "/current/policy.yaml");
  Swap("release2", "current");
  EXPECT_TRUE(Comes("two.test"));
  Write("release2/policy.yaml", Policy("three.test"));
  EXPECT_TRUE(Comes("three.test"));
}

TEST_F(PolicyWatching, AFileIsWrittenOrReplacedByAnother) {
  const std::string path = Write("policy.yaml", Policy("one.test"));
  Start(path);
  Write("policy.yaml", Policy("two.test"));
  EXPECT_TRUE(Comes("two.test"));
  fs::rename(Write("new.yaml", Policy("three.test")), path);
  EXPECT_TRUE(Comes("three.test"));
}

TEST_F(PolicyWatching, AnotherNameOfAFileIsSeenWhoseFirstNameIsGoneByThen) {
  const std::string path = Write("policy.yaml", Policy("one.test"));
  auto own = policy::LoadFile(path);
  ASSERT_TRUE(own) << own.error().message;
  std::promise<void> held;
  std::promise<void> go_on;
  std::atomic<bool> hold{false};
  Watch(*std::move(own), path, [&, path] {
    auto loaded = policy::LoadFile(path);
    if (hold.exchange(false)) {
      held.set_value();
      go_on.get_future().wait();
    }
    return loaded;
  });
  Write("policy.yaml", Policy("two.test"));
  ASSERT_TRUE(Comes("two.test"));
  hold = true;
  Write("policy.yaml", Policy("three.test"));
  held.get_future().wait();
  const std::string next = Write("next.yaml", Policy("four.test"));
  fs::remove(path);
  fs::create_hard_link(next, path);
  fs::remove(next);
  go_on.set_value();
  EXPECT_TRUE(Comes("four.test"));
  StopWatching();
}

TEST_F(PolicyWatching, AFileIsReadOnceItIsWholeHoweverItCame) {
  const std::string path = Write("policy.yaml", Policy("one.test"));
  Start(path);
  const std::string next = folder_ + "/next.yaml";
  const auto slowly = [&](const std::string& file, const std::string& host, const auto& name) {
    fs::remove(path);
    std::ofstream out(file);
    out << Policy("half.test") << std::flush;
    name();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    out << "  - allow: GET " << host << "\n";
    out.close();
    EXPECT_TRUE(Comes(host));
    EXPECT_FALSE(EverAllowedOnly("half.test")) << host;
  };
  slowly(path, "two.test", [] {});
  slowly(next, "three.test", [&] { fs::create_hard_link(next, path); });
  fs::remove(next);
  slowly(next, "four.test", [&] {
    fs::create_hard_link(next, path);
    fs::remove(next);
  });
}

TEST_F(PolicyWatching, AnIncludedLinkLeadsElsewhere) {
  Write("one.yaml", Policy("one.test"));
  Write("two.yaml", Policy("two.test"));
  fs::create_symlink("one.yaml", folder_ + "/common.yaml");
  Start(Write("policy.yaml", "version: 1\ninclude: [common.yaml]\nrules:\n  - allow: GET a.test\n"));
  fs::create_symlink("two.yaml", folder_ + "/common.new");
  fs::rename(folder_ + "/common.new", folder_ + "/common.yaml");
  EXPECT_TRUE(Comes("two.test"));
}

TEST_F(PolicyWatching, WhatChangedBeforeTheFoldersWereWatchedIsSeen) {
  const std::string path = Write("policy.yaml", Policy("one.test"));
  auto own = policy::LoadFile(path);
  ASSERT_TRUE(own) << own.error().message;
  Write("policy.yaml", Policy("two.test"));
  Watch(*std::move(own), path);
  EXPECT_TRUE(Comes("two.test"));
}

TEST_F(PolicyWatching, WhatIsPutRightBehindALinkThatLedToAFaultIsSeen) {
  Version("release1", "policy.yaml", Policy("one.test"));
  Version("release2", "policy.yaml", "version: 1\nrules:\n  - allow: gti a.test\n");
  Swap("release1", "current");
  Start(folder_ + "/current/policy.yaml");
  Swap("release2", "current");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // read, and found wrong
  Write("release2/policy.yaml", Policy("two.test"));
  EXPECT_TRUE(Comes("two.test"));
}

// Which inotify(7) watches this process has.
size_t Watches() {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    for (std::string line; std::getline(info, line);) count += line.starts_with("inotify wd:") ? 1 : 0;
  }
  return count;
}

TEST_F(PolicyWatching, AFolderOnTheWayMayBeMovedAwayAndReplaced) {
  const auto folder_of = [&](const std::string& name, const std::string& host) {
    fs::create_directories(folder_ + "/" + name + "/sluice");
    return Write(name + "/sluice/policy.yaml", Policy(host));
  };
  Start(folder_of("etc", "one.test"));
  const size_t watches = Watches();
  EXPECT_LE(watches, 12U);
  for (const auto& [number, host] : {std::pair{1, "two.test"}, {2, "three.test"}, {3, "four.test"}}) {
    folder_of("new", host);
    fs::rename(folder_ + "/etc", folder_ + "/old" + std::to_string(number));
    fs::rename(folder_ + "/new", folder_ + "/etc");
    EXPECT_TRUE(Comes(host));
  }
  Write("etc/sluice/policy.yaml", Policy("five.test"));
  EXPECT_TRUE(Comes("five.test"));
  // Those that were moved away are watched no longer.
  for (int i = 0; i < 100 && Watches() > watches; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(Watches(), watches);
}

TEST_F(PolicyWatching, AFolderOnTheWayMayBeGoneForAWhile) {
  fs::create_directories(folder_ + "/a/b/c");
  Start(Write("a/b/c/policy.yaml", Policy("one.test")));
  fs::rename(folder_ + "/a/b", folder_ + "/aside");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // read, and not found
  Write("aside/c/policy.yaml", Policy("two.test"));
  fs::rename(folder_ + "/aside", folder_ + "/a/b");
  EXPECT_TRUE(Comes("two.test"));
  fs::remove_all(folder_ + "/a");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  fs::create_directories(folder_ + "/a/b/c");
  Write("a/b/c/policy.yaml", Policy("three.test"));
  EXPECT_TRUE(Comes("three.test"));
}

TEST_F(PolicyWatching, GoesOnWhereItCannotWait) {
  // As if read: nothing can be opened meanwhile.
  std::vector<policy::SnapshotPtr> versions;
  std::string path;
  for (const std::string host : {"three.test", "two.test", "one.test"}) {
    path = Write("policy.yaml", Policy(host));
    const auto loaded = policy::LoadFile(path);
    ASSERT_TRUE(loaded) << loaded.error().message;
    versions.insert(versions.begin(), *loaded);
  }
  Write("two.yaml", Policy("two.test"));
  Write("three.yaml", Policy("three.test"));
  std::atomic<size_t> version{0};
  Watch(versions[0], path, [&]() -> Result<policy::SnapshotPtr> { return versions[version]; });
  {
    const NoWaiting here(2);
    version = 1;
    fs::rename(folder_ + "/two.yaml", path);
    EXPECT_TRUE(Comes("two.test"));
    const auto before = ProcessorTime();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_LT(ProcessorTime() - before, std::chrono::milliseconds(100));
    version = 2;
    fs::rename(folder_ + "/three.yaml", path);
    EXPECT_TRUE(Comes("three.test"));
  }
  StopWatching();
}

using NamesOnAWay = InFolder;

// The folders apart: above those of a test there are others.
std::vector<WatchedName> LinksAndEnd(const std::string& path) {
  std::vector<WatchedName> names = NamesOnTheWay(path);
  std::erase_if(names, [](const WatchedName& name) { return name.kind == NameKind::kFolder; });
  return names;
}

TEST_F(NamesOnAWay, AreEachFolder) {
  const std::string real = fs::canonical(folder_).string();
  fs::create_directories(folder_ + "/a/b");
  const std::string file = Write("a/b/p", "");
  fs::create_directory_symlink("a", folder_ + "/link");
  const auto names = NamesOnTheWay(real + "/link/b/p");
  EXPECT_EQ(names.front().folder, "/");
  EXPECT_EQ(names.front().kind, NameKind::kFolder);
  const std::vector<WatchedName> last(names.end() - 4, names.end());
  EXPECT_THAT(last,
              ElementsAre(WatchedName{real, "link", NameKind::kLink}, WatchedName{real, "a", NameKind::kFolder},
                          WatchedName{real + "/a", "b", NameKind::kFolder}, WatchedName{real + "/a/b", "p", NameKind::kEnd}));
}

TEST_F(NamesOnAWay, AreEachLinkAndTheFile) {
  const std::string real = fs::canonical(folder_).string();
  fs::create_directory(folder_ + "/..1");
  const std::string file = Write("..1/p", "");
  fs::create_directory_symlink("..1", folder_ + "/..data");
  fs::create_symlink("..data/p", folder_ + "/p");
  fs::create_symlink(real + "/../" + fs::path(real).filename().string() + "/p", folder_ + "/absolute");
  const auto link = NameKind::kLink;
  const WatchedName end{real + "/..1", "p", NameKind::kEnd};
  EXPECT_THAT(LinksAndEnd(real + "/..1/p"), ElementsAre(end));
  EXPECT_THAT(LinksAndEnd(real + "/./p"), ElementsAre(WatchedName{real, "p", link}, WatchedName{real, "..data", link}, end));
  EXPECT_THAT(LinksAndEnd(real + "/absolute"), ElementsAre(WatchedName{real, "absolute", link}, WatchedName{real, "p", link},
                                                           WatchedName{real, "..data", link}, end));
  EXPECT_THAT(LinksAndEnd(real + "/none/p"), ElementsAre(WatchedName{real, "none", NameKind::kEnd}));
  EXPECT_THAT(NamesOnTheWay("/"), IsEmpty());
}

TEST_F(NamesOnAWay, EndWhereLinksLeadInACircle) {
  fs::create_symlink("round", folder_ + "/round");
  EXPECT_EQ(LinksAndEnd(fs::canonical(folder_).string() + "/round").size(), 41U);
}

}  // namespace
}  // namespace sluice::app
