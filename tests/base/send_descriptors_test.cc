#include "base/send_descriptors.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
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

TEST(SendDescriptors, ArriveBesideTheOctetsAndStayTheCallers) {
  const Ends ends;
  std::array<int, 2> ways{};
  ASSERT_EQ(::pipe(ways.data()), 0);
  const UniqueFd read(ways[0]);
  const UniqueFd write(ways[1]);
  ASSERT_EQ(SendDescriptors(ends.mine.get(), kBytes, ways), 2);

  std::array<char, 8> text{};
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ASSERT_EQ(::recvmsg(ends.theirs.get(), &message, MSG_CMSG_CLOEXEC), 2);
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  ASSERT_NE(rights, nullptr);
  ASSERT_EQ(rights->cmsg_len, CMSG_LEN(2 * sizeof(int)));
  std::array<int, 2> came{};
  std::memcpy(came.data(), CMSG_DATA(rights), sizeof came);
  const UniqueFd their_read(came[0]);
  const UniqueFd their_write(came[1]);
  EXPECT_STREQ(text.data(), "ok");
  ASSERT_EQ(::write(their_write.get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(::read(read.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
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
