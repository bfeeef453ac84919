// What the kernel's sets and the fence cost: an element and a replacement beside libnftables doing the same in the same
// namespace, a connect that is redirected beside a direct one and beside one that a lone redirect rule takes, and a packet
// through the fence beside one without it. Each in turns, in namespaces side by side, so that all see the same machine; the
// figure is the median.
//
//   nft_bench [rounds]

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "nft/io/session.h"
#include "supervisor/io/fence.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kElements = 10000;
constexpr uint16_t kProxyPort = 15001;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "nft_bench: %s\n", why.c_str());
  std::exit(1);
}
template <class T>
T Need(Result<T> result) {
  if (!result) Die(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

template <class Body>
double Microseconds(Body body) {
  const auto begin = Clock::now();
  body();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}
// The same for ten thousand elements. The kernel frees those of the transaction before, and makes their table smaller and larger
// again, after it has answered: that is waited for, or who comes second would pay for who came first.
template <class Body>
double MicrosecondsAtRest(Body body) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return Microseconds(std::move(body));
}
double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void WriteTo(const char* path, const std::string& text) {
  const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) < 0) Die(std::string("cannot write ") + path);
}

// Its own user namespace where it is needed to make network namespaces.
void MayMakeNamespaces() {
  if (::geteuid() == 0) return;
  const std::string uid = fmt::format("0 {} 1", ::geteuid());
  const std::string gid = fmt::format("0 {} 1", ::getegid());
  if (::unshare(CLONE_NEWUSER) != 0) Die("no user namespace");
  WriteTo("/proc/self/setgroups", "deny");
  WriteTo("/proc/self/uid_map", uid);
  WriteTo("/proc/self/gid_map", gid);
}

UniqueFd Listener() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (::setsockopt(listener.get(), IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on) != 0) Die("no transparent socket");  // for tproxy
  sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(kProxyPort), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(listener.get(), 4096) != 0)
    Die("cannot listen");
  return listener;
}

// A network namespace with a device that leads nowhere, and a listener on lo.
class Place {
 public:
  Place() {
    if (::unshare(CLONE_NEWNET) != 0) Die("no network namespace");
    network_ = UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    const int made = std::system(
        "PATH=/usr/sbin:$PATH; ip link set lo up && ip link add eth0 type veth peer name out0 && ip link set eth0 up && ip link "
        "set out0 up && "
        "ip addr add 10.77.0.2/24 dev eth0 && ip neigh add 10.77.0.1 lladdr 02:00:00:00:00:01 dev eth0 && ip route add default "
        "via "
        "10.77.0.1");
    if (made != 0) Die("cannot make a device with ip(8)");
    listener_ = Listener();
  }
  void Enter() const {
    if (::setns(network_.get(), CLONE_NEWNET) != 0) Die("cannot enter a namespace");
  }

  // Into `times`, microseconds each.
  void Connects(const char* address, uint16_t port, int count, std::vector<double>* times) const {
    Enter();
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {::inet_addr(address)}, .sin_zero = {}};
    for (int i = 0; i < count; ++i) {
      const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const linger reset{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      times->push_back(Microseconds([&] {
        if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) Die("a connect failed");
      }));
      const UniqueFd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  }

  void Datagrams(const SocketSeal& seal, int count, std::vector<double>* times) const {
    Enter();
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!ApplySeal(socket.get(), seal)) Die("cannot seal a socket");
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {::inet_addr("10.77.0.1")}, .sin_zero = {}};
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) Die("no route");
    times->push_back(Microseconds([&] {
                       for (int i = 0; i < count; ++i) ::send(socket.get(), "x", 1, 0);
                     }) /
                     count);
  }

 private:
  UniqueFd network_;
  UniqueFd listener_;
};

// The comparison: libnftables, kept open as a daemon would.
class Libnftables {
 public:
  Libnftables() {
    void* library = ::dlopen("libnftables.so.1", RTLD_NOW);
    if (library == nullptr) Die("libnftables.so.1 is not installed");
    const auto create = reinterpret_cast<void* (*)(uint32_t)>(::dlsym(library, "nft_ctx_new"));
    run_ = reinterpret_cast<int (*)(void*, const char*)>(::dlsym(library, "nft_run_cmd_from_buffer"));
    context_ = create(0);
  }
  void Run(const std::string& commands) {
    if (run_(context_, commands.c_str()) != 0) Die("libnftables refused " + commands.substr(0, 80));
  }

 private:
  int (*run_)(void*, const char*) = nullptr;
  void* context_ = nullptr;
};

std::string AddressText(uint32_t number) { return IpAddress::FromV4(0x0a000000 + number).ToString(); }
nft::Key KeyOf(uint32_t number) { return nft::Key().Address(IpAddress::FromV4(0x0a000000 + number)).Protocol(6).Port(443); }

void Elements(int rounds) {
  nft::Table table{nft::Family::kInet, "bench", {}};
  const std::vector<nft::KeyType> key = {nft::KeyType::kAddress4, nft::KeyType::kProtocol, nft::KeyType::kPort};
  table.sets.push_back({.name = "dyn", .key = key, .size = 1000000, .timeouts = true});
  table.sets.push_back({.name = "fixed", .key = key, .size = 1000000});
  for (uint32_t i = 0; i < kElements; ++i) table.sets[1].elements.push_back({KeyOf(i), {}});
  const auto session = Need(nft::Session::Open());
  const auto commit = [&](auto&& fill) {
    nft::BatchBuilder builder(session->NextSequence());
    fill(builder);
    Need(session->Commit(Need(builder.Finish())));
  };
  commit([&](nft::BatchBuilder& builder) {
    builder.CreateTable(table, nft::Existing::kRefuse);
    Need(builder.Fill(table));
    std::vector<nft::TimedElement> many;
    for (uint32_t i = 0; i < kElements; ++i) many.push_back({KeyOf(i), std::chrono::hours(1)});
    builder.AddElements(table, table.sets[0], many);
  });
  Libnftables other;
  std::vector<double> one;
  std::vector<double> one_other;
  uint32_t next = kElements;
  for (int i = 0; i < rounds * 20; ++i) {
    const nft::TimedElement element{KeyOf(next++), std::chrono::hours(1)};
    one.push_back(Microseconds(
        [&] { commit([&](nft::BatchBuilder& builder) { builder.AddElements(table, table.sets[0], {&element, 1}); }); }));
    const std::string command = fmt::format("add element inet bench dyn {{ {} . tcp . 443 timeout 1h }}", AddressText(next++));
    one_other.push_back(Microseconds([&] { other.Run(command); }));
  }
  fmt::print("one element into {}: ours {:.1f} us, libnftables {:.1f} us, ratio {:.4f}\n", kElements, Median(one),
             Median(one_other), Median(one) / Median(one_other));
  std::vector<double> all;
  std::vector<double> all_other;
  std::string replace = "flush set inet bench fixed; add element inet bench fixed { ";
  for (uint32_t i = 0; i < kElements; ++i) replace += fmt::format("{}{} . tcp . 443", i == 0 ? "" : ", ", AddressText(i));
  replace += " }";
  for (int i = 0; i < rounds; ++i) {
    all.push_back(MicrosecondsAtRest([&] { commit([&](nft::BatchBuilder& builder) { Need(builder.Refill(table, {})); }); }));
    all_other.push_back(MicrosecondsAtRest([&] { other.Run(replace); }));
  }
  fmt::print("replacing {} elements: ours {:.2f} ms, libnftables {:.2f} ms, ratio {:.3f}\n", kElements, Median(all) / 1e3,
             Median(all_other) / 1e3, Median(all) / Median(all_other));
}

supervisor::FencePlan OpenPlan() {
  return {.seal = DrawSeal(), .passage = DrawSeal(), .proxy_port = kProxyPort, .dns_port = 15053};
}

// The same by the fence, which reads back what it has put in force and compares it.
void ElementsOfTheFence(int rounds) {
  const Place place;
  supervisor::FencePlan plan = OpenPlan();
  const auto fence = Need(supervisor::Fence::Install(plan));
  Libnftables other;
  other.Run(
      "add table inet bench; add set inet bench dyn { type ipv4_addr . inet_proto . inet_service; flags timeout; size 131072; }");
  std::vector<supervisor::FenceElement> many;
  for (uint32_t i = 0; i < kElements; ++i) many.push_back({IpAddress::FromV4(0x0a000000 + i), nft::Protocol::kTcp, 443});
  Need(fence->Publish(many, std::chrono::hours(1)));
  std::vector<double> one;
  std::vector<double> one_other;
  uint32_t next = kElements;
  for (int i = 0; i < rounds * 20; ++i) {
    const supervisor::FenceElement element{IpAddress::FromV4(0x0a000000 + next++), nft::Protocol::kTcp, 443};
    one.push_back(Microseconds([&] { Need(fence->Publish({&element, 1}, std::chrono::hours(1))); }));
    const std::string command = fmt::format("add element inet bench dyn {{ {} . tcp . 443 timeout 1h }}", AddressText(next++));
    one_other.push_back(Microseconds([&] { other.Run(command); }));
  }
  fmt::print("one element by the fence: ours {:.1f} us, libnftables {:.1f} us, ratio {:.4f}\n", Median(one), Median(one_other),
             Median(one) / Median(one_other));
  // Two lists in turns. No two addresses touch each other, so that they stay that many.
  std::array<std::vector<supervisor::FenceCidr>, 2> lists;
  std::array<std::string, 2> replace;
  for (size_t list = 0; list < lists.size(); ++list) {
    replace[list] = "add element inet bench fixed { ";
    for (uint32_t i = 0; i < kElements; ++i) {
      const IpAddress address = IpAddress::FromV4(0x0b000000 + (static_cast<uint32_t>(list) << 24) + 2 * i);
      lists[list].push_back({Cidr::Of(address, 32), nft::Protocol::kTcp, 443, 443});
      replace[list] += fmt::format("{}{} . tcp . 443", i == 0 ? "" : ", ", address.ToString());
    }
    replace[list] += " }";
  }
  const std::string fixed = "add set inet bench fixed { type ipv4_addr . inet_proto . inet_service; flags interval; }; ";
  std::vector<double> all;
  std::vector<double> all_other;
  for (int i = 0; i < rounds; ++i) {
    const size_t list = static_cast<size_t>(i) % lists.size();
    plan.allow = lists[list];
    all.push_back(MicrosecondsAtRest([&] { Need(fence->Replace(plan)); }));
    // As a program would that wants it quick: flushing takes seconds.
    if (i == 0) other.Run(fixed);
    all_other.push_back(MicrosecondsAtRest([&] { other.Run("delete set inet bench fixed; " + fixed + replace[list]); }));
  }
  fmt::print("replacing {} elements by the fence: ours {:.2f} ms, libnftables {:.2f} ms, ratio {:.3f}\n", kElements,
             Median(all) / 1e3, Median(all_other) / 1e3, Median(all) / Median(all_other));
}

constexpr const char* kLoneRedirect =
    "table inet lone {\n chain c {\n type nat hook output priority -101\n oif != \"lo\" meta l4proto tcp redirect to :15001\n "
    "}\n}\n";

// The other way to capture what a namespace sends: routed back in by `lo`, where a rule hands it to the listener.
constexpr const char* kRoutedIn =
    "PATH=/usr/sbin:$PATH; ip rule add pref 10 ipproto tcp lookup 100 && ip route add local default dev lo src 10.77.0.2 table "
    "100";
constexpr const char* kTproxy =
    "table inet routed {\n chain c {\n type filter hook prerouting priority -150\n iif \"lo\" ip daddr != 127.0.0.0/8 meta "
    "l4proto "
    "tcp tproxy ip to 127.0.0.1:15001 accept\n }\n}\n";
// With what any fence needs besides: connection tracking, since answers to inbound connections must be told from the rest.
constexpr const char* kTracked =
    "table inet tracked {\n chain o {\n type filter hook output priority 10\n ct state established accept\n }\n}\n";

void Flows(int rounds) {
  constexpr int kAtOnce = 20;
  const supervisor::FencePlan plan = OpenPlan();
  const Place bare;
  const Place lone;
  Libnftables().Run(kLoneRedirect);
  const Place routed;
  if (std::system(kRoutedIn) != 0) Die("cannot add a rule with ip(8)");
  Libnftables().Run(kTproxy);
  const Place routed_tracked;
  if (std::system(kRoutedIn) != 0) Die("cannot add a rule with ip(8)");
  Libnftables().Run(kTproxy);
  Libnftables().Run(kTracked);
  const Place fenced;
  const auto fence = Need(supervisor::Fence::Install(plan));
  std::vector<double> direct;
  std::vector<double> redirected;
  std::vector<double> by_tproxy;
  std::vector<double> by_tproxy_tracked;
  std::vector<double> through;
  std::vector<double> unfenced;
  std::vector<double> sealed;
  for (int i = 0; i < rounds * 5; ++i) {
    bare.Connects("127.0.0.1", kProxyPort, kAtOnce, &direct);
    lone.Connects("203.0.113.10", 443, kAtOnce, &redirected);
    routed.Connects("203.0.113.10", 443, kAtOnce, &by_tproxy);
    routed_tracked.Connects("203.0.113.10", 443, kAtOnce, &by_tproxy_tracked);
    fenced.Connects("203.0.113.10", 443, kAtOnce, &through);
    bare.Datagrams(plan.seal, 500, &unfenced);
    fenced.Datagrams(plan.seal, 500, &sealed);
  }
  const double ours = Median(through);
  fmt::print("redirected connect: {:.1f} us, direct without tables {:.1f} us, ratio {:.3f}\n", ours, Median(direct),
             ours / Median(direct));
  fmt::print("redirected connect beside a lone redirect rule: {:.1f} us, that rule {:.1f} us, ratio {:.3f}\n", ours,
             Median(redirected), ours / Median(redirected));
  fmt::print("a lone redirect rule: {:.1f} us, direct {:.1f} us, ratio {:.3f}\n", Median(redirected), Median(direct),
             Median(redirected) / Median(direct));
  fmt::print("routed to a lone tproxy rule: {:.1f} us, direct {:.1f} us, ratio {:.3f}\n", Median(by_tproxy), Median(direct),
             Median(by_tproxy) / Median(direct));
  fmt::print("routed to a tproxy rule beside connection tracking: {:.1f} us, direct {:.1f} us, ratio {:.3f}\n",
             Median(by_tproxy_tracked), Median(direct), Median(by_tproxy_tracked) / Median(direct));
  fmt::print("a sealed datagram: fenced {:.0f} ns, bare {:.0f} ns, ratio {:.3f}\n", Median(sealed) * 1e3, Median(unfenced) * 1e3,
             Median(sealed) / Median(unfenced));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(3, std::atoi(argv[1])) : 40;
  // Where permitted, so that a busy machine does not measure its run queue.
  const sched_param real_time{.sched_priority = 10};
  ::sched_setscheduler(0, SCHED_FIFO, &real_time);
  MayMakeNamespaces();
  Flows(rounds);
  const Place own;
  Elements(rounds);
  ElementsOfTheFence(rounds);
}
