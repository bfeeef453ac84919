#include "supervisor/io/user_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/capability.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/unique_fd.h"
#include "supervisor/id_map.h"
#include "supervisor/io/small_file.h"

namespace sluice::supervisor {
namespace {

bool HasEffective(cap_value_t capability) {
  cap_t caps = cap_get_proc();
  if (caps == nullptr) return false;
  cap_flag_value_t value = CAP_CLEAR;
  cap_get_flag(caps, capability, CAP_EFFECTIVE, &value);
  cap_free(caps);
  return value == CAP_SET;
}

std::vector<IdRange> MappableIds(const char* own_map, bool may_set, uint32_t own_id) {
  if (may_set) {
    if (const auto text = ReadSmallFile(own_map))
      if (auto ranges = ParseIdMap(*text)) return *ranges;
  }
  return {{own_id, 1}};
}

}  // namespace

Result<void> WriteIdentityMaps(pid_t pid) {
  // Mapping root needs CAP_SETFCAP besides (Linux 5.12).
  const bool may_set = HasEffective(CAP_SETUID) && HasEffective(CAP_SETGID) && HasEffective(CAP_SETFCAP);
  const std::string folder = fmt::format("/proc/{}/", pid);
  if (!may_set)
    if (auto denied = WriteSmallFile(folder + "setgroups", "deny"); !denied) return denied;
  const auto uids = MappableIds("/proc/self/uid_map", may_set, ::geteuid());
  const auto gids = MappableIds("/proc/self/gid_map", may_set, ::getegid());
  if (auto written = WriteSmallFile(folder + "uid_map", FormatIdentityMap(uids)); !written) return written;
  return WriteSmallFile(folder + "gid_map", FormatIdentityMap(gids));
}

Error NamespaceError(const char* what, int sys_errno) {
  Error error = SystemError(fmt::format("cannot create {}", what), sys_errno);
  error.code = Code::kUnsupported;
  if (sys_errno == EPERM || sys_errno == EACCES)
    error.message +=
        " (unprivileged user namespaces are off: see kernel.unprivileged_userns_clone, "
        "kernel.apparmor_restrict_unprivileged_userns, or a container's seccomp profile; a chroot makes none either)";
  if (sys_errno == ENOSPC || sys_errno == EUSERS) error.message += " (see user.max_user_namespaces and user.max_net_namespaces)";
  return error;
}

}  // namespace sluice::supervisor
