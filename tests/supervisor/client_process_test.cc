#include "supervisor/io/client_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace sluice::supervisor {
namespace {

struct Accepted {
  UniqueFd socket;
  Endpoint client;
  Endpoint server;
};

class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(listen(fd_.get(), 16), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  [[nodiscard]] UniqueFd Connect() const {
    UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return client;
  }
  [[nodiscard]] Accepted Accept() const {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    UniqueFd socket(accept4(fd_.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    return {std::move(socket), *Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&from), size),
            *Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&address_), sizeof address_)};
  }

 private:
  UniqueFd fd_;
  sockaddr_in address_{};
};

/// A process that connects, and connects once more for each byte it is sent, until its end of the pipe closes.
class Connecting {
 public:
  explicit Connecting(const Listener& listener) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[1]);
      UniqueFd sockets[8];
      size_t made = 0;
      char byte = 0;
      do sockets[made++] = listener.Connect();
      while (read(ends[0], &byte, 1) == 1);
      _exit(0);
    }
    close(ends[0]);
    ask_.Reset(ends[1]);
  }
  ~Connecting() { End(); }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  void Again() { EXPECT_EQ(write(ask_.get(), "x", 1), 1); }
  void End() {
    ask_.Reset();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd ask_;
};

pid_t PidOf(ClientProcesses& processes, const Accepted& accepted) {
  const policy::ProcessPtr process = processes.OfTcpPeer(accepted.client, accepted.server, Digests::kNone);
  return process != nullptr ? process->pid : 0;
}

TEST(ClientProcesses, TellsEachConnectionsOwnProcess) {
  auto processes = ClientProcesses::Open();
  ASSERT_TRUE(processes);
  const Listener listener;
  const UniqueFd own = listener.Connect();
  EXPECT_EQ(PidOf(**processes, listener.Accept()), getpid());
  Connecting first(listener);
  EXPECT_EQ(PidOf(**processes, listener.Accept()), first.pid());
  Connecting second(listener);
  EXPECT_EQ(PidOf(**processes, listener.Accept()), second.pid());
  for (int i = 0; i < 3; ++i) {
    first.Again();
    EXPECT_EQ(PidOf(**processes, listener.Accept()), first.pid());
    second.Again();
    EXPECT_EQ(PidOf(**processes, listener.Accept()), second.pid());
    const UniqueFd more = listener.Connect();
    EXPECT_EQ(PidOf(**processes, listener.Accept()), getpid());
  }
}

TEST(ClientProcesses, TellsNobodyOfAProcessThatHasEnded) {
  auto processes = ClientProcesses::Open();
  ASSERT_TRUE(processes);
  const Listener listener;
  Connecting client(listener);
  const Accepted accepted = listener.Accept();
  EXPECT_EQ(PidOf(**processes, accepted), client.pid());
  client.End();
  EXPECT_EQ(PidOf(**processes, accepted), 0);
  // Nor is what is remembered of it in the way of the next one.
  Connecting next(listener);
  EXPECT_EQ(PidOf(**processes, listener.Accept()), next.pid());
}

// As of a client that has sixteen connections under way and opens another for each that ends, not always in their order.
TEST(SocketOwner, FindsTheDescriptorsOfManyConnectionsInFewLooks) {
  const UniqueFd proc(open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::vector<UniqueFd> sockets;
  std::vector<uint64_t> inodes;
  DescriptorHints hints;
  for (int i = 0; i < 16; ++i) {
    sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct stat about{};
    ASSERT_EQ(fstat(sockets.back().get(), &about), 0);
    inodes.push_back(about.st_ino);
    EXPECT_TRUE(SocketOwner::Holds(proc.get(), inodes.back(), &hints));
  }
  EXPECT_TRUE(SocketOwner::Holds(proc.get(), inodes.front(), &hints));
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 1; i <= 16; ++i) {
      const size_t swapped = i % 4 < 2 ? i : i % 2 == 0 ? i + 1 : i - 1;
      const uint64_t inode = inodes[swapped % 16];
      EXPECT_TRUE(SocketOwner::HoldsAsBefore(proc.get(), inode, &hints, 4)) << round << " " << i;
      EXPECT_TRUE(SocketOwner::HoldsAt(proc.get(), inode, hints.numbers.front()));
    }
  }
  EXPECT_FALSE(SocketOwner::HoldsAsBefore(proc.get(), 1, &hints, 100));
  EXPECT_FALSE(SocketOwner::HoldsAsBefore(proc.get(), 0, &hints, 100));
}

// To this thread the kernel is one that answers SO_PEERPIDFD with `error`.
void RefusePidfds(int error) {
  constexpr uint32_t kPeerPidfd = 77;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPeerPidfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

// From 6.5 to 6.15 the kernel had an error for a process that was waited for, and its number may be another's by then.
TEST(ClientProcesses, TakesNobodyForAUnixPeerWhoseLifeTheKernelCannotVouchFor) {
  const struct {
    int error;
    pid_t pid;
  } rows[] = {{0, getpid()}, {ENOPROTOOPT, getpid()}, {EINVAL, 0}, {ESRCH, 0}, {EMFILE, 0}};
  for (const auto& row : rows) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd one(ends[0]);
    const UniqueFd other(ends[1]);
    std::thread([&] {
      if (row.error != 0) RefusePidfds(row.error);
      auto processes = ClientProcesses::Open();
      ASSERT_TRUE(processes);
      const policy::ProcessPtr process = (*processes)->OfUnixPeer(one.get(), Digests::kNone);
      EXPECT_EQ(process != nullptr ? process->pid : 0, row.pid) << row.error;
    }).join();
  }
}

// Of this process.
std::vector<sockaddr_nl> DiagnosisSockets() {
  std::vector<sockaddr_nl> found;
  for (int fd = 3; fd < 1024; ++fd) {
    int domain = 0;
    int protocol = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_NETLINK) continue;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != NETLINK_SOCK_DIAG) continue;
    sockaddr_nl& name = found.emplace_back();
    size = sizeof name;
    getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  }
  return found;
}

// Whoever has CAP_NET_ADMIN here can send to any netlink socket, as if it were the kernel.
TEST(ClientProcesses, HearsNobodyButTheKernelOfWhoseASocketIs) {
  auto processes = ClientProcesses::Open();
  ASSERT_TRUE(processes);
  const Listener listener;
  const UniqueFd own = listener.Connect();
  EXPECT_EQ(PidOf(**processes, listener.Accept()), getpid());
  Connecting client(listener);
  const Accepted accepted = listener.Accept();
  struct stat about{};
  ASSERT_EQ(fstat(own.get(), &about), 0);
  struct {
    nlmsghdr header;
    inet_diag_msg body;
  } forged{};
  forged.header.nlmsg_len = sizeof forged;
  forged.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  forged.body.idiag_family = AF_INET;
  forged.body.idiag_inode = static_cast<uint32_t>(about.st_ino);
  const std::vector<sockaddr_nl> targets = DiagnosisSockets();
  ASSERT_FALSE(targets.empty());
  const UniqueFd forger(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  for (const sockaddr_nl& target : targets)
    for (forged.header.nlmsg_seq = 0; forged.header.nlmsg_seq < 4; ++forged.header.nlmsg_seq)
      sendto(forger.get(), &forged, sizeof forged, 0, reinterpret_cast<const sockaddr*>(&target), sizeof target);
  EXPECT_EQ(PidOf(**processes, accepted), client.pid());
}

}  // namespace
}  // namespace sluice::supervisor
