#include "base/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/spawner.h"
#include "base/unique_fd.h"
#include "tests/base/no_waiting.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using End = ProgramRun::End;

Result<ProgramRun> Shell(const std::string& script, ProgramBounds bounds = {100, 100, milliseconds(20'000)}) {
  return RunProgram({"sh", "-c", script}, bounds);
}

TEST(ProgramTest, TellsWhatWasPrintedAndHowItEnded) {
  const auto run = Shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->end, End::kExited);
  EXPECT_EQ(run->code, 3);
  EXPECT_EQ(run->out, "out\n");
  EXPECT_EQ(run->err, "err\n");
  EXPECT_FALSE(run->Succeeded());
  EXPECT_TRUE(Shell("true")->Succeeded());
  const auto killed = Shell("kill -9 $$");
  EXPECT_EQ(killed->end, End::kSignalled);
  EXPECT_EQ(killed->code, SIGKILL);
}

TEST(ProgramTest, IsTheSameByASpawner) {
  auto spawner = Spawner::Start();
  ASSERT_TRUE(spawner) << spawner.error().message;
  const UniqueFd open(::open("/dev/null", O_RDONLY));
  const ProgramBounds bounds{100, 100, milliseconds(20'000)};
  const auto run = RunProgram({"sh", "-c", "ls /proc/self/fd; exit 3"}, bounds, spawner->get());
  ASSERT_TRUE(run);
  EXPECT_EQ(run->code, 3);
  EXPECT_EQ(run->out, "0\n1\n2\n3\n") << "its own alone, and the folder";
  const auto none = RunProgram({"no-such-program-anywhere"}, bounds, spawner->get());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().sys_errno, ENOENT);
}

TEST(ProgramTest, WhatIsNotThereIsToldApart) {
  const auto run = RunProgram({"no-such-program-anywhere"}, {1, 1, milliseconds(1000)});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().sys_errno, ENOENT);
}

TEST(ProgramTest, KeepsWhatFitsAndEndsWhatPrintsMore) {
  EXPECT_EQ(Shell("printf 0123456789", {10, 10, milliseconds(20'000)})->out, "0123456789");
  const auto more = Shell("printf 01234567890; sleep 60", {10, 10, milliseconds(20'000)});
  EXPECT_EQ(more->end, End::kTooMuch);
  EXPECT_EQ(more->out, "0123456789");
  // A complaint is cut, however much there is of it: more than a pipe holds.
  const auto complaint = Shell("head -c 300000 /dev/zero >&2; echo whole", {10, 10, milliseconds(20'000)});
  EXPECT_EQ(complaint->end, End::kExited);
  EXPECT_EQ(complaint->err.size(), 10u);
  EXPECT_EQ(complaint->out, "whole\n");
}

TEST(ProgramTest, LeavesNothingRunningAtTheDeadline) {
  for (const char* script : {"echo $$; sleep 60 & sleep 60", "echo $$; exec >&- 2>&-; sleep 60"}) {
    const auto begun = std::chrono::steady_clock::now();
    const auto run = Shell(script, {100, 100, milliseconds(200)});
    EXPECT_EQ(run->end, End::kLate) << script;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(20'000));
    const pid_t leader = std::stoi(run->out);
    // Its orphans are killed; whoever adopts them reaps them soon.
    for (int i = 0; i < 2000 && ::kill(-leader, 0) == 0; ++i) ::usleep(5000);
    EXPECT_EQ(::kill(-leader, 0), -1) << script;
    EXPECT_EQ(errno, ESRCH);
  }
}

TEST(ProgramTest, IsWaitedForWhereTheKernelCannotWait) {
  const NoWaiting afterwards(RLIM_INFINITY);  // puts the limit back
  const auto before = ProcessorTime();
  const auto run = Shell("prlimit --pid $PPID --nofile=1: && echo limited && sleep 60", {100, 100, milliseconds(2000)});
  EXPECT_LT(ProcessorTime() - before, milliseconds(300));
  ASSERT_TRUE(run);
  EXPECT_EQ(run->end, End::kLate);
}

TEST(ProgramTest, HasSignalsAsAProgramBeginsWithAndNoTerminal) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const auto run = Shell("trap; grep -E 'SigBlk|SigIgn' /proc/self/status; (: </dev/tty) 2>/dev/null && echo terminal",
                         {1000, 100, milliseconds(20'000)});
  std::signal(SIGPIPE, before);
  ASSERT_TRUE(run);
  EXPECT_NE(run->out.find("SigBlk:\t0000000000000000"), std::string::npos) << run->out;
  const size_t ignored = run->out.find("SigIgn:\t");
  ASSERT_NE(ignored, std::string::npos) << run->out;
  const uint64_t signals = std::stoull(run->out.substr(ignored + 8, 16), nullptr, 16);
  EXPECT_EQ(signals & uint64_t{1} << (SIGPIPE - 1), 0u) << run->out;
  EXPECT_EQ(run->out.find("terminal"), std::string::npos) << run->out;
}

}  // namespace
}  // namespace sluice
