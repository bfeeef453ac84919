#include "tests/attack/launch/host_trees.h"

#include <sched.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "supervisor/io/opened_folders.h"

namespace sluice::supervisor {
namespace {

void Write(const std::string& path, mode_t mode, const char* text = "secret") {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
}

bool Folder(const std::string& path, mode_t mode) { return ::mkdir(path.c_str(), mode) == 0 && ::chmod(path.c_str(), mode) == 0; }

bool MountFile(const std::string& from, const std::string& over) {
  return ::mount(from.c_str(), over.c_str(), nullptr, MS_BIND, nullptr) == 0;
}

// What a user namespace sees of its parent's mounts is locked together. All ids stay what they are.
bool Lock() {
  int entered[2];
  int mapped[2];
  if (::pipe(entered) != 0 || ::pipe(mapped) != 0) return false;
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    ::close(entered[1]);
    if (::read(entered[0], &byte, 1) != 1) ::_exit(1);
    for (const char* map : {"uid_map", "gid_map"}) std::ofstream("/proc/" + std::to_string(self) + "/" + map) << "0 0 4294967295";
    ::_exit(::write(mapped[1], "", 1) == 1 ? 0 : 1);
  }
  ::close(mapped[1]);
  const bool done = child > 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && ::write(entered[1], "", 1) == 1 &&
                    ::read(mapped[0], &byte, 1) == 1;
  for (const int fd : {entered[0], entered[1], mapped[0]}) ::close(fd);
  return ::waitpid(child, nullptr, 0) == child && done;
}

bool Tmpfs(const char* path) { return ::mount("tmpfs", path, "tmpfs", 0, "mode=0755") == 0; }

bool Fill() {
  if (!Tmpfs("/opt") || !Folder("/opt/mounted", 0755) || !Tmpfs("/opt/mounted") || !Folder("/opt/service", 01777) ||
      !Folder("/opt/mounted/service", 01777) || !Folder("/opt/closed", 0700))
    return false;
  Write("/opt/secret", 0600);
  Write("/opt/group", 0640);
  Write("/opt/closed/inside", 0644);
  Write("/opt/mounted/secret", 0600);
  Write("/opt/service/secret", 0600);
  Write("/opt/open", 0644);
  Write("/opt/mounted/above", 0644, "above");
  Write("/opt/over", 0644, "below");
  Write("/opt/covered", 0644, "below");
  if (!MountFile("/opt/mounted/above", "/opt/over") || !MountFile("/opt/secret", "/opt/covered")) return false;
  if (std::getenv("SLUICE_TEST_CROWDED") != nullptr)
    for (size_t i = 0; i < kMaxOpenedEntries; ++i) Write("/opt/" + std::to_string(i), 0644);
  return true;
}

}  // namespace

bool MakeHostTrees() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
  if (uid != 0) {
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << uid << " " << uid << " 1";
    std::ofstream("/proc/self/gid_map") << gid << " " << gid << " 1";
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !Fill()) {
    std::perror("cannot make a host for the tests");
    return false;
  }
  if (uid == 0) return std::getenv("SLUICE_TEST_LOCKED") == nullptr || Lock();
  const cap_t none = ::cap_init();
  const bool dropped = ::cap_set_proc(none) == 0;
  ::cap_free(none);
  return dropped;
}

}  // namespace sluice::supervisor
