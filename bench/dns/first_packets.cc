// How many first packets are refused after an answer: the fence, the resolver that fills its sets, and a workload that asks for
// names nobody asked for before and, each time an answer comes, at once sends a datagram to the address in it. The datagrams are
// counted where they arrive, in a network namespace beyond a real device. Beforehand the same with a resolver that does not fill
// the sets: all of those must be refused, or nothing is shown.
//
//   first_packets [NAMES]        (60,000; 65,536 at most)
//
// Exits with 1 where any was refused or lost. Needs root or user namespaces, and ip(8).
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "bench/dns/servers.h"
#include "supervisor/io/redirect_sockets.h"

namespace {

using namespace sluice;         // NOLINT: a program of one file
using namespace sluice::bench;  // NOLINT
using std::chrono::steady_clock;

constexpr uint32_t kMostNames = 65536;
constexpr uint32_t kControl = 200;  ///< names of the run without publishing
constexpr uint32_t kUnderWay = 48;
constexpr uint16_t kPort = 7007;
constexpr size_t kFirstQuestion = 12;  // RFC 1035 section 4.1.1: behind the header
constexpr uint8_t kServFail = 2;
constexpr const char* kOutside = "10.77.0.1";
const std::string kPolicy = "version: 1\nsettings: { dns: real }\nrules:\n  - allow: udp **.bench.test:7007\n";

UniqueFd UdpAt(const char* address, uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage at{};
  const auto length = static_cast<socklen_t>(Endpoint{*IpAddress::Parse(address), port}.ToSockaddr(&at));
  const int room = 16 << 20;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length) != 0) Die("bind");
  return fd;
}

// Counts datagrams that hold a number, each number once.
class Sink {
 public:
  explicit Sink(UniqueFd fd) : fd_(std::move(fd)), thread_([this] { Run(); }) {}
  ~Sink() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] uint32_t count() const { return count_; }

 private:
  void Run() {
    const timeval limit{0, 50000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    auto batch = std::make_unique<Batch>();
    std::vector<bool> seen(kMostNames);
    while (!stop_) {
      const int got = batch->Receive(fd_.get(), MSG_WAITFORONE);
      for (int i = 0; i < got; ++i) {
        uint32_t number = 0;
        std::memcpy(&number, batch->bytes[static_cast<size_t>(i)].data(), sizeof number);
        if (number >= kMostNames || seen[number]) continue;
        seen[number] = true;
        ++count_;
      }
    }
  }

  UniqueFd fd_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> count_{0};
  std::thread thread_;
};

struct Outcome {
  uint32_t answered = 0;
  uint32_t refused = 0;  ///< of the datagrams, by the kernel and at once
  uint32_t again = 0;    ///< names asked for once more
  double seconds = 0;
};

// The workload: no seal, no right over the fence that it uses.
class Workload {
 public:
  Workload() : lookups_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), packets_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    // Whatever server it asks, the fence sends it to ours.
    sockaddr_storage server{};
    const auto length = static_cast<socklen_t>(Endpoint{*IpAddress::Parse("8.8.8.8"), 53}.ToSockaddr(&server));
    if (connect(lookups_.get(), reinterpret_cast<sockaddr*>(&server), length) != 0) Die("connect");
    const timeval limit{1, 0};
    setsockopt(lookups_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  Outcome Run(uint32_t first, uint32_t count) {
    Outcome outcome;
    uint32_t asked = 0;
    const auto begin = steady_clock::now();
    for (; asked < std::min(count, kUnderWay); ++asked) Ask(first + asked);
    std::array<uint8_t, 1500> answer{};
    while (outcome.answered < count) {
      const ssize_t size = recv(lookups_.get(), answer.data(), answer.size(), 0);
      if (size <= 0) break;  // one was lost: told as unanswered
      const auto end = static_cast<size_t>(size);
      if (end < kFirstQuestion + 10) Die("an answer without its question");
      if ((answer[3] & 0x0f) == kServFail) {  // the machine is busy, and the set was not committed in time: as a client does
        if (++outcome.again > count) Die("no set is committed in time");
        Ask(NumberIn(answer));
        continue;
      }
      if (answer[7] != 1) Die("an answer without one address");
      ++outcome.answered;
      outcome.refused += SendTo(std::span(answer).subspan(end - 4, 4)) ? 0 : 1;
      if (asked < count) Ask(first + asked++);
    }
    outcome.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
    return outcome;
  }

 private:
  void Ask(uint32_t number) {
    std::array<uint8_t, 512> bytes{};
    const size_t size =
        WriteQuestion(bytes.data(), static_cast<uint16_t>(number & 0xffff), fmt::format("n{:08x}.bench.test", number));
    if (send(lookups_.get(), bytes.data(), size, 0) < 0) Die("a lookup was refused");
  }
  // As Ask names it: n and eight digits.
  static uint32_t NumberIn(std::span<const uint8_t> answer) {
    const auto* digits = reinterpret_cast<const char*>(answer.data()) + kFirstQuestion + 2;
    uint32_t number = 0;
    if (std::from_chars(digits, digits + 8, number, 16).ec != std::errc()) Die("an answer to another question");
    return number;
  }
  bool SendTo(std::span<const uint8_t> address) {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kPort), .sin_addr = {}, .sin_zero = {}};
    std::memcpy(&to.sin_addr, address.data(), address.size());
    const uint32_t number = ntohl(to.sin_addr.s_addr) - Responder::kFirstAddress;
    return sendto(packets_.get(), &number, sizeof number, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == sizeof number;
  }

  UniqueFd lookups_;
  UniqueFd packets_;
};

// Main's namespace is the workload's afterwards; returns the one outside. A device joins them.
UniqueFd MakeNamespaces() {
  EnterNamespace();
  UniqueFd outside(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (unshare(CLONE_NEWNET) != 0) Die("no network namespace");
  const UniqueFd inside(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  Shell("ip link set lo up");
  if (setns(outside.get(), CLONE_NEWNET) != 0) Die("setns");
  Shell(fmt::format(
      "ip link add out0 type veth peer name eth0 && ip link set eth0 netns /proc/{}/fd/{} && ip addr add {}/24 dev out0 && "
      "ip link set out0 up && ip route add local 151.64.0.0/16 dev lo",
      getpid(), inside.get(), kOutside));
  if (setns(inside.get(), CLONE_NEWNET) != 0) Die("setns");
  Shell(fmt::format("ip addr add 10.77.0.2/24 dev eth0 && ip link set eth0 up && ip route add default via {}", kOutside));
  return outside;
}

// Opens a socket there.
UniqueFd OutsideUdp(const UniqueFd& outside, const char* address, uint16_t port) {
  UniqueFd fd;
  std::thread([&] {
    if (setns(outside.get(), CLONE_NEWNET) != 0) Die("setns");
    fd = UdpAt(address, port);
  }).join();
  return fd;
}

Outcome Try(supervisor::Fence* fence, supervisor::FencePlan plan, bool publish, uint32_t first, uint32_t count) {
  auto sockets = Need(supervisor::OpenRedirectSockets(0, 0));
  plan.proxy_port = sockets.proxy_port;
  plan.dns_port = sockets.dns_port;
  Need(fence->Replace(plan));
  CountOnly sink;
  const Resolver resolver({.policy = kPolicy,
                           .upstream = {.servers = {{.endpoint = {*IpAddress::Parse(kOutside), 53}}}, .seal = plan.seal},
                           .sink = &sink,
                           .core = 1,
                           .publish = publish ? PublishTo(fence) : [](std::span<const dns::Lease>, std::chrono::milliseconds)
                               -> Result<std::chrono::steady_clock::duration> { return {}; }},
                          std::move(sockets.families.front().dns_udp));
  // Of its own each time: a flow that is redirected once keeps going there, where soon nobody listens.
  return Workload().Run(first, count);
}

}  // namespace

int main(int argc, char** argv) {
  const auto count =
      static_cast<uint32_t>(argc > 1 ? std::clamp(std::atoi(argv[1]), 1, static_cast<int>(kMostNames - kControl)) : 60000);
  const UniqueFd outside = MakeNamespaces();
  const Responder upstream(Responder::Kind::kAnswer, OutsideUdp(outside, kOutside, 53), 0);
  const Sink sink(OutsideUdp(outside, "0.0.0.0", kPort));
  supervisor::FencePlan plan{.seal = DrawSeal(), .passage = DrawSeal()};
  const auto fence = Need(supervisor::Fence::Install(supervisor::ClosedPlan(plan)));
  const Outcome control = Try(fence.get(), plan, false, 0, kControl);
  if (control.answered != kControl || control.refused != kControl || sink.count() != 0) {
    fmt::print(
        "without the set {} of {} first packets were refused and {} arrived: the fence is not shut, or names are not answered\n",
        control.refused, control.answered, sink.count());
    return 1;
  }
  ++plan.generation;
  const Outcome outcome = Try(fence.get(), plan, true, kControl, count);
  const auto deadline = steady_clock::now() + std::chrono::seconds(5);
  while (sink.count() < outcome.answered - outcome.refused && steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const uint32_t lost = outcome.answered - outcome.refused - sink.count();
  fmt::print(
      "first packets after an answer: {} of {} refused, {} lost, {} names unanswered, {} asked for again, {:.0f} names/s\n",
      outcome.refused, outcome.answered, lost, count - outcome.answered, outcome.again, outcome.answered / outcome.seconds);
  return outcome.refused + lost == 0 && outcome.answered == count ? 0 : 1;
}
