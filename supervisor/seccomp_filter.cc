#include "supervisor/seccomp_filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>

#include "supervisor/bpf_assembler.h"

namespace sluice::supervisor {
namespace {

using Label = BpfAssembler::Label;
using Test = BpfAssembler::Test;

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
#error "the filter knows x86_64 and aarch64"
#endif

// The last call of Linux 6.18. What comes later may open a way that nobody has looked at: ENOSYS, which programs handle.
constexpr uint32_t kLastKnownCall = 469;
constexpr uint32_t kX32Bit = 0x40000000;
// Calls later than the headers this is built with; the numbers are the same on both machines.
constexpr uint32_t kOpenTreeAttr = 467;

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kNotify = SECCOMP_RET_USER_NOTIF;
constexpr uint32_t kKill = SECCOMP_RET_KILL_PROCESS;
constexpr uint32_t Errno(int error) { return SECCOMP_RET_ERRNO | (static_cast<uint32_t>(error) & SECCOMP_RET_DATA); }

// Both machines are little-endian. An int argument is its low half: the kernel drops the rest as well.
constexpr size_t ArgLow(unsigned i) { return offsetof(seccomp_data, args) + 8 * i; }
constexpr size_t ArgHigh(unsigned i) { return ArgLow(i) + 4; }

// Kernel numbers, named here so that the filter depends on no header's age.
constexpr uint32_t kFamilyUnix = 1, kFamilyInet = 2, kFamilyInet6 = 10, kFamilyNetlink = 16, kFamilyPacket = 17,
                   kFamilyVsock = 40;
constexpr uint32_t kTypeMask = 0xf, kStream = 1, kDatagram = 2, kRaw = 3;
constexpr uint32_t kProtocolTcp = 6, kProtocolUdp = 17, kNetlinkRoute = 0;
constexpr uint32_t kMsgFastOpen = 0x20000000;

struct Refusal {
  long number;
  int error;
};

// Refused whatever the arguments. Why, by group: rings carry calls past the filter; other processes' memory and files are
// not the workload's; namespaces, mounts, keys, modules and clocks are kernel surface that no ordinary program needs.
constexpr Refusal kRefusals[] = {
    {__NR_io_uring_setup, EPERM},
    {__NR_io_uring_enter, EPERM},
    {__NR_io_uring_register, EPERM},
    // ENOSYS lets strace and gdb fall back to ptrace, which stays within the workload.
    {__NR_process_vm_readv, ENOSYS},
    {__NR_process_vm_writev, ENOSYS},
    {__NR_pidfd_getfd, EPERM},
    {__NR_kcmp, EPERM},
    {__NR_setns, EPERM},
    {__NR_clone3, ENOSYS},  // its flags lie in memory; C libraries fall back to clone, whose flags can be read
    {__NR_mount, EPERM},
    {__NR_umount2, EPERM},
    {__NR_pivot_root, EPERM},
    {__NR_open_tree, EPERM},
    {__NR_move_mount, EPERM},
    {__NR_fsopen, EPERM},
    {__NR_fsconfig, EPERM},
    {__NR_fsmount, EPERM},
    {__NR_fspick, EPERM},
    {__NR_mount_setattr, EPERM},
    {kOpenTreeAttr, EPERM},
    {__NR_open_by_handle_at, EPERM},
    {__NR_quotactl, EPERM},
    {__NR_quotactl_fd, EPERM},
    {__NR_bpf, EPERM},
    {__NR_perf_event_open, EPERM},
    {__NR_userfaultfd, EPERM},
    {__NR_add_key, EPERM},
    {__NR_request_key, EPERM},
    {__NR_keyctl, EPERM},
    {__NR_kexec_load, EPERM},
    {__NR_init_module, EPERM},
    {__NR_finit_module, EPERM},
    {__NR_delete_module, EPERM},
    {__NR_reboot, EPERM},
    {__NR_swapon, EPERM},
    {__NR_swapoff, EPERM},
    {__NR_acct, EPERM},
    {__NR_lookup_dcookie, EPERM},
    {__NR_fanotify_init, EPERM},
#ifdef __NR_kexec_file_load
    {__NR_kexec_file_load, EPERM},
#endif
#ifdef __NR_iopl
    {__NR_iopl, EPERM},
    {__NR_ioperm, EPERM},
#endif
};

// Socket options that park a handshake, hide or turn a flow, or let another program decide what a socket takes.
struct Option {
  uint32_t number;
  int error;
};
constexpr Option kSocketOptions[] = {
    {25, EPERM},                                         // SO_BINDTODEVICE: the first one needs no privilege
    {62, EPERM},                                         // SO_BINDTOIFINDEX
    {26, EPERM}, {50, EPERM}, {51, EPERM}, {52, EPERM},  // SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF
    {44, EPERM},                                         // SO_LOCK_FILTER
    {36, EPERM},                                         // SO_MARK
};
constexpr Option kIpOptions[] = {
    {4, EPERM},   // IP_OPTIONS: source routes
    {19, EPERM},  // IP_TRANSPARENT
};
constexpr Option kIpv6Options[] = {
    {57, EPERM}, {54, EPERM}, {55, EPERM}, {59, EPERM},              // IPV6_RTHDR, _HOPOPTS, _RTHDRDSTOPTS, _DSTOPTS
    {2, EPERM},  {3, EPERM},  {4, EPERM},  {5, EPERM},  {6, EPERM},  // their RFC 2292 forms, and IPV6_2292PKTOPTIONS
    {75, EPERM},                                                     // IPV6_TRANSPARENT
};
constexpr Option kTcpOptions[] = {
    {14, EPERM},       {32, EPERM},  // TCP_MD5SIG, TCP_MD5SIG_EXT
    {19, EPERM},       {20, EPERM},      {21, EPERM},      {22, EPERM},
    {29, EPERM},                                                              // TCP_REPAIR and its queues, options, window
    {30, EOPNOTSUPP},  {23, EOPNOTSUPP}, {33, EOPNOTSUPP}, {34, EOPNOTSUPP},  // TCP_FASTOPEN_CONNECT, _FASTOPEN, _KEY, _NO_COOKIE
    {31, ENOPROTOOPT},                                                        // TCP_ULP: TLS libraries go on without
    {38, EPERM},       {39, EPERM},      {40, EPERM},      {42, EPERM},       // TCP_AO_*
};

void EmitNotifyConnect(BpfAssembler& out) { out.Return(kNotify); }

void EmitSendto(BpfAssembler& out) {
  out.Load(ArgLow(3));
  out.ReturnIf(Test::kAnyBit, kMsgFastOpen, Errno(EOPNOTSUPP));
  out.Load(ArgLow(4));
  const Label notify = out.NewLabel();
  out.JumpIf(Test::kAbove, 0, notify);
  out.Load(ArgHigh(4));
  out.JumpIf(Test::kAbove, 0, notify);
  out.Return(kAllow);
  out.Bind(notify);
  out.Return(kNotify);
}

void EmitFastOpenCheck(BpfAssembler& out, unsigned flags_argument) {
  out.Load(ArgLow(flags_argument));
  out.ReturnIf(Test::kAnyBit, kMsgFastOpen, Errno(EOPNOTSUPP));
  out.Return(kAllow);
}

void EmitSocketInet(BpfAssembler& out) {
  const Label protocol = out.NewLabel();
  out.Load(ArgLow(1));
  out.And(kTypeMask);
  out.JumpIf(Test::kEqual, kStream, protocol);
  out.JumpIf(Test::kEqual, kDatagram, protocol);
  out.Return(Errno(EPERM));  // raw, and the old packet type
  out.Bind(protocol);
  out.Load(ArgLow(2));
  out.ReturnIf(Test::kEqual, 0, kAllow);
  out.ReturnIf(Test::kEqual, kProtocolTcp, kAllow);
  out.ReturnIf(Test::kEqual, kProtocolUdp, kAllow);
  out.Return(Errno(EPROTONOSUPPORT));  // MPTCP among them: Go's library falls back to TCP on this
}

void EmitSocketNetlink(BpfAssembler& out) {
  const Label protocol = out.NewLabel();
  out.Load(ArgLow(1));
  out.And(kTypeMask);
  out.JumpIf(Test::kEqual, kRaw, protocol);
  out.JumpIf(Test::kEqual, kDatagram, protocol);
  out.Return(Errno(EPERM));
  out.Bind(protocol);
  out.Load(ArgLow(2));
  out.ReturnIf(Test::kEqual, kNetlinkRoute, kAllow);
  out.Return(Errno(EPROTONOSUPPORT));  // what libaudit and PAM take for "not there"
}

void EmitSocket(BpfAssembler& out) {
  const Label inet = out.NewLabel();
  const Label netlink = out.NewLabel();
  out.Load(ArgLow(0));
  out.ReturnIf(Test::kEqual, kFamilyUnix, kAllow);
  out.JumpIf(Test::kEqual, kFamilyInet, inet);
  out.JumpIf(Test::kEqual, kFamilyInet6, inet);
  out.JumpIf(Test::kEqual, kFamilyNetlink, netlink);
  out.ReturnIf(Test::kEqual, kFamilyPacket, Errno(EPERM));
  out.ReturnIf(Test::kEqual, kFamilyVsock, Errno(EPERM));
  out.Return(Errno(EAFNOSUPPORT));
  out.Bind(inet);
  EmitSocketInet(out);
  out.Bind(netlink);
  EmitSocketNetlink(out);
}

void EmitSocketpair(BpfAssembler& out) {
  out.Load(ArgLow(0));
  out.ReturnIf(Test::kEqual, kFamilyUnix, kAllow);
  out.Return(Errno(EAFNOSUPPORT));
}

// Within one level: the option in A; netfilter's own range is refused for IP levels.
template <size_t N>
void EmitOptions(BpfAssembler& out, const Option (&options)[N], std::optional<std::pair<uint32_t, uint32_t>> range) {
  out.Load(ArgLow(2));
  for (const Option& option : options) out.ReturnIf(Test::kEqual, option.number, Errno(option.error));
  if (range) {
    const Label below = out.NewLabel();
    const Label inside = out.NewLabel();
    out.JumpIf(Test::kAtLeast, range->first, inside);
    out.Jump(below);
    out.Bind(inside);
    out.ReturnIf(Test::kAbove, range->second, kAllow);
    out.Return(Errno(EPERM));
    out.Bind(below);
  }
  out.Return(kAllow);
}

void EmitSetsockopt(BpfAssembler& out) {
  constexpr uint32_t kLevelIp = 0, kLevelSocket = 1, kLevelTcp = 6, kLevelIpv6 = 41, kLevelMptcp = 284;
  constexpr std::pair<uint32_t, uint32_t> kNetfilter6{64, 65};
  constexpr std::pair<uint32_t, uint32_t> kNetfilter4{64, 255};
  const Label ip = out.NewLabel();
  const Label socket = out.NewLabel();
  const Label tcp = out.NewLabel();
  const Label ipv6 = out.NewLabel();
  out.Load(ArgLow(1));
  out.JumpIf(Test::kEqual, kLevelSocket, socket);
  out.JumpIf(Test::kEqual, kLevelTcp, tcp);
  out.JumpIf(Test::kEqual, kLevelIp, ip);
  out.JumpIf(Test::kEqual, kLevelIpv6, ipv6);
  out.ReturnIf(Test::kEqual, kLevelMptcp, Errno(EPERM));
  out.Return(kAllow);
  out.Bind(socket);
  EmitOptions(out, kSocketOptions, std::nullopt);
  out.Bind(tcp);
  EmitOptions(out, kTcpOptions, std::nullopt);
  out.Bind(ip);
  EmitOptions(out, kIpOptions, kNetfilter4);
  out.Bind(ipv6);
  EmitOptions(out, kIpv6Options, kNetfilter6);  // 66 and above are IPV6_* again
}

void EmitIoctl(BpfAssembler& out) {
  // TIOCSTI, TIOCLINUX, TIOCCONS and TIOCSETD reach the terminal's other readers; SIOCGSKNS gives a namespace away;
  // USERFAULTFD_IOC_NEW is userfaultfd by another name.
  constexpr uint32_t kRefused[] = {0x5412, 0x541c, 0x541d, 0x5423, 0x894c, 0xaa00};
  out.Load(ArgLow(1));
  for (const uint32_t request : kRefused) out.ReturnIf(Test::kEqual, request, Errno(EPERM));
  out.Return(kAllow);
}

// New namespaces of any kind. CLONE_NEWTIME shares its bit with clone's exit signal, where it cannot be asked for.
constexpr uint32_t kCloneNew = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000;
constexpr uint32_t kCloneNewTime = 0x00000080;
// CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET. They lead nowhere: mounts, netfilter
// and raw sockets stay refused, joining a namespace too, and a socket of another network is denied every connect.
constexpr uint32_t kCloneOwn = 0x10000000 | 0x20000000 | 0x40000000;

void EmitNamespaceCheck(BpfAssembler& out, uint32_t mask) {
  out.Load(ArgLow(0));
  out.ReturnIf(Test::kAnyBit, mask, Errno(EPERM));
  out.Return(kAllow);
}

// One leaf of the search tree: a number, and what answers it.
struct Leaf {
  uint32_t number = 0;
  uint32_t action = kAllow;  // when there is no handler
  std::optional<Label> handler = {};
};

void EmitTree(BpfAssembler& out, const std::vector<Leaf>& leaves, size_t begin, size_t end) {
  if (end - begin == 1) {
    const Leaf& leaf = leaves[begin];
    if (leaf.handler) {
      out.JumpIf(Test::kEqual, leaf.number, *leaf.handler);
    } else {
      out.ReturnIf(Test::kEqual, leaf.number, leaf.action);
    }
    out.Return(kAllow);
    return;
  }
  const size_t middle = begin + (end - begin) / 2;
  const Label upper = out.NewLabel();
  out.JumpIf(Test::kAtLeast, leaves[middle].number, upper);
  EmitTree(out, leaves, begin, middle);
  out.Bind(upper);
  EmitTree(out, leaves, middle, end);
}

struct Handler {
  long number;
  void (*emit)(BpfAssembler&);
};
constexpr Handler kHandlers[] = {
    {__NR_connect, EmitNotifyConnect},
    {__NR_sendto, EmitSendto},
    {__NR_sendmsg, [](BpfAssembler& out) { EmitFastOpenCheck(out, 2); }},
    {__NR_sendmmsg, [](BpfAssembler& out) { EmitFastOpenCheck(out, 3); }},
    {__NR_socket, EmitSocket},
    {__NR_socketpair, EmitSocketpair},
    {__NR_setsockopt, EmitSetsockopt},
    {__NR_ioctl, EmitIoctl},
    {__NR_clone, [](BpfAssembler& out) { EmitNamespaceCheck(out, kCloneNew); }},
    {__NR_unshare, [](BpfAssembler& out) { EmitNamespaceCheck(out, kCloneNew | kCloneNewTime); }},
};
void EmitHandler(BpfAssembler& out, const Handler& handler, OwnNamespaces own) {
  if (own == OwnNamespaces::kAllowed && handler.number == __NR_clone) return EmitNamespaceCheck(out, kCloneNew & ~kCloneOwn);
  if (own == OwnNamespaces::kAllowed && handler.number == __NR_unshare)
    return EmitNamespaceCheck(out, (kCloneNew | kCloneNewTime) & ~kCloneOwn);
  handler.emit(out);
}

}  // namespace

std::vector<sock_filter> BuildSeccompFilter(OwnNamespaces own) {
  BpfAssembler out;
  std::vector<Leaf> leaves;
  for (const Refusal& refusal : kRefusals) leaves.push_back({static_cast<uint32_t>(refusal.number), Errno(refusal.error)});
  std::array<Label, std::size(kHandlers)> labels{};
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = out.NewLabel();
    leaves.push_back({static_cast<uint32_t>(kHandlers[i].number), kAllow, labels[i]});
  }
  std::ranges::sort(leaves, {}, &Leaf::number);

  const Label native = out.NewLabel();
  out.Load(offsetof(seccomp_data, arch));
  out.JumpIf(Test::kEqual, kArch, native);
  out.Return(kKill);
  out.Bind(native);
  out.Load(offsetof(seccomp_data, nr));
  // Covers x32 as well: its numbers carry kX32Bit.
  static_assert(kX32Bit > kLastKnownCall);
  out.ReturnIf(Test::kAbove, kLastKnownCall, Errno(ENOSYS));
  EmitTree(out, leaves, 0, leaves.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    out.Bind(labels[i]);
    EmitHandler(out, kHandlers[i], own);
  }
  return out.Finish();
}

std::vector<RefusedCall> SeccompRefusedCalls() {
  std::vector<RefusedCall> out;
  for (const Refusal& refusal : kRefusals) out.push_back({static_cast<uint32_t>(refusal.number), refusal.error});
  return out;
}

}  // namespace sluice::supervisor
