#include "base/spawner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/pipe.h"
#include "base/unique_fd.h"

namespace sluice {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = ::read(fd, part.data(), part.size())) > 0;) text.append(part.data(), static_cast<size_t>(got));
  return text;
}

int ExitOf(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

SpawnedProgram Shell(const std::string& script, std::vector<int> descriptors) {
  return {.path = "sh",
          .argv = {"sh", "-c", script},
          .environment = {"PATH=/usr/bin:/bin", "A=b"},
          .descriptors = std::move(descriptors)};
}

TEST(Spawner, GivesAProgramItsDescriptorsInTheirOrder) {
  auto spawner = Spawner::Start();
  ASSERT_TRUE(spawner) << spawner.error().message;
  for (int round = 0; round < 2; ++round) {
    auto out = MakePipe();
    auto other = MakePipe();
    auto last = MakePipe();
    ASSERT_TRUE(out && other && last);
    const auto child = (*spawner)->Spawn(
        Shell("echo $A; echo three >&3; echo four >&4; exit 7", {0, out->write.get(), 2, other->write.get(), last->write.get()}));
    ASSERT_TRUE(child) << child.error().message;
    for (auto* pipe : {&*out, &*other, &*last}) pipe->write.Reset();
    EXPECT_EQ(ReadAll(out->read.get()), "b\n");
    EXPECT_EQ(ReadAll(other->read.get()), "three\n");
    EXPECT_EQ(ReadAll(last->read.get()), "four\n");
    EXPECT_EQ(ExitOf(*child), 7);
  }
}

// What stays open over its execve tells what it had until then.
TEST(Spawner, GivesAProgramNoCopyOfAnythingElse) {
  const UniqueFd before(::open("/dev/null", O_RDONLY));  // NOLINT(android-cloexec-open)
  auto spawner = Spawner::Start();
  ASSERT_TRUE(spawner) << spawner.error().message;
  const UniqueFd after(::open("/dev/null", O_RDONLY));  // NOLINT(android-cloexec-open)
  const UniqueFd high(::fcntl(after.get(), F_DUPFD, 200));
  auto out = MakePipe();
  ASSERT_TRUE(before && after && high && out);
  const auto child = (*spawner)->Spawn(Shell("exec ls /proc/self/fd", {0, out->write.get(), 2}));
  ASSERT_TRUE(child) << child.error().message;
  out->write.Reset();
  EXPECT_EQ(ReadAll(out->read.get()), "0\n1\n2\n3\n") << "the last is the folder";
  EXPECT_EQ(ExitOf(*child), 0);
}

TEST(Spawner, SaysWhyAProgramCannotBeStarted) {
  auto spawner = Spawner::Start();
  ASSERT_TRUE(spawner) << spawner.error().message;
  const auto child = (*spawner)->Spawn({.path = "/no/such/program", .argv = {"x"}, .descriptors = {0, 1, 2}});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().sys_errno, ENOENT);
  EXPECT_FALSE((*spawner)->Spawn({.path = "/bin/true", .argv = {"x"}, .descriptors = {0, 1, -1}}));
  EXPECT_FALSE((*spawner)->Spawn({.path = "/bin/true", .argv = {"x"}, .descriptors = {0, 1}}));
  const auto next = (*spawner)->Spawn({.path = "/bin/true", .argv = {"true"}, .descriptors = {0, 1, 2}});
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(ExitOf(*next), 0);
}

}  // namespace
}  // namespace sluice
