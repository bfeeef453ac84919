#include "supervisor/io/capture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string>

#include "base/ip.h"
#include "supervisor/capture_ruleset.h"
#include "tests/supervisor/in_namespace.h"

namespace sluice::supervisor {
namespace {

constexpr int kQuickMs = 2000;

Endpoint At(const char* address, uint16_t port) { return {IpAddress::Parse(address).value(), port}; }

bool WaitFor(int fd, short events) {
  pollfd ready{.fd = fd, .events = events, .revents = 0};
  return ::poll(&ready, 1, kQuickMs) == 1;
}

// Connects and returns the errno, 0 for success.
int ConnectErrno(const Endpoint& to, UniqueFd* keep = nullptr) {
  sockaddr_storage address{};
  const size_t length = to.ToSockaddr(&address);
  UniqueFd socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  const int error =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)) == 0 ? 0 : errno;
  if (keep != nullptr) *keep = std::move(socket);
  return error;
}

Endpoint NameOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&address), length).value_or(Endpoint{});
}

// What a send to `to` gives: the errno of the send, or of the receive that follows.
int DatagramErrno(const Endpoint& to) {
  sockaddr_storage address{};
  const size_t length = to.ToSockaddr(&address);
  const UniqueFd socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)) != 0) return errno;
  if (::send(socket.get(), "x", 1, 0) < 0) return errno;
  if (!WaitFor(socket.get(), POLLIN)) return 0;
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, 0) < 0 ? errno : 0;
}

class CaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = CreateCapture();
    ASSERT_TRUE(made.has_value()) << made.error().message;
    capture_ = std::move(*made);
  }
  Capture capture_;
};

TEST_F(CaptureTest, HandsOverDescriptorsOfOneNamespace) {
  EXPECT_LT(capture_.listener_port, 1024);
  EXPECT_NE(capture_.netns_cookie, 0U);
  for (const int fd : {capture_.listener.get(), capture_.dns_udp.get(), capture_.dns_tcp.get()}) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    ASSERT_EQ(::getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size), 0);
    EXPECT_EQ(cookie, capture_.netns_cookie);
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    int reuse = -1;
    size = sizeof reuse;
    ASSERT_EQ(::getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &reuse, &size), 0);
    EXPECT_EQ(reuse, 0);
  }
}

TEST_F(CaptureTest, TheAcceptedSocketsOwnNameIsTheDestination) {
  for (const auto& destination :
       {At("140.82.121.6", 443), At("2606:4700::1111", 8443), At("198.18.0.7", 22), At("10.1.2.3", 1)}) {
    const int code = RunInside(capture_, [&] { return ConnectErrno(destination); });
    EXPECT_EQ(code, 0) << destination.ToString();
    ASSERT_TRUE(WaitFor(capture_.listener.get(), POLLIN)) << destination.ToString();
    const UniqueFd accepted(::accept4(capture_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted.valid());
    EXPECT_EQ(NameOf(accepted.get()), destination);
  }
}

TEST_F(CaptureTest, TheSourceIsNeverTheDestination) {
  for (const auto& [destination, source] :
       {std::pair{At("140.82.121.6", 443), kCaptureV4}, std::pair{At("2606:4700::1111", 443), kCaptureV6}}) {
    EXPECT_EQ(RunInside(capture_,
                        [&] {
                          UniqueFd socket;
                          if (ConnectErrno(destination, &socket) != 0) return 1;
                          return NameOf(socket.get()).address == source ? 0 : 2;
                        }),
              0);
  }
}

TEST_F(CaptureTest, DialsOfTheListenerItselfAreReset) {
  for (const char* own : {"127.0.0.1", "127.9.9.9", "0.0.0.0", "192.0.0.8", "::1", "::", "fd5c:7a1c:e000::2"})
    EXPECT_EQ(RunInside(capture_, [&] { return ConnectErrno(At(own, capture_.listener_port)); }), ECONNREFUSED) << own;
  EXPECT_LT(::accept4(capture_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CaptureTest, LoopbackIsTheWorkloadsOwn) {
  EXPECT_EQ(
      RunInside(capture_,
                [] {
                  for (const char* own : {"127.0.0.1", "::1", "192.0.0.8"}) {
                    sockaddr_storage address{};
                    const size_t length = At(own, 0).ToSockaddr(&address);
                    const UniqueFd server(::socket(address.ss_family, SOCK_STREAM, 0));
                    if (::bind(server.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)) != 0)
                      return 1;
                    if (::listen(server.get(), 1) != 0) return 2;
                    if (ConnectErrno(NameOf(server.get())) != 0) return 3;
                  }
                  return 0;
                }),
      0);
}

TEST_F(CaptureTest, DatagramsToPort53OfAnyAddressReachTheResolverAndTheAnswerComesBack) {
  for (const auto& destination : {At("8.8.8.8", 53), At("127.0.0.53", 53), At("2001:4860:4860::8888", 53), At("::1", 53)}) {
    const pid_t client = ::fork();
    if (client == 0)
      ::_exit(RunInside(capture_, [&] {
        sockaddr_storage address{};
        const size_t length = destination.ToSockaddr(&address);
        const UniqueFd socket(::socket(address.ss_family, SOCK_DGRAM, 0));
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)) != 0) return 1;
        if (::send(socket.get(), "question", 8, 0) != 8) return 2;
        if (!WaitFor(socket.get(), POLLIN)) return 3;
        std::array<char, 16> answer{};
        return ::recv(socket.get(), answer.data(), answer.size(), 0) == 6 ? 0
                                                                          : 4;  // connected: only the asked address can answer
      }));
    ASSERT_TRUE(WaitFor(capture_.dns_udp.get(), POLLIN)) << destination.ToString();
    // Answers as a resolver does: the destination of the question, from the packet info, is the source of the answer.
    std::array<char, 64> question{};
    sockaddr_storage peer{};
    alignas(cmsghdr) std::array<char, 256> control{};
    iovec data{.iov_base = question.data(), .iov_len = question.size()};
    msghdr header{};
    header.msg_name = &peer;
    header.msg_namelen = sizeof peer;
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ASSERT_EQ(::recvmsg(capture_.dns_udp.get(), &header, 0), 8);
    data = {.iov_base = question.data(), .iov_len = 6};
    EXPECT_EQ(::sendmsg(capture_.dns_udp.get(), &header, 0), 6) << destination.ToString() << " errno " << errno;
    int status = 0;
    ASSERT_EQ(::waitpid(client, &status, 0), client);
    EXPECT_EQ(WEXITSTATUS(status), 0) << destination.ToString();
  }
}

TEST_F(CaptureTest, TcpToPort53OfAnyAddressReachesTheResolver) {
  for (const auto& destination : {At("8.8.8.8", 53), At("2001:4860:4860::8888", 53), At("127.0.0.1", 53)}) {
    EXPECT_EQ(RunInside(capture_, [&] { return ConnectErrno(destination); }), 0);
    ASSERT_TRUE(WaitFor(capture_.dns_tcp.get(), POLLIN));
    const UniqueFd accepted(::accept4(capture_.dns_tcp.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(NameOf(accepted.get()), destination);
  }
}

TEST_F(CaptureTest, OtherDatagramsAreRefusedAtOnce) {
  for (const auto& destination : {At("1.1.1.1", 443), At("2606:4700::1111", 443), At("224.0.0.251", 5353), At("10.0.0.1", 801)}) {
    const int error = RunInside(capture_, [&] { return DatagramErrno(destination); });
    EXPECT_THAT(error, testing::AnyOf(EPERM, ECONNREFUSED, ENETUNREACH, EACCES)) << destination.ToString();
  }
}

TEST_F(CaptureTest, EveryOtherProtocolIsRefusedAndNothingAnswersForTheWorld) {
  // In the owner's own place: raw sockets open here and stand for any protocol. The workload may not even open them.
  for (const int protocol : {1, 132, 47, 50, 255}) {
    const int error = RunInside(capture_, [&] {
      const UniqueFd socket(::socket(AF_INET, SOCK_RAW, protocol));
      if (!socket) return 250;
      sockaddr_storage address{};
      const size_t length = At("9.9.9.9", 0).ToSockaddr(&address);
      std::array<char, 28> payload{8};
      payload[0] = protocol == 255 ? 0x45 : 8;
      return ::sendto(socket.get(), payload.data(), payload.size(), 0, reinterpret_cast<const sockaddr*>(&address),
                      static_cast<socklen_t>(length)) < 0
                 ? errno
                 : 0;
    });
    EXPECT_THAT(error, testing::AnyOf(EPERM, EINVAL, EACCES)) << "protocol " << protocol;
  }
}

TEST_F(CaptureTest, WithoutItsSupervisorEveryConnectIsRefusedEvenWhenTheWorkloadListens) {
  Capture held;
  held.user_namespace.Reset(::fcntl(capture_.user_namespace.get(), F_DUPFD_CLOEXEC, 0));
  held.network_namespace.Reset(::fcntl(capture_.network_namespace.get(), F_DUPFD_CLOEXEC, 0));
  capture_ = Capture{};
  EXPECT_EQ(RunInside(held,
                      [] {
                        const UniqueFd server(::socket(AF_INET6, SOCK_STREAM, 0));
                        sockaddr_in6 any{};
                        any.sin6_family = AF_INET6;
                        any.sin6_port = htons(8443);
                        if (::bind(server.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return 1;
                        if (::listen(server.get(), 8) != 0) return 2;
                        for (const auto& to :
                             {At("140.82.121.6", 443), At("140.82.121.6", 8443), At("2606:4700::1111", 8443), At("8.8.8.8", 53)})
                          if (ConnectErrno(to) != ECONNREFUSED) return 3;
                        return ConnectErrno(At("127.0.0.1", 8443)) == 0 ? 0 : 4;
                      }),
            0);
}

TEST_F(CaptureTest, FastOpenIsOff) {
  EXPECT_EQ(RunInside(capture_,
                      [] {
                        sockaddr_storage address{};
                        const size_t length = At("1.1.1.1", 443).ToSockaddr(&address);
                        const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
                        return ::sendto(socket.get(), "x", 1, MSG_FASTOPEN, reinterpret_cast<const sockaddr*>(&address),
                                        static_cast<socklen_t>(length)) < 0
                                   ? errno
                                   : 0;
                      }),
            EOPNOTSUPP);
}

TEST(CaptureRootless, WorksAsAnOrdinaryUser) {
  constexpr uid_t kOrdinary = 65534;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 &&
        (::setresgid(kOrdinary, kOrdinary, kOrdinary) != 0 || ::setresuid(kOrdinary, kOrdinary, kOrdinary) != 0))
      ::_exit(100);
    auto capture = CreateCapture();
    if (!capture) {
      fprintf(stderr, "%s\n", capture.error().message.c_str());
      ::_exit(101);
    }
    if (RunInside(*capture, [] { return ConnectErrno(At("140.82.121.6", 443)); }) != 0) ::_exit(102);
    const UniqueFd accepted(::accept4(capture->listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ::_exit(NameOf(accepted.get()) == At("140.82.121.6", 443) ? 0 : 103);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sluice::supervisor
