#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/attack/launch/attempts.h"

namespace sluice::attack {
namespace {

sockaddr_in InetAddress(uint32_t host_order, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host_order);
  address.sin_port = htons(port);
  return address;
}

// Deletes the route that makes every address local: the errno of the kernel's answer, 0 when it was done.
int DeleteLocalDefault() {
  struct {
    nlmsghdr header;
    rtmsg route;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_DELROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  request.route.rtm_family = AF_INET;
  request.route.rtm_table = RT_TABLE_LOCAL;
  request.route.rtm_type = RTN_LOCAL;
  request.route.rtm_scope = RT_SCOPE_HOST;
  const int socket = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  if (socket < 0) return errno;
  if (::send(socket, &request, sizeof request, 0) < 0) return errno;
  struct {
    nlmsghdr header;
    nlmsgerr error;
    std::array<char, 256> rest;
  } answer{};
  if (::recv(socket, &answer, sizeof answer, 0) < 0) return errno;
  return -answer.error.error;
}

int TryBind(int type, uint16_t port) {
  const sockaddr_in address = InetAddress(0x08080808, port);
  return ::bind(::socket(AF_INET, type, 0), reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

std::string StatusLine(const char* name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return line.substr(line.find_first_not_of(" \t", std::string(name).size() + 1));
  return "?";
}

}  // namespace

void UseInherited(Report& report, Arguments) {
  DIR* folder = ::opendir("/proc/self/fd");
  report.Check(folder != nullptr, "cannot look at /proc/self/fd");
  while (const dirent* entry = folder != nullptr ? ::readdir(folder) : nullptr) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != ::dirfd(folder)) report.Check(false, std::string("descriptor ") + entry->d_name + " was inherited");
  }
  for (int fd = 3; fd < 4096; ++fd)
    if (folder == nullptr || fd != ::dirfd(folder))
      report.Failed(::fcntl(fd, F_GETFD), "inherited descriptor " + std::to_string(fd));
  if (folder != nullptr) ::closedir(folder);
}

void DialAbstract(Report& report, Arguments arguments) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  arguments[0].copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + arguments[0].size());
  report.Failed(::connect(::socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address), length),
                "connect to an abstract socket of the host");
}

void ReachSupervisor(Report& report, Arguments arguments) {
  const int pid = std::stoi(arguments[0]);
  const std::string folder = "/proc/" + arguments[0];
  report.Failed(::open(folder.c_str(), O_RDONLY), "open " + folder);
  report.Failed(::open((folder + "/mem").c_str(), O_RDWR), "open its memory");
  report.Failed(::kill(pid, SIGKILL), "kill it");
  report.Failed(::ptrace(PTRACE_SEIZE, pid, 0, 0), "ptrace it");
  report.Failed(::syscall(SYS_pidfd_open, pid, 0), "pidfd_open it");
  std::array<char, 8> bytes{};
  iovec local{.iov_base = bytes.data(), .iov_len = bytes.size()};
  report.Failed(::process_vm_readv(pid, &local, 1, &local, 1, 0), "read its memory");
  report.Check(::getppid() == 1 || ::getppid() == 0, "the parent is a process of the host");
}

void ReachInit(Report& report, Arguments) {
  report.Failed(::ptrace(PTRACE_SEIZE, 1, 0, 0), "ptrace process 1");
  report.Failed(::ptrace(PTRACE_ATTACH, 1, 0, 0), "attach to process 1");
  for (const char* path : {"/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/auxv", "/proc/1/syscall"}) {
    const int fd = ::open(path, O_RDONLY);
    std::array<char, 8> bytes{};
    report.Check(fd < 0 || ::read(fd, bytes.data(), bytes.size()) <= 0, std::string("read ") + path);
  }
  std::ifstream command_line("/proc/1/cmdline");
  const std::string shown((std::istreambuf_iterator<char>(command_line)), {});
  report.Check(shown.find_first_not_of('\0') == std::string::npos, "read the supervisor's arguments");
  std::array<char, 256> target{};
  for (int fd = 0; fd < 64; ++fd) {
    const std::string entry = "/proc/1/fd/" + std::to_string(fd);
    report.Failed(::readlink(entry.c_str(), target.data(), target.size()),
                  "look at descriptor " + std::to_string(fd) + " of process 1");
    report.Failed(::open(entry.c_str(), O_RDONLY | O_NONBLOCK), "open descriptor " + std::to_string(fd) + " of process 1");
  }
  report.Failed(::open("/proc/1/root/etc/passwd", O_RDONLY), "through the root of process 1");
  report.Failed(::open("/proc/1/ns/net", O_RDONLY), "open a namespace of process 1");
  ::kill(1, SIGKILL);
  ::kill(1, SIGTERM);
  ::kill(1, SIGSTOP);
  report.Check(::getppid() == 1, "process 1 was killed");
}

void KillEverything(Report& report, Arguments arguments) {
  ::kill(arguments[0] == "all" ? -1 : 0, SIGKILL);
  report.Check(arguments[0] == "all", "kill(0) did not even reach this process");
}

void ChangeNetwork(Report& report, Arguments) {
  report.Check(DeleteLocalDefault() == EPERM, "delete the local default route");
  const int on = 1;
  const int stream = ::socket(AF_INET, SOCK_STREAM, 0);
  report.Failed(::setsockopt(stream, IPPROTO_IP, 19 /* IP_TRANSPARENT */, &on, sizeof on), "IP_TRANSPARENT");
  report.Failed(::setsockopt(stream, SOL_SOCKET, SO_MARK, &on, sizeof on), "SO_MARK");
  report.Failed(::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), "a raw socket");
  report.Failed(::socket(AF_PACKET, SOCK_RAW, 0), "a packet socket");
  const int netfilter = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
  const nlmsghdr request{.nlmsg_len = sizeof request,
                         .nlmsg_type = 0x0a00,
                         .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                         .nlmsg_seq = 1,
                         .nlmsg_pid = 0};
  report.Check(
      netfilter < 0 || ::send(netfilter, &request, sizeof request, 0) < 0 ||
          [&] {
            struct {
              nlmsghdr header;
              nlmsgerr error;
            } answer{};
            return ::recv(netfilter, &answer, sizeof answer, 0) > 0 && answer.error.error == -EPERM;
          }(),
      "talk to nftables");
  report.Failed(TryBind(SOCK_DGRAM, 53), "bind 8.8.8.8:53/udp");
  report.Failed(TryBind(SOCK_STREAM, 53), "bind 8.8.8.8:53/tcp");
  report.Failed(TryBind(SOCK_STREAM, 801), "bind the listener's port");
  for (const char* path : {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/net/ipv4/ip_forward"})
    report.Failed(::open(path, O_WRONLY), std::string("write ") + path);
  report.Failed(::open("/proc/self/ns/net", O_WRONLY), "open the namespace for writing");
}

void NestNamespaces(Report& report, Arguments arguments) {
  // Refused outright is as good as leading nowhere.
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) return;
  const sockaddr_in outside = InetAddress(0x01010101, 443);
  report.Failed(::connect(::socket(AF_INET, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&outside), sizeof outside),
                "connect from a nested network namespace");
  report.Failed(
      ::sendto(::socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, reinterpret_cast<const sockaddr*>(&outside), sizeof outside),
      "send from a nested network namespace");
  PeelNested(report, arguments);
  // Full capabilities in a nested user namespace are none over the capture's: back in it, through a process that stayed.
  const int original = ::open("/proc/1/ns/net", O_RDONLY);
  report.Failed(original, "reach the capture's namespace from a nested one");
}

void UseKeyring(Report& report, Arguments arguments) {
  const long serial = std::stol(arguments[0]);
  std::array<char, 64> bytes{};
  report.Failed(::syscall(SYS_keyctl, 11 /* KEYCTL_READ */, serial, bytes.data(), bytes.size()), "read the supervisor's key");
  report.Failed(::syscall(SYS_keyctl, 10 /* KEYCTL_SEARCH */, -3 /* session */, "user", "sluice-test", 0),
                "find it in the session keyring");
}

void UseSharedMemory(Report& report, Arguments arguments) {
  report.Failed(::shmget(static_cast<key_t>(std::stol(arguments[0])), 0, 0), "open shared memory of the host");
}

void HoldPrivileges(Report& report, Arguments) {
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    report.Check(StatusLine(set) == "0000000000000000", std::string("capabilities in ") + set);
  report.Check(StatusLine("NoNewPrivs") == "1", "no_new_privs is off");
  report.Check(StatusLine("Seccomp") == "2", "no seccomp filter");
  const int bits = ::prctl(PR_GET_SECUREBITS);
  report.Check((bits & SECBIT_NOROOT) != 0 && (bits & SECBIT_NOROOT_LOCKED) != 0, "root's capabilities come back at execve");
  report.Failed(::prctl(PR_SET_SECUREBITS, 0), "change the secure bits");
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  report.Check(core.rlim_max <= 1, "core files");
  report.Failed(::setuid(::getuid() == 0 ? 1000 : 0), "change uid");
  report.Failed(::sethostname("x", 1), "change the host name");
  report.Failed(::syscall(SYS_setns, ::open("/proc/self/ns/user", O_RDONLY), CLONE_NEWUSER), "re-enter the user namespace");
}

}  // namespace sluice::attack
