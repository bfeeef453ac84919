#include "supervisor/io/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/random.h"
#include "tests/supervisor/sandbox.h"

namespace sluice::supervisor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

TEST(Launch, PassesTheExitCodeThrough) {
  for (const int code : {0, 1, 42, 255}) EXPECT_EQ(Sandboxed({"sh", "-c", "exit " + std::to_string(code)}).status.code, code);
}

TEST(Launch, ADeathBySignalIs128AndTheSignal) {
  const auto ran = Sandboxed({"sh", "-c", "kill -SEGV $$"});
  EXPECT_EQ(ran.status.code, 128 + SIGSEGV);
  EXPECT_EQ(ran.status.signal, SIGSEGV);
}

TEST(Launch, NothingRunsBeforeRelease) {
  const TemporaryFolder folder;
  auto capture = CreateCapture();
  ASSERT_TRUE(capture.has_value());
  auto workload = LaunchFiltered(SpecFor({"sh", "-c", "echo ran > mark"}, folder.path()), *capture, kSmallFilter);
  ASSERT_TRUE(workload.has_value()) << workload.error().message;
  EXPECT_TRUE((*workload)->TakeNotifyFd().valid());
  EXPECT_FALSE((*workload)->TakeNotifyFd().valid());
  EXPECT_THAT((*workload)->writable_trees(),
              testing::UnorderedElementsAre(folder.path(), "/home/tester", "/tmp", "/run", "/var/tmp", "/dev/shm"));
  EXPECT_EQ(::kill((*workload)->pid(), 0), 0);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(folder.Read("mark"), "");
  ASSERT_TRUE((*workload)->Release().has_value());
  EXPECT_EQ((*workload)->Wait().code, 0);
  EXPECT_EQ(folder.Read("mark"), "ran\n");
}

TEST(Launch, DroppingItKillsEverything) {
  const TemporaryFolder folder;
  auto capture = CreateCapture();
  ASSERT_TRUE(capture.has_value());
  int pid = 0;
  {
    auto workload = LaunchFiltered(SpecFor({"sleep", "1000"}, folder.path()), *capture, kSmallFilter);
    ASSERT_TRUE(workload.has_value()) << workload.error().message;
    ASSERT_TRUE((*workload)->Release().has_value());
    pid = (*workload)->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(Launch, TheEnvironmentIsTheSpecsAndNothingElse) {
  const auto ran = Sandboxed({"env"});
  EXPECT_EQ(ran.output, "PATH=/usr/local/bin:/usr/bin:/bin\nHOME=/home/tester\nLANG=C.UTF-8\n");
}

TEST(Launch, TheWorkDirectoryIsTheHostsAndScratchIsNot) {
  const TemporaryFolder folder;
  folder.Write("in", "from outside");
  const auto ran = RunSpec(SpecFor(
      {"sh", "-c", "pwd; cat in; echo inside > out; echo x > /tmp/scratch; echo x > ~/home; echo x > /dev/shm/x; ls /tmp"},
      folder.path()));
  EXPECT_EQ(ran.status.code, 0);
  EXPECT_THAT(ran.output, HasSubstr(folder.path() + "\nfrom outside"));
  EXPECT_EQ(folder.Read("out"), "inside\n");
  EXPECT_NE(::access("/tmp/scratch", F_OK), 0);
  EXPECT_NE(::access("/home/tester", F_OK), 0);
}

TEST(Launch, WhatIsNotGrantedIsNotThere) {
  const TemporaryFolder secret;
  secret.Write("key", "s3cret");
  const auto ran = Sandboxed({"sh", "-c", "cat " + secret.path() + "/key; ls /root /var/log /boot /mnt /srv"});
  EXPECT_NE(ran.status.code, 0);
  EXPECT_THAT(ran.output, Not(HasSubstr("s3cret")));
}

TEST(Launch, ReadOnlyTreesCannotBeWritten) {
  const TemporaryFolder folder;
  const TemporaryFolder data;
  data.Write("f", "content");
  LaunchSpec spec = SpecFor({"sh", "-c", "cat $0/f; echo x > $0/f; echo x > $0/g; rm $0/f; touch /usr/x /etc/x /x", data.path()},
                            folder.path());
  spec.read_only = {data.path()};
  const auto ran = RunSpec(spec);
  EXPECT_NE(ran.status.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("content"));
  EXPECT_EQ(data.Read("f"), "content");
  EXPECT_EQ(data.Read("g"), "");
}

TEST(Launch, NestedGrantsEachHoldTheirOwn) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkdir((folder.path() + "/a").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir((folder.path() + "/a/b").c_str(), 0755), 0);
  LaunchSpec spec = SpecFor({"sh", "-c", "echo x > top && ! echo x > a/no && echo x > a/b/yes"}, folder.path());
  spec.read_only = {folder.path() + "/a"};
  spec.read_write = {folder.path() + "/a/b"};
  EXPECT_EQ(RunSpec(spec).status.code, 0);
  EXPECT_EQ(folder.Read("a/b/yes"), "x\n");
}

TEST(Launch, OverlaysReplaceFilesForTheWorkloadAlone) {
  const TemporaryFolder folder;
  LaunchSpec spec =
      SpecFor({"sh", "-c", "cat /etc/resolv.conf /run/new/file /etc/ssl/certs/ca-certificates.crt; echo x > /etc/resolv.conf"},
              folder.path());
  spec.overlays = {{"/etc/resolv.conf", "nameserver 127.0.0.53\n"},
                   {"/run/new/file", "new\n"},
                   {"/etc/ssl/certs/ca-certificates.crt", std::string(300'000, 'c')}};
  const auto ran = RunSpec(spec);
  EXPECT_EQ(ran.error, "");
  EXPECT_NE(ran.status.code, 0) << "an overlay is read-only";
  EXPECT_THAT(ran.output, HasSubstr("nameserver 127.0.0.53\nnew\nccccc"));
}

// The supervisor knows some contents only later.
UniqueFd FileOf(std::string_view content) {
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  return file;
}

LaunchSpec SpecWithProvided(const std::string& folder) {
  LaunchSpec spec =
      SpecFor({"sh", "-c", "cat /run/late/first /run/early /run/late/second > seen; cat /run/early > /run/late/first"}, folder);
  spec.overlays = {{"/run/late/first", {}, OverlayContent::kProvided},
                   {"/run/early", "early\n"},
                   {"/run/late/second", {}, OverlayContent::kProvided}};
  return spec;
}

TEST(Launch, OverlaysCanBeProvidedWhileTheSandboxIsBuilt) {
  const TemporaryFolder folder;
  auto capture = CreateCapture();
  ASSERT_TRUE(capture.has_value());
  auto workload = BeginFilteredLaunch(SpecWithProvided(folder.path()), *capture, kSmallFilter);
  ASSERT_TRUE(workload.has_value()) << workload.error().message;
  for (const char* content : {"first\n", "second\n"}) ASSERT_TRUE((*workload)->Provide(FileOf(content)).has_value());
  const auto waiting = (*workload)->AwaitGate();
  ASSERT_TRUE(waiting.has_value()) << waiting.error().message;
  ASSERT_TRUE((*workload)->Release().has_value());
  EXPECT_NE((*workload)->Wait().code, 0) << "an overlay is read-only";
  EXPECT_EQ(folder.Read("seen"), "first\nearly\nsecond\n");
}

TEST(Launch, WhatProvidingFindsGoneIsSaidByWhoeverWasToReadIt) {
  const TemporaryFolder folder;
  auto capture = CreateCapture();
  ASSERT_TRUE(capture.has_value());
  LaunchSpec spec = SpecWithProvided(folder.path());
  spec.overlays.insert(spec.overlays.begin(), {"/usr/bin/env/file", "a file is no folder\n"});
  auto workload = BeginFilteredLaunch(spec, *capture, kSmallFilter);
  ASSERT_TRUE(workload.has_value()) << workload.error().message;
  Result<void> given;
  const UniqueFd content = FileOf("first\n");
  for (int i = 0; i < 1000 && given; ++i) {
    given = (*workload)->Provide(content);
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_FALSE(given.has_value());
  EXPECT_EQ(given.error().code, Code::kInvalid) << "not the command is missing";
  EXPECT_THAT(given.error().message, AllOf(HasSubstr("/usr/bin/env/file"), Not(HasSubstr("add --ro"))));
}

bool HasChildren() { return ::waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG | WNOWAIT) == 0; }

TEST(Launch, GivenUpHalfWayItLeavesNoProcess) {
  const TemporaryFolder folder;
  auto capture = CreateCapture();
  ASSERT_TRUE(capture.has_value());
  ASSERT_FALSE(HasChildren());
  {
    auto workload = BeginFilteredLaunch(SpecWithProvided(folder.path()), *capture, kSmallFilter);
    ASSERT_TRUE(workload.has_value()) << workload.error().message;
    ASSERT_TRUE(HasChildren());
  }
  EXPECT_FALSE(HasChildren());
  {
    auto begun = CaptureInProgress::Begin();
    ASSERT_TRUE(begun.has_value());
    ASSERT_TRUE(HasChildren());
  }
  EXPECT_FALSE(HasChildren());
}

TEST(Launch, AMissingCommandIsNotFoundAndOneThatIsNotExecutableIsPermission) {
  const TemporaryFolder folder;
  folder.Write("plain", "not a program");
  EXPECT_EQ(RunSpec(SpecFor({"no-such-command"}, folder.path())).code, Code::kNotFound);
  EXPECT_EQ(RunSpec(SpecFor({"./absent"}, folder.path())).code, Code::kNotFound);
  EXPECT_EQ(RunSpec(SpecFor({"./plain"}, folder.path())).code, Code::kPermission);
  EXPECT_EQ(RunSpec(SpecFor({"/usr"}, folder.path())).code, Code::kPermission);
  EXPECT_EQ(RunSpec(SpecFor({""}, folder.path())).code, Code::kNotFound);
}

TEST(Launch, SaysWhereTheHostHasAHiddenCommand) {
  const TemporaryFolder folder;
  const TemporaryFolder tools;
  ASSERT_EQ(::mkdir((tools.path() + "/shims").c_str(), 0755), 0);
  tools.Write("shims/frobnicate", "#!/bin/sh\nexit 7\n");
  ASSERT_EQ(::chmod((tools.path() + "/shims/frobnicate").c_str(), 0755), 0);
  LaunchSpec spec = SpecFor({"frobnicate"}, folder.path());
  spec.environment[0].second = tools.path() + "/shims:/usr/bin";
  const auto hidden = RunSpec(spec);
  EXPECT_EQ(hidden.error, "frobnicate: command not found; it exists at " + tools.path() +
                              "/shims/frobnicate, which the sandbox cannot see; add --ro " + tools.path());
  spec.read_only = {tools.path()};
  EXPECT_EQ(RunSpec(spec).status.code, 7);
}

TEST(Launch, AScriptWithoutAnInterpreterLineRunsAsAShellWould) {
  const TemporaryFolder folder;
  folder.Write("script", "exit 9\n");
  ASSERT_EQ(::chmod((folder.path() + "/script").c_str(), 0755), 0);
  EXPECT_EQ(RunSpec(SpecFor({"./script"}, folder.path())).status.code, 9);
}

TEST(Launch, ATimeoutEndsAWorkloadThatIgnoresIt) {
  const TemporaryFolder folder;
  LaunchSpec spec = SpecFor({"sh", "-c", "trap '' TERM; (trap '' TERM; sleep 1000)& sleep 1000; sleep 1000"}, folder.path());
  spec.timeout = 100ms;
  const auto start = std::chrono::steady_clock::now();
  const auto ran = RunSpec(spec);
  EXPECT_TRUE(ran.status.timed_out);
  EXPECT_EQ(ran.status.code, 128 + SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(Launch, ATimeoutLetsAWorkloadEndByItself) {
  const TemporaryFolder folder;
  LaunchSpec spec = SpecFor({"sh", "-c", "trap 'echo bye; exit 5' TERM; sleep 1000 & wait"}, folder.path());
  spec.timeout = 200ms;
  const auto ran = RunSpec(spec);
  EXPECT_TRUE(ran.status.timed_out);
  EXPECT_EQ(ran.status.code, 5);
  EXPECT_EQ(ran.output, "bye\n");
}

TEST(Launch, ForwardsSignals) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const TemporaryFolder folder;
    const auto ran =
        RunSpec(SpecFor({"sh", "-c", "trap 'exit 11' TERM INT USR1; : > ready; while :; do sleep 0.02; done"}, folder.path()),
                [&](Workload&) {
                  std::thread([signal, path = folder.path()] {
                    while (::access((path + "/ready").c_str(), F_OK) != 0) std::this_thread::sleep_for(5ms);
                    std::this_thread::sleep_for(20ms);
                    ::kill(::getpid(), signal);
                  }).detach();
                });
    EXPECT_EQ(ran.status.code, 11) << signal;
  }
}

TEST(Launch, DoesNotLeaveWhatTheCommandStartedBehind) {
  const TemporaryFolder folder;
  const auto ran = RunSpec(
      SpecFor({"sh", "-c", "setsid sh -c 'while :; do date > tick; sleep 0.01; done' > /dev/null 2>&1 & sleep 0.1; exit 3"},
              folder.path()));
  EXPECT_EQ(ran.status.code, 3);
  const std::string name = folder.path() + "/tick";
  ::unlink(name.c_str());
  std::this_thread::sleep_for(60ms);
  EXPECT_NE(::access(name.c_str(), F_OK), 0);
}

TEST(Launch, ASocketThatARuleNamesIsReachableAndItsNeighbourIsNot) {
  const TemporaryFolder folder;
  const TemporaryFolder services;
  std::vector<UniqueFd> listeners;
  for (const char* name : {"/granted", "/other"}) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (services.path() + name).copy(address.sun_path, sizeof address.sun_path - 1);
    listeners.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listeners.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listeners.back().get(), 1), 0);
  }
  LaunchSpec spec = SpecFor({"python3", "-c",
                             "import socket,sys\n"
                             "for n in ('granted','other'):\n"
                             "  try: socket.socket(socket.AF_UNIX).connect(sys.argv[1]+'/'+n); print(n,'connected')\n"
                             "  except OSError as e: print(n,'refused')",
                             services.path()},
                            folder.path());
  spec.unix_sockets = {services.path() + "/granted"};
  EXPECT_EQ(RunSpec(spec).output, "granted connected\nother refused\n");
  spec.read_only = {services.path()};  // a tree that holds both: the scan hides the one no rule names
  EXPECT_EQ(RunSpec(spec).output, "granted connected\nother refused\n");
}

TEST(Launch, RefusesGrantsThatWouldOpenTheView) {
  for (const char* tree : {"/", "/proc", "/dev", "/tmp", "/sys/kernel", "/run"}) {
    const auto ran = RunSpec(SpecFor({"true"}, tree));
    EXPECT_EQ(ran.code, Code::kInvalid) << tree;
  }
  EXPECT_EQ(RunSpec(SpecFor({"true"}, "/no/such/folder")).code, Code::kNotFound);
}

TEST(Launch, RealProgramsWork) {
  const TemporaryFolder folder;
  LaunchSpec spec =
      SpecFor({"sh", "-ec",
               "python3 -c 'import os,subprocess,tempfile; print(subprocess.check_output([\"id\",\"-u\"]), tempfile.mkstemp())'; "
               "git init -q r; cd r; git config user.email a@b; git config user.name n; echo x > f; git add f; git commit -qm m; "
               "git log --oneline; "
               "git clone -q . ../c; ls ../c"},
              folder.path());
  const auto ran = RunSpec(spec);
  EXPECT_EQ(ran.status.code, 0) << ran.output;
}

#ifndef SLUICE_SANITIZED  // a sanitizer's memory is the process's own

pid_t ParentOf(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return 0;
}

// Reads every writable mapping of `pid`. Nothing: it may not be looked into.
std::optional<std::string> WritableMemoryOf(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  const UniqueFd memory(::open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  std::ifstream maps(folder + "/maps");
  std::string all;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string access;
    if (!(std::istringstream(line) >> std::hex >> begin >> dash >> end >> access) || access.find('w') == std::string::npos)
      continue;
    std::string bytes(end - begin, '\0');
    const ssize_t got = ::pread(memory.get(), bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (got > 0) all.append(bytes, 0, static_cast<size_t>(got));
  }
  return memory && !all.empty() ? std::optional(std::move(all)) : std::nullopt;
}

TEST(Launch, ProcessOneKnowsNothingOfTheSupervisor) {
  const std::string secret = RandomHex(24);
  ASSERT_EQ(::setenv("SLUICE_TEST_SECRET", secret.c_str(), 1), 0);
  if (::geteuid() == 0) {
    ASSERT_THAT(WritableMemoryOf(::getpid()).value_or(""), HasSubstr(secret)) << "the search would find nothing";
  }
  const TemporaryFolder folder;
  auto capture = CreateCapture();
  ASSERT_TRUE(capture.has_value());
  auto workload = LaunchFiltered(SpecFor({"sleep", "1000"}, folder.path()), *capture, kSmallFilter);
  ASSERT_TRUE(workload.has_value()) << workload.error().message;
  // The command stands at its gate, so process 1 has said that it is empty.
  const auto memory = WritableMemoryOf(ParentOf((*workload)->pid()));
  ASSERT_EQ(memory.has_value(), ::geteuid() == 0) << "only the machine's root may look into process 1";
  if (memory) {
    EXPECT_EQ(memory->find(secret), std::string::npos);
  }
  ::unsetenv("SLUICE_TEST_SECRET");
}

#endif

}  // namespace
}  // namespace sluice::supervisor
