#include "supervisor/io/container_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/fault.h"
#include "supervisor/container_text.h"
#include "supervisor/io/container_cgroup.h"
#include "supervisor/io/kernel.h"
#include "supervisor/io/small_file.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

Result<NamespaceId> IdAt(int folder, const char* name) {
  struct stat about{};
  if (Faulty("container.namespace", [&] { return ::fstatat(folder, name, &about, 0); }) != 0)
    return FailErrno(fmt::format("cannot look at {} of a container's process", name), errno);
  return NamespaceId{about.st_dev, about.st_ino};
}

Result<void> ReadNamespaces(ContainerProcess* process) {
  const int proc = process->proc.get();
  const std::pair<const char*, NamespaceId*> namespaces[] = {
      {"ns/net", &process->network}, {"ns/pid", &process->pids}, {"ns/mnt", &process->mounts}};
  for (const auto& [name, id] : namespaces) {
    auto found = IdAt(proc, name);
    if (!found) return std::unexpected(found.error());
    *id = *found;
  }
  process->network_namespace.Reset(Faulty("container.network", [&] { return ::openat(proc, "ns/net", O_RDONLY | O_CLOEXEC); }));
  if (!process->network_namespace) return FailErrno("cannot open a container's network namespace", errno);
  process->pid_namespace.Reset(Faulty("container.pids", [&] { return ::openat(proc, "ns/pid", O_RDONLY | O_CLOEXEC); }));
  if (!process->pid_namespace) return FailErrno("cannot open a container's process namespace", errno);
  const UniqueFd owner(Faulty("container.owner", [&] { return ::ioctl(process->network_namespace.get(), NS_GET_USERNS); }));
  if (!owner) {
    // Its user namespace is not below ours.
    return FailErrno("a container's network namespace is not this user's", errno);
  }
  if (Faulty("container.uid", [&] { return ::ioctl(owner.get(), NS_GET_OWNER_UID, &process->network_owner); }) != 0)
    return FailErrno("cannot tell whose a container's network namespace is", errno);
  return {};
}

// The first process of its pid namespace where that is among those which started it. Whoever enters a container was started
// outside.
std::optional<pid_t> FirstAbove(pid_t parent, const NamespaceId& pids) {
  constexpr int kGenerations = 64;
  for (int i = 0; i < kGenerations && parent > 1; ++i) {
    const std::string folder = fmt::format("/proc/{}", parent);
    const auto theirs = IdAt(AT_FDCWD, (folder + "/ns/pid").c_str());
    const auto text = theirs && *theirs == pids ? ReadSmallFile(folder + "/status") : Result<std::string>(std::string());
    const auto status = text ? ParseProcStatus(*text) : std::nullopt;
    if (!status) return std::nullopt;
    if (status->innermost_pid == 1) return parent;
    parent = status->parent;
  }
  return std::nullopt;
}

// That may be killed or frozen as a whole.
std::string OwnCgroup(const std::string& folder, const NamespaceId& pids) {
  const auto text = ReadSmallFile(folder + "/cgroup");
  const auto path = text ? ParseCgroup2Path(*text) : std::nullopt;
  return path && HoldsOnly(CgroupFolder(*path), pids) ? *path : std::string();
}

}  // namespace

Result<ContainerProcess> ExamineCaller(const SeccompChannel& channel, const seccomp_notif& notification) {
  ContainerProcess process;
  if (notification.pid == 0)
    return Fail(Code::kUnsupported,
                "the container's processes are in a pid namespace that this agent does not see; run it in the host's");
  const std::string folder = fmt::format("/proc/{}", notification.pid);
  process.proc.Reset(Faulty("container.folder", [&] { return ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  const auto status = ReadSmallFile(folder + "/status");
  const auto stat = ReadSmallFile(folder + "/stat");
  const auto parsed = status ? ParseProcStatus(*status) : std::nullopt;
  const auto capabilities = status ? ParseCapabilities(*status) : std::nullopt;
  const auto start = stat ? ParseStartTime(*stat) : std::nullopt;
  if (!process.proc || !parsed || !capabilities || !start)
    return channel.IsWaiting(notification.id) ? Fail(Code::kPermission, "the container's process cannot be looked at")
                                              : Fail(Code::kNotFound, "the container's process is gone");
  process.pid = parsed->thread_group;
  process.innermost_pid = parsed->innermost_pid;
  process.start_time = *start;
  process.capabilities = *capabilities;
  process.pidfd.Reset(kernel::PidfdOpen(process.pid, 0));
  if (!process.pidfd) return Fail(Code::kNotFound, "the container's process is gone");
  if (auto read = ReadNamespaces(&process); !read) return std::unexpected(read.error());
  process.cgroup = OwnCgroup(folder, process.pids);
  if (const auto first = process.innermost_pid == 1 ? std::nullopt : FirstAbove(parsed->parent, process.pids)) {
    const auto its_stat = ReadSmallFile(fmt::format("/proc/{}/stat", *first));
    const auto its_start = its_stat ? ParseStartTime(*its_stat) : std::nullopt;
    UniqueFd its_pidfd(kernel::PidfdOpen(*first, 0));
    if (!its_start || !its_pidfd) return Fail(Code::kNotFound, "the container's first process is gone");
    process.pid = *first;
    process.innermost_pid = 1;
    process.start_time = *its_start;
    process.pidfd = std::move(its_pidfd);
  }
  // All of it was this caller's: it stood in its call before and after.
  if (!channel.IsWaiting(notification.id)) return Fail(Code::kNotFound, "the container's process is gone");
  return process;
}

Result<void> CheckContained(const ContainerProcess& process, uid_t peer) {
  const std::pair<const char*, const NamespaceId*> namespaces[] = {
      {"net", &process.network}, {"pid", &process.pids}, {"mnt", &process.mounts}};
  for (const auto& [name, theirs] : namespaces) {
    const auto ours = IdAt(AT_FDCWD, fmt::format("/proc/self/ns/{}", name).c_str());
    if (!ours) return std::unexpected(ours.error());
    if (*ours == *theirs)
      return Fail(Code::kInvalid, fmt::format("it shares the {} namespace of this agent: give the container one of its own",
                                              name == std::string_view("net")   ? "network"
                                              : name == std::string_view("pid") ? "process"
                                                                                : "mount"));
  }
  if (peer != 0 && process.network_owner != peer)
    return Fail(Code::kInvalid,
                fmt::format("user {} asked for it, and its network namespace is user {}'s", peer, process.network_owner));
  if (const std::string leads_out = CapabilitiesThatLeadOut(process.capabilities); !leads_out.empty())
    return Fail(
        Code::kInvalid,
        fmt::format("it has {} in a capability set, its bounding set included: with that a process could undo what captures "
                    "it; take it from process.capabilities",
                    leads_out));
  return {};
}

}  // namespace sluice::supervisor
