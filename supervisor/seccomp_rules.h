#pragma once

// What the workload's filter refuses and of what it notifies, as tables: seccomp_filter.cc makes a program of them for `sluice
// run`, oci_profile.cc a profile for container runtimes.

#include <linux/audit.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

namespace sluice::supervisor::rules {

// seccomp_data::arch of a native program.
#if defined(__x86_64__)
inline constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
inline constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
#error "the filter knows x86_64 and aarch64"
#endif

// Calls later than the headers this is built with; the numbers are the same on both machines.
inline constexpr uint32_t kOpenTreeAttr = 467;

// Kernel numbers, named here so that the filter depends on no header's age.
inline constexpr uint32_t kFamilyUnix = 1, kFamilyInet = 2, kFamilyInet6 = 10, kFamilyNetlink = 16, kFamilyPacket = 17,
                          kFamilyVsock = 40;
inline constexpr uint32_t kTypeMask = 0xf, kStream = 1, kDatagram = 2, kRaw = 3;
inline constexpr uint32_t kProtocolTcp = 6, kProtocolUdp = 17, kNetlinkRoute = 0;
inline constexpr uint32_t kMsgFastOpen = 0x20000000;

struct Refusal {
  long number;
  int error;
  std::string_view name;
};

// Refused whatever the arguments. Why, by group: rings carry calls past the filter; other processes' memory and files are
// not the workload's; namespaces, mounts, keys, modules and clocks are kernel surface that no ordinary program needs.
inline constexpr Refusal kRefusals[] = {
    {__NR_io_uring_setup, EPERM, "io_uring_setup"},
    {__NR_io_uring_enter, EPERM, "io_uring_enter"},
    {__NR_io_uring_register, EPERM, "io_uring_register"},
    // ENOSYS lets strace and gdb fall back to ptrace, which stays within the workload.
    {__NR_process_vm_readv, ENOSYS, "process_vm_readv"},
    {__NR_process_vm_writev, ENOSYS, "process_vm_writev"},
    {__NR_pidfd_getfd, EPERM, "pidfd_getfd"},
    {__NR_kcmp, EPERM, "kcmp"},
    {__NR_setns, EPERM, "setns"},
    {__NR_clone3, ENOSYS, "clone3"},  // its flags lie in memory; C libraries fall back to clone, whose flags can be read
    {__NR_mount, EPERM, "mount"},
    {__NR_umount2, EPERM, "umount2"},
    {__NR_pivot_root, EPERM, "pivot_root"},
    {__NR_open_tree, EPERM, "open_tree"},
    {__NR_move_mount, EPERM, "move_mount"},
    {__NR_fsopen, EPERM, "fsopen"},
    {__NR_fsconfig, EPERM, "fsconfig"},
    {__NR_fsmount, EPERM, "fsmount"},
    {__NR_fspick, EPERM, "fspick"},
    {__NR_mount_setattr, EPERM, "mount_setattr"},
    {kOpenTreeAttr, EPERM, "open_tree_attr"},
    {__NR_open_by_handle_at, EPERM, "open_by_handle_at"},
    {__NR_quotactl, EPERM, "quotactl"},
    {__NR_quotactl_fd, EPERM, "quotactl_fd"},
    {__NR_bpf, EPERM, "bpf"},
    {__NR_perf_event_open, EPERM, "perf_event_open"},
    {__NR_userfaultfd, EPERM, "userfaultfd"},
    {__NR_add_key, EPERM, "add_key"},
    {__NR_request_key, EPERM, "request_key"},
    {__NR_keyctl, EPERM, "keyctl"},
    {__NR_kexec_load, EPERM, "kexec_load"},
    {__NR_init_module, EPERM, "init_module"},
    {__NR_finit_module, EPERM, "finit_module"},
    {__NR_delete_module, EPERM, "delete_module"},
    {__NR_reboot, EPERM, "reboot"},
    {__NR_swapon, EPERM, "swapon"},
    {__NR_swapoff, EPERM, "swapoff"},
    {__NR_acct, EPERM, "acct"},
    {__NR_lookup_dcookie, EPERM, "lookup_dcookie"},
    {__NR_fanotify_init, EPERM, "fanotify_init"},
#ifdef __NR_kexec_file_load
    {__NR_kexec_file_load, EPERM, "kexec_file_load"},
#endif
#ifdef __NR_iopl
    {__NR_iopl, EPERM, "iopl"},
    {__NR_ioperm, EPERM, "ioperm"},
#endif
};

// What of these a container runtime needs to build a container with. The kernel lets it do so in its own namespaces alone, whose
// mounts it cannot take what the view's hold away from (mount_namespaces(7)).
inline constexpr long kContainerCalls[] = {__NR_setns,     __NR_mount,      __NR_umount2,       __NR_pivot_root,
                                           __NR_open_tree, __NR_move_mount, __NR_fsopen,        __NR_fsconfig,
                                           __NR_fsmount,   __NR_fspick,     __NR_mount_setattr, kOpenTreeAttr};
// And what it asks for and goes on without where the kernel has none of it: keyrings of its containers.
inline constexpr long kKeyringCalls[] = {__NR_add_key, __NR_request_key, __NR_keyctl};

// Socket options that park a handshake, hide or turn a flow, or let another program decide what a socket takes.
struct Option {
  uint32_t number;
  int error;
};
inline constexpr Option kSocketOptions[] = {
    {25, EPERM},                                         // SO_BINDTODEVICE: the first one needs no privilege
    {62, EPERM},                                         // SO_BINDTOIFINDEX
    {26, EPERM}, {50, EPERM}, {51, EPERM}, {52, EPERM},  // SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF
    {44, EPERM},                                         // SO_LOCK_FILTER
    {36, EPERM},                                         // SO_MARK
};
inline constexpr Option kIpOptions[] = {
    {4, EPERM},   // IP_OPTIONS: source routes
    {19, EPERM},  // IP_TRANSPARENT
};
inline constexpr Option kIpv6Options[] = {
    {57, EPERM}, {54, EPERM}, {55, EPERM}, {59, EPERM},              // IPV6_RTHDR, _HOPOPTS, _RTHDRDSTOPTS, _DSTOPTS
    {2, EPERM},  {3, EPERM},  {4, EPERM},  {5, EPERM},  {6, EPERM},  // their RFC 2292 forms, and IPV6_2292PKTOPTIONS
    {75, EPERM},                                                     // IPV6_TRANSPARENT
};
inline constexpr Option kTcpOptions[] = {
    {14, EPERM},       {32, EPERM},  // TCP_MD5SIG, TCP_MD5SIG_EXT
    {19, EPERM},       {20, EPERM},      {21, EPERM},      {22, EPERM},
    {29, EPERM},                                                              // TCP_REPAIR and its queues, options, window
    {30, EOPNOTSUPP},  {23, EOPNOTSUPP}, {33, EOPNOTSUPP}, {34, EOPNOTSUPP},  // TCP_FASTOPEN_CONNECT, _FASTOPEN, _KEY, _NO_COOKIE
    {31, ENOPROTOOPT},                                                        // TCP_ULP: TLS libraries go on without
    {38, EPERM},       {39, EPERM},      {40, EPERM},      {42, EPERM},       // TCP_AO_*
};

// TIOCSTI, TIOCLINUX, TIOCCONS and TIOCSETD reach the terminal's other readers; SIOCGSKNS gives a namespace away;
// USERFAULTFD_IOC_NEW is userfaultfd by another name.
inline constexpr uint32_t kIoctls[] = {0x5412, 0x541c, 0x541d, 0x5423, 0x894c, 0xaa00};

// New namespaces of any kind. CLONE_NEWTIME shares its bit with clone's exit signal, where it cannot be asked for.
inline constexpr uint32_t kCloneNew = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000;
inline constexpr uint32_t kCloneNewTime = 0x00000080;

// Levels of setsockopt, and what of them is netfilter's own. 66 and above are IPV6_* again.
inline constexpr uint32_t kLevelIp = 0, kLevelSocket = 1, kLevelTcp = 6, kLevelIpv6 = 41, kLevelMptcp = 284;
inline constexpr std::pair<uint32_t, uint32_t> kNetfilter6{64, 65};
inline constexpr std::pair<uint32_t, uint32_t> kNetfilter4{64, 255};

}  // namespace sluice::supervisor::rules
