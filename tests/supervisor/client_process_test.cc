#include "supervisor/io/client_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
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

}  // namespace
}  // namespace sluice::supervisor
