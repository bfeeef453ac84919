#include "supervisor/proc_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace sluice::supervisor {
namespace {

constexpr const char* kStatus =
    "Name:\tworker\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t41\nNgid:\t0\nPid:\t42\nPPid:\t7\nTracerPid:\t0\n"
    "Uid:\t1000\t1001\t1000\t1000\nGid:\t0\t0\t0\t0\nNSpid:\t42\t5\t1\nSigQ:\t0/1\nSigPnd:\t0000000000000200\n"
    "ShdPnd:\t0000000000004000\nSigBlk:\t0000000000000200\nSigIgn:\t0\n";

TEST(ProcStatus, ReadsWhatIdentifiesAProcess) {
  const auto status = ParseProcStatus(kStatus);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->name, "worker");
  EXPECT_EQ(status->thread_group, 41);
  EXPECT_EQ(status->parent, 7);
  EXPECT_EQ(status->uid, 1001U) << "the effective one";
  EXPECT_EQ(status->innermost_pid, 1);
  EXPECT_EQ(status->pending & ~status->blocked, 0x4000U);
}

TEST(ProcStatus, IsNotFooledByAName) {
  // The kernel writes a newline in a name as \n, so that a line begins where it seems to.
  std::string text = kStatus;
  text.replace(text.find("worker"), 6, "x\\nTgid:\\t1");
  const auto status = ParseProcStatus(text);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->thread_group, 41);
}

TEST(ProcStatus, RefusesWhatIsCutOrMissing) {
  for (const char* key : {"Name:", "Tgid:", "PPid:", "Uid:", "SigPnd:", "ShdPnd:", "SigBlk:"}) {
    std::string text = kStatus;
    text.replace(text.find(key), 1, "_");
    EXPECT_FALSE(ParseProcStatus(text)) << key;
  }
  EXPECT_FALSE(ParseProcStatus(""));
  const std::string text = kStatus;
  for (size_t i = 0; i < text.size(); ++i) (void)ParseProcStatus(text.substr(0, i));
}

TEST(StartTime, IsField22WhateverTheNameHolds) {
  const std::string rest = " S 7 1 1 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 987654 0 0";
  EXPECT_EQ(ParseStartTime("42 (plain)" + rest), 987654U);
  EXPECT_EQ(ParseStartTime("42 (a) S 1 (b) c)" + rest), 987654U);
  EXPECT_EQ(ParseStartTime("42 (\n)" + rest), 987654U);
  EXPECT_FALSE(ParseStartTime("42 (x) S 7 1"));
  EXPECT_FALSE(ParseStartTime("42 x S"));
  EXPECT_FALSE(ParseStartTime(""));
}

TEST(StartTime, ReadsTheRealThing) {
  std::ostringstream stat;
  std::ostringstream status;
  stat << std::ifstream("/proc/self/stat").rdbuf();
  status << std::ifstream("/proc/self/status").rdbuf();
  EXPECT_TRUE(ParseStartTime(stat.str()));
  const auto parsed = ParseProcStatus(status.str());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->thread_group, getpid());
  EXPECT_EQ(parsed->parent, getppid());
}

TEST(NamedExecutable, IsAPathThatIsStillThere) {
  EXPECT_TRUE(IsNamedExecutable("/usr/bin/git"));
  for (const char* link : {"/tmp/x (deleted)", "/memfd:x (deleted)", "/memfd:x", "memfd:x", "", "anon_inode:x"}) {
    EXPECT_FALSE(IsNamedExecutable(link)) << link;
  }
}

TEST(ProcText, OpenFlagsAreOctal) {
  EXPECT_EQ(ParseOpenFlags("pos:\t0\nflags:\t02000002\nmnt_id:\t15\n"), 02000002);
  for (const char* text : {"", "pos:\t0\n", "flags:\t\n", "flags:\t9\n", "flags:\tx\n"})
    EXPECT_FALSE(ParseOpenFlags(text)) << text;
}

TEST(ProcText, MountPointsAreUnescaped) {
  EXPECT_EQ(ParseMountPoints(
                "22 27 0:21 / /proc rw - proc proc rw\n29 1 8:1 /a /opt/two\\040words\\134 rw,x shared:1 - ext4 /dev/x rw\n"),
            (std::vector<std::string>{"/proc", "/opt/two words\\"}));
  for (const char* text : {"", "\n\n", "1 2 3", "1 2 3 4", "1 2 3 4 relative rw", "1 2 3 4 "})
    EXPECT_TRUE(ParseMountPoints(text).empty()) << text;
  EXPECT_EQ(ParseMountPoints("1 2 3 4 /cut\\04"), (std::vector<std::string>{"/cut\\04"}));
}

}  // namespace
}  // namespace sluice::supervisor
