#include "supervisor/io/mount_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

#include "base/fault.h"

namespace sluice::supervisor {

Result<UniqueFd> CloneTree(const std::string& path, CloneDepth depth) {
  unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;
  if (depth == CloneDepth::kRecursive) flags |= AT_RECURSIVE;
  UniqueFd mount(Faulty("mount.tree", [&] { return ::open_tree(AT_FDCWD, path.c_str(), flags); }));
  if (!mount) return FailErrno(fmt::format("cannot show {} to the workload", path), errno);
  return mount;
}

Result<UniqueFd> NewFileSystem(const char* type, std::initializer_list<std::pair<const char*, const char*>> options,
                               uint64_t attributes) {
  const UniqueFd context(Faulty("mount.open", [&] { return ::fsopen(type, FSOPEN_CLOEXEC); }));
  if (!context) return FailErrno(fmt::format("cannot open file system type {}", type), errno);
  for (const auto& [key, value] : options)
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) != 0)
      return FailErrno(fmt::format("cannot set {}={} on a {}", key, value, type), errno);
  if (Faulty("mount.create", [&] { return ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0); }) != 0)
    return FailErrno(fmt::format("cannot create a {}", type), errno);
  UniqueFd mount(
      Faulty("mount.mount", [&] { return ::fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes)); }));
  if (!mount) {
    const int error = errno;
    if (error == EPERM)
      return Fail(Code::kUnsupported,
                  fmt::format("cannot mount a new {} in a user namespace (a container that hides parts of /proc "
                              "prevents it)",
                              type));
    return FailErrno(fmt::format("cannot mount a {}", type), error);
  }
  return mount;
}

Result<void> SetAttributes(int mount, uint64_t attributes, const std::string& what) {
  mount_attr change{};
  change.attr_set = attributes;
  change.propagation = MS_PRIVATE;
  const auto set = [&] { return ::mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &change, sizeof change); };
  if (Faulty("mount.attributes", set) == 0) return {};
  const int error = errno;
  if (error == ENOSYS) return Fail(Code::kUnsupported, "this kernel has no mount_setattr (Linux 5.12)");
  return FailErrno(fmt::format("cannot restrict the mounts of {}", what), error);
}

Result<void> Attach(int mount, const std::string& target) {
  const auto move = [&] { return ::move_mount(mount, "", AT_FDCWD, target.c_str(), MOVE_MOUNT_F_EMPTY_PATH); };
  if (Faulty("mount.attach", move) != 0) return FailErrno(fmt::format("cannot mount {} in the workload's view", target), errno);
  return {};
}

}  // namespace sluice::supervisor
