#pragma once

// An nftables ruleset as a value: built here, printed for people, encoded to netlink (nft/encode.h), sent by nft/io. Start here.
// Only the expressions that Sluice's own rulesets need exist; a rule that is not well formed does not encode.
//
//   nft::Table table{nft::Family::kInet, "sluice", {}};
//   table.chains.push_back({"in", nft::Hook::kPrerouting, -150, nft::Policy::kAccept,
//                           {{nft::DestinationPort{nft::Protocol::kTcp, 53}, nft::Verdict::kAccept}}});

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/ip.h"

namespace sluice::nft {

enum class Family : uint8_t { kInet, kIp, kIp6 };
enum class Hook : uint8_t { kPrerouting, kInput, kForward, kOutput, kPostrouting };
enum class Policy : uint8_t { kAccept, kDrop };
enum class Protocol : uint8_t { kIcmp = 1, kTcp = 6, kUdp = 17, kIcmp6 = 58 };

/// The packet's destination lies in the prefix (and the packet is of its family).
struct DestinationIn {
  Cidr prefix;
  bool operator==(const DestinationIn&) const = default;
};
/// `meta l4proto`.
struct ProtocolIs {
  Protocol protocol;
  bool operator==(const ProtocolIs&) const = default;
};
/// TCP or UDP destination port.
struct DestinationPort {
  Protocol protocol;
  uint16_t port;
  bool operator==(const DestinationPort&) const = default;
};
/// `tcp flags & (syn|ack) == syn`: the opening of a connection.
struct OpensTcp {
  bool operator==(const OpensTcp&) const = default;
};
/// The packet belongs to a socket with IP_TRANSPARENT (an accepted connection, or the listener itself).
struct SocketIsTransparent {
  bool operator==(const SocketIsTransparent&) const = default;
};
/// ICMP or ICMPv6 destination unreachable, as the kernel sends it.
struct IcmpUnreachable {
  Protocol protocol;  ///< kIcmp or kIcmp6
  bool operator==(const IcmpUnreachable&) const = default;
};
/// `tproxy to :port`: hands the packet to a transparent socket; a rule that finds none goes on to the next.
struct TproxyTo {
  uint16_t port;
  bool operator==(const TproxyTo&) const = default;
};
enum class Reject : uint8_t { kTcpReset, kPortUnreachable, kAdminProhibited };
enum class Verdict : uint8_t { kAccept, kDrop };

using Expression = std::variant<DestinationIn, ProtocolIs, DestinationPort, OpensTcp, SocketIsTransparent, IcmpUnreachable,
                                TproxyTo, Reject, Verdict>;

/// Expressions from left to right: all matches must hold for what follows to act.
using Rule = std::vector<Expression>;

/// A base chain of type filter.
struct Chain {
  std::string name;
  Hook hook = Hook::kPrerouting;
  int32_t priority = 0;
  Policy policy = Policy::kAccept;
  std::vector<Rule> rules;
};

struct Table {
  Family family = Family::kInet;
  std::string name;
  std::vector<Chain> chains;
};

/// One rule in nft(8)'s syntax: "ip daddr 127.0.0.0/8 accept".
[[nodiscard]] std::string ToText(const Rule& rule);
/// The table in nft(8)'s syntax; `nft -f` reads it.
[[nodiscard]] std::string ToText(const Table& table);

}  // namespace sluice::nft
