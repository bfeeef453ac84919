#pragma once

// An nftables ruleset as a value: built here, printed for people, encoded to netlink (nft/encode.h), sent by nft/io. Start here.
// Only the expressions that Sluice's own rulesets need exist; a rule that is not well formed does not encode.
//
//   nft::Table table{nft::Family::kInet, "sluice", {}};
//   table.chains.push_back({"in", nft::Hook::kPrerouting, -150, nft::Policy::kAccept,
//                           {{nft::DestinationPort{nft::Protocol::kTcp, 53}, nft::Verdict::kAccept}}});

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/ip.h"
#include "nft/set.h"

namespace sluice::nft {

enum class Family : uint8_t { kInet, kIp, kIp6, kNetdev };
/// kEgress: of netdev tables, for the devices that the chain names.
enum class Hook : uint8_t { kPrerouting, kInput, kForward, kOutput, kPostrouting, kEgress };
enum class Policy : uint8_t { kAccept, kDrop };
enum class ChainType : uint8_t { kFilter, kNat };
enum class Protocol : uint8_t { kIcmp = 1, kTcp = 6, kUdp = 17, kIcmp6 = 58 };

/// The packet's destination lies in the prefix (and the packet is of its family).
struct DestinationIn {
  Cidr prefix;
  bool operator==(const DestinationIn&) const = default;
};
/// The same of its source.
struct SourceIn {
  Cidr prefix;
  bool operator==(const SourceIn&) const = default;
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
/// ICMPv6 types from `first` to `last`.
struct Icmp6Types {
  uint8_t first;
  uint8_t last;
  bool operator==(const Icmp6Types&) const = default;
};
/// `meta protocol arp`, in netdev tables.
struct IsArp {
  bool operator==(const IsArp&) const = default;
};

enum class Way : uint8_t { kIn, kOut };
/// The packet comes from, or was routed to, `lo` (whose index is 1 in every namespace).
struct OnLoopback {
  Way way;
  bool operator==(const OnLoopback&) const = default;
};
/// `iifname` or `oifname`.
struct OnDevice {
  Way way;
  std::string name;
  bool operator==(const OnDevice&) const = default;
};

enum class Test : uint8_t { kEqual, kNotEqual };
/// The packet's mark: SO_MARK of its socket, or what a rule has written.
struct MarkIs {
  uint32_t mark;
  Test test = Test::kEqual;
  bool operator==(const MarkIs&) const = default;
};
/// The packet's priority, as SO_PRIORITY.
struct PriorityIs {
  uint32_t priority;
  bool operator==(const PriorityIs&) const = default;
};
/// A socket with an open file sent it: `meta skuid` has a value. What the kernel sends by itself (ARP, neighbour discovery) has
/// none.
struct HasOwner {
  bool operator==(const HasOwner&) const = default;
};
/// No address of this machine is its source.
struct SourceIsForeign {
  bool operator==(const SourceIsForeign&) const = default;
};

/// Bits of `ct state`.
enum ConntrackState : uint8_t { kInvalid = 1, kEstablished = 2, kRelated = 4, kNew = 8 };
struct StateIn {
  uint8_t states;  ///< of ConntrackState
  bool operator==(const StateIn&) const = default;
};
enum class Direction : uint8_t { kOriginal, kReply };
struct DirectionIs {
  Direction direction;
  bool operator==(const DirectionIs&) const = default;
};
/// Whether some rule gave the flow another destination.
struct Rewritten {
  Test test = Test::kEqual;
  bool operator==(const Rewritten&) const = default;
};
/// `ct mark & mask == value`.
struct FlowMarkIs {
  uint32_t mask;
  uint32_t value;
  bool operator==(const FlowMarkIs&) const = default;
};

/// `ct reply saddr`: who answers, as the flow's first packet left after every rewriting; 127.0.0.1 or ::1 of what was redirected.
struct AnsweredFrom {
  IpAddress address;
  bool operator==(const AnsweredFrom&) const = default;
};

/// An IPv4 fragment, the first included; kNotEqual: an IPv4 packet that is none.
struct IsFragment {
  Test test = Test::kEqual;
  bool operator==(const IsFragment&) const = default;
};
/// An IPv4 header with options: a source route, for one, names the packet's true destination (RFC 791 section 3.1); kNotEqual:
/// one without.
struct HasIp4Options {
  Test test = Test::kEqual;
  bool operator==(const HasIp4Options&) const = default;
};
/// An IPv6 extension header is there.
enum class Ip6Header : uint8_t { kHopByHop = 0, kRouting = 43, kFragment = 44, kDestination = 60 };

/// The IPv6 header names this protocol as what follows: there is no extension header.
struct Ip6Carries {
  Protocol protocol;
  bool operator==(const Ip6Carries&) const = default;
};

/// What a set is looked up by, or a set is added to by: one value each.
enum class Field : uint8_t {
  kFamily,                ///< `meta nfproto`
  kProtocol,              ///< `meta l4proto`
  kMark,                  ///< `meta mark`
  kDestination4,          ///< `ip daddr`
  kDestination6,          ///< `ip6 daddr`
  kDestinationPort,       ///< `th dport`
  kOriginalDestination4,  ///< `ct original ip daddr`: before any rule rewrote it
  kOriginalDestination6,  ///< `ct original ip6 daddr`
};
/// The fields, concatenated, are in the set.
struct InSet {
  std::vector<Field> key;
  std::string set;
  bool operator==(const InSet&) const = default;
};
/// Adds the fields to a set with Set::dynamic; where it is full the rule ends here.
struct AddTo {
  std::vector<Field> key;
  std::string set;
  bool operator==(const AddTo&) const = default;
};

struct SetMark {
  uint32_t mark;
  bool operator==(const SetMark&) const = default;
};
struct SetPriority {
  uint32_t priority;
  bool operator==(const SetPriority&) const = default;
};
/// Writes `value` into the bits of `mask` of the flow's mark.
struct SetFlowMark {
  uint32_t mask;
  uint32_t value;
  bool operator==(const SetFlowMark&) const = default;
};
/// `ct original zone set`: connection tracking looks the flow up among those of this zone alone, and its answers among all
/// others'. Only before it looks, and only where the kernel has zones (CONFIG_NF_CONNTRACK_ZONES).
struct SetFlowZone {
  uint16_t zone;
  bool operator==(const SetFlowZone&) const = default;
};
/// Packets and bytes of what got this far.
struct Counter {
  bool operator==(const Counter&) const = default;
};
/// At most `rate` a second on average, `burst` at once; what is over does not match.
struct Limit {
  uint32_t rate;
  uint32_t burst;
  bool operator==(const Limit&) const = default;
};
/// A line in the kernel's log.
struct Log {
  std::string prefix;
  bool operator==(const Log&) const = default;
};

/// `tproxy to :port`: hands the packet to a transparent socket; a rule that finds none goes on to the next.
struct TproxyTo {
  uint16_t port;
  bool operator==(const TproxyTo&) const = default;
};
/// `redirect to :port`, in nat chains: to this machine itself, 127.0.0.1 or ::1 for what it sends.
struct RedirectTo {
  uint16_t port;
  bool operator==(const RedirectTo&) const = default;
};
enum class Reject : uint8_t { kTcpReset, kPortUnreachable, kAdminProhibited };
enum class Verdict : uint8_t { kAccept, kDrop };
/// A name for the rule, after what acts: counters are read by it.
struct Comment {
  std::string text;
  bool operator==(const Comment&) const = default;
};

using Expression =
    std::variant<DestinationIn, SourceIn, ProtocolIs, DestinationPort, OpensTcp, SocketIsTransparent, IcmpUnreachable, Icmp6Types,
                 IsArp, OnLoopback, OnDevice, MarkIs, PriorityIs, HasOwner, SourceIsForeign, StateIn, DirectionIs, Rewritten,
                 FlowMarkIs, AnsweredFrom, IsFragment, HasIp4Options, Ip6Header, Ip6Carries, InSet, AddTo, SetMark, SetPriority,
                 SetFlowMark, SetFlowZone, Counter, Limit, Log, TproxyTo, RedirectTo, Reject, Verdict, Comment>;

/// Expressions from left to right: all matches must hold for what follows to act.
using Rule = std::vector<Expression>;

/// A base chain.
struct Chain {
  std::string name;
  Hook hook = Hook::kPrerouting;
  int32_t priority = 0;
  Policy policy = Policy::kAccept;
  std::vector<Rule> rules;
  ChainType type = ChainType::kFilter;
  std::vector<std::string> devices{};  ///< of kEgress, at least one
};

/// Who may change a table.
enum class Hold : uint8_t {
  kShared,           ///< whoever has CAP_NET_ADMIN
  kOwned,            ///< the socket that made it, and it goes with that (Linux 5.12)
  kOwnedPersistent,  ///< the socket that made or adopted it; it outlives that socket (Linux 6.9)
  kDormant,          ///< as kShared, and its chains see no packet: to find out what the kernel takes
};

struct Table {
  Family family = Family::kInet;
  std::string name;
  std::vector<Chain> chains;
  std::vector<Set> sets{};
  Hold hold = Hold::kShared;
};

/// One rule in nft(8)'s syntax: "ip daddr 127.0.0.0/8 accept".
[[nodiscard]] std::string ToText(const Rule& rule);
/// The table in nft(8)'s syntax; `nft -f` reads it. The owner flag is left out, since nft would lose the table when it ends.
[[nodiscard]] std::string ToText(const Table& table);
/// "inet sluice".
[[nodiscard]] std::string NameOf(const Table& table);

}  // namespace sluice::nft
