#include "supervisor/seccomp_filter.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <set>

#include "tests/supervisor/bpf_interpreter.h"

namespace sluice::supervisor {
namespace {

using testing::RunBpf;

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
constexpr uint32_t kOtherArch = AUDIT_ARCH_I386;
#else
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
constexpr uint32_t kOtherArch = AUDIT_ARCH_ARM;
#endif

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kNotify = SECCOMP_RET_USER_NOTIF;
constexpr uint32_t Refused(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

const std::vector<sock_filter>& Program() {
  static const std::vector<sock_filter> program = BuildSeccompFilter();
  return program;
}

uint32_t Answer(const std::vector<sock_filter>& program, long number, std::array<uint64_t, 6> args, uint32_t arch = kArch) {
  seccomp_data data{};
  data.nr = static_cast<int>(number);
  data.arch = arch;
  std::ranges::copy(args, std::begin(data.args));
  const auto action = RunBpf(program, data);
  EXPECT_TRUE(action) << "the program runs off its end for " << number;
  return action.value_or(SECCOMP_RET_KILL_PROCESS);
}

uint32_t Call(long number, std::array<uint64_t, 6> args = {}, uint32_t arch = kArch) {
  return Answer(Program(), number, args, arch);
}

TEST(SeccompFilter, IsSmallAndEveryPathReturns) {
  EXPECT_LE(Program().size(), kMaxSeccompInstructions);
  for (long number = -2; number < 1024; ++number) Call(number);
}

TEST(SeccompFilter, KillsAnotherAbi) {
  for (long number = 0; number < 512; ++number) EXPECT_EQ(Call(number, {}, kOtherArch), SECCOMP_RET_KILL_PROCESS);
}

TEST(SeccompFilter, HasNoX32AndNothingNewerThanItself) {
  for (const long number : {0x40000000L, 0x40000000L + __NR_connect, 470L, 100000L, -1L})
    EXPECT_EQ(Call(number), Refused(ENOSYS));
}

TEST(SeccompFilter, AnswersForEveryNumberAsTheTableSays) {
  std::set<long> special = {__NR_connect,    __NR_sendto,     __NR_sendmsg, __NR_sendmmsg, __NR_socket,
                            __NR_socketpair, __NR_setsockopt, __NR_ioctl,   __NR_clone,    __NR_unshare};
  for (const RefusedCall& call : SeccompRefusedCalls()) {
    EXPECT_EQ(Call(call.number), Refused(call.error)) << call.number;
    special.insert(call.number);
  }
  // An oracle for the search tree: all other numbers are allowed whatever they carry.
  for (long number = 0; number <= 469; ++number) {
    if (special.contains(number)) continue;
    EXPECT_EQ(Call(number), kAllow) << number;
    EXPECT_EQ(Call(number, {~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL}), kAllow) << number;
  }
}

TEST(SeccompFilter, NotifiesOfConnectAndOfSendtoWithAnAddress) {
  EXPECT_EQ(Call(__NR_connect), kNotify);
  EXPECT_EQ(Call(__NR_sendto), kAllow);
  EXPECT_EQ(Call(__NR_sendto, {3, 4, 5, 0, 0x1000, 16}), kNotify);
  EXPECT_EQ(Call(__NR_sendto, {3, 4, 5, 0, 0x100000000, 16}), kNotify) << "an address whose low half is zero";
  EXPECT_EQ(Call(__NR_sendmsg, {3, 4, 0}), kAllow);
}

TEST(SeccompFilter, RefusesFastOpenEverywhere) {
  EXPECT_EQ(Call(__NR_sendto, {3, 4, 5, MSG_FASTOPEN, 0x1000, 16}), Refused(EOPNOTSUPP));
  EXPECT_EQ(Call(__NR_sendto, {3, 4, 5, MSG_FASTOPEN | MSG_NOSIGNAL, 0, 0}), Refused(EOPNOTSUPP));
  EXPECT_EQ(Call(__NR_sendmsg, {3, 4, MSG_FASTOPEN | MSG_MORE}), Refused(EOPNOTSUPP));
  EXPECT_EQ(Call(__NR_sendmmsg, {3, 4, 1, MSG_FASTOPEN}), Refused(EOPNOTSUPP));
  EXPECT_EQ(Call(__NR_sendmmsg, {3, 4, MSG_FASTOPEN, 0}), kAllow) << "a count is no flag";
  EXPECT_EQ(Call(__NR_setsockopt, {3, IPPROTO_TCP, 30}), Refused(EOPNOTSUPP));
}

TEST(SeccompFilter, AllowsFourSocketFamilies) {
  for (uint64_t family = 0; family < 64; ++family) {
    const uint32_t got = Call(__NR_socket, {family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0});
    const bool allowed = family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
    EXPECT_EQ(got == kAllow, allowed) << family;
    EXPECT_EQ(Call(__NR_socketpair, {family, SOCK_STREAM, 0}) == kAllow, family == AF_UNIX) << family;
  }
  EXPECT_EQ(Call(__NR_socket, {AF_PACKET, SOCK_RAW, 0}), Refused(EPERM));
  EXPECT_EQ(Call(__NR_socket, {40, SOCK_STREAM, 0}), Refused(EPERM));
  for (const uint64_t family : {uint64_t{AF_INET}, uint64_t{AF_INET6}}) {
    EXPECT_EQ(Call(__NR_socket, {family, SOCK_STREAM, IPPROTO_TCP}), kAllow);
    EXPECT_EQ(Call(__NR_socket, {family, SOCK_DGRAM, IPPROTO_UDP}), kAllow);
    EXPECT_EQ(Call(__NR_socket, {family, SOCK_RAW, IPPROTO_UDP}), Refused(EPERM));
    EXPECT_EQ(Call(__NR_socket, {family, 10, 0}), Refused(EPERM));
    EXPECT_EQ(Call(__NR_socket, {family, SOCK_STREAM, 262}), Refused(EPROTONOSUPPORT));
    EXPECT_EQ(Call(__NR_socket, {family, SOCK_STREAM, 132}), Refused(EPROTONOSUPPORT));
    EXPECT_EQ(Call(__NR_socket, {family | 0x100000000, SOCK_STREAM, 262}), Refused(EPROTONOSUPPORT))
        << "the kernel drops the high half";
  }
  EXPECT_EQ(Call(__NR_socket, {AF_NETLINK, SOCK_RAW, 0}), kAllow);
  for (uint64_t protocol = 1; protocol < 32; ++protocol) {
    EXPECT_EQ(Call(__NR_socket, {AF_NETLINK, SOCK_RAW, protocol}), Refused(EPROTONOSUPPORT));
  }
}

TEST(SeccompFilter, RefusesOptionsThatParkOrTurnAFlow) {
  const std::pair<uint64_t, uint64_t> refused[] = {
      {SOL_SOCKET, SO_ATTACH_FILTER},
      {SOL_SOCKET, SO_ATTACH_BPF},
      {SOL_SOCKET, SO_BINDTODEVICE},
      {SOL_SOCKET, SO_MARK},
      {IPPROTO_IP, IP_OPTIONS},
      {IPPROTO_IP, IP_TRANSPARENT},
      {IPPROTO_IP, 64},
      {IPPROTO_IP, 127},
      {IPPROTO_IPV6, IPV6_RTHDR},
      {IPPROTO_IPV6, IPV6_HOPOPTS},
      {IPPROTO_IPV6, 5},
      {IPPROTO_IPV6, 64},
      {IPPROTO_TCP, TCP_MD5SIG},
      {IPPROTO_TCP, TCP_REPAIR},
  };
  for (const auto& [level, option] : refused)
    EXPECT_EQ(Call(__NR_setsockopt, {3, level, option}), Refused(EPERM)) << level << " " << option;
  const std::pair<uint64_t, uint64_t> allowed[] = {
      {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_KEEPALIVE},  {SOL_SOCKET, SO_SNDTIMEO},       {SOL_SOCKET, SO_LINGER},
      {IPPROTO_IP, IP_TTL},       {IPPROTO_IP, IP_TOS},        {IPPROTO_IPV6, IPV6_V6ONLY},     {IPPROTO_IPV6, 72},
      {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_TCP, TCP_USER_TIMEOUT}, {IPPROTO_IPV6, IPV6_TCLASS},
  };
  for (const auto& [level, option] : allowed)
    EXPECT_EQ(Call(__NR_setsockopt, {3, level, option}), kAllow) << level << " " << option;
  EXPECT_EQ(Call(__NR_setsockopt, {3, IPPROTO_TCP, 31}), Refused(ENOPROTOOPT));
}

TEST(SeccompFilter, RefusesNewNamespacesButNotThreads) {
  for (const uint64_t flag : std::initializer_list<uint64_t>{CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWIPC,
                                                             CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    EXPECT_EQ(Call(__NR_clone, {flag | 17}), Refused(EPERM));
    EXPECT_EQ(Call(__NR_unshare, {flag}), Refused(EPERM));
  }
  EXPECT_EQ(Call(__NR_unshare, {0x80}), Refused(EPERM));
  EXPECT_EQ(Call(__NR_clone, {CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS}),
            kAllow);
  EXPECT_EQ(Call(__NR_clone, {CLONE_VFORK | CLONE_VM | 17}), kAllow);
  EXPECT_EQ(Call(__NR_unshare, {CLONE_FILES}), kAllow);
  EXPECT_EQ(Call(__NR_clone3), Refused(ENOSYS));
}

TEST(SeccompFilter, WithLeaveItLetsThreeKindsOfNamespaceBeMadeAndChangesNothingElse) {
  const std::vector<sock_filter> program = BuildSeccompFilter(OwnNamespaces::kAllowed);
  const auto answer = [&program](long number, uint64_t flags) { return Answer(program, number, {flags}); };
  EXPECT_EQ(answer(__NR_clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | 17), kAllow);
  EXPECT_EQ(answer(__NR_unshare, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET), kAllow);
  for (const uint64_t flag : std::initializer_list<uint64_t>{CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    EXPECT_EQ(answer(__NR_clone, flag | CLONE_NEWUSER | 17), Refused(EPERM));
    EXPECT_EQ(answer(__NR_unshare, flag | CLONE_NEWUSER), Refused(EPERM));
  }
  EXPECT_EQ(answer(__NR_unshare, 0x80), Refused(EPERM));
  for (long number = 0; number <= 469; ++number) {
    if (number == __NR_clone || number == __NR_unshare) continue;
    EXPECT_EQ(answer(number, 0), Call(number)) << number;
  }
}

TEST(SeccompFilter, ForContainersItLetsThemBeBuiltAndChangesNothingElse) {
  const std::vector<sock_filter> program = BuildSeccompFilter(OwnNamespaces::kContainers);
  const auto answer = [&program](long number, uint64_t flags) { return Answer(program, number, {flags}); };
  const uint64_t all = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  EXPECT_EQ(answer(__NR_clone, all | 17), kAllow);
  EXPECT_EQ(answer(__NR_unshare, all), kAllow);
  EXPECT_EQ(answer(__NR_unshare, 0x80), Refused(EPERM)) << "time";
  EXPECT_EQ(answer(__NR_clone3, 0), Refused(ENOSYS)) << "its flags cannot be seen";
  std::set<long> building = {__NR_mount,  __NR_umount2,  __NR_pivot_root, __NR_setns,  __NR_open_tree,     __NR_move_mount,
                             __NR_fsopen, __NR_fsconfig, __NR_fsmount,    __NR_fspick, __NR_mount_setattr, 467};
  for (const long number : building) EXPECT_EQ(answer(number, 0), kAllow) << number;
  for (const long number : {__NR_add_key, __NR_request_key, __NR_keyctl}) EXPECT_EQ(answer(number, 0), Refused(ENOSYS)) << number;
  building.insert({__NR_clone, __NR_unshare, __NR_add_key, __NR_request_key, __NR_keyctl});
  for (long number = 0; number <= 469; ++number)
    if (!building.contains(number)) EXPECT_EQ(answer(number, 0), Call(number)) << number;
}

TEST(SeccompFilter, RefusesTerminalInjection) {
  for (const uint64_t request : std::initializer_list<uint64_t>{0x5412, 0x541c, 0x5423, 0x894c}) {
    EXPECT_EQ(Call(__NR_ioctl, {0, request}), Refused(EPERM));
    EXPECT_EQ(Call(__NR_ioctl, {0, request | 0xffffffff00000000}), Refused(EPERM)) << "the kernel drops the high half";
  }
  EXPECT_EQ(Call(__NR_ioctl, {0, 0x5413}), kAllow);
}

// The kernel keeps a number in its allow bitmap when the program reaches ALLOW by arch and nr alone: this is the same walk.
TEST(SeccompFilter, LooksAtNothingButTheNumberOfAnOrdinaryCall) {
  for (const long number :
       {__NR_getppid, __NR_read, __NR_write, __NR_close, __NR_futex, __NR_openat, __NR_execve, __NR_recvmsg}) {
    size_t at = 0;
    uint32_t a = 0;
    for (;; ++at) {
      ASSERT_LT(at, Program().size());
      const sock_filter& one = Program()[at];
      if (one.code == (BPF_RET | BPF_K)) break;
      if (one.code == (BPF_LD | BPF_W | BPF_ABS)) {
        ASSERT_TRUE(one.k == offsetof(seccomp_data, nr) || one.k == offsetof(seccomp_data, arch)) << number;
        a = one.k == offsetof(seccomp_data, nr) ? static_cast<uint32_t>(number) : kArch;
        continue;
      }
      if (one.code == (BPF_JMP | BPF_JA)) at += one.k;
      if (one.code == (BPF_JMP | BPF_JEQ | BPF_K)) at += a == one.k ? one.jt : one.jf;
      if (one.code == (BPF_JMP | BPF_JGE | BPF_K)) at += a >= one.k ? one.jt : one.jf;
      if (one.code == (BPF_JMP | BPF_JGT | BPF_K)) at += a > one.k ? one.jt : one.jf;
    }
    EXPECT_EQ(Program()[at].k, kAllow) << number;
  }
}

}  // namespace
}  // namespace sluice::supervisor
