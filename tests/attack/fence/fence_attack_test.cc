// A root workload with CAP_NET_RAW and CAP_SETUID in the namespace of the fence, and what comes out of the pod's device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/attack/fence/fixture.h"

namespace sluice::supervisor {
namespace {

TEST_F(FenceAttack, EveryAttackSucceedsWithoutAFenceAndNoneWithIt) {
  std::vector<std::string> all;
  for (const Attack& attack : Attacks()) all.emplace_back(attack.name);
  EXPECT_EQ(Successes(), all) << "each must be able to fail";
  Install();
  EXPECT_THAT(Successes(), testing::IsEmpty());
  EXPECT_TRUE(fence_->Check().has_value());
  EXPECT_THAT(fence_->Weaknesses(), testing::IsEmpty());
}

TEST_F(FenceAttack, NothingAtAllLeavesWhileItIsClosed) {
  plan_ = ClosedPlan(plan_);
  Install();
  EXPECT_THAT(Successes(), testing::IsEmpty());
}

// The header names an allowed host, the option where that host would send the packet on.
TEST_F(FenceAttack, APacketWithOptionsStaysInsideWhereverItGoes) {
  Install();
  const FenceElement allowed{IpAddress::Parse(kWorldV4).value(), nft::Protocol::kUdp, 5000};
  ASSERT_TRUE(fence_->Publish({&allowed, 1}, std::chrono::seconds(60)).has_value());
  const std::vector<uint8_t> loose = {131, 7, 4, 192, 0, 2, 66, 0};
  const std::vector<uint8_t> strict = {137, 7, 4, 192, 0, 2, 66, 0};
  const std::vector<uint8_t> record = {7, 7, 4, 0, 0, 0, 0, 0};
  EXPECT_EQ(pod_.Workload([&] {
    const auto send = [](const char* text, const std::vector<uint8_t>& options) {
      SendRaw({IPPROTO_UDP, kPodV4, 4000, kWorldV4, 5000, text, options});
    };
    send("PLAIN", {});
    send("LOOSE", loose);
    send("STRICT", strict);
    send("RECORD", record);
    // Without a raw socket: the first hop is the packet's destination, and what sendto says is in the option.
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
    const std::vector<uint8_t> by_allowed = {131, 7, 4, 203, 0, 113, 10, 0};
    if (::setsockopt(socket.get(), IPPROTO_IP, IP_OPTIONS, by_allowed.data(), static_cast<socklen_t>(by_allowed.size())) != 0)
      return 1;
    const sockaddr_in to{AF_INET, htons(5000), {htonl(0xc0000242)}, {}};
    [[maybe_unused]] const auto sent = ::sendto(socket.get(), "SOCKET", 6, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    return 0;
  }),
            0);
  const std::vector<Frame> frames = pod_.Taken();
  EXPECT_TRUE(Pod::Carries(frames, "PLAIN"));
  for (const char* text : {"LOOSE", "STRICT", "RECORD", "SOCKET"}) EXPECT_FALSE(Pod::Carries(frames, text)) << text;
  EXPECT_EQ(Count("options"), 4u);
}

// The same of IPv6, where only who has CAP_NET_RAW can ask for options: a channel to an allowed host that no rule has judged. A
// socket that is closed has no owner any more, and still sends what it held.
TEST_F(FenceAttack, APacketWithExtensionHeadersStaysInsideWhereverItGoes) {
  Install();
  const Echo server(pod_.world(), 443);
  const std::vector<FenceElement> allowed{{IpAddress::Parse(kWorldV6).value(), nft::Protocol::kUdp, 5000},
                                          {IpAddress::Parse(kWorldV6).value(), nft::Protocol::kTcp, 443}};
  ASSERT_TRUE(fence_->Publish(allowed, std::chrono::seconds(60)).has_value());
  EXPECT_EQ(pod_.Workload([&] {
    const auto connected = [](int type, uint16_t port) {
      UniqueFd socket(::socket(AF_INET6, type, 0));
      sockaddr_storage to{};
      const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(kWorldV6).value(), port}.ToSockaddr(&to));
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) socket.Reset();
      return socket;
    };
    const auto send = [](const UniqueFd& socket, const std::string& text) {
      [[maybe_unused]] const auto sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    };
    for (const auto& [option, name] : {std::pair(IPV6_DSTOPTS, "DESTINATION"), std::pair(IPV6_HOPOPTS, "HOP")}) {
      const std::array<uint8_t, 8> header{0, 0, 1, 4, 'O', 'P', 'T', 'S'};
      const UniqueFd datagrams = connected(SOCK_DGRAM, 5000);
      UniqueFd stream = connected(SOCK_STREAM, 443);
      if (!datagrams || !stream) return 1;
      send(datagrams, "PLAIN");
      send(stream, "STREAM");
      // Unread, its echo would make the close a reset, which throws away what is held.
      std::array<char, 6> echo{};
      if (::recv(stream.get(), echo.data(), echo.size(), MSG_WAITALL) != 6) return 3;
      for (const int socket : {datagrams.get(), stream.get()})
        if (::setsockopt(socket, IPPROTO_IPV6, option, header.data(), header.size()) != 0) return 2;
      send(datagrams, std::string("UDP-") + name);
      send(stream, std::string("TCP-") + name);
      ::usleep(50'000);
      stream.Reset();
    }
    ::sleep(2);  // what was closed is sent again
    return 0;
  }),
            0);
  const std::vector<Frame> frames = pod_.Taken();
  for (const char* text : {"PLAIN", "STREAM"}) EXPECT_TRUE(Pod::Carries(frames, text)) << text;
  for (const char* text : {"UDP-DESTINATION", "UDP-HOP", "TCP-DESTINATION", "TCP-HOP", "OPTS"})
    EXPECT_FALSE(Pod::Carries(frames, text)) << text;
  EXPECT_GE(Count("extension-headers"), 4u);
}

TEST_F(FenceAttack, SealedTrafficPassesAndItsSealIsNowhereToBeSeen) {
  Install();
  const Echo server(pod_.world(), 80);
  // The workload listens on both devices for a packet that carries one of the four numbers, given to it here: the kernel's own
  // filter compares.
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  std::atomic<int> seen = -1;
  std::thread spy([&] {
    seen = pod_.Workload([&] {
      const UniqueFd tap(::socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)));
      const auto skip_mark = static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_MARK);
      std::array<sock_filter, 5> code{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, skip_mark),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, plan_.seal.mark, 2, 0),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, plan_.passage.mark, 1, 0),
                                       BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 0xffff)}};
      const sock_fprog program{.len = code.size(), .filter = code.data()};
      if (::setsockopt(tap.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) return 100;
      if (::write(ready[1], "x", 1) != 1) return 101;
      pollfd some{.fd = tap.get(), .events = POLLIN, .revents = 0};
      return ::poll(&some, 1, 700);
    });
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, plan_.seal, "SEALED-V4"), 0);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV6, 80, plan_.seal, "SEALED-V6"), 0);
  EXPECT_EQ(AskIn(pod_.inner(), "127.0.0.1", 80, plan_.seal, "LOCAL"), ECONNREFUSED);
  spy.join();
  EXPECT_EQ(seen, 0) << "a tap saw the mark";
  const std::vector<Frame> frames = pod_.Taken();
  EXPECT_TRUE(Pod::Carries(frames, "SEALED-V4"));
  EXPECT_TRUE(Pod::Carries(frames, "SEALED-V6"));
  EXPECT_NE(AskIn(pod_.inner(), kWorldV4, 80, {plan_.seal.mark, 1}, "HALF"), 0);
  EXPECT_NE(AskIn(pod_.inner(), kWorldV4, 80, {1, plan_.seal.priority}, "HALF"), 0);
  EXPECT_NE(AskIn(pod_.inner(), kWorldV4, 80, plan_.passage, "HALF"), 0) << "what is on packets is no seal of a socket";
  EXPECT_FALSE(Pod::Carries(pod_.Taken(), "HALF"));
  ::close(ready[0]);
  ::close(ready[1]);
}

// The priority is there for all to see (INET_DIAG_CLASS_ID), which is why the mark alone is the secret.
TEST_F(FenceAttack, SocketDiagnosisShowsNoMarkToAWorkload) {
  Install();
  const Echo server(pod_.world(), 80);
  UniqueFd held;
  RunIn(pod_.inner(), [&] {
    sockaddr_storage to{};
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(kWorldV4).value(), 80}.ToSockaddr(&to));
    held = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_TRUE(ApplySeal(held.get(), plan_.seal));
    ASSERT_EQ(::connect(held.get(), reinterpret_cast<const sockaddr*>(&to), length), 0);
  });
  // 1: the mark's bytes are somewhere in the answer; 2: the answer is not there.
  EXPECT_EQ(pod_.Workload([&] {
    const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG));
    struct {
      nlmsghdr header;
      inet_diag_req_v2 request;
    } ask{};
    ask.header = {.nlmsg_len = sizeof ask,
                  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                  .nlmsg_seq = 1,
                  .nlmsg_pid = 0};
    ask.request.sdiag_family = AF_INET;
    ask.request.sdiag_protocol = IPPROTO_TCP;
    ask.request.idiag_ext = 0xff;
    ask.request.idiag_states = UINT32_MAX;
    if (::send(socket.get(), &ask, sizeof ask, 0) < 0) return 2;
    std::array<uint8_t, 32768> answer{};
    const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
    if (got < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(inet_diag_msg))) return 2;
    const auto* mark = reinterpret_cast<const uint8_t*>(&plan_.seal.mark);
    const auto bytes = std::span(answer).first(static_cast<size_t>(got));
    return std::ranges::search(bytes, std::span(mark, 4)).empty() ? 0 : 1;
  }),
            0);
}

// A connected socket of Sluice's, and its own end.
struct SealedSocket {
  UniqueFd fd;
  uint16_t port = 0;
};
SealedSocket SealedTo(const UniqueFd& network, int type, const char* address, uint16_t port, const SocketSeal& seal) {
  SealedSocket made;
  RunIn(network, [&] {
    sockaddr_storage to{};
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(address).value(), port}.ToSockaddr(&to));
    made.fd = UniqueFd(::socket(to.ss_family, type | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(ApplySeal(made.fd.get(), seal));
    ASSERT_EQ(::connect(made.fd.get(), reinterpret_cast<const sockaddr*>(&to), length), 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    ASSERT_EQ(::getsockname(made.fd.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    made.port = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&own), size)->port;
  });
  return made;
}

TEST_F(FenceAttack, ACopyOfASealedFlowsPacketsStaysInside) {
  Install();
  const Echo server(pod_.world(), 80);
  for (const auto& [own, address] : {std::pair(kPodV4, kWorldV4), std::pair(kPodV6, kWorldV6)}) {
    const SealedSocket stream = SealedTo(pod_.inner(), SOCK_STREAM, address, 80, plan_.seal);
    const SealedSocket lookup = SealedTo(pod_.inner(), SOCK_DGRAM, address, 53, plan_.seal);
    ASSERT_EQ(::send(lookup.fd.get(), "QUERY", 5, 0), 5);
    pod_.Forget();
    EXPECT_EQ(pod_.Workload([&, own, address] {
      for (const Forged& copy : {Forged{IPPROTO_TCP, own, stream.port, address, 80, kForbidden},
                                 Forged{IPPROTO_UDP, own, lookup.port, address, 53, kForbidden}}) {
        SendRaw(copy);
        SendFrame("eth0", copy);
        SendFrame("lo", copy);
      }
      return 0;
    }),
              0);
    EXPECT_EQ(Pod::Escaped(pod_.Taken()), "") << address;
  }
}

// What Sluice asks the resolver beyond the pod must be answered by that resolver: by an answer made up here, a name that the
// policy allows would open whatever address the workload likes.
TEST_F(FenceAttack, AnAnswerMadeUpHereReachesNoSocketOfSluices) {
  const std::string service = "10.96.0.10";
  ASSERT_EQ(CommandIn(pod_.inner(),
                      "nft -f - <<'END'\ntable ip kube-proxy {\nchain services { type nat hook output priority -100;\n"
                      "ip daddr " +
                          service + " udp dport 53 dnat to " + kWorldV4 + "\n}\n}\nEND"),
            "");
  // Whether one of the answers that a workload makes up arrives.
  const auto fooled = [&](const char* own, const char* asked, const std::vector<const char*>& claimed) {
    const SealedSocket lookup = SealedTo(pod_.inner(), SOCK_DGRAM, asked, 53, plan_.seal);
    EXPECT_EQ(::send(lookup.fd.get(), "QUERY", 5, 0), 5);
    EXPECT_EQ(pod_.Workload([&] {
      for (const char* source : claimed) {
        const Forged answer{IPPROTO_UDP, source, 53, own, lookup.port, "ANSWER"};
        SendRaw(answer);
        SendFrame("lo", answer);
      }
      return 0;
    }),
              0);
    // What the world says first is that nobody listens there.
    std::array<char, 16> text{};
    for (int turn = 0; turn < 3; ++turn) {
      pollfd ready{.fd = lookup.fd.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 100) == 1 && ::recv(lookup.fd.get(), text.data(), text.size(), MSG_DONTWAIT) == 6) return true;
    }
    return false;
  };
  EXPECT_TRUE(fooled(kPodV4, kWorldV4, {kWorldV4})) << "it must be able to fail";
  EXPECT_TRUE(fooled(kPodV6, kWorldV6, {kWorldV6})) << "it must be able to fail";
  EXPECT_TRUE(fooled(kPodV4, service.c_str(), {kWorldV4})) << "it must be able to fail";
  Install();
  EXPECT_FALSE(fooled(kPodV4, kWorldV4, {kWorldV4}));
  EXPECT_FALSE(fooled(kPodV6, kWorldV6, {kWorldV6}));
  EXPECT_FALSE(fooled(kPodV4, service.c_str(), {kWorldV4, service.c_str()})) << "of a service of the cluster";
}

TEST_F(FenceAttack, GuessesOfTheMarkEndInAnAlarm) {
  Install();
  const Echo server(pod_.world(), 80);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, plan_.seal, "BEFORE"), 0);
  const auto guess = [&](uint32_t first, uint32_t count, bool stream) {
    return pod_.Workload([&, first, count, stream] {
      for (uint32_t mark = first; mark < first + count; ++mark) {
        const UniqueFd socket(::socket(AF_INET, stream ? SOCK_STREAM | SOCK_NONBLOCK : SOCK_DGRAM, 0));
        if (!ApplySeal(socket.get(), {mark, plan_.seal.priority})) return 1;
        sockaddr_storage to{};
        const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(kWorldV4).value(), kForbiddenPort}.ToSockaddr(&to));
        if (stream)
          (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length);
        else
          (void)::sendto(socket.get(), kForbidden, 6, 0, reinterpret_cast<const sockaddr*>(&to), length);
      }
      return 0;
    });
  };
  // A program with a mark of its own, or a few, alarms nobody.
  EXPECT_EQ(guess(1, 100, false), 0);
  EXPECT_EQ(guess(1, 100, true), 0);
  EXPECT_EQ(Count("guessed"), 0U);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, plan_.seal, "STILL"), 0);
  EXPECT_EQ(guess(1, 400, false), 0);
  EXPECT_GT(Count("guessed"), 0U);
  EXPECT_NE(AskIn(pod_.inner(), kWorldV4, 80, plan_.seal, "SHUT"), 0) << "a right guess would not be told from a wrong one";
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV6, 80, plan_.seal, "OTHER"), 0) << "each family has its own";
  const std::vector<Frame> frames = pod_.Taken();
  EXPECT_EQ(Pod::Escaped(frames), "");
  EXPECT_FALSE(Pod::Carries(frames, "SHUT"));
}

TEST_F(FenceAttack, GuessesByConnectsAlarmToo) {
  Install();
  EXPECT_EQ(pod_.Workload([&] {
    for (uint32_t mark = 1; mark < 400; ++mark) {
      const UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
      if (!ApplySeal(socket.get(), {mark, plan_.seal.priority})) return 1;
      sockaddr_storage to{};
      const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(kWorldV6).value(), kForbiddenPort}.ToSockaddr(&to));
      (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length);
    }
    return 0;
  }),
            0);
  EXPECT_GT(Count("guessed"), 0U);
  EXPECT_EQ(Pod::Escaped(pod_.Taken()), "");
}

constexpr const char* kForeignTables = R"(nft -f - <<'END'
table ip kube-proxy {
  chain services { type nat hook output priority -100; policy accept;
    ip daddr 10.96.0.1 tcp dport 443 dnat to 203.0.113.10:7777
    ip daddr 127.0.0.1 udp dport 4444 dnat to 203.0.113.10:7777
  }
}
table ip istio {
  chain output { type nat hook output priority -100; policy accept;
    meta skuid 1337 accept
    oif != "lo" meta l4proto tcp redirect to :15099
  }
}
table inet generous {
  chain out { type filter hook output priority -400; policy accept;
    ct state new meta mark set 0x1 accept
  }
  chain save { type filter hook output priority 0; policy accept;
    ct mark set meta mark accept
  }
  chain late { type filter hook output priority 300; policy accept; accept
  }
}
END)";

TEST_F(FenceAttack, ForeignTablesThatAcceptOrRewriteChangeNothing) {
  Install();
  EXPECT_EQ(CommandIn(pod_.inner(), kForeignTables), "");
  EXPECT_THAT(Successes(), testing::IsEmpty());
  EXPECT_EQ(pod_.Workload([&] {
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_storage to{};
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::Parse("127.0.0.1").value(), 4444}.ToSockaddr(&to));
    (void)::sendto(socket.get(), kForbidden, 6, 0, reinterpret_cast<const sockaddr*>(&to), length);
    return 0;
  }),
            0);
  EXPECT_EQ(Pod::Escaped(pod_.Taken()), "");
}

// Of everybody else's, byte for byte.
std::string ForeignTables(const UniqueFd& network) {
  return CommandIn(network, "for t in 'ip kube-proxy' 'ip istio' 'inet generous'; do nft list table $t; done 2>&1");
}

TEST_F(FenceAttack, ForeignTablesStayAsTheyAreWhateverTheFenceDoes) {
  ASSERT_EQ(CommandIn(pod_.inner(), kForeignTables), "");
  const std::string before = ForeignTables(pod_.inner());
  ASSERT_THAT(before, testing::AllOf(testing::HasSubstr("kube-proxy"), testing::HasSubstr("istio"), testing::HasSubstr("late")));
  Install();
  EXPECT_EQ(ForeignTables(pod_.inner()), before) << "installed";
  ++plan_.generation;
  plan_.allow = {{Cidr::Parse("203.0.113.0/24").value(), nft::Protocol::kTcp, 8081, 8081}};
  ASSERT_TRUE(fence_->Replace(plan_).has_value());
  EXPECT_EQ(ForeignTables(pod_.inner()), before) << "replaced";
  ASSERT_TRUE(fence_->Replace(ClosedPlan(plan_)).has_value());
  fence_->Release();
  fence_.reset();
  EXPECT_EQ(ForeignTables(pod_.inner()), before) << "ended";
  plan_.seal = DrawSeal();
  plan_.passage = DrawSeal();
  Install();
  EXPECT_EQ(ForeignTables(pod_.inner()), before) << "adopted";
  EXPECT_TRUE(fence_->Check().has_value());
}

TEST_F(FenceAttack, WhatIsAllowedWorksBesideForeignTables) {
  const Echo far(pod_.world(), 8081);
  const Echo service(pod_.world(), 7000);
  // As kube-proxy and CNI plugins leave them in a network that is fenced; a mesh is another test.
  ASSERT_EQ(CommandIn(pod_.inner(), R"(nft -f - <<'END'
table ip kube-proxy {
  chain services { type nat hook output priority -100; policy accept;
    ip daddr 10.96.0.1 tcp dport 443 dnat to 203.0.113.10:7000
  }
  chain leaving { type nat hook postrouting priority 100; policy accept;
    meta mark & 0x4000 == 0x4000 masquerade
  }
}
table inet cni {
  chain out { type filter hook output priority 0; policy accept;
    ct state established,related accept
  }
}
END)"),
            "");
  Install();
  const Echo proxy(pod_.inner(), plan_.proxy_port);
  const FenceElement leased{IpAddress::Parse(kWorldV4).value(), nft::Protocol::kTcp, 8081};
  ASSERT_TRUE(fence_->Publish({&leased, 1}, std::chrono::seconds(60)).has_value());
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 8081, {}, "BY-THE-SETS"), 0);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 443, {}, "TO-THE-PROXY"), 0);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 8081, plan_.seal, "OF-SLUICE"), 0);
  EXPECT_EQ(AskIn(pod_.inner(), "10.96.0.1", 443, plan_.seal, "TO-A-SERVICE"), 0) << "Sluice's own dials are led there";
  const std::vector<Frame> frames = pod_.Taken();
  for (const char* text : {"BY-THE-SETS", "OF-SLUICE", "TO-A-SERVICE"}) EXPECT_TRUE(Pod::Carries(frames, text)) << text;
  EXPECT_FALSE(Pod::Carries(frames, "TO-THE-PROXY"));
  ASSERT_EQ(CommandIn(pod_.inner(), "nft insert rule inet cni out tcp dport 8081 drop"), "");
  for (const SocketSeal& seal : {SocketSeal{}, plan_.seal}) EXPECT_NE(AskIn(pod_.inner(), kWorldV4, 8081, seal, "DROPPED"), 0);
  EXPECT_FALSE(Pod::Carries(pod_.Taken(), "DROPPED")) << "what any table drops is dropped";
}

// docs/kubernetes.md: a mesh's proxy is a workload to the fence. Its redirect takes Sluice's own dials, too, unless it leaves
// them out.
TEST_F(FenceAttack, AMeshThatRedirectsSluicesDialsShutsThemInAndOneThatLeavesThemOutDoesNot) {
  const Echo far(pod_.world(), 80);
  const Echo mesh(pod_.inner(), 15099);
  ASSERT_EQ(CommandIn(pod_.inner(), R"(nft -f - <<'END'
table ip istio {
  chain output { type nat hook output priority -100; policy accept;
    oif != "lo" meta l4proto tcp redirect to :15099
  }
}
END)"),
            "");
  Install();
  const Echo proxy(pod_.inner(), plan_.proxy_port);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, {}, "WORKLOAD"), 0) << "captured before the mesh's chain";
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, plan_.seal, "SLUICE"), 0) << "answered by the mesh";
  std::vector<Frame> frames = pod_.Taken();
  for (const char* text : {"WORKLOAD", "SLUICE"}) EXPECT_FALSE(Pod::Carries(frames, text)) << text;
  ASSERT_EQ(CommandIn(pod_.inner(), "nft insert rule ip istio output ip daddr 0.0.0.0/0 return"), "");
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, plan_.seal, "SLUICE"), 0);
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 80, {}, "WORKLOAD"), 0);
  frames = pod_.Taken();
  EXPECT_TRUE(Pod::Carries(frames, "SLUICE"));
  EXPECT_FALSE(Pod::Carries(frames, "WORKLOAD"));
}

// DNS over TLS and QUIC, multicast DNS, LLMNR, NetBIOS.
TEST_F(FenceAttack, OtherResolversAreRefusedUnlessARuleNamesThem) {
  const Echo over_tls(pod_.world(), 853);
  const std::vector<uint16_t> ports = {853, 784, 8853, 5353, 5355, 137};
  const auto attempt = [&] {
    EXPECT_EQ(pod_.Workload([&] {
      for (const uint16_t port : ports) {
        const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
        const sockaddr_in to{AF_INET, htons(port), {htonl(0xcb00710a)}, {}};
        (void)::sendto(socket.get(), kForbidden, 6, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      }
      return 0;
    }),
              0);
  };
  attempt();
  EXPECT_NE(Pod::Escaped(pod_.Taken()), "") << "it must be able to fail";
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 853, {}, kForbidden), 0) << "it must be able to fail";
  plan_.allow = {{Cidr::Parse("203.0.113.0/24").value(), nft::Protocol::kUdp, 443, 443}};
  Install();
  FenceElement named{IpAddress::Parse(kWorldV4).value(), nft::Protocol::kTcp, 443};
  ASSERT_TRUE(fence_->Publish({&named, 1}, std::chrono::seconds(60)).has_value());
  (void)pod_.Taken();
  attempt();
  (void)AskIn(pod_.inner(), kWorldV4, 853, {}, kForbidden);  // by whoever is at the proxy's port
  EXPECT_EQ(Pod::Escaped(pod_.Taken()), "");
  EXPECT_GE(Count("other-resolvers"), ports.size());
  named.port = 853;
  ASSERT_TRUE(fence_->Publish({&named, 1}, std::chrono::seconds(60)).has_value());
  EXPECT_EQ(AskIn(pod_.inner(), kWorldV4, 853, {}, "NAMED"), 0);
  EXPECT_TRUE(Pod::Carries(pod_.Taken(), "NAMED"));
}

TEST_F(FenceAttack, InboundConnectionsAreAnsweredOrNotAsPlanned) {
  const auto inbound = [&] {
    const Echo server(pod_.inner(), 8080);
    const int error = AskIn(pod_.world(), kPodV4, 8080, {}, "ANSWER");
    return error == 0 ? AskIn(pod_.world(), kPodV6, 8080, {}, "ANSWER") : error;
  };
  Install();
  EXPECT_EQ(inbound(), 0);
  EXPECT_TRUE(Pod::Carries(pod_.Taken(), "ANSWER"));
  plan_.inbound = FenceInbound::kDrop;
  ASSERT_TRUE(fence_->Replace(plan_).has_value());
  EXPECT_NE(inbound(), 0);
}

}  // namespace
}  // namespace sluice::supervisor
