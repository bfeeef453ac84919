#include "base/closes_in_turns.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/send_descriptors.h"
#include "base/wake_timer.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr int kLingerSeconds = 30;

// An end of a UNIX socket pair with a message that nobody has received, and in that the last descriptor of a connection whose
// peer does not read.
struct Stuffed {
  UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd receiver;
  UniqueFd end;
  UniqueFd other;

  Stuffed() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), name, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), name, &size), 0);
    const UniqueFd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(sender.get(), name, size), 0);
    receiver.Reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string block(1 << 16, 'x');
    while (::send(sender.get(), block.data(), block.size(), MSG_DONTWAIT) > 0) {
    }
    const linger wait{1, kLingerSeconds};
    EXPECT_EQ(::setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    end.Reset(ends[0]);
    other.Reset(ends[1]);
    const int fd = sender.get();
    EXPECT_EQ(SendDescriptors(other.get(), std::as_bytes(std::span("m", 1)), {&fd, 1}), 1);
  }
};

TEST(BriefCloses, EndTheCloseOfASocketWithALingeringOneInItsQueue) {
  Stuffed stuffed;
  const auto begin = Steady::now();
  {
    const BriefCloses brief;
    stuffed.end.Reset();
  }
  EXPECT_LT(Steady::now() - begin, 10s);
}

TEST(BriefCloses, EndAReceiveThatHasNoRoomForWhatComes) {
  Stuffed stuffed;
  const auto begin = Steady::now();
  {
    const BriefCloses outer;
    {
      const BriefCloses inner;
    }
    char octet = 0;
    EXPECT_EQ(::recv(stuffed.end.get(), &octet, 1, 0), 1);
  }
  EXPECT_LT(Steady::now() - begin, 10s);
}

TEST(BriefCloses, HoldInAChildAsWell) {
  {
    const BriefCloses parents;
  }
  Stuffed stuffed;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kLingerSeconds / 2);
    // The parent's copy is closed first, so that this is the last.
    char octet = 0;
    (void)!::recv(stuffed.other.get(), &octet, 1, 0);
    const BriefCloses brief;
    stuffed.end.Reset();
    ::_exit(0);
  }
  stuffed.end.Reset();
  ::shutdown(stuffed.other.get(), SHUT_RD);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
}

TEST(ClosesInTurns, TakeLittleOfEachRound) {
  std::vector<Stuffed> stuffed(8);
  ClosesInTurns closes;
  for (Stuffed& one : stuffed) closes.Drop(std::move(one.end));
  size_t rounds = 0;
  const auto begin = Steady::now();
  for (; !closes.empty(); ++rounds) closes.Turn();
  EXPECT_GE(rounds, stuffed.size()) << "each has made it wait";
  EXPECT_LT(Steady::now() - begin, 20s);
}

}  // namespace
}  // namespace sluice
