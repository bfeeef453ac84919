// What a workload might try against the notifier, and what must come of it.

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/attack/notify/sandbox.h"
#include "tests/attack/ordinary_user.h"

namespace sluice::supervisor::testing {
namespace {

size_t OpenDescriptors() {
  size_t out = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++out;
  return out;
}

void Touch(const std::string& path) { std::ofstream(path) << "x"; }

bool WaitForFile(const std::string& path) {
  for (int i = 0; i < 5000; ++i) {
    if (std::filesystem::exists(path)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void ExpectOnlyAllowed(const Upstream& upstream) {
  for (const ApprovedConnect& one : upstream.Started()) EXPECT_TRUE(one.host == "a.test" || one.host == "b.test") << one.host;
}

// Cases that see everything themselves.
class Attack : public ::testing::TestWithParam<const char*> {};

TEST_P(Attack, ComesToNothing) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({GetParam()});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  ExpectOnlyAllowed(sandbox.upstream());
}

INSTANTIATE_TEST_SUITE_P(Workload, Attack,
                         ::testing::Values("io_uring",
#if defined(__x86_64__)
                                           "int80", "x32",
#endif
                                           "fast_open", "socket_families", "refused_calls", "options_that_hang", "udp", "linger",
                                           "thread_with_its_own_table", "second_filter", "unix_sockets"),
                         [](const auto& about) { return std::string(about.param); });

TEST(Race, AnAddressChangedDuringTheCallNeverReachesAForbiddenPlace) {
  Sandbox sandbox;
#ifdef SLUICE_SANITIZED
  const char* tries = "5000";
#else
  const char* tries = "100000";
#endif
  const Outcome outcome = sandbox.Run({"race_address", tries});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  ExpectOnlyAllowed(sandbox.upstream());
  EXPECT_GT(sandbox.upstream().Started().size(), 0U);
  EXPECT_GT(sandbox.records().Count(false, policy::Reason::kNoRule) + sandbox.records().Count(false, policy::Reason::kDns), 0U);
}

TEST(Race, ADescriptorChangedDuringTheCallNeverReachesAForbiddenPlace) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"race_descriptor", "20000"});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_TRUE(sandbox.upstream().Started().empty());
}

TEST(Attribution, BytesSentBeforeAPortWasUsedAgainStayWithTheirSender) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"port_reuse", "2000"});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  size_t senders = 0;
  for (const auto& [pid, bytes] : sandbox.upstream().Received()) {
    senders += bytes.empty() ? 0 : 1;
    EXPECT_EQ(std::set<char>(bytes.begin(), bytes.end()).size(), 1U) << "process " << pid << " sent " << bytes.substr(0, 40);
  }
  EXPECT_EQ(senders, 2U);
}

TEST(Attribution, AProcessThatExecsIsAnotherExecutable) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"exec_another", "file"});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  const auto events = sandbox.records().All();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].process->pid, events[1].process->pid);
  EXPECT_EQ(events[0].process->start_time, events[1].process->start_time);
  EXPECT_TRUE(events[0].process->exe.path.ends_with("/notify_workload")) << events[0].process->exe.path;
  EXPECT_EQ(events[1].process->exe.path, sandbox.directory() + "/copy");
  EXPECT_TRUE(events[1].process->exe.trusted);
}

TEST(Attribution, AnExecutableWithoutANameIsNotTrusted) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"exec_another", "memfd"});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  const auto events = sandbox.records().All();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(events[0].process->exe.trusted);
  EXPECT_FALSE(events[1].process->exe.trusted) << events[1].process->exe.path;
}

class Lookup : public ::testing::TestWithParam<const char*> {};

TEST_P(Lookup, IsAttributedToItsProcess) {
  Sandbox sandbox;
  sandbox.Begin({"lookup", GetParam()});
  pollfd state{sandbox.capture().dns_udp.get(), POLLIN, 0};
  ASSERT_EQ(poll(&state, 1, 5000), 1);
  char buffer[64];
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  ASSERT_GT(recvfrom(state.fd, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &length), 0);
  const auto client = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&from), length);
  ASSERT_TRUE(client);
  const Endpoint server{*IpAddress::Parse("9.9.9.9"), 53};
  const policy::ProcessPtr process = sandbox.notifier()->Attribute(policy::Transport::kUdp, *client, server);
  ASSERT_TRUE(process) << client->ToString();
  EXPECT_TRUE(process->exe.path.ends_with("/notify_workload")) << process->exe.path;
  const Endpoint nobody{client->address, static_cast<uint16_t>(client->port ^ 1)};
  EXPECT_FALSE(sandbox.notifier()->Attribute(policy::Transport::kUdp, nobody, server));
  Touch(sandbox.directory() + "/go");
  const Outcome outcome = sandbox.Finish();
  EXPECT_EQ(outcome.code, 0) << outcome.report;
}

INSTANTIATE_TEST_SUITE_P(Udp, Lookup, ::testing::Values("connect", "sendto", "sendmsg"),
                         [](const auto& about) { return std::string(about.param); });

TEST(Supervisor, ItsListenerCannotBeDialled) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"dial_the_listener", std::to_string(sandbox.capture().listener_port)});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_TRUE(sandbox.upstream().Started().empty());
}

TEST(Supervisor, ItsListenerCannotBeShared) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"share_the_listener", std::to_string(sandbox.capture().listener_port)});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_EQ(sandbox.upstream().Started().size(), 100U);
}

TEST(Supervisor, WithoutItNothingConnects) {
  Sandbox sandbox;
  sandbox.Begin({"supervisor_gone"});
  ASSERT_TRUE(WaitForFile(sandbox.directory() + "/ready"));
  sandbox.StopNotifier();
  sandbox.CloseListener();
  Touch(sandbox.directory() + "/go");
  const Outcome outcome = sandbox.Finish();
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_EQ(sandbox.upstream().Started().size(), 1U);
}

TEST(Supervisor, WhatCannotBeRecordedIsRefused) {
  Sandbox sandbox;
  sandbox.records().RefuseAll();
  const Outcome outcome = sandbox.Run({"unrecorded"});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_TRUE(sandbox.upstream().Started().empty());
}

TEST(Supervisor, AConnectionThatNobodyApprovedIsResetAndReported) {
  Sandbox sandbox;
  sandbox.Begin({"lookup", "connect"});  // anything that stays
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {  // not watched, in the capture namespace: what a way past the filter would look like
    (void)setns(sandbox.capture().user_namespace.get(), CLONE_NEWUSER);
    int result = -1;
    if (setns(sandbox.capture().network_namespace.get(), CLONE_NEWNET) == 0) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(80);
      to.sin_addr.s_addr = htonl(0xc6120001);
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      char byte = 0;
      if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
        pollfd state{fd, POLLIN, 0};
        result = poll(&state, 1, 1500) == 1 && recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET ? 0 : 1;
      }
    }
    (void)!write(pipes[1], &result, sizeof result);
    _exit(0);
  }
  int result = -1;
  ASSERT_EQ(read(pipes[0], &result, sizeof result), static_cast<ssize_t>(sizeof result));
  waitpid(child, nullptr, 0);
  close(pipes[0]);
  close(pipes[1]);
  EXPECT_EQ(result, 0) << "reset within 1.5 s";
  EXPECT_TRUE(sandbox.upstream().Started().empty());
  for (int i = 0; i < 100 && sandbox.records().Count(false, policy::Reason::kUnattributed) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(sandbox.records().Count(false, policy::Reason::kUnattributed), 1U);
  Touch(sandbox.directory() + "/go");
  EXPECT_EQ(sandbox.Finish().code, 0);
}

TEST(Supervisor, ASocketOfAnotherNamespaceIsNotConnected) {
  Sandbox sandbox;
  // Made after the start: the launcher hides what sockets were there before.
  sandbox.Begin({"foreign_socket"});
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, (sandbox.directory() + "/outside.sock").c_str(), sizeof name.sun_path - 1);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(chmod(name.sun_path, 0777), 0);
  pollfd state{listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&state, 1, 5000), 1);
  const UniqueFd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    const UniqueFd given(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    const int fd = given.get();
    char byte = 'x';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ASSERT_EQ(sendmsg(peer.get(), &message, 0), 1);
  }
  const Outcome outcome = sandbox.Finish();
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_TRUE(sandbox.upstream().Started().empty());
  EXPECT_EQ(sandbox.records().Count(false, policy::Reason::kUnattributed), 6U);
}

// Run by the test below as an ordinary user, with a program that only root may read.
TEST(Unreadable, DISABLED_AsAnOrdinaryUser) {
  Sandbox sandbox;
  sandbox.UseProgram(getenv("SLUICE_UNREADABLE"));
  const Outcome outcome = sandbox.Run({"blocking_allowed"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.report, "connect: got 13, wanted 0\n");
  EXPECT_TRUE(sandbox.upstream().Started().empty());
  const auto events = sandbox.records().All();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].decision.reason, policy::Reason::kUnattributed);
  EXPECT_NE(events[0].detail.find("cannot be read"), std::string::npos);
  ASSERT_TRUE(events[0].process) << events[0].detail;
  EXPECT_EQ(events[0].process->comm, "unreadable");
}

TEST(Unreadable, AProgramThatTheSupervisorMayNotReadConnectsNowhere) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file that an ordinary user runs but does not read";
  const sluice::testing::ProgramForAnyone program(SLUICE_WORKLOAD);
  const std::string unreadable = program.folder() + "/unreadable";
  std::filesystem::rename(program.path(), unreadable);
  ASSERT_EQ(chmod(unreadable.c_str(), 0711), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("SLUICE_UNREADABLE", unreadable.c_str(), 1);
    setenv("SLUICE_TEST_UID", "65534", 1);
    execl("/proc/self/exe", "notify_attack_test", "--gtest_brief=1", "--gtest_also_run_disabled_tests",
          "--gtest_filter=Unreadable.DISABLED_AsAnOrdinaryUser", nullptr);
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Load, WithoutDescriptorsForConnectionsACallIsRefusedForThatReason) {
  Sandbox sandbox;
  sandbox.LimitDescriptors(4096, 0);
  const Outcome outcome = sandbox.Run({"blocking_allowed"});
  EXPECT_EQ(outcome.report, fmt::format("connect: got {}, wanted 0\n", ENOBUFS));
  EXPECT_TRUE(sandbox.upstream().Started().empty());
  const auto events = sandbox.records().All();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].decision.reason, policy::Reason::kLimit);
  EXPECT_EQ(events[0].detail, "out of descriptors: 0 connections open, limit 4096");
  ASSERT_TRUE(events[0].process) << "who called is known";
  EXPECT_FALSE(events[0].process->exe.path.empty());
}

TEST(Load, AThousandConnectionsOfAHundredProcessesAreAllDecided) {
  const rlimit files{16384, 16384};
  setrlimit(RLIMIT_NOFILE, &files);
  Sandbox sandbox;
  const size_t before = OpenDescriptors();
  const Outcome outcome = sandbox.Run({"many", "100", "10"});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
  EXPECT_EQ(sandbox.upstream().Started().size(), 1000U);
  EXPECT_EQ(sandbox.records().Count(true, policy::Reason::kAllowed), 1000U);
  for (int i = 0; i < 200 && OpenDescriptors() > before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(OpenDescriptors(), before);
}

}  // namespace
}  // namespace sluice::supervisor::testing
