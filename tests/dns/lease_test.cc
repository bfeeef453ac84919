#include "dns/lease.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "policy/io/load.h"

namespace sluice::dns {
namespace {

using policy::Transport;

const WallTime kNow = WallTime(std::chrono::seconds(1'800'000'000));

policy::SnapshotPtr Load(const std::string& rules, const std::string& head = "") {
  auto loaded = policy::LoadText("version: 1\n" + head + "rules:\n" + rules, "p.yaml");
  EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message) << "\n" << rules;
  return *loaded;
}

std::string Text(const Leases& leases) {
  std::string text;
  for (const Lease& lease : leases.leases)
    text += fmt::format("{}{} {}:{}", text.empty() ? "" : ", ", lease.transport == Transport::kTcp ? "tcp" : "udp",
                        lease.address.ToString(), lease.port);
  return text;
}

std::string LeasesOf(const std::string& rules, const char* name = "db.test", const char* address = "93.184.216.34") {
  const IpAddress ip = *IpAddress::Parse(address);
  return Text(LeasesFor(*Load(rules), name, std::span(&ip, 1), kNow));
}

struct Case {
  const char* what;
  const char* rules;
  const char* leases;
};

TEST(LeaseTest, OnlyWhatIsOpaqueToEveryProcessIsLeased) {
  const Case cases[] = {
      {"tcp", "  - allow: tcp db.test:5432\n", "tcp 93.184.216.34:5432"},
      {"udp", "  - allow: udp db.test:123\n", "udp 93.184.216.34:123"},
      {"tls needs its SNI looked at", "  - allow: tls db.test:443\n", ""},
      {"http", "  - allow: GET db.test\n", ""},
      {"a lookup alone", "  - allow: dns db.test\n", ""},
      {"another name", "  - allow: tcp other.test:5432\n", ""},
      {"a wildcard", "  - allow: tcp *.test:5432,5433\n", "tcp 93.184.216.34:5432, tcp 93.184.216.34:5433"},
      {"every host", "  - allow: tcp **:5432\n", "tcp 93.184.216.34:5432"},
      {"by process", "  - allow: tcp db.test:5432\n    by: [/usr/bin/psql]\n", ""},
      {"under a process", "  - allow: tcp db.test:5432\n    under: [/usr/bin/psql]\n", ""},
      {"one with and one without", "  - allow: tcp db.test:5432\n    by: [/usr/bin/psql]\n  - allow: tcp db.test:5432-5433\n",
       "tcp 93.184.216.34:5432, tcp 93.184.216.34:5433"},
      {"a deny of the port", "  - allow: tcp db.test:5432-5433\n  - deny: tcp db.test:5432\n", "tcp 93.184.216.34:5433"},
      {"a deny for one process holds for all", "  - allow: tcp db.test:5432\n  - deny: tcp db.test:5432\n    by: [/bin/evil]\n",
       ""},
      {"a deny by address", "  - allow: tcp db.test:5432\n  - deny: tcp 93.184.216.0/24:5432\n", ""},
      {"a deny of lookups", "  - allow: tcp db.test:5432\n  - deny: dns db.test\n", ""},
      {"a deny inside", "  - allow: tcp db.test:443,5432\n  - deny: POST db.test\n", "tcp 93.184.216.34:5432"},
      {"an inspected rule beside", "  - allow: tcp db.test:443\n  - allow: GET db.test\n", "tcp 93.184.216.34:443"},
      {"a range too wide", "  - allow: tcp db.test:1024-65535\n", ""},
      {"a wide range and a port", "  - allow: tcp db.test:22,1024-65535\n", "tcp 93.184.216.34:22"},
      {"port 53 is the resolver's", "  - allow: tcp db.test:52-54\n", "tcp 93.184.216.34:52, tcp 93.184.216.34:54"},
      {"an address elsewhere", "  - allow: tcp db.test:5432\n    ip: [10.0.0.0/8]\n", ""},
      {"past its time", "  - allow: tcp db.test:5432\n    until: 2020-01-01\n", ""},
      {"a prefix holds for names too", "  - allow: dns db.test\n  - allow: tcp 93.184.216.0/24:22\n", "tcp 93.184.216.34:22"},
  };
  for (const Case& c : cases) EXPECT_EQ(LeasesOf(c.rules), c.leases) << c.what;
}

TEST(LeaseTest, APrivateAddressIsLeasedOnlyWhereARuleWritesItOut) {
  EXPECT_EQ(LeasesOf("  - allow: tcp db.test:5432\n", "db.test", "10.1.2.3"), "");
  EXPECT_EQ(LeasesOf("  - allow: tcp db.test:5432\n    ip: [10.1.0.0/16]\n", "db.test", "10.1.2.3"), "tcp 10.1.2.3:5432");
  EXPECT_EQ(LeasesOf("  - allow: tcp db.test:80\n    ip: [0.0.0.0/0]\n", "db.test", "169.254.169.254"), "");
}

TEST(LeaseTest, WhatGoesThroughAnUpstreamProxyIsNotLeased) {
  const auto snapshot = Load("  - allow: tcp db.test:5432\n    via: corp\n  - allow: tcp other.test:5432\n",
                             "proxies:\n  corp: { url: 'http://proxy.test:3128' }\n");
  const IpAddress ip = *IpAddress::Parse("93.184.216.34");
  EXPECT_EQ(Text(LeasesFor(*snapshot, "db.test", std::span(&ip, 1), kNow)), "");
  EXPECT_EQ(Text(LeasesFor(*snapshot, "other.test", std::span(&ip, 1), kNow)), "tcp 93.184.216.34:5432");
}

TEST(LeaseTest, AuditModeOpensNothingThatNoRuleAllows) {
  const auto snapshot = Load("  - allow: tcp db.test:5432\n", "mode: audit\n");
  const IpAddress ip = *IpAddress::Parse("93.184.216.34");
  EXPECT_EQ(Text(LeasesFor(*snapshot, "db.test", std::span(&ip, 1), kNow)), "tcp 93.184.216.34:5432");
  EXPECT_EQ(Text(LeasesFor(*snapshot, "other.test", std::span(&ip, 1), kNow)), "");
}

TEST(LeaseTest, TheEndOfARuleIsTheEndOfItsLeases) {
  const auto snapshot = Load("  - allow: tcp db.test:5432\n    until: 2030-01-01T00:00:00Z\n  - allow: tcp db.test:22\n");
  const IpAddress ip = *IpAddress::Parse("93.184.216.34");
  const Leases leases = LeasesFor(*snapshot, "db.test", std::span(&ip, 1), kNow);
  EXPECT_EQ(leases.leases.size(), 2u);
  ASSERT_TRUE(leases.until);
  EXPECT_EQ(std::chrono::duration_cast<std::chrono::seconds>(leases.until->time_since_epoch()).count(), 1893456000);
}

TEST(LeaseTest, TheNumberOfPortsIsBounded) {
  std::string ports;
  for (int i = 0; i < 100; ++i) ports += fmt::format("{}{}", i == 0 ? "" : ",", 1000 + 2 * i);
  const IpAddress ip = *IpAddress::Parse("93.184.216.34");
  EXPECT_EQ(LeasesFor(*Load("  - allow: tcp db.test:" + ports + "\n"), "db.test", std::span(&ip, 1), kNow).leases.size(),
            kMaxLeasePorts);
}

TEST(LeaseTest, UdpThatTheKernelCannotJudgeIsNamed) {
  const Case cases[] = {
      {"by name", "  - allow: udp a.test:123\n", ""},
      {"by wildcard", "  - allow: udp *.a.test:123-130\n", ""},
      {"by prefix", "  - allow: udp 192.0.2.0/24:1-65535\n", ""},
      {"by process", "  - allow: udp a.test:123\n    by: [/bin/a]\n", "process"},
      {"every host", "  - allow: udp **:123\n", "name the hosts"},
      {"a wide range", "  - allow: udp a.test:1000-2000\n", "at most 64 ports"},
  };
  for (const Case& c : cases) {
    const auto snapshot = Load(c.rules);
    const std::string why = WhyUnleasable(*snapshot, snapshot->UdpRules().at(0));
    if (*c.leases == '\0') {
      EXPECT_EQ(why, "") << c.what;
    } else {
      EXPECT_NE(why.find(c.leases), std::string::npos) << c.what << ": " << why;
    }
  }
}

// Rules of a small world, drawn at random: each lease is a connection that every process may make unseen, and none is missing.
class SmallWorld {
 public:
  explicit SmallWorld(uint32_t seed) : random_(seed) {}

  std::string Rules() {
    std::string rules;
    for (int i = 0; i < 6; ++i) {
      const bool allow = Pick(3) != 0;
      static constexpr const char* kVerbs[] = {"tcp", "tcp", "udp", "tls", "GET", "dns"};
      static constexpr const char* kHosts[] = {"a.test", "b.test", "*.test", "**", "93.184.216.0/24", "10.0.0.0/8"};
      const std::string verb = kVerbs[Pick(6)];
      const bool opaque = verb == "tcp" || verb == "udp";
      std::string target = kHosts[Pick(opaque ? 6 : 4)];
      static constexpr const char* kPorts[] = {":80", ":443", ":443-445", ":5432"};
      if (verb != "dns" && (opaque || Pick(2) != 0)) target += kPorts[Pick(4)];
      rules += fmt::format("  - {}: {} {}\n", allow ? "allow" : "deny", verb, target);
      if (Pick(4) == 0) rules += "    by: [/bin/one]\n";
      if (allow && Pick(5) == 0 && verb != "dns") rules += "    ip: [10.0.0.0/8]\n";
      if (allow && Pick(8) == 0) rules += "    until: 2020-01-01\n";
    }
    return rules;
  }

 private:
  int Pick(int below) { return std::uniform_int_distribution(0, below - 1)(random_); }
  std::mt19937 random_;
};

TEST(LeaseTest, LeasesAreWhatDecideSaysOfEveryPortAndProcess) {
  static constexpr uint16_t kPorts[] = {79, 80, 81, 442, 443, 444, 445, 446, 5432};
  const IpAddress addresses[] = {*IpAddress::Parse("93.184.216.34"), *IpAddress::Parse("10.0.0.7"),
                                 *IpAddress::Parse("2606:2800::1"), *IpAddress::Parse("127.0.0.1")};
  policy::Process one;
  one.exe = {"/bin/one", true, {}};
  policy::Process two;
  two.exe = {"/bin/two", true, {}};
  size_t leased = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const std::string rules = SmallWorld(seed).Rules();
    const auto loaded = policy::LoadText("version: 1\nrules:\n" + rules, "p.yaml");
    if (!loaded) continue;
    const policy::Snapshot& snapshot = **loaded;
    for (const char* name : {"a.test", "b.test", "c.example"}) {
      const Leases leases = LeasesFor(snapshot, name, addresses, kNow);
      const std::set<Lease> held(leases.leases.begin(), leases.leases.end());
      leased += held.size();
      for (const IpAddress& address : addresses) {
        for (const uint16_t port : kPorts) {
          for (const Transport transport : {Transport::kTcp, Transport::kUdp}) {
            bool every = true;
            for (const policy::Process* process :
                 {static_cast<const policy::Process*>(nullptr), static_cast<const policy::Process*>(&one),
                  static_cast<const policy::Process*>(&two)}) {
              const auto decided = snapshot.DecideConnect(
                  {.process = process, .host = name, .address = address, .port = port, .transport = transport, .now = kNow});
              every = every && decided.verdict == policy::ConnectVerdict::kOpaqueTcp;
            }
            EXPECT_EQ(held.contains({address, transport, port}), every)
                << name << " " << address.ToString() << ":" << port << " under\n"
                << rules;
          }
        }
      }
      for (const Lease& lease : leases.leases) EXPECT_NE(std::ranges::find(kPorts, lease.port), std::end(kPorts));
    }
  }
  EXPECT_GT(leased, 1000u) << "the draws must reach what is tested";
}

}  // namespace
}  // namespace sluice::dns
