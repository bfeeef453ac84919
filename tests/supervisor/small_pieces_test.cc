// The small pure files: Landlock rules, id maps, command hints, the capture's ruleset.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "supervisor/capture_ruleset.h"
#include "supervisor/command_hint.h"
#include "supervisor/id_map.h"
#include "supervisor/landlock_rules.h"

namespace sluice::supervisor {
namespace {

TEST(Landlock, HandlesWhatTheKernelKnowsAndNoMore) {
  EXPECT_EQ(HandledBy(3).error().code, Code::kUnsupported);
  EXPECT_EQ(HandledBy(0).error().code, Code::kUnsupported);
  EXPECT_EQ(HandledBy(4)->access_fs, 0x7fffU);
  EXPECT_EQ(HandledBy(5)->access_fs, 0xffffU);
  EXPECT_EQ(HandledBy(4)->access_net, 2U) << "CONNECT_TCP alone";
  EXPECT_EQ(HandledBy(5)->scoped, 0U);
  EXPECT_EQ(HandledBy(6)->scoped, 3U);
  EXPECT_EQ(HandledBy(8)->access_fs, 0xffffU);
  EXPECT_EQ(HandledBy(9)->access_fs, 0x1ffffU);
  EXPECT_EQ(HandledBy(99)->access_fs, 0x1ffffU);
}

TEST(Landlock, LeavesFilesToMountsWhereTheWorkloadHasItsOwn) {
  const auto handled = HandledBy(9, LandlockFiles::kLeftToMounts);
  EXPECT_EQ(handled->access_fs, 0U) << "whoever is held to any may mount nothing";
  EXPECT_EQ(handled->access_net, 2U);
  EXPECT_EQ(handled->scoped, 3U);
  EXPECT_FALSE(HandledBy(3, LandlockFiles::kLeftToMounts).has_value());
  MountPlan plan;
  plan.writable = {"/work"};
  plan.own_mounts = true;
  EXPECT_TRUE(RulesFor(plan, 9).empty());
}

TEST(Landlock, OpensTheSocketsOfRulesAloneWhereTheKernelCan) {
  MountPlan plan;
  plan.writable = {"/work"};
  plan.unix_sockets = {"/run/wanted"};
  constexpr uint64_t kResolveUnix = 1U << 16;
  for (const LandlockRule& rule : RulesFor(plan, 9))
    EXPECT_EQ((rule.access & kResolveUnix) != 0, rule.path == "/run/wanted") << rule.path;
  for (const LandlockRule& rule : RulesFor(plan, 8)) EXPECT_NE(rule.path, "/run/wanted");
}

TEST(Landlock, WritesOnlyBelowWritableTreesAndNeverMakesDevices) {
  MountPlan plan;
  plan.writable = {"/work", "/tmp"};
  constexpr uint64_t kWriteFile = 1U << 1;
  constexpr uint64_t kDevices = (1U << 6) | (1U << 11);
  for (const LandlockRule& rule : RulesFor(plan, 7)) {
    const bool may_write = rule.path == "/work" || rule.path == "/tmp" || rule.path.starts_with("/dev/");
    EXPECT_EQ((rule.access & kWriteFile) != 0, may_write) << rule.path;
    EXPECT_EQ(rule.access & kDevices, 0U) << rule.path;
    EXPECT_EQ(rule.access & ~HandledBy(7)->access_fs, 0U);
  }
}

TEST(Landlock, OpensTheFilesOfProcessesWhereIdsMayBeMappedAlone) {
  MountPlan plan;
  for (const bool mapped : {false, true}) {
    plan.writable_processes = mapped;
    const auto rules = RulesFor(plan, 7);
    EXPECT_EQ(std::ranges::count(rules, "/proc", &LandlockRule::path), mapped ? 1 : 0);
    for (const LandlockRule& rule : rules) {
      if (rule.path != "/proc") continue;
      EXPECT_EQ(rule.access, (1U << 1) | (1U << 14)) << "to write and to truncate, nothing else";
    }
  }
}

TEST(IdMap, ReadsTheKernelsTextAndRefusesOthers) {
  EXPECT_EQ(ParseIdMap("         0          0 4294967295\n").value(), (std::vector<IdRange>{{0, 4294967295}}));
  EXPECT_EQ(ParseIdMap("0 100000 65536\n1000 1000 1").value(), (std::vector<IdRange>{{0, 65536}, {1000, 1}}));
  for (const char* text : {"", "\n", "0 0", "0 0 0\n", "a b c\n", "0 0 1 2\n", "0 0 4294967296\n", "-1 0 1\n", "0x0 0 1\n"})
    EXPECT_FALSE(ParseIdMap(text).has_value()) << text;
  std::string many;
  for (size_t i = 0; i <= kMaxIdRanges; ++i) many += std::to_string(i) + " 0 1\n";
  EXPECT_FALSE(ParseIdMap(many).has_value());
}

TEST(IdMap, AnIdInsideIsTheSameIdOutside) {
  EXPECT_EQ(FormatIdentityMap({{0, 65536}, {70000, 1}}), "0 0 65536\n70000 70000 1\n");
}

TEST(CommandHint, GrantsTheToolsFolderNotTheHome) {
  EXPECT_EQ(TreeToGrant("/root/.pyenv/shims/python3", "/root"), "/root/.pyenv");
  EXPECT_EQ(TreeToGrant("/home/u/.cargo/bin/cargo", "/home/u"), "/home/u/.cargo");
  EXPECT_EQ(TreeToGrant("/home/u/bin/x", "/home/u"), "/home/u/bin");
  EXPECT_EQ(TreeToGrant("/home/u/x", "/home/u"), "/home/u");
  EXPECT_EQ(TreeToGrant("/srv/tool", ""), "/srv");
  EXPECT_EQ(TreeToGrant("/bin/x", ""), "/bin");
  EXPECT_EQ(HiddenCommandHint("/root/.pyenv/shims/python3", "/root"),
            "exists at /root/.pyenv/shims/python3, which the sandbox cannot see; add --ro /root/.pyenv");
}

TEST(CaptureRuleset, IsThis) {
  EXPECT_EQ(nft::ToText(CaptureRuleset(801)), R"(table inet sluice_capture {
	chain incoming {
		type filter hook prerouting priority -150; policy drop;
		ip daddr 127.0.0.0/8 tcp dport 801 reject with tcp reset
		ip daddr 192.0.0.8 tcp dport 801 reject with tcp reset
		ip6 daddr ::1 tcp dport 801 reject with tcp reset
		ip6 daddr fd5c:7a1c:e000::2 tcp dport 801 reject with tcp reset
		ip daddr 127.0.0.0/8 accept
		ip daddr 192.0.0.8 accept
		ip6 daddr ::1 accept
		ip6 daddr fd5c:7a1c:e000::2 accept
		tcp dport 53 accept
		meta l4proto tcp socket transparent 1 accept
		meta l4proto tcp tproxy to :801 accept
		tcp flags & (syn | ack) == syn reject with tcp reset
		meta l4proto tcp accept
		udp dport 53 accept
		icmp type destination-unreachable accept
		icmpv6 type destination-unreachable accept
		meta l4proto udp reject with icmpx type port-unreachable
		reject with icmpx type admin-prohibited
	}
	chain outgoing {
		type filter hook output priority 0; policy drop;
		meta l4proto tcp accept
		ip daddr 127.0.0.0/8 accept
		ip daddr 192.0.0.8 accept
		ip6 daddr ::1 accept
		ip6 daddr fd5c:7a1c:e000::2 accept
		udp dport 53 accept
		icmp type destination-unreachable accept
		icmpv6 type destination-unreachable accept
		meta l4proto udp reject with icmpx type port-unreachable
		reject with icmpx type admin-prohibited
	}
}
)");
}

}  // namespace
}  // namespace sluice::supervisor
