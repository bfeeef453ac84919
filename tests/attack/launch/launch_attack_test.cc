// Runs the attacker's attempts through Launch, as root and (with SLUICE_TEST_UID) as an ordinary user.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "supervisor/io/launch.h"
#include "tests/attack/launch/attack.h"
#include "tests/attack/launch/host_trees.h"
#include "tests/attack/ordinary_user.h"

namespace sluice::supervisor {

std::string g_attacker;

namespace {

using namespace std::chrono_literals;

TEST(LaunchAttack, InheritedDescriptors) {
  const TemporaryFolder work;
  const UniqueFd file(::open("/etc/passwd", O_RDONLY));
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
  const UniqueFd high(::fcntl(socket.get(), F_DUPFD, 700));
  char parameters[256] = {};
  const UniqueFd ring(static_cast<int>(::syscall(425 /* io_uring_setup */, 8, parameters)));  // -1 where the kernel has it off
  ExpectHeld(Attack(work, {"inherited"}));
}

TEST(LaunchAttack, SocketsAndFifosInAGrantedTree) {
  const TemporaryFolder work;
  ASSERT_EQ(::mkdir((work.path() + "/deep").c_str(), 0755), 0);
  const UniqueFd stream = UnixListener(SOCK_STREAM, work.path() + "/deep/stream");
  const UniqueFd datagram = UnixListener(SOCK_DGRAM, work.path() + "/datagram");
  const std::string fifo = work.path() + "/deep/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  const UniqueFd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ExpectHeld(Attack(work, {"path-sockets", work.path() + "/deep/stream", work.path() + "/datagram", fifo}));
  EXPECT_EQ(::access((work.path() + "/deep/stream").c_str(), F_OK), 0) << "the host's socket is untouched";
}

TEST(LaunchAttack, AbstractSocketsOfTheHost) {
  const TemporaryFolder work;
  const std::string name = "sluice-attack-" + std::to_string(::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ExpectHeld(Attack(work, {"abstract", name}));
}

TEST(LaunchAttack, TheSupervisorProcess) {
  const TemporaryFolder work;
  ExpectHeld(Attack(work, {"supervisor", std::to_string(::getpid())}));
}

TEST(LaunchAttack, TheSandboxesFirstProcess) {
  const TemporaryFolder work;
  ExpectHeld(Attack(work, {"init"}));
}

TEST(LaunchAttack, KillingEverythingReachesOnlyTheWorkload) {
  const TemporaryFolder work;
  // In this process's own group there is a bystander.
  const pid_t bystander = ::fork();
  if (bystander == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_EQ(RunSpec(Attack(work, {"kill", "group"})).status.signal, SIGKILL);
  EXPECT_EQ(RunSpec(Attack(work, {"kill", "all"})).status.code, 0);
  EXPECT_EQ(::waitpid(bystander, nullptr, WNOHANG), 0);
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
}

TEST(LaunchAttack, TheCapturesNetwork) {
  const TemporaryFolder work;
  ExpectHeld(Attack(work, {"network"}));
}

TEST(LaunchAttack, NestedNamespaces) {
  const TemporaryFolder work;
  work.Write("p.yaml", "policy");
  const UniqueFd stream = UnixListener(SOCK_STREAM, work.path() + "/stream");
  LaunchSpec spec = Attack(work, {"nest", work.path() + "/p.yaml", work.path() + "/stream"});
  spec.protect = {work.path() + "/p.yaml"};
  ExpectHeld(spec);
  EXPECT_EQ(work.Read("p.yaml"), "policy");
}

TEST(LaunchAttack, ThePolicyInTheWorkDirectory) {
  const TemporaryFolder work;
  ASSERT_EQ(::mkdir((work.path() + "/conf").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir((work.path() + "/conf/d").c_str(), 0755), 0);
  work.Write("p.yaml", "policy");
  work.Write("conf/d/include.yaml", "include");
  LaunchSpec spec = Attack(work, {"write-protected", work.path() + "/p.yaml", work.path() + "/conf/d/include.yaml"});
  spec.protect = {work.path() + "/p.yaml", work.path() + "/conf/d/include.yaml"};
  ExpectHeld(spec);
  EXPECT_EQ(work.Read("p.yaml"), "policy");
  EXPECT_EQ(work.Read("conf/d/include.yaml"), "include");
}

TEST(LaunchAttack, ProtectedPathsThatCannotBeHeldAreRefused) {
  const TemporaryFolder work;
  work.Write("real", "x");
  ASSERT_EQ(::symlink("real", (work.path() + "/link").c_str()), 0);
  work.Write("twice", "x");
  ASSERT_EQ(::link((work.path() + "/twice").c_str(), (work.path() + "/other").c_str()), 0);
  for (const char* name : {"/link", "/twice", "/absent", ""}) {
    LaunchSpec spec = Attack(work, {"privileges"});
    spec.protect = {work.path() + name};
    EXPECT_EQ(RunSpec(spec).code, Code::kInvalid) << name;
  }
}

TEST(LaunchAttack, GitControls) {
  const TemporaryFolder work;
  const std::string make = "cd " + work.path() + " && git init -q . && mkdir -p sub/deeper && git init -q sub/deeper";
  ASSERT_EQ(std::system(make.c_str()), 0);
  ExpectHeld(Attack(work, {"write-git", work.path(), work.path() + "/sub/deeper"}));
}

TEST(LaunchAttack, GitStillWorksInThatRepository) {
  const TemporaryFolder work;
  const std::string make =
      "cd " + work.path() +
      " && git init -q . && git config user.email a@b && git config user.name n && echo x > f && git add f && git commit -qm one";
  ASSERT_EQ(std::system(make.c_str()), 0);
  const auto ran = RunSpec(SpecFor({"sh", "-ec",
                                    "echo y > f; git commit -qam two; git branch b; git checkout -q b; git clone -q . new; cd "
                                    "new; git config user.name m; git log --oneline | wc -l"},
                                   work.path()));
  EXPECT_EQ(ran.status.code, 0) << ran.output;
  EXPECT_EQ(ran.output, "2\n");
}

TEST(LaunchAttack, StartupFilesInAGrantedHome) {
  const TemporaryFolder home;
  home.Write(".bashrc", "original");
  LaunchSpec spec = Attack(home, {"write-protected", home.path() + "/.bashrc"});
  spec.environment[1].second = home.path();
  ExpectHeld(spec);
  EXPECT_EQ(home.Read(".bashrc"), "original");
}

TEST(LaunchAttack, TheSystem) {
  const TemporaryFolder work;
  ExpectHeld(Attack(work, {"write-system"}));
}

TEST(LaunchAttack, Secrets) {
  const TemporaryFolder work;
  const TemporaryFolder secret;
  secret.Write("key", "s3cret");
  ExpectHeld(Attack(work, {"read-secrets", secret.path() + "/key"}));
}

TEST(LaunchAttack, PeelingOffMounts) {
  const TemporaryFolder work;
  const UniqueFd stream = UnixListener(SOCK_STREAM, work.path() + "/stream");
  ExpectHeld(Attack(work, {"peel-mounts", work.path(), work.path() + "/stream"}));
}

TEST(LaunchAttack, TheSessionKeyring) {
  const TemporaryFolder work;
  ASSERT_GT(::syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, nullptr), 0);
  const long key = ::syscall(SYS_add_key, "user", "sluice-test", "secret", 6, -3 /* session */);
  ASSERT_GT(key, 0);
  ExpectHeld(Attack(work, {"keyring", std::to_string(key)}));
}

TEST(LaunchAttack, SharedMemoryOfTheHost) {
  const TemporaryFolder work;
  const key_t key = 0x51ce0000 | (::getpid() & 0xffff);
  const int id = ::shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
  ASSERT_GE(id, 0);
  ExpectHeld(Attack(work, {"shared-memory", std::to_string(key)}));
  ::shmctl(id, IPC_RMID, nullptr);
}

TEST(LaunchAttack, Privileges) {
  const TemporaryFolder work;
  ExpectHeld(Attack(work, {"privileges"}));
}

TEST(LaunchAttack, AWorkloadDoesNotOutliveItsSupervisor) {
  const TemporaryFolder work;
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    auto capture = CreateCapture();
    if (!capture) ::_exit(1);
    auto workload = LaunchFiltered(
        SpecFor({"sh", "-c", "setsid sh -c 'while :; do echo x > tick; sleep 0.01; done' & sleep 1000"}, work.path()), *capture,
        kSmallFilter);
    if (!workload || !(*workload)->Release()) ::_exit(1);
    ::pause();
  }
  const std::string tick = work.path() + "/tick";
  for (int i = 0; i < 500 && ::access(tick.c_str(), F_OK) != 0; ++i) std::this_thread::sleep_for(10ms);
  ASSERT_EQ(::access(tick.c_str(), F_OK), 0);
  ::kill(supervisor, SIGKILL);
  ::waitpid(supervisor, nullptr, 0);
  std::this_thread::sleep_for(100ms);
  ::unlink(tick.c_str());
  std::this_thread::sleep_for(100ms);
  EXPECT_NE(::access(tick.c_str(), F_OK), 0);
}

TEST(LaunchAttack, AllHoldsWhenTheSupervisorIsNotDumpable) {
  const TemporaryFolder work;
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
  ExpectHeld(Attack(work, {"init"}));
  ExpectHeld(Attack(work, {"privileges"}));
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
}

}  // namespace
}  // namespace sluice::supervisor

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const sluice::testing::ProgramForAnyone attacker(SLUICE_ATTACKER);
  sluice::supervisor::g_attacker = attacker.path();
  if (!sluice::supervisor::MakeHostTrees()) return 1;
  return sluice::testing::RunAsTestUser([] { return RUN_ALL_TESTS(); });
}
