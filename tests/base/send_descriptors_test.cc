#include "base/send_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/unique_fd.h"

namespace sluice {
namespace {

constexpr std::array<std::byte, 2> kBytes{std::byte{'o'}, std::byte{'k'}};

struct Ends {
  Ends() {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return;
    mine.Reset(pair[0]);
    theirs.Reset(pair[1]);
  }
  UniqueFd mine;
  UniqueFd theirs;
};

template <size_t kRoom>
struct Incoming {
  Incoming() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  std::array<char, 8> text{};
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, kRoom> control{};
  msghdr message{};
};

TEST(SendDescriptors, ArriveBesideTheOctetsAndStayTheCallers) {
  const Ends ends;
  std::array<int, 2> ways{};
  ASSERT_EQ(::pipe(ways.data()), 0);
  const UniqueFd read(ways[0]);
  const UniqueFd write(ways[1]);
  ASSERT_EQ(SendDescriptors(ends.mine.get(), kBytes, ways), 2);

  Incoming<CMSG_SPACE(2 * sizeof(int))> incoming;
  ASSERT_EQ(::recvmsg(ends.theirs.get(), &incoming.message, MSG_CMSG_CLOEXEC), 2);
  std::vector<UniqueFd> came;
  TakeDescriptors(incoming.message, &came);
  ASSERT_EQ(came.size(), 2);
  EXPECT_EQ(::fcntl(came[0].get(), F_GETFD), FD_CLOEXEC);
  EXPECT_STREQ(incoming.text.data(), "ok");
  ASSERT_EQ(::write(came[1].get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(::read(read.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST(TakeDescriptors, TakesThemFromAmongOtherControlMessagesBesideThoseThatCameBefore) {
  const Ends ends;
  const int on = 1;
  ASSERT_EQ(::setsockopt(ends.theirs.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
  std::vector<UniqueFd> came;
  for (size_t round = 1; round <= 2; ++round) {
    const int fd = ends.mine.get();
    ASSERT_EQ(SendDescriptors(fd, kBytes, {&fd, 1}), 2);
    Incoming<CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))> incoming;
    ASSERT_EQ(::recvmsg(ends.theirs.get(), &incoming.message, MSG_CMSG_CLOEXEC), 2);
    TakeDescriptors(incoming.message, &came);
    EXPECT_EQ(came.size(), round);
  }
}

TEST(SendDescriptors, RefusesNoneAndMoreThanOneMessageCarries) {
  const Ends ends;
  EXPECT_EQ(SendDescriptors(ends.mine.get(), kBytes, {}), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(SendDescriptors(ends.mine.get(), kBytes, std::vector<int>(kMostPassed + 1, 0)), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(SendDescriptors(ends.mine.get(), kBytes, std::vector<int>(kMostPassed, ends.mine.get())), 2);
}

TEST(SendDescriptors, SaysThatTheOtherEndIsGoneWithoutASignal) {
  Ends ends;
  ends.theirs.Reset();
  const int fd = ends.mine.get();
  EXPECT_EQ(SendDescriptors(fd, kBytes, {&fd, 1}), -1);
  EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace sluice
