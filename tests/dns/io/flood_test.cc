// A process that floods the resolver: its own lookups are dropped, everybody else's are answered.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "dns/io/port_filter.h"
#include "tests/dns/io/server_harness.h"

namespace sluice::dns {
namespace {

std::vector<uint8_t> Question(uint16_t id, const char* name = "localhost") {
  Message question;
  question.header.id = id;
  question.header.recursion_desired = true;
  question.questions.push_back({*Name::FromText(name), Type::kA, kClassIn});
  return Encode(question);
}

struct Asker {
  explicit Asker(uint16_t port, int wait_ms = 300) : fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage server{};
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), port}.ToSockaddr(&server));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&server), length), 0);
    const timeval limit{wait_ms / 1000, (wait_ms % 1000) * 1000};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void Send(uint16_t id) const {
    const auto wire = Question(id);
    EXPECT_EQ(send(fd.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  }
  [[nodiscard]] std::optional<Message> Receive() const {
    std::vector<uint8_t> answer(4096);
    const ssize_t size = recv(fd.get(), answer.data(), answer.size(), 0);
    if (size <= 0) return std::nullopt;
    answer.resize(static_cast<size_t>(size));
    auto decoded = Decode(answer);
    EXPECT_TRUE(decoded);
    return decoded ? std::optional(std::move(*decoded)) : std::nullopt;
  }
  UniqueFd fd;
};

// Nothing is given back while a test runs.
constexpr FloodLimits kTen{.source_per_second = 0.001, .source_burst = 10};

TEST(FloodTest, WhatIsOverTheBudgetOfASocketIsToldOnceAndThenDropped) {
  ResolverHarness resolver({.allows = {"GET api.test/**"}, .flood = kTen});
  const Asker flooder(resolver.port());
  for (uint16_t i = 0; i < 100; ++i) flooder.Send(i);
  int answered = 0;
  int refused = 0;
  while (const auto answer = flooder.Receive()) {
    answered += answer->header.rcode == Rcode::kNoError ? 1 : 0;
    refused += answer->header.rcode == Rcode::kServFail ? 1 : 0;
  }
  EXPECT_EQ(answered, 10);
  EXPECT_EQ(refused, 1);
  const Asker other(resolver.port(), 5000);
  other.Send(1);
  EXPECT_TRUE(other.Receive()) << "another socket has its own budget";
  int limited = 0;
  for (const auto& event : resolver.events().decisions()) limited += event.decision.reason == policy::Reason::kLimit ? 1 : 0;
  EXPECT_EQ(limited, 1) << "one record, whatever the size of the flood";
}

// What a denial costs does not depend on the transport: a record, and finding out who asks.
TEST(FloodTest, ATcpConnectionOverItsBudgetIsToldOnceAndClosed) {
  ResolverHarness resolver({.allows = {"GET api.test/**"}, .flood = kTen});
  const UniqueFd flooder = resolver.ConnectTcp();
  for (uint16_t i = 0; i < 15; ++i) SendFrame(flooder.get(), Question(i, "denied.test"));
  std::vector<Rcode> told;
  while (const auto frame = ReceiveFrame(flooder.get())) told.push_back(Decode(*frame)->header.rcode);
  std::vector<Rcode> expected(10, Rcode::kNxDomain);
  expected.push_back(Rcode::kServFail);
  EXPECT_EQ(told, expected) << "and then the connection ends";
  size_t limited = 0;
  for (const auto& event : resolver.events().decisions()) limited += event.decision.reason == policy::Reason::kLimit ? 1 : 0;
  EXPECT_EQ(limited, 1u);
  EXPECT_EQ(resolver.events().decisions().size(), 11u) << "what is over the budget is no record each";
  const UniqueFd other = resolver.ConnectTcp();
  SendFrame(other.get(), Question(1, "denied.test"));
  EXPECT_TRUE(ReceiveFrame(other.get())) << "another socket has its own budget";
}

TEST(FloodTest, AShutPortIsOpenedAgainWithoutAnybodyElseAsking) {
  ResolverHarness resolver({.allows = {"GET api.test/**"}, .flood = {.source_per_second = 20, .source_burst = 1}});
  const Asker flooder(resolver.port(), 100);
  for (uint16_t i = 0; i < 3 * kShutAfter; ++i) flooder.Send(i);
  while (flooder.Receive()) {
  }
  std::optional<Message> answer;
  for (uint16_t i = 0; i < 100 && !answer; ++i) {
    flooder.Send(i);
    answer = flooder.Receive();
  }
  EXPECT_TRUE(answer);
}

TEST(FloodTest, TheKernelDropsWhatComesFromTheListedPorts) {
  UniqueFd server(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), 0}.ToSockaddr(&address));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(server.get(), generic, length), 0);
  ASSERT_EQ(getsockname(server.get(), generic, &length), 0);
  const uint16_t port = Endpoint::FromSockaddr(generic, length)->port;
  std::vector<Asker> askers;
  for (size_t i = 0; i < kMaxShutPorts + 1; ++i) askers.emplace_back(port);
  std::vector<uint16_t> ports;
  for (size_t i = 0; i < kMaxShutPorts; ++i) {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    ASSERT_EQ(getsockname(askers[i].fd.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    ports.push_back(Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&own), size)->port);
  }
  const auto received = [&] {
    int count = 0;
    char byte;
    while (recv(server.get(), &byte, 1, MSG_DONTWAIT) >= 0) ++count;
    return count;
  };
  ASSERT_TRUE(DropFromPorts(server.get(), ports));
  for (const Asker& asker : askers) asker.Send(1);
  EXPECT_EQ(received(), 1) << "all but the last are listed";
  ASSERT_TRUE(DropFromPorts(server.get(), std::span(ports).first(1)));
  for (const Asker& asker : askers) asker.Send(1);
  EXPECT_EQ(received(), static_cast<int>(kMaxShutPorts));
  ASSERT_TRUE(DropFromPorts(server.get(), {}));
  for (const Asker& asker : askers) asker.Send(1);
  EXPECT_EQ(received(), static_cast<int>(kMaxShutPorts) + 1);
}

}  // namespace
}  // namespace sluice::dns
