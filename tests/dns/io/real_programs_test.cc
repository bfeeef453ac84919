// True addresses between real programs: dnsmasq, unbound and knot as upstreams; dig, glibc's getent and a static musl program as
// clients, one of them configured as in a Kubernetes pod.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/dns/io/name_servers.h"
#include "tests/dns/io/own_place.h"
#include "tests/dns/io/server_harness.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string Dig(const ResolverHarness& resolver, const std::string& words) {
  return Output("dig +tries=1 +timeout=3 @127.0.0.1 -p " + std::to_string(resolver.port()) + " " + words);
}

HarnessOptions Real(const std::string& rules, std::vector<Endpoint> upstream) {
  HarnessOptions options{
      .allows = {}, .yaml = "version: 1\nsettings: { dns: real }\nrules:\n" + rules, .upstream = std::move(upstream)};
  options.history = std::make_shared<NameHistory>();
  options.publish = [](std::span<const Lease>, std::chrono::milliseconds) -> Result<std::chrono::steady_clock::duration> {
    return {};
  };
  return options;
}

std::string KnotZone() {
  std::string zone =
      "one IN A 93.184.216.34\none IN AAAA 2606:2800::1\nfour 0 IN A 93.184.216.4\nsix IN AAAA 2606:2800::6\n"
      "a1 IN CNAME a2\na2 IN CNAME a3\na3 IN CNAME one\nloop IN CNAME loop2\nloop2 IN CNAME loop\n"
      "inside IN A 10.0.0.1\nmixed IN A 10.0.0.2\nmixed IN A 93.184.216.7\nmeta IN A 169.254.169.254\n"
      "tree IN DNAME sub\nx.sub IN A 93.184.216.8\n"
      "web IN A 93.184.216.9\nweb IN HTTPS 1 . alpn=h2 ipv4hint=93.184.216.9 ipv6hint=2606:2800::9 ech=AEP+DQA=\n"
      "text IN TXT \"hello\"\n";
  for (int i = 0; i < 60; ++i) zone += "many IN A 93.184.217." + std::to_string(i) + "\n";
  return zone;
}

TEST(RealProgramsTest, DigSeesTheZonesOfKnotAsTheyAre) {
  const NameServer knot = NameServer::Knot(KnotZone(), "one.test");
  const ResolverHarness resolver(
      Real("  - allow: tcp *.test:443\n  - allow: tcp x.tree.test:443\n  - allow: dns *.test\n    types: [A, AAAA, TXT, HTTPS]\n",
           {knot.endpoint()}));
  EXPECT_EQ(Dig(resolver, "+short one.test A"), "93.184.216.34\n");
  EXPECT_EQ(Dig(resolver, "+short one.test AAAA"), "2606:2800::1\n");
  EXPECT_EQ(Dig(resolver, "+short a1.test A"), "93.184.216.34\n") << "three aliases";
  EXPECT_EQ(Dig(resolver, "+short x.tree.test A"), "93.184.216.8\n") << "through a DNAME";
  EXPECT_TRUE(Has(Dig(resolver, "loop.test A"), "SERVFAIL"));
  EXPECT_TRUE(Has(Dig(resolver, "+noall +answer four.test A"), "5\tIN\tA\t93.184.216.4"));
  EXPECT_TRUE(Has(Dig(resolver, "four.test AAAA"), "NOERROR"));
  EXPECT_EQ(Dig(resolver, "+short mixed.test A"), "93.184.216.7\n");
  for (const char* name : {"inside.test", "meta.test"}) {
    const std::string filtered = Dig(resolver, std::string(name) + " A");
    EXPECT_TRUE(Has(filtered, "NOERROR") && Has(filtered, "ANSWER: 0") && Has(filtered, "EDE: 17")) << filtered;
  }
  const std::string https = Dig(resolver, "+short web.test HTTPS");
  EXPECT_TRUE(Has(https, "alpn=\"h2\"")) << https;
  EXPECT_FALSE(Has(https, "hint") || Has(https, "ech")) << https;
  EXPECT_TRUE(Has(Dig(resolver, "+short text.test TXT"), "\"hello\""));
  EXPECT_TRUE(Has(Dig(resolver, "gone.test A"), "NXDOMAIN"));
  EXPECT_TRUE(Has(Dig(resolver, "one.test ANY +notcp"), "RFC8482"));
  EXPECT_TRUE(Has(Dig(resolver, "one.test TYPE1234"), "NOERROR"));
  EXPECT_TRUE(Has(Dig(resolver, "one.test AXFR"), "Transfer failed"));
  const std::string plain = Dig(resolver, "+noedns +ignore many.test A");
  EXPECT_TRUE(Has(plain, " tc ") && Has(plain, "ANSWER: 0")) << plain;
  const std::string edns = Dig(resolver, "+bufsize=600 +ignore many.test A");
  EXPECT_TRUE(Has(edns, " tc ") && Has(edns, "OPT PSEUDOSECTION")) << edns;
  EXPECT_TRUE(Has(Dig(resolver, "+tcp many.test A"), "ANSWER: 60"));
  EXPECT_TRUE(Has(Dig(resolver, "many.test A"), "ANSWER: 60")) << "dig falls back by itself";
  EXPECT_TRUE(Has(Dig(resolver, "+edns=1 +noednsneg one.test"), "BADVERS"));
  EXPECT_TRUE(Has(Dig(resolver, "+subnet=192.0.2.0/24 one.test A"), "NOERROR"));
  EXPECT_FALSE(Has(Dig(resolver, "+subnet=192.0.2.0/24 one.test A"), "CLIENT-SUBNET"));
}

TEST(RealProgramsTest, AnUpstreamOverIpv6IsAsked) {
  const NameServer knot = NameServer::Knot(KnotZone(), "one.test");
  const ResolverHarness resolver(Real("  - allow: tcp *.test:443\n", {knot.endpoint6()}));
  EXPECT_EQ(Dig(resolver, "+short one.test A"), "93.184.216.34\n");
  EXPECT_TRUE(Has(Dig(resolver, "+tcp many.test A"), "ANSWER: 60"));
}

TEST(RealProgramsTest, DeniedNamesNeverReachUnbound) {
  const NameServer unbound =
      NameServer::Unbound({"one.test. 120 IN A 93.184.216.34", "one.test. 120 IN AAAA 2606:2800::1"}, "one.test");
  const ResolverHarness resolver(Real("  - allow: tcp one.test:443\n", {unbound.endpoint()}));
  EXPECT_EQ(Dig(resolver, "+short one.test A"), "93.184.216.34\n");
  const std::string denied = Dig(resolver, "secret.test A");
  EXPECT_TRUE(Has(denied, "NXDOMAIN") && Has(denied, "EDE: 15")) << denied;
  EXPECT_TRUE(Has(denied, "SOA")) << denied;
  EXPECT_TRUE(Has(unbound.Log(), "one.test"));
  EXPECT_FALSE(Has(unbound.Log(), "secret"));
}

TEST(RealProgramsTest, AServerThatStopsIsLeftOutAndComesBack) {
  const NameServer first = NameServer::Dnsmasq({"--local-ttl=1", "--address=/test/93.184.216.1"}, "one.test");
  const NameServer second = NameServer::Dnsmasq({"--local-ttl=1", "--address=/test/93.184.216.2"}, "one.test");
  const ResolverHarness resolver(Real("  - allow: tcp **.test:443\n", {first.endpoint(), second.endpoint()}));
  int count = 0;
  const auto ask = [&] { return Dig(resolver, fmt::format("+short n{}.test A", count++)); };
  EXPECT_EQ(ask(), "93.184.216.1\n");
  first.Signal(SIGSTOP);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(), "93.184.216.2\n") << i;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(resolver.Ask(AskMessage(fmt::format("m{}.test", i), Type::kA))) << i;
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(1)) << "it is not waited for any more";
  first.Signal(SIGCONT);
  std::string last;
  for (int i = 0; i < 50 && last != "93.184.216.1\n"; ++i) {
    std::this_thread::sleep_for(milliseconds(200));
    last = ask();
  }
  EXPECT_EQ(last, "93.184.216.1\n") << "back after a trial";
}

TEST(RealProgramsTest, ADomainWithServersOfItsOwnIsAskedOfNoOthers) {
  const NameServer cluster = NameServer::Dnsmasq({"--address=/cluster.local/93.184.216.1"}, "a.cluster.local");
  const NameServer others = NameServer::Dnsmasq({"--address=/#/93.184.216.2"}, "one.test");
  HarnessOptions options = Real("  - allow: tcp **.cluster.local:443\n  - allow: tcp **.test:443\n", {others.endpoint()});
  options.more.stubs = {{"cluster.local", {{.endpoint = cluster.endpoint()}}},
                        {"dead.cluster.local", {{.endpoint = {IpAddress::FromV4(0x7f000001), 1}}}}};
  const ResolverHarness resolver(std::move(options));
  EXPECT_EQ(Dig(resolver, "+short api.ns.svc.cluster.local A"), "93.184.216.1\n");
  EXPECT_EQ(Dig(resolver, "+short one.test A"), "93.184.216.2\n");
  EXPECT_TRUE(Has(Dig(resolver, "x.dead.cluster.local A"), "SERVFAIL")) << "never the others";
  EXPECT_FALSE(Has(others.Log(), "cluster.local"));
  EXPECT_FALSE(Has(cluster.Log(), "one.test"));
}

TEST(RealProgramsTest, ResolversOverTlsAreVerifiedAndKept) {
  const NameServer unbound = NameServer::Unbound({"one.test. 1 IN A 93.184.216.34", "two.test. 1 IN A 93.184.216.35"}, "one.test",
                                                 NameServer::Tls::kYes);
  const auto resolver_with = [&](const std::string& name, bool trust) {
    HarnessOptions options = Real("  - allow: tcp *.test:443\n", {});
    options.more.servers = {{.endpoint = unbound.tls_endpoint(), .kind = UpstreamServer::Kind::kTls, .name = name}};
    if (trust) options.more.tls_roots = {unbound.roots()};
    return options;
  };
  for (const char* name : {"dns.test", ""}) {  // by its name, and by its address
    const ResolverHarness resolver(resolver_with(name, true));
    EXPECT_EQ(Dig(resolver, "+short one.test A"), "93.184.216.34\n") << name;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Dig(resolver, "+short two.test A"), "93.184.216.35\n");
    const std::string held =
        Output(fmt::format("ss -Htn state established dst 127.0.0.1:{} | wc -l", unbound.tls_endpoint().port));
    EXPECT_EQ(held, "1\n") << "one connection for all";
    EXPECT_TRUE(Has(Dig(resolver, "gone.test A"), "NXDOMAIN"));
  }
  const std::string before = unbound.Log();
  for (const auto& [name, trust] : {std::pair("other.test", true), std::pair("dns.test", false)}) {
    const ResolverHarness resolver(resolver_with(name, trust));
    const std::string failed = Dig(resolver, "one.test A");
    EXPECT_TRUE(Has(failed, "SERVFAIL")) << name;
    EXPECT_TRUE(Has(failed, "not who it should be")) << failed;
  }
  EXPECT_EQ(unbound.Log().find("one.test", before.size()), std::string::npos) << "nothing was asked of it";
}

// A way to a server. What was connected before Mute stays open and carries nothing more, as behind a firewall that forgot it.
class Tunnel {
 public:
  explicit Tunnel(const Endpoint& to) : to_(to) {
    sockaddr_storage address{};
    const auto size = static_cast<socklen_t>(Endpoint{to.address, 0}.ToSockaddr(&address));
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    socklen_t length = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    from_ = *Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&address), length);
    thread_ = std::thread([this] { Run(); });
  }
  ~Tunnel() {
    end_ = true;
    thread_.join();
  }
  [[nodiscard]] Endpoint endpoint() const { return from_; }
  void Mute() { mute_ = true; }

 private:
  struct Pair {
    UniqueFd near, far;
    bool muted = false;
  };

  void Run() {
    while (!end_) {
      if (mute_.exchange(false))
        for (Pair& pair : pairs_) pair.muted = true;
      std::vector<pollfd> polls = {{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_)
        for (const UniqueFd* end : {&pair.near, &pair.far}) polls.push_back({pair.muted ? -1 : end->get(), POLLIN, 0});
      poll(polls.data(), polls.size(), 20);
      for (size_t i = 0; i < pairs_.size(); ++i) {
        Pair& pair = pairs_[i];
        if (polls[1 + 2 * i].revents != 0) Carry(&pair, pair.near, pair.far);
        if (polls[2 + 2 * i].revents != 0) Carry(&pair, pair.far, pair.near);
      }
      if (polls[0].revents != 0) Accept();
    }
  }
  static void Carry(Pair* pair, const UniqueFd& from, const UniqueFd& to) {
    std::array<char, 4096> bytes{};
    const ssize_t n = recv(from.get(), bytes.data(), bytes.size(), 0);
    if (n > 0 && send(to.get(), bytes.data(), static_cast<size_t>(n), MSG_NOSIGNAL) == n) return;
    shutdown(to.get(), SHUT_RDWR);
    pair->muted = true;
  }
  void Accept() {
    Pair pair{UniqueFd(accept(listener_.get(), nullptr, nullptr)), UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    sockaddr_storage address{};
    const auto size = static_cast<socklen_t>(to_.ToSockaddr(&address));
    if (connect(pair.far.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) pairs_.push_back(std::move(pair));
  }

  const Endpoint to_;
  Endpoint from_;
  UniqueFd listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<Pair> pairs_;
  std::atomic<bool> mute_{false};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

TEST(RealProgramsTest, AConnectionThatLeadsNowhereNoMoreIsGivenUp) {
  const NameServer unbound = NameServer::Unbound({"one.test. 60 IN A 93.184.216.34", "two.test. 60 IN A 93.184.216.35"},
                                                 "one.test", NameServer::Tls::kYes);
  Tunnel tunnel(unbound.tls_endpoint());
  HarnessOptions options = Real("  - allow: tcp *.test:443\n", {});
  options.more.servers = {{.endpoint = tunnel.endpoint(), .kind = UpstreamServer::Kind::kTls, .name = "dns.test"}};
  options.more.tls_roots = {unbound.roots()};
  const ResolverHarness resolver(std::move(options));
  EXPECT_EQ(Dig(resolver, "+short one.test A"), "93.184.216.34\n");
  tunnel.Mute();
  EXPECT_EQ(Dig(resolver, "+short two.test A"), "93.184.216.35\n");
}

TEST(RealProgramsTest, ManyQuestionsOverOneTlsConnectionAreAllAnswered) {
  std::vector<std::string> data;
  for (int i = 0; i < 200; ++i) data.push_back(fmt::format("n{}.test. 60 IN A 93.184.216.{}", i, i));
  const NameServer unbound = NameServer::Unbound(data, "n0.test", NameServer::Tls::kYes);
  HarnessOptions options = Real("  - allow: tcp *.test:443\n", {});
  options.more.servers = {{.endpoint = unbound.tls_endpoint(), .kind = UpstreamServer::Kind::kTls, .name = "dns.test"}};
  options.more.tls_roots = {unbound.roots()};
  options.limits = {.new_names_per_minute = 1e6,
                    .client_per_second = 1e6,
                    .client_burst = 1e6,
                    .upstream_per_second = 1e6,
                    .upstream_burst = 1e6};
  const ResolverHarness resolver(std::move(options));
  std::string words;
  for (int i = 0; i < 200; ++i) words += fmt::format(" n{}.test A", i);
  const std::string out = Dig(resolver, "+tcp +keepopen +short" + words);
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(Has("\n" + out, fmt::format("\n93.184.216.{}\n", i))) << i;
}

TEST(RealProgramsTest, AProgramInAPodFindsWhatItMayThroughItsSearchList) {
  std::string folder = (std::filesystem::temp_directory_path() / "sluice-musl-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/look.c") << kLookProgram;
  const std::string built = Output("musl-gcc -static -o " + folder + "/look " + folder + "/look.c && echo built");
  ASSERT_TRUE(Has(built, "built")) << "Debian's musl-tools is needed: " << built;
  const std::string pod =
      "nameserver 127.0.0.1\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5 timeout:2 attempts:2\n";
  EXPECT_TRUE(InOwnPlace(pod, [&] {
    const NameServer upstream =
        NameServer::Dnsmasq({"--local=/cluster.local/", "--host-record=api.ns.svc.cluster.local,93.184.216.40", "--local=/test/",
                             "--host-record=one.test,93.184.216.34,2606:2800::1"},
                            "one.test");
    HarnessOptions options =
        Real("  - allow: tcp one.test:443\n  - allow: tcp api.ns.svc.cluster.local:443\n", {upstream.endpoint()});
    options.port = 53;
    const ResolverHarness resolver(std::move(options));
    const std::string look = folder + "/look ";
    const bool good = Shows("getent ahostsv4 one.test", "93.184.216.34") && Shows("getent ahostsv6 one.test", "2606:2800::1") &&
                      Shows("getent ahostsv4 api", "93.184.216.40") && Shows("getent ahosts denied.test; echo rc=$?", "rc=2") &&
                      Shows(look + "one.test", "93.184.216.34") && Shows(look + "one.test", "2606:2800::1") &&
                      Shows(look + "api", "93.184.216.40") && Shows(look + "denied.test", "Name does not resolve");
    return good && !Has(upstream.Log(), "one.test.ns.svc") && !Has(upstream.Log(), "denied");
  }));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::dns
