#include "supervisor/seccomp_filter.h"

#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <optional>

#include "supervisor/bpf_assembler.h"
#include "supervisor/seccomp_rules.h"

namespace sluice::supervisor {
namespace {

using namespace rules;

using Label = BpfAssembler::Label;
using Test = BpfAssembler::Test;

// The last call of Linux 6.18. What comes later may open a way that nobody has looked at: ENOSYS, which programs handle.
constexpr uint32_t kLastKnownCall = 469;
constexpr uint32_t kX32Bit = 0x40000000;

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kNotify = SECCOMP_RET_USER_NOTIF;
constexpr uint32_t kKill = SECCOMP_RET_KILL_PROCESS;
constexpr uint32_t Errno(int error) { return SECCOMP_RET_ERRNO | (static_cast<uint32_t>(error) & SECCOMP_RET_DATA); }

// Both machines are little-endian. An int argument is its low half: the kernel drops the rest as well.
constexpr size_t ArgLow(unsigned i) { return offsetof(seccomp_data, args) + 8 * i; }
constexpr size_t ArgHigh(unsigned i) { return ArgLow(i) + 4; }

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
  EmitOptions(out, kIpv6Options, kNetfilter6);
}

void EmitIoctl(BpfAssembler& out) {
  out.Load(ArgLow(1));
  for (const uint32_t request : kIoctls) out.ReturnIf(Test::kEqual, request, Errno(EPERM));
  out.Return(kAllow);
}

// CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET. They lead nowhere: mounts, netfilter
// and raw sockets stay refused, joining a namespace too, and a socket of another network is denied every connect.
constexpr uint32_t kCloneOwn = 0x10000000 | 0x20000000 | 0x40000000;

// What clone and unshare may not make.
uint32_t RefusedNamespaces(OwnNamespaces own) {
  switch (own) {
    case OwnNamespaces::kRefused:
      return kCloneNew;
    case OwnNamespaces::kAllowed:
    case OwnNamespaces::kMapped:
      return kCloneNew & ~kCloneOwn;
    case OwnNamespaces::kContainers:
      return 0;
  }
  return kCloneNew;
}

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
    {__NR_clone, nullptr},
    {__NR_unshare, nullptr},
};
void EmitHandler(BpfAssembler& out, const Handler& handler, OwnNamespaces own) {
  if (handler.number == __NR_clone) return EmitNamespaceCheck(out, RefusedNamespaces(own));
  if (handler.number == __NR_unshare) return EmitNamespaceCheck(out, RefusedNamespaces(own) | kCloneNewTime);
  handler.emit(out);
}

// Of a call that is refused whatever its arguments; nothing where it is left alone.
std::optional<uint32_t> Answer(const Refusal& refusal, OwnNamespaces own) {
  if (own == OwnNamespaces::kContainers) {
    if (std::ranges::find(kContainerCalls, refusal.number) != std::end(kContainerCalls)) return std::nullopt;
    if (std::ranges::find(kKeyringCalls, refusal.number) != std::end(kKeyringCalls)) return Errno(ENOSYS);
  }
  return Errno(refusal.error);
}

}  // namespace

std::vector<sock_filter> BuildSeccompFilter(OwnNamespaces own) {
  BpfAssembler out;
  std::vector<Leaf> leaves;
  for (const Refusal& refusal : kRefusals)
    if (const auto answer = Answer(refusal, own)) leaves.push_back({static_cast<uint32_t>(refusal.number), *answer});
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
  std::vector<sock_filter> program = out.Finish();
  if (program.size() > kMaxSeccompInstructions) std::abort();
  return program;
}

std::vector<RefusedCall> SeccompRefusedCalls() {
  std::vector<RefusedCall> out;
  for (const Refusal& refusal : kRefusals) out.push_back({static_cast<uint32_t>(refusal.number), refusal.error});
  return out;
}

}  // namespace sluice::supervisor
