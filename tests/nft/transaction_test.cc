// Against the kernel, with nft(8) as the independent reader: what our bytes install and what nft makes of our text must list the
// same.

#include "nft/io/transaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>

#include "tests/nft/in_namespace.h"

namespace sluice::nft {
namespace {

std::string ListedFromBytes(const Table& table) {
  return InNewNamespace([&] {
    const auto added = Add(table);
    return added ? Command(kList) : "not added: " + added.error().message;
  });
}

std::string ListedFromText(const Table& table) {
  return InNewNamespace([&] { return Command("/usr/sbin/nft -f - 2>&1 <<'END'\n" + ToText(table) + "END\n") + Command(kList); });
}

Cidr RandomPrefix(std::mt19937& random) {
  if (random() % 2 == 0)
    return Cidr::Of(IpAddress::FromV4(static_cast<uint32_t>(random() | 1U)), static_cast<unsigned>(8 + random() % 25));
  std::array<uint8_t, 16> bytes{};
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  bytes[0] = 0x20;
  return Cidr::Of(IpAddress::FromV6(bytes), static_cast<unsigned>(8 + random() % 121));
}

// A rule that nft also accepts: a reset and a tproxy want TCP matched before them.
Rule RandomRule(std::mt19937& random) {
  Rule rule;
  if (random() % 2 == 0) rule.push_back(DestinationIn{RandomPrefix(random)});
  const auto port = static_cast<uint16_t>(1 + random() % 65535);
  switch (random() % 8) {
    case 0:
      return rule.push_back(DestinationPort{Protocol::kUdp, port}), rule.push_back(Verdict::kAccept), rule;
    case 1:
      return rule.push_back(DestinationPort{Protocol::kTcp, port}), rule.push_back(Reject::kTcpReset), rule;
    case 2:
      return rule.push_back(OpensTcp{}), rule.push_back(Reject::kTcpReset), rule;
    case 3:
      return rule.push_back(ProtocolIs{Protocol::kUdp}), rule.push_back(Reject::kPortUnreachable), rule;
    case 4:
      return rule.push_back(SocketIsTransparent{}), rule.push_back(Verdict::kAccept), rule;
    case 5:
      return Rule{ProtocolIs{Protocol::kTcp}, TproxyTo{port}, Verdict::kAccept};  // nft wants no family before it
    case 6:
      return Rule{IcmpUnreachable{random() % 2 == 0 ? Protocol::kIcmp : Protocol::kIcmp6}, Verdict::kDrop};
    default:
      return rule.push_back(random() % 2 == 0 ? Reject::kAdminProhibited : Reject::kPortUnreachable), rule;
  }
}

TEST(Transaction, WhatIsInstalledIsWhatNftReadsFromTheText) {
  std::mt19937 random(20261129);
  for (int round = 0; round < 20; ++round) {
    Table table{Family::kInet, "oracle", {}};
    table.chains.push_back({"in", Hook::kPrerouting, -150, round % 2 == 0 ? Policy::kAccept : Policy::kDrop, {}});
    for (int i = 0; i < 12; ++i) table.chains[0].rules.push_back(RandomRule(random));
    const std::string listed = ListedFromBytes(table);
    EXPECT_THAT(listed, testing::HasSubstr("chain in"));
    EXPECT_EQ(listed, ListedFromText(table)) << ToText(table);
  }
}

TEST(Transaction, EveryHookAndFamilyInstalls) {
  for (const Family family : {Family::kInet, Family::kIp, Family::kIp6})
    for (const Hook hook : {Hook::kPrerouting, Hook::kInput, Hook::kForward, Hook::kOutput, Hook::kPostrouting}) {
      const Table table{family, "hooks", {{"c", hook, 10, Policy::kDrop, {{Verdict::kAccept}}}}};
      EXPECT_EQ(ListedFromBytes(table), ListedFromText(table));
    }
}

TEST(Transaction, AFailureNamesTheRuleAndLeavesNothing) {
  // tproxy belongs to prerouting; the kernel says so for this rule alone.
  const Table table{Family::kInet,
                    "t",
                    {{"c",
                      Hook::kOutput,
                      0,
                      Policy::kAccept,
                      {{Verdict::kAccept}, {ProtocolIs{Protocol::kTcp}, TproxyTo{1}, Verdict::kAccept}}}}};
  const std::string listed = InNewNamespace([&] {
    const auto added = Add(table);
    return (added ? "added" : added.error().message) + "|" + Command(kList);
  });
  EXPECT_EQ(listed, "the kernel refused rule t c: meta l4proto tcp tproxy to :1 accept: Operation not supported|");
}

TEST(Transaction, ATableThatExistsIsNotAddedTo) {
  const Table table{Family::kInet, "t", {}};
  EXPECT_EQ(InNewNamespace([&] {
              const auto first = Add(table);
              const auto second = Add(table);
              return std::string(first ? "1" : "0") + (second ? "added" : second.error().message);
            }),
            "1the kernel refused table t: File exists");
}

TEST(Transaction, WithoutPrivilegeItSaysSo) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const auto added = Add({Family::kInet, "t", {}});
    ::_exit(!added && added.error().code == Code::kPermission ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sluice::nft
