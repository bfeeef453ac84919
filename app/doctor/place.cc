#include "app/doctor/place.h"

#include <fmt/format.h>

#include <string_view>

namespace sluice::app {
namespace {

constexpr unsigned kSysAdmin = 21;

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// gVisor's release is that of no kernel that was ever built by somebody, which "(user@host) (compiler ...)" in /proc/version
// tells.
bool IsGvisor(const PlaceFacts& facts) {
  if (Has(facts.kernel_log, "Starting gVisor")) return true;
  if (Has(facts.release, "gvisor")) return true;
  return facts.release == "4.4.0" && !facts.proc_version.empty() && !Has(facts.proc_version, "(");
}

// Its releases end in -Microsoft; those of version 2 have "microsoft-standard", unless somebody built the kernel himself.
bool IsWsl1(const PlaceFacts& facts) {
  return facts.release.ends_with("-Microsoft") || Has(facts.proc_version, "Microsoft@Microsoft.com");
}
bool IsWsl2(const PlaceFacts& facts) {
  return Has(facts.release, "microsoft-standard") || Has(facts.release, "WSL2") || facts.wsl_interop;
}

Place ContainerOf(const PlaceFacts& facts) {
  if (facts.kubernetes || Has(facts.cgroup, "kubepods")) return Place::kKubernetes;
  if (facts.container == "podman" || Has(facts.containerenv, "podman") || Has(facts.cgroup, "libpod")) return Place::kPodman;
  if (facts.dockerenv || facts.container == "docker" || Has(facts.cgroup, "/docker/") || Has(facts.cgroup, "/docker-"))
    return Place::kDocker;
  if (facts.container == "lxc" || facts.container == "lxc-libvirt" || Has(facts.cgroup, "/lxc")) return Place::kLxc;
  if (facts.container == "systemd-nspawn") return Place::kNspawn;
  return facts.container.empty() && facts.containerenv.empty() ? Place::kLinux : Place::kContainer;
}

// What stands before user namespaces on the machine itself, in the order in which one learns of it.
std::string HostUserNamespaces(const PlaceFacts& facts) {
  const bool root = facts.uid == 0 && facts.initial_user_namespace;
  if (facts.chrooted) return "a process in a chroot may make none: start sluice outside of it";
  if (facts.max_user_namespaces == 0U) return "user.max_user_namespaces is 0: sysctl -w user.max_user_namespaces=15000";
  if (facts.max_net_namespaces == 0U) return "user.max_net_namespaces is 0: sysctl -w user.max_net_namespaces=15000";
  if (!root && facts.unprivileged_userns == 0U)
    return "kernel.unprivileged_userns_clone is 0: sysctl -w kernel.unprivileged_userns_clone=1, or start sluice as root";
  if (!root && facts.apparmor_restricts_userns)
    return "AppArmor gives unprivileged user namespaces no rights (kernel.apparmor_restrict_unprivileged_userns is 1): install "
           "the "
           "profile packaging/apparmor/sluice, which says `userns,`, start sluice as root, or set it to 0";
  return "";
}

std::string ContainerUserNamespaces(const PlaceFacts& facts, Place place) {
  switch (place) {
    case Place::kDocker:
      return "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
             "--security-opt systempaths=unconfined (the default profile lets no user namespace be made); --privileged gives "
             "more "
             "than is needed";
    case Place::kPodman:
      return "start the container with --security-opt seccomp=unconfined --security-opt unmask=ALL";
    case Place::kKubernetes:
      return "set in the container's securityContext: seccompProfile: {type: Unconfined} or a Localhost profile that allows "
             "unshare, "
             "clone, setns, mount and pidfd_getfd, appArmorProfile: {type: Unconfined}, and procMount: Unmasked with hostUsers: "
             "false "
             "on the pod; where that is not wanted, fence the pod by `sluice sidecar`, which needs NET_ADMIN alone";
    case Place::kLxc:
      return "set security.nesting=true for the container";
    case Place::kNspawn:
      return "start it with --system-call-filter='@mount @privileged' and --private-users=no or pick";
    default:
      return facts.filtered ? "a seccomp filter of whoever started this stands before it: allow unshare, clone, setns, mount and "
                              "pidfd_getfd"
                            : "";
  }
}

std::string FreshProc(Place place) {
  switch (place) {
    case Place::kDocker:
      return "the container's /proc is masked: start it with --security-opt systempaths=unconfined";
    case Place::kPodman:
      return "the container's /proc is masked: start it with --security-opt unmask=ALL";
    case Place::kKubernetes:
      return "the container's /proc is masked: set procMount: Unmasked in its securityContext, and hostUsers: false on the pod";
    default:
      return "something is mounted over parts of /proc, and the kernel mounts no fresh one then: unmount it, or start sluice "
             "where it "
             "is whole";
  }
}

std::string NetAdmin(const PlaceFacts& facts, Place place) {
  switch (place) {
    case Place::kDocker:
    case Place::kPodman:
      return "start the sidecar's container with --cap-add NET_ADMIN and --network container:WORKLOAD";
    case Place::kKubernetes:
      return "give the sidecar's container securityContext: {capabilities: {add: [NET_ADMIN]}} (docs/kubernetes.md)";
    default:
      return facts.uid == 0
                 ? "CAP_NET_ADMIN was taken away: give it back (AmbientCapabilities=, capsh)"
                 : "start it as root, or with CAP_NET_ADMIN (AmbientCapabilities=CAP_NET_ADMIN, setcap cap_net_admin+ep)";
  }
}

}  // namespace

Place PlaceOf(const PlaceFacts& facts) {
  if (IsGvisor(facts)) return Place::kGvisor;
  if (IsWsl1(facts)) return Place::kWsl1;
  const Place container = ContainerOf(facts);
  if (container != Place::kLinux) return container;
  return IsWsl2(facts) ? Place::kWsl2 : Place::kLinux;
}

std::string PlaceText(Place place) {
  switch (place) {
    case Place::kLinux:
      return "Linux";
    case Place::kGvisor:
      return "a gVisor sandbox";
    case Place::kWsl1:
      return "WSL 1";
    case Place::kWsl2:
      return "WSL 2";
    case Place::kDocker:
      return "a Docker container";
    case Place::kPodman:
      return "a Podman container";
    case Place::kKubernetes:
      return "a Kubernetes pod";
    case Place::kLxc:
      return "an LXC container";
    case Place::kNspawn:
      return "a systemd-nspawn container";
    case Place::kContainer:
      return "a container";
  }
  return "?";
}

const char* PlaceName(Place place) {
  switch (place) {
    case Place::kLinux:
      return "linux";
    case Place::kGvisor:
      return "gvisor";
    case Place::kWsl1:
      return "wsl1";
    case Place::kWsl2:
      return "wsl2";
    case Place::kDocker:
      return "docker";
    case Place::kPodman:
      return "podman";
    case Place::kKubernetes:
      return "kubernetes";
    case Place::kLxc:
      return "lxc";
    case Place::kNspawn:
      return "nspawn";
    case Place::kContainer:
      return "container";
  }
  return "?";
}

bool IsContainer(Place place) {
  return place != Place::kLinux && place != Place::kGvisor && place != Place::kWsl1 && place != Place::kWsl2;
}

bool IsImitation(Place place) { return place == Place::kGvisor || place == Place::kWsl1; }

bool Holds(const PlaceFacts& facts, unsigned capability) { return (facts.capabilities >> capability & 1) != 0; }

std::string WhatToAdd(const PlaceFacts& facts, Lack lack) {
  const Place place = PlaceOf(facts);
  if (IsImitation(place)) return PlaceRemark(facts);
  switch (lack) {
    case Lack::kUserNamespaces:
      if (const std::string host = HostUserNamespaces(facts); !host.empty()) return host;
      return ContainerUserNamespaces(facts, place);
    case Lack::kProc:
      return FreshProc(place);
    case Lack::kNetAdmin:
      return NetAdmin(facts, place);
    case Lack::kTracing:
      if (facts.ptrace_scope == 3U)
        return "kernel.yama.ptrace_scope is 3, which nobody can take back until the next boot: start the machine with 2 or less";
      if (facts.ptrace_scope == 2U && !Holds(facts, kSysAdmin))
        return "kernel.yama.ptrace_scope is 2, so only root may: sysctl -w kernel.yama.ptrace_scope=1, or start sluice as root";
      return ContainerUserNamespaces(facts, place);
    case Lack::kNotifications:
      return facts.filtered
                 ? "a seccomp filter of whoever started this stands before it: allow seccomp(2), and start no other supervisor "
                   "of notifications above this one"
                 : "the kernel needs CONFIG_SECCOMP_FILTER, and Linux 5.5 or later";
  }
  return "";
}

std::string PlaceRemark(const PlaceFacts& facts) {
  switch (PlaceOf(facts)) {
    case Place::kGvisor:
      return "gVisor answers system calls itself and has no seccomp notifications, no Landlock and no nftables of ours: run "
             "sluice outside "
             "the sandbox, as the supervisor of `runsc`'s pod (sluice sidecar), or use runc for this workload";
    case Place::kWsl1:
      return "WSL 1 is no Linux kernel but a translation, without namespaces, seccomp notifications and nftables: move the "
             "distribution "
             "to WSL 2 (in PowerShell: wsl --set-version NAME 2)";
    case Place::kWsl2:
      return "WSL 2 runs Microsoft's kernel: what it lacks comes with `wsl --update`, or with a kernel of one's own (.wslconfig, "
             "kernel=)";
    default:
      return "";
  }
}

}  // namespace sluice::app
