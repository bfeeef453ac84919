#include "base/unix_listener.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/send_descriptors.h"

namespace sluice {
namespace {

struct Folder {
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "unix-listener-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string File(const std::string& name) const { return path + "/" + name; }
  [[nodiscard]] size_t size() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
  }
  std::string path;
};

// 0, or why not.
int Connect(const std::string& path, int type = SOCK_STREAM) {
  const UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

mode_t ModeOf(const std::string& path) {
  struct stat about{};
  return ::lstat(path.c_str(), &about) == 0 ? about.st_mode & ALLPERMS : 0;
}

TEST(UnixListener, TakesConnectionsAsSoonAsThereIsAFile) {
  const Folder folder;
  const std::string path = folder.File("s");
  std::atomic<int> taken{0};
  std::atomic<int> refused{0};
  std::atomic<bool> done{false};
  std::thread poller([&] {
    while (!done) {
      const int error = Connect(path);
      if (error == 0) ++taken;
      if (error != 0 && error != ENOENT && error != EAGAIN) ++refused;
    }
  });
  std::vector<UniqueFd> open;  // so that nothing but a start can refuse
  for (int i = 0; i < 100; ++i) {
    const int before = taken;
    auto listener = ListenUnix(path, {});
    if (!listener) {
      ADD_FAILURE() << listener.error().message;
      break;
    }
    while (taken == before) std::this_thread::yield();
    listener->name.Remove();
    open.push_back(std::move(listener->socket));
  }
  done = true;
  poller.join();
  EXPECT_EQ(refused, 0);
}

TEST(UnixListener, ReplacesWhatAKilledServerLeft) {
  const Folder folder;
  const std::string path = folder.File("s");
  {
    auto killed = ListenUnix(path, {});
    ASSERT_TRUE(killed);
    killed->name.Leave();
  }
  ASSERT_EQ(Connect(path), ECONNREFUSED);
  {
    const auto next = ListenUnix(path, {});
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(Connect(path), 0);
    EXPECT_EQ(folder.size(), 1U) << "something was left beside it";
  }
  EXPECT_EQ(folder.size(), 0U);
}

TEST(UnixListener, LeavesALiveSocketAndOtherFilesAlone) {
  const Folder folder;
  const std::string path = folder.File("s");
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const auto live = ListenUnix(path, {.type = type});
    ASSERT_TRUE(live);
    const auto second = ListenUnix(path, {});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().message, "cannot listen on " + path + ": another process listens there");
    EXPECT_EQ(Connect(path, type), 0);
  }
  const std::string target = folder.File("target");
  const auto listener = ListenUnix(target, {});
  std::filesystem::create_symlink(target, folder.File("link"));
  std::filesystem::create_directory(folder.File("folder"));
  std::ofstream(folder.File("file")) << "kept";
  for (const char* name : {"link", "folder", "file"}) {
    const auto refused = ListenUnix(folder.File(name), {});
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().message,
              "cannot listen on " + folder.File(name) + ": there is a file of that name which is no socket");
  }
  EXPECT_EQ(std::filesystem::file_size(folder.File("file")), 4U);
  EXPECT_EQ(folder.size(), 4U);
  EXPECT_EQ(ListenUnix(folder.File("no/s"), {}).error().sys_errno, ENOENT);
}

TEST(UnixListener, TakesItsOwnNameAwayAlone) {
  const Folder folder;
  const std::string path = folder.File("s");
  auto first = ListenUnix(path, {});
  ASSERT_TRUE(first);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  const auto second = ListenUnix(path, {});
  ASSERT_TRUE(second);
  first->name.Remove();
  EXPECT_EQ(Connect(path), 0) << "another's socket was removed";
}

TEST(UnixListener, HasItsModeWhateverTheUmask) {
  const Folder folder;
  for (const mode_t mask : {0U, 022U, 077U}) {
    const mode_t before = ::umask(mask);
    const auto closed = ListenUnix(folder.File("closed"), {});
    const auto open = ListenUnix(folder.File("open"), {.mode = 0666});
    ::umask(before);
    ASSERT_TRUE(closed && open);
    EXPECT_EQ(ModeOf(folder.File("closed")), 0600U);
    EXPECT_EQ(ModeOf(folder.File("open")), 0666U);
  }
}

TEST(UnixListener, IsOneOfSeveralThatStartAtOnce) {
  const Folder folder;
  const std::string path = folder.File("s");
  for (int round = 0; round < 20; ++round) {
    if (auto killed = ListenUnix(path, {}); killed) killed->name.Leave();
    std::vector<Result<UnixListener>> results;
    for (int i = 0; i < 6; ++i) results.emplace_back(Fail(Code::kInternal, ""));
    std::vector<std::thread> threads;
    for (auto& result : results) threads.emplace_back([&] { result = ListenUnix(path, {}); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(std::ranges::count_if(results, [](const auto& result) { return result.has_value(); }), 1);
    EXPECT_EQ(Connect(path), 0);
    EXPECT_EQ(folder.size(), 1U);
  }
}

TEST(UnixListener, FitsWhereItsNameDoes) {
  const Folder folder;
  std::string path = folder.File("s");
  path.resize(sizeof(sockaddr_un::sun_path) - 1, 'x');
  {
    const auto longest = ListenUnix(path, {});
    ASSERT_TRUE(longest) << longest.error().message;
    EXPECT_EQ(Connect(path), 0);
  }
  const auto longer = ListenUnix(path + "x", {});
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message.find("at most 107 bytes"), std::string::npos) << longer.error().message;
}

// What sending a descriptor to a listener of that kind comes to: 0, or why not.
int SendDescriptorTo(const std::string& path, SentDescriptors descriptors) {
  const auto listener = ListenUnix(path, {.descriptors = descriptors});
  if (!listener) return -1;
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  const auto send = [&client] {
    const char octet = 'x';
    const int fd = client.get();
    return SendDescriptors(client.get(), std::as_bytes(std::span(&octet, 1)), {&fd, 1}) == 1 ? 0 : errno;
  };
  const int before = send();
  const UniqueFd accepted(::accept4(listener->socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return send() == before ? before : -1;
}

TEST(UnixListener, RefusesDescriptorsWhereNoneAreWanted) {
  const Folder folder;
  EXPECT_EQ(SendDescriptorTo(folder.File("wanted"), SentDescriptors::kWanted), 0);
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!RefuseDescriptors(probe.get())) GTEST_SKIP() << "before Linux 6.16";
  EXPECT_EQ(SendDescriptorTo(folder.File("refused"), SentDescriptors::kRefused), EPERM);
}

}  // namespace
}  // namespace sluice
