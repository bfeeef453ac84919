#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/attack/launch/attempts.h"

namespace sluice::attack {

void Report::Failed(long result, std::string_view what, std::span<const int> errors) {
  const int error = errno;
  const bool expected = errors.empty() || std::ranges::find(errors, error) != errors.end();
  if (result < 0 && !expected) std::printf("errno %d (%s): ", error, std::strerror(error));
  Check(result < 0 && expected, what);
}

namespace {

constexpr std::array kReadOnlyErrors = {EROFS, EACCES, EBUSY, EPERM, EXDEV, ENOTDIR, EISDIR, EEXIST, ENOTEMPTY};

std::string Folder(const std::string& path) { return path.substr(0, path.rfind('/')); }

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// Every way a file can come to hold something else.
void TryToReplace(Report& report, const std::string& path) {
  report.Failed(::open(path.c_str(), O_WRONLY), "open for writing " + path, kReadOnlyErrors);
  report.Failed(::open(path.c_str(), O_RDWR | O_TRUNC), "open truncating " + path, kReadOnlyErrors);
  report.Failed(::truncate(path.c_str(), 0), "truncate " + path, kReadOnlyErrors);
  report.Failed(::chmod(path.c_str(), 0777), "chmod " + path, kReadOnlyErrors);
  report.Failed(::unlink(path.c_str()), "unlink " + path, kReadOnlyErrors);
  report.Failed(::rename(path.c_str(), (path + ".old").c_str()), "rename away " + path, kReadOnlyErrors);
  const std::string mine = Folder(path) + "/mine";
  ::close(::open(mine.c_str(), O_CREAT | O_WRONLY, 0644));
  report.Failed(::rename(mine.c_str(), path.c_str()), "rename over " + path, kReadOnlyErrors);
  report.Failed(::link(path.c_str(), (Folder(path) + "/alias").c_str()), "hard link of " + path, kReadOnlyErrors);
  report.Failed(::syscall(SYS_renameat2, AT_FDCWD, mine.c_str(), AT_FDCWD, path.c_str(), 2 /* RENAME_EXCHANGE */),
                "exchange with " + path, kReadOnlyErrors);
  const int reading = ::open(path.c_str(), O_RDONLY);
  if (reading >= 0) {
    const std::string reopened = "/proc/self/fd/" + std::to_string(reading);
    report.Failed(::open(reopened.c_str(), O_WRONLY), "reopen for writing " + path, kReadOnlyErrors);
    report.Failed(::fchmod(reading, 0777), "fchmod " + path, kReadOnlyErrors);
  }
  for (std::string folder = Folder(path); folder.size() > 1; folder = Folder(folder))
    report.Failed(::rename(folder.c_str(), (folder + ".old").c_str()), "rename away " + folder, kReadOnlyErrors);
}

}  // namespace

void WriteProtected(Report& report, Arguments arguments) {
  for (const std::string& path : arguments) TryToReplace(report, path);
}

void WriteGitControls(Report& report, Arguments arguments) {
  for (const std::string& repository : arguments) {
    TryToReplace(report, repository + "/.git/config");
    report.Failed(::open((repository + "/.git/hooks/post-checkout").c_str(), O_CREAT | O_WRONLY, 0755), "create a hook",
                  kReadOnlyErrors);
    report.Failed(::rename((repository + "/.git/hooks").c_str(), (repository + "/.git/h").c_str()), "rename hooks",
                  kReadOnlyErrors);
    report.Failed(::rename((repository + "/.git").c_str(), (repository + "/.g").c_str()), "rename .git", kReadOnlyErrors);
  }
}

void DialPathSockets(Report& report, Arguments arguments) {
  constexpr std::array kHidden = {ENOENT, EACCES, EPERM};
  const sockaddr_un stream = UnixAddress(arguments[0]);
  const sockaddr_un datagram = UnixAddress(arguments[1]);
  report.Failed(::connect(::socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&stream), sizeof stream),
                "connect to a socket of the host", kHidden);
  report.Failed(
      ::sendto(::socket(AF_UNIX, SOCK_DGRAM, 0), "x", 1, 0, reinterpret_cast<const sockaddr*>(&datagram), sizeof datagram),
      "send to a socket of the host", kHidden);
  const std::string alias = Folder(arguments[0]) + "/alias";
  ::link(arguments[0].c_str(), alias.c_str());
  const sockaddr_un linked = UnixAddress(alias);
  report.Failed(::connect(::socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&linked), sizeof linked),
                "connect through a hard link", kHidden);
  report.Failed(::open(arguments[2].c_str(), O_WRONLY | O_NONBLOCK), "open a FIFO of the host", kHidden);
  report.Failed(::chmod(arguments[0].c_str(), 0777), "chmod the mask");
  report.Failed(::unlink(arguments[0].c_str()), "unlink the mask");
}

// Every call that can name a UNIX socket, on every kind of it, then the opening of a FIFO. Nobody may be at the other end.
void DialSystemTree(Report& report, Arguments arguments) {
  for (int i = 0; i < 1000 && ::access("go", F_OK) != 0; ++i) ::usleep(10'000);
  for (const std::string& path : arguments) {
    sockaddr_un address = UnixAddress(path);
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    iovec byte{.iov_base = const_cast<char*>("x"), .iov_len = 1};
    mmsghdr message{};
    message.msg_hdr.msg_name = &address;
    message.msg_hdr.msg_namelen = sizeof address;
    message.msg_hdr.msg_iov = &byte;
    message.msg_hdr.msg_iovlen = 1;
    for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
      const int socket = ::socket(AF_UNIX, type, 0);
      report.Failed(::connect(socket, name, sizeof address), "connect to " + path);
      report.Failed(::sendto(socket, "x", 1, MSG_NOSIGNAL, name, sizeof address), "sendto " + path);
      report.Failed(::sendmsg(socket, &message.msg_hdr, MSG_NOSIGNAL), "sendmsg to " + path);
      report.Failed(::sendmmsg(socket, &message, 1, MSG_NOSIGNAL), "sendmmsg to " + path);
      ::close(socket);
    }
    report.Failed(::open(path.c_str(), O_WRONLY | O_NONBLOCK), "open as a FIFO " + path);
  }
}

void WriteSystem(Report& report, Arguments) {
  for (const char* path :
       {"/new", "/usr/new", "/etc/new", "/bin/new", "/dev/new", "/var/new", "/sys/new", "/proc/new", "/home/new"})
    report.Failed(::open(path, O_CREAT | O_WRONLY, 0644), std::string("create ") + path);
  for (const char* path :
       {"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe", "/proc/self/oom_score_adj",
        "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/net/ipv4/tcp_fastopen", "/etc/passwd", "/etc/resolv.conf",
        "/sys/devices/system/cpu/cpu1/online"})
    report.Failed(::open(path, O_WRONLY), std::string("write ") + path);
  for (const char* path : {"/tmp/device", "/dev/shm/device"})
    report.Failed(::mknod(path, S_IFCHR | 0666, static_cast<dev_t>(0x0103)), std::string("mknod ") + path);
}

void ReadSecrets(Report& report, Arguments arguments) {
  for (const char* path :
       {"/etc/shadow", "/etc/gshadow", "/proc/kcore", "/proc/keys", "/root/.bashrc", "/var/log/dpkg.log", "/boot", "/sys/kernel",
        "/sys/fs/cgroup", "/dev/mem", "/dev/vda", "/dev/kmsg", "/run/docker.sock", "/var/run/dbus/system_bus_socket"})
    report.Failed(::open(path, O_RDONLY), std::string("read ") + path);
  for (const std::string& path : arguments) report.Failed(::open(path.c_str(), O_RDONLY), "read " + path);
}

void PeelMounts(Report& report, Arguments arguments) {
  std::vector<std::string> places(arguments.begin(), arguments.end());
  places.insert(places.end(), {"/proc", "/etc", "/usr", "/tmp", "/etc/hosts"});
  for (const std::string& path : places) {
    report.Failed(::umount2(path.c_str(), MNT_DETACH), "umount " + path);
    report.Failed(::mount("none", path.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr), "remount " + path);
    report.Failed(::mount("/tmp", path.c_str(), nullptr, MS_BIND, nullptr), "bind over " + path);
    report.Failed(::syscall(SYS_open_tree, AT_FDCWD, path.c_str(), 1 /* OPEN_TREE_CLONE */), "open_tree " + path);
  }
  report.Failed(::mount("proc", "/tmp", "proc", 0, nullptr), "mount proc");
  report.Failed(::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr), "mount tmpfs");
  report.Failed(::chroot("/tmp"), "chroot");
  report.Failed(::syscall(SYS_pivot_root, "/tmp", "/tmp"), "pivot_root");
  report.Failed(::syscall(SYS_fsopen, "tmpfs", 0), "fsopen");
}

void PeelNested(Report& report, Arguments arguments) {
  constexpr unsigned kClone = 1;           // OPEN_TREE_CLONE
  constexpr unsigned kRecursive = 0x8000;  // AT_RECURSIVE
  constexpr unsigned kEmptyPath = 0x1000;  // AT_EMPTY_PATH
  for (const std::string& path : arguments) {
    const std::string name = path.substr(path.rfind('/') + 1);
    report.Failed(::umount2(path.c_str(), MNT_DETACH), "umount " + path);
    report.Failed(::mount("none", path.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr), "remount " + path);
    for (const std::string& from : {path, Folder(path)})
      for (const unsigned depth : {0U, kRecursive}) {
        const long tree = ::syscall(SYS_open_tree, AT_FDCWD, from.c_str(), kClone | depth);
        if (tree < 0) continue;
        mount_attr change{};
        change.attr_clr = MOUNT_ATTR_RDONLY;
        ::mount_setattr(static_cast<int>(tree), "", kEmptyPath | kRecursive, &change, sizeof change);
        const std::string inside = "/proc/self/fd/" + std::to_string(tree) + (from == path ? "" : "/" + name);
        report.Failed(::open(inside.c_str(), O_WRONLY | O_NONBLOCK), "write " + path + " through a clone of " + from);
        const sockaddr_un address = UnixAddress(inside);
        report.Failed(::connect(::socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address), sizeof address),
                      "connect to " + path + " through a clone");
        report.Failed(::syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp", 4 /* MOVE_MOUNT_F_EMPTY_PATH */), "attach a clone");
      }
  }
  report.Failed(::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr), "mount tmpfs");
  report.Failed(::mount("proc", "/tmp", "proc", 0, nullptr), "mount proc");
  report.Failed(::syscall(SYS_pivot_root, "/tmp", "/tmp"), "pivot_root");
}

}  // namespace sluice::attack
