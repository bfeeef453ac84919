// What the kernel passes by itself must be what the policy lets every process do, for each address and port.

#include "app/fence_allows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "policy/io/load.h"

namespace sluice::app {
namespace {

const WallTime kNow = std::chrono::sys_days{std::chrono::year{2026} / 11 / 30};

policy::SnapshotPtr Load(const std::vector<std::string>& rules) {
  std::string text = "version: 1\nsettings: { dns: real }\nrules:\n";
  for (const std::string& rule : rules) text += "  - " + rule + "\n";
  auto snapshot = policy::LoadText(text, "policy.yaml");
  EXPECT_TRUE(snapshot) << text << (snapshot ? "" : snapshot.error().message);
  return snapshot ? *snapshot : nullptr;
}

bool Passes(const FenceAllows& allows, const IpAddress& address, policy::Transport transport, uint16_t port) {
  const auto protocol = transport == policy::Transport::kUdp ? nft::Protocol::kUdp : nft::Protocol::kTcp;
  return std::ranges::any_of(allows.allow, [&](const supervisor::FenceCidr& allow) {
    return allow.protocol == protocol && allow.prefix.Contains(address) && allow.first_port <= port && port <= allow.last_port;
  });
}

bool Decided(const policy::Snapshot& snapshot, const policy::Process* process, std::string_view host, const IpAddress& address,
             policy::Transport transport, uint16_t port) {
  policy::ConnectQuery query;
  query.process = process;
  query.host = host;
  query.address = address;
  query.port = port;
  query.transport = transport;
  query.now = kNow;
  const auto decision = snapshot.DecideConnect(query);
  return decision.verdict == policy::ConnectVerdict::kOpaqueTcp;
}

TEST(FenceAllows, NeverPassWhatSomeProcessMayNot) {
  const std::vector<std::string> targets = {"10.1.0.0/16", "10.1.2.0/24", "10.1.2.3",    "151.101.0.0/16", "151.101.1.0/24",
                                            "0.0.0.0/0",   "10.0.0.0/8",  "[2a04::/16]", "169.254.0.0/16", "[fd00::/8]"};
  const std::vector<std::string> ports = {"80", "443", "5432", "80-443", "1-65535"};
  const std::vector<std::string> keys = {
      "", "", "", "\n    by: /usr/bin/x", "\n    until: 2026-11-29", "\n    until: 2027-01-01", "\n    ip: [10.1.2.0/24]"};
  const std::vector<std::string> denies = {
      "deny: tcp 10.1.2.3",       "deny: udp 151.101.1.9:443", "deny: tls **",          "deny: GET a.test/x",
      "deny: tcp 10.1.0.0/16:80", "deny: dns a.test",          "deny: tcp b.test:5432", "deny: tcp **:443\n    by: /usr/bin/x",
      "deny: tcp [2a04::/16]"};
  const std::vector<IpAddress> addresses = [] {
    std::vector<IpAddress> list;
    for (const char* text : {"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.200.0.1", "151.101.1.9", "151.101.77.1", "169.254.169.254",
                             "8.8.8.8", "2a04::9", "fd00::1", "fd00:ec2::254", "127.0.0.1"})
      list.push_back(*IpAddress::Parse(text));
    return list;
  }();
  policy::Process other;
  other.exe = {"/usr/bin/x", true};
  std::mt19937 random(7);
  const auto pick = [&](const std::vector<std::string>& from) { return from[random() % from.size()]; };
  size_t passed = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> rules;
    for (size_t n = random() % 3 + 1; n > 0; --n)
      rules.push_back("allow: " + std::string(random() % 2 == 0 ? "tcp " : "udp ") + pick(targets) + ":" + pick(ports) +
                      pick(keys));
    for (size_t n = random() % 3; n > 0; --n) rules.push_back(pick(denies));
    const policy::SnapshotPtr snapshot = Load(rules);
    ASSERT_NE(snapshot, nullptr);
    const FenceAllows allows = FenceAllowsFor(*snapshot, kNow);
    for (const IpAddress& address : addresses) {
      for (const auto transport : {policy::Transport::kTcp, policy::Transport::kUdp}) {
        for (const uint16_t port : {uint16_t{80}, uint16_t{443}, uint16_t{5432}, uint16_t{9}}) {
          if (!Passes(allows, address, transport, port)) continue;
          ++passed;
          for (const policy::Process* process :
               {static_cast<const policy::Process*>(nullptr), static_cast<const policy::Process*>(&other)})
            // `deny: dns a.test` ends the reach by that name; who has the address needs none.
            for (const char* host : {"", "b.test"})
              ASSERT_TRUE(Decided(*snapshot, process, host, address, transport, port))
                  << address.ToString() << ":" << port << " as '" << host << "' under\n"
                  << testing::PrintToString(rules);
        }
      }
    }
  }
  EXPECT_GT(passed, 500U);  // of them, some are
}

TEST(FenceAllows, LeaveOutWhatTheKernelCannotSee) {
  const auto allows = [](const std::vector<std::string>& rules) { return FenceAllowsFor(*Load(rules), kNow); };
  EXPECT_EQ(allows({"allow: tcp 151.101.1.0/24:5432"}).allow.size(), 1U);
  EXPECT_EQ(allows({"allow: tcp db.test:5432"}).allow.size(), 0U);
  EXPECT_EQ(allows({"allow: tcp 151.101.1.0/24:5432\n    by: /usr/bin/x"}).left_to_proxy.size(), 1U);
  EXPECT_EQ(allows({"allow: udp 151.101.1.0/24:5432\n    by: /usr/bin/x"}).impossible.size(), 1U);
  EXPECT_EQ(allows({"allow: udp 151.101.1.0/24:5432", "deny: udp 151.101.1.7:5432"}).impossible.size(), 1U);
  EXPECT_EQ(allows({"allow: udp 151.101.1.0/24:5432", "deny: tcp 151.101.1.7:5432"}).impossible.size(), 0U);
  EXPECT_EQ(allows({"allow: tcp 0.0.0.0/0:5432"}).left_to_proxy.size(), 1U);  // special in part
  EXPECT_EQ(allows({"allow: tcp 10.1.0.0/16:5432"}).allow.size(), 1U);        // written out
}

TEST(FenceAllows, DenyMetadataUnlessARuleWritesItOut) {
  const auto denied = [](const std::string& rule) { return FenceAllowsFor(*Load({rule}), kNow).deny.size(); };
  const size_t all = supervisor::MetadataAddresses().size();
  EXPECT_EQ(denied("allow: tcp 151.101.1.0/24:5432"), all);
  EXPECT_EQ(denied("allow: tcp 0.0.0.0/0:80"), all);
  EXPECT_EQ(denied("allow: GET http://169.254.169.254/latest/**"), all - 1);
  EXPECT_EQ(denied("allow: GET http://metadata.test/latest/**\n    ip: [169.254.169.254]"), all - 1);
}

TEST(FenceAllows, SayWhenTheyEnd) {
  const auto allows = FenceAllowsFor(*Load({"allow: tcp 151.101.1.0/24:5432\n    until: 2026-12-01"}), kNow);
  ASSERT_TRUE(allows.until);
  EXPECT_EQ(*allows.until, std::chrono::sys_days{std::chrono::year{2026} / 12 / 2});
  EXPECT_EQ(FenceAllowsFor(*Load({"allow: tcp 151.101.1.0/24:5432\n    until: 2026-11-01"}), kNow).allow.size(), 0U);
}

}  // namespace
}  // namespace sluice::app
