#include "base/socket_seal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace sluice {
namespace {

TEST(SocketSeal, DrawsNumbersNoProgramWouldChoose) {
  for (int i = 0; i < 1000; ++i) {
    const SocketSeal seal = DrawSeal();
    EXPECT_FALSE(seal.empty());
    for (const uint32_t half : {seal.mark, seal.priority}) {
      EXPECT_GT(half, 0xffffU);
      EXPECT_NE(half & 0xffffU, 0U);
    }
    EXPECT_NE(seal, DrawSeal());
  }
}

TEST(SocketSeal, AnEmptyOneChangesNothingAndAFullOneIsSetOrRefused) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_TRUE(ApplySeal(socket.get(), {}));
  const auto option = [&](int name) {
    uint32_t value = 0;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(socket.get(), SOL_SOCKET, name, &value, &length), 0);
    return value;
  };
  EXPECT_EQ(option(SO_MARK), 0U);
  const SocketSeal seal = DrawSeal();
  errno = 0;
  if (ApplySeal(socket.get(), seal)) {
    EXPECT_EQ(option(SO_MARK), seal.mark);
    EXPECT_EQ(option(SO_PRIORITY), seal.priority);
  } else {
    EXPECT_EQ(errno, EPERM) << "without the capability";
  }
  EXPECT_FALSE(ApplySeal(-1, seal));
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace sluice
