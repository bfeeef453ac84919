#include "supervisor/called_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

namespace sluice::supervisor {
namespace {

template <class T>
std::span<const uint8_t> Bytes(const T& value, size_t length = sizeof(T)) {
  return {reinterpret_cast<const uint8_t*>(&value), length};
}

TEST(CalledAddress, ReadsInternetAddresses) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(443);
  in.sin_addr.s_addr = htonl(0x08080808);
  const CalledAddress v4 = ReadCalledAddress(Bytes(in));
  EXPECT_EQ(v4.kind, AddressKind::kInet);
  EXPECT_EQ(v4.endpoint.ToString(), "8.8.8.8:443");
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(443);
  inet_pton(AF_INET6, "::ffff:8.8.8.8", &in6.sin6_addr);
  const CalledAddress mapped = ReadCalledAddress(Bytes(in6));
  EXPECT_EQ(mapped.family, AF_INET6);
  EXPECT_EQ(mapped.endpoint, v4.endpoint) << "a mapped address is the address";
  EXPECT_EQ(ReadCalledAddress(Bytes(in6, 24)).kind, AddressKind::kInet) << "RFC 2133's length, which the kernel takes";
}

TEST(CalledAddress, FindsWhatIsTooShortOrTooLong) {
  sockaddr_storage storage{};
  storage.ss_family = AF_INET;
  for (const size_t length : {0U, 1U, 2U, 15U})
    EXPECT_EQ(ReadCalledAddress(Bytes(storage, length)).kind, AddressKind::kMalformed) << length;
  storage.ss_family = AF_INET6;
  EXPECT_EQ(ReadCalledAddress(Bytes(storage, 23)).kind, AddressKind::kMalformed);
  std::array<uint8_t, kMaxSockaddr + 1> long_one{};
  EXPECT_EQ(ReadCalledAddress(long_one).kind, AddressKind::kMalformed);
}

TEST(CalledAddress, ReadsUnixAddresses) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::strcpy(un.sun_path, "/run/x");  // NOLINT: it fits
  EXPECT_EQ(ReadCalledAddress(Bytes(un)).path, "/run/x");
  EXPECT_EQ(ReadCalledAddress(Bytes(un, offsetof(sockaddr_un, sun_path) + 4)).path, "/run")
      << "not terminated: the length ends it";
  std::memset(un.sun_path, 'a', sizeof un.sun_path);
  EXPECT_EQ(ReadCalledAddress(Bytes(un)).path, std::string(sizeof un.sun_path, 'a'));
  un.sun_path[0] = 0;
  EXPECT_EQ(ReadCalledAddress(Bytes(un)).kind, AddressKind::kUnixAbstract);
  EXPECT_EQ(ReadCalledAddress(Bytes(un, 2)).kind, AddressKind::kUnixAbstract);
  sockaddr_storage longer{};
  longer.ss_family = AF_UNIX;
  EXPECT_EQ(ReadCalledAddress(Bytes(longer)).kind, AddressKind::kMalformed);
}

TEST(CalledAddress, KnowsUnspecifiedAndOtherFamilies) {
  sockaddr_storage storage{};
  EXPECT_EQ(ReadCalledAddress(Bytes(storage, 2)).kind, AddressKind::kUnspecified);
  storage.ss_family = AF_NETLINK;
  EXPECT_EQ(ReadCalledAddress(Bytes(storage, 12)).kind, AddressKind::kOther);
}

TEST(IsBelow, MindsWholeComponents) {
  const std::vector<std::string> trees = {"/work/", "/tmp"};
  EXPECT_TRUE(IsBelow("/work/a", trees));
  EXPECT_TRUE(IsBelow("/tmp", trees));
  EXPECT_FALSE(IsBelow("/workshop/a", trees));
  EXPECT_FALSE(IsBelow("/", trees));
  EXPECT_FALSE(IsBelow("/run/x", trees));
  const std::vector<std::string> nothing = {""};
  EXPECT_FALSE(IsBelow("/run/x", nothing));
}

TEST(OwnAddresses, AreLoopbackTheUnspecifiedAndThoseOfLo) {
  const OwnAddresses own({*IpAddress::Parse("192.0.0.8")});
  for (const char* text : {"127.0.0.1", "127.255.0.9", "0.0.0.0", "::1", "::", "192.0.0.8", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(own.Contains(*IpAddress::Parse(text))) << text;
  }
  for (const char* text : {"0.1.2.3", "128.0.0.1", "192.0.0.9", "::2", "198.18.0.1"})
    EXPECT_FALSE(own.Contains(*IpAddress::Parse(text))) << text;
}

}  // namespace
}  // namespace sluice::supervisor
