#include "base/process_mark.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "base/unique_fd.h"

namespace sluice {
namespace {

// What a process said: its number and its mark.
struct Said {
  pid_t pid = 0;
  uint64_t mark = 0;
};

Said Own() { return {::getpid(), ProcessMark().value_or(0)}; }
bool Say(const UniqueFd& to, const Said& said) { return ::write(to.get(), &said, sizeof said) == sizeof said; }
Said Hear(const UniqueFd& from) {
  Said said;
  return ::read(from.get(), &said, sizeof said) == sizeof said ? said : Said{};
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return;
    read.Reset(ends[0]);
    write.Reset(ends[1]);
  }
  UniqueFd read;
  UniqueFd write;
};

int StatusOf(pid_t child) {
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

TEST(ProcessMark, IsTheProcesssForItsLifeAndNotItsChilds) {
  const auto mark = ProcessMark();
  ASSERT_TRUE(mark) << mark.error().message;
  EXPECT_NE(*mark, 0U);
  EXPECT_EQ(ProcessMark().value_or(0), *mark);
  const Pipe pipe;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(Say(pipe.write, Own()) && Say(pipe.write, Own()) ? 0 : 1);
  EXPECT_EQ(StatusOf(child), 0);
  const Said first = Hear(pipe.read);
  EXPECT_EQ(first.pid, child);
  EXPECT_NE(first.mark, 0U);
  EXPECT_NE(first.mark, *mark);
  EXPECT_EQ(Hear(pipe.read).mark, first.mark);
  EXPECT_EQ(ProcessMark().value_or(0), *mark);
}

// A copy of `gone` under its number: what clone3(2) gives to who may choose.
int BeGrandchild(pid_t gone, const UniqueFd& to) {
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<uintptr_t>(&gone);
  args.set_tid_size = 1;
  const long child = ::syscall(SYS_clone3, &args, sizeof args);
  if (child < 0) return errno;
  if (child == 0) ::_exit(Say(to, Own()) ? 0 : 1);
  return StatusOf(static_cast<pid_t>(child));
}

TEST(ProcessMark, IsAnotherInACopyThatGetsTheNumberOfWhoeverIsGone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root chooses the number of a process";
  const Pipe pipe;
  const Pipe go;
  const Pipe code;
  const pid_t first = ::fork();
  if (first == 0) {
    const Said own = Own();
    if (::fork() == 0) {
      char byte = 0;
      if (::read(go.read.get(), &byte, 1) != 1) ::_exit(1);
      const Said end{BeGrandchild(own.pid, pipe.write), 0};
      ::_exit(Say(code.write, end) ? 0 : 1);
    }
    ::_exit(Say(pipe.write, own) ? 0 : 1);
  }
  ASSERT_EQ(StatusOf(first), 0);  // and with it its number is free
  ASSERT_EQ(::write(go.write.get(), "", 1), 1);
  ASSERT_EQ(Hear(code.read).pid, 0);
  const Said gone = Hear(pipe.read);
  const Said copy = Hear(pipe.read);
  EXPECT_EQ(copy.pid, gone.pid);
  EXPECT_NE(copy.mark, gone.mark);
}

}  // namespace
}  // namespace sluice
