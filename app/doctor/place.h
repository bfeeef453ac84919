#pragma once

// Where this process runs, as far as that decides what can be enforced: a real Linux, one that a sandbox imitates, a container
// with or without the rights it would need. Found from facts that were gathered before (app/doctor/io/facts.h): pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::app {

/// What was read of this machine. An empty text: not there, or not readable.
struct PlaceFacts {
  std::string machine{};       ///< uname -m
  std::string release{};       ///< uname -r
  std::string version{};       ///< uname -v
  std::string proc_version{};  ///< /proc/version
  std::string kernel_log{};    ///< the first lines of the kernel's ring buffer, where it may be read
  std::string cgroup{};        ///< /proc/self/cgroup
  std::string container{};     ///< `container` of this process's or process 1's environment (systemd's container interface)
  std::string containerenv{};  ///< /run/.containerenv, which Podman fills
  std::string apparmor{};      ///< /proc/self/attr/current
  std::string product{};       ///< /sys/class/dmi/id/product_name
  bool dockerenv = false;      ///< /.dockerenv
  bool kubernetes = false;     ///< KUBERNETES_SERVICE_HOST, or a service account's folder
  bool wsl_interop = false;    ///< /proc/sys/fs/binfmt_misc/WSLInterop, or /run/WSL
  bool hypervisor = false;     ///< the CPU says that it is virtual
  bool chrooted = false;       ///< the root is not its mount namespace's
  bool filtered = false;       ///< Seccomp: 2 of /proc/self/status
  bool no_new_privs = false;
  bool masked_proc = false;                       ///< something is mounted over parts of /proc
  unsigned uid = 0;                               ///< effective
  bool initial_user_namespace = true;             ///< its uid map is the whole range
  uint64_t capabilities = 0;                      ///< effective
  bool apparmor_restricts_userns = false;         ///< kernel.apparmor_restrict_unprivileged_userns = 1 (Ubuntu 23.10)
  std::optional<uint64_t> unprivileged_userns{};  ///< kernel.unprivileged_userns_clone, of Debian's kernels
  std::optional<uint64_t> max_user_namespaces{};  ///< user.max_user_namespaces
  std::optional<uint64_t> max_net_namespaces{};
  std::optional<uint64_t> ptrace_scope{};  ///< kernel.yama.ptrace_scope
};

enum class Place : uint8_t {
  kLinux,   ///< nothing between
  kGvisor,  ///< a kernel of its own, in user space
  kWsl1,    ///< a translation of system calls
  kWsl2,    ///< a virtual machine with Microsoft's kernel
  kDocker,
  kPodman,
  kKubernetes,
  kLxc,
  kNspawn,
  kContainer,  ///< some other
};

[[nodiscard]] Place PlaceOf(const PlaceFacts& facts);
/// "a Docker container", as it stands after "in".
[[nodiscard]] std::string PlaceText(Place place);
/// "docker": of the machine-readable report.
[[nodiscard]] const char* PlaceName(Place place);
[[nodiscard]] bool IsContainer(Place place);
/// Whether nothing here can work, whatever is switched on: the system calls of another kernel are missing.
[[nodiscard]] bool IsImitation(Place place);

/// One of the first capabilities, by its number in capabilities(7).
[[nodiscard]] bool Holds(const PlaceFacts& facts, unsigned capability);

/// What is to be added here, and how, for a mode that needs these; a sentence each, empty where nothing is known.
enum class Lack : uint8_t {
  kUserNamespaces,  ///< none may be made, or no rights are given in one
  kProc,            ///< a fresh /proc may not be mounted
  kNetAdmin,        ///< CAP_NET_ADMIN
  kTracing,         ///< pidfd_getfd is refused
  kNotifications,   ///< seccomp notifications
};
[[nodiscard]] std::string WhatToAdd(const PlaceFacts& facts, Lack lack);
/// Of the place as a whole: "gVisor answers system calls itself ...". Empty where there is nothing to say.
[[nodiscard]] std::string PlaceRemark(const PlaceFacts& facts);

}  // namespace sluice::app
