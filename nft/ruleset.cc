#include "nft/ruleset.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace sluice::nft {
namespace {

std::string_view Name(Family family) {
  switch (family) {
    case Family::kInet:
      return "inet";
    case Family::kIp:
      return "ip";
    case Family::kIp6:
      return "ip6";
    case Family::kNetdev:
      return "netdev";
  }
  return "?";
}

std::string_view Name(Hook hook) {
  constexpr std::array<std::string_view, 6> kNames = {"prerouting", "input", "forward", "output", "postrouting", "egress"};
  return kNames.at(static_cast<size_t>(hook));
}

std::string_view Name(Protocol protocol) {
  switch (protocol) {
    case Protocol::kIcmp:
      return "icmp";
    case Protocol::kTcp:
      return "tcp";
    case Protocol::kUdp:
      return "udp";
    case Protocol::kIcmp6:
      return "ipv6-icmp";
  }
  return "?";
}

std::string_view Name(Field field) {
  constexpr std::array<std::string_view, 8> kNames = {
      "meta nfproto",         "meta l4proto",         "meta mark", "ip daddr", "ip6 daddr", "th dport",
      "ct original ip daddr", "ct original ip6 daddr"};
  return kNames.at(static_cast<size_t>(field));
}

std::string_view Name(KeyType type) {
  constexpr std::array<std::string_view, 6> kNames = {"nf_proto", "mark", "ipv4_addr", "ipv6_addr", "inet_proto", "inet_service"};
  return kNames.at(static_cast<size_t>(type));
}

std::string_view Name(Ip6Header header) {
  switch (header) {
    case Ip6Header::kHopByHop:
      return "hbh";
    case Ip6Header::kRouting:
      return "rt";
    case Ip6Header::kFragment:
      return "frag";
    case Ip6Header::kDestination:
      return "dst";
  }
  return "?";
}

template <class Names>
std::string Join(const Names& names, std::string_view between) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : std::string(between)) + std::string(Name(name));
  return text;
}

std::string StateText(uint8_t states) {
  std::string text;
  for (const auto& [bit, name] : {std::pair(kInvalid, "invalid"), std::pair(kEstablished, "established"),
                                  std::pair(kRelated, "related"), std::pair(kNew, "new")})
    if ((states & bit) != 0) text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

// A priority is a traffic control handle to nft(8).
std::string HandleText(uint32_t priority) {
  if (priority == 0) return "none";
  const uint32_t major = priority >> 16;
  const uint32_t minor = priority & 0xffff;
  if (major == 0) return fmt::format(":{:x}", minor);
  return minor == 0 ? fmt::format("{:x}:", major) : fmt::format("{:x}:{:x}", major, minor);
}

// nft prints a full-length prefix as a bare address.
std::string PrefixText(const Cidr& prefix) { return prefix.length128() == 128 ? prefix.base().ToString() : prefix.ToString(); }

struct Printer {
  std::string operator()(const DestinationIn& e) const {
    return fmt::format("{} daddr {}", e.prefix.is_v4() ? "ip" : "ip6", PrefixText(e.prefix));
  }
  std::string operator()(const SourceIn& e) const {
    return fmt::format("{} saddr {}", e.prefix.is_v4() ? "ip" : "ip6", PrefixText(e.prefix));
  }
  std::string operator()(const ProtocolIs& e) const { return fmt::format("meta l4proto {}", Name(e.protocol)); }
  std::string operator()(const DestinationPort& e) const { return fmt::format("{} dport {}", Name(e.protocol), e.port); }
  std::string operator()(const OpensTcp&) const { return "tcp flags & (syn | ack) == syn"; }
  std::string operator()(const SocketIsTransparent&) const { return "socket transparent 1"; }
  std::string operator()(const IcmpUnreachable& e) const {
    return fmt::format("{} type destination-unreachable", e.protocol == Protocol::kIcmp ? "icmp" : "icmpv6");
  }
  std::string operator()(const Icmp6Types& e) const {
    return e.first == e.last ? fmt::format("icmpv6 type {}", e.first) : fmt::format("icmpv6 type {}-{}", e.first, e.last);
  }
  std::string operator()(const IsArp&) const { return "meta protocol arp"; }
  std::string operator()(const OnLoopback& e) const { return e.way == Way::kIn ? "iif \"lo\"" : "oif \"lo\""; }
  std::string operator()(const OnDevice& e) const {
    return fmt::format("{} \"{}\"", e.way == Way::kIn ? "iifname" : "oifname", e.name);
  }
  std::string operator()(const MarkIs& e) const {
    return fmt::format("meta mark {}0x{:08x}", e.test == Test::kEqual ? "" : "!= ", e.mark);
  }
  std::string operator()(const PriorityIs& e) const { return "meta priority " + HandleText(e.priority); }
  std::string operator()(const HasOwner&) const { return "meta skuid != 4294967295"; }
  std::string operator()(const SourceIsForeign&) const { return "fib saddr type != local"; }
  std::string operator()(const StateIn& e) const { return "ct state " + StateText(e.states); }
  std::string operator()(const DirectionIs& e) const {
    return fmt::format("ct direction {}", e.direction == Direction::kOriginal ? "original" : "reply");
  }
  std::string operator()(const Rewritten& e) const {
    return e.test == Test::kEqual ? "ct status & dnat == dnat" : "ct status & dnat == 0";
  }
  std::string operator()(const FlowMarkIs& e) const { return fmt::format("ct mark & 0x{:08x} == 0x{:08x}", e.mask, e.value); }
  std::string operator()(const AnsweredFrom& e) const {
    return fmt::format("ct reply {} saddr {}", e.address.is_v4() ? "ip" : "ip6", e.address.ToString());
  }
  std::string operator()(const IsFragment& e) const {
    return e.test == Test::kEqual ? "ip frag-off & 0x3fff != 0" : "ip frag-off & 0x3fff == 0";
  }
  std::string operator()(const HasIp4Options& e) const { return e.test == Test::kEqual ? "ip hdrlength != 5" : "ip hdrlength 5"; }
  std::string operator()(Ip6Header e) const { return fmt::format("exthdr {} exists", Name(e)); }
  std::string operator()(const Ip6Carries& e) const { return fmt::format("ip6 nexthdr {}", Name(e.protocol)); }
  std::string operator()(const InSet& e) const { return fmt::format("{} @{}", Join(e.key, " . "), e.set); }
  std::string operator()(const AddTo& e) const { return fmt::format("add @{} {{ {} }}", e.set, Join(e.key, " . ")); }
  std::string operator()(const SetMark& e) const { return fmt::format("meta mark set 0x{:08x}", e.mark); }
  std::string operator()(const SetPriority& e) const { return "meta priority set " + HandleText(e.priority); }
  std::string operator()(const SetFlowMark& e) const {
    return fmt::format("ct mark set ct mark & 0x{:08x} | 0x{:08x}", ~e.mask, e.value);
  }
  std::string operator()(const SetFlowZone& e) const { return fmt::format("ct original zone set {}", e.zone); }
  std::string operator()(const Counter&) const { return "counter"; }
  std::string operator()(const Limit& e) const { return fmt::format("limit rate {}/second burst {} packets", e.rate, e.burst); }
  std::string operator()(const Log& e) const { return fmt::format("log prefix \"{}\"", e.prefix); }
  std::string operator()(const TproxyTo& e) const { return fmt::format("tproxy to :{}", e.port); }
  std::string operator()(const RedirectTo& e) const { return fmt::format("redirect to :{}", e.port); }
  std::string operator()(Reject e) const {
    switch (e) {
      case Reject::kTcpReset:
        return "reject with tcp reset";
      case Reject::kPortUnreachable:
        return "reject with icmpx type port-unreachable";
      case Reject::kAdminProhibited:
        return "reject with icmpx type admin-prohibited";
    }
    return "?";
  }
  std::string operator()(Verdict e) const { return e == Verdict::kAccept ? "accept" : "drop"; }
  std::string operator()(const Comment& e) const { return fmt::format("comment \"{}\"", e.text); }
};

std::string SetText(const Set& set) {
  std::string text = fmt::format("\tset {} {{\n\t\ttype {}\n", set.name, Join(set.key, " . "));
  if (set.size != 0) text += fmt::format("\t\tsize {}\n", set.size);
  std::string flags;
  if (set.dynamic) flags += "dynamic,";
  if (set.kind == SetKind::kInterval) flags += "interval,";
  if (set.timeouts) flags += "timeout,";
  if (!flags.empty()) text += fmt::format("\t\tflags {}\n", flags.substr(0, flags.size() - 1));
  if (set.timeout.count() != 0) text += fmt::format("\t\ttimeout {}s\n", set.timeout.count());
  std::string elements;
  for (const Element& element : set.elements) elements += (elements.empty() ? "" : ", ") + ToText(set, element);
  if (!elements.empty()) text += fmt::format("\t\telements = {{ {} }}\n", elements);
  return text + "\t}\n";
}

std::string DevicesText(const Chain& chain) {
  std::string text;
  for (const std::string& device : chain.devices) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", device);
  return text.empty() ? text : fmt::format(" devices = {{ {} }}", text);
}

}  // namespace

std::string ToText(const Rule& rule) {
  std::string text;
  for (const Expression& expression : rule) {
    if (!text.empty()) text += ' ';
    text += std::visit(Printer{}, expression);
  }
  return text;
}

std::string NameOf(const Table& table) { return fmt::format("{} {}", Name(table.family), table.name); }

std::string ToText(const Table& table) {
  std::string text = fmt::format("table {} {{\n", NameOf(table));
  for (const Set& set : table.sets) text += SetText(set);
  for (const Chain& chain : table.chains) {
    text += fmt::format("\tchain {} {{\n\t\ttype {} hook {}{} priority {}; policy {};\n", chain.name,
                        chain.type == ChainType::kNat ? "nat" : "filter", Name(chain.hook), DevicesText(chain), chain.priority,
                        chain.policy == Policy::kAccept ? "accept" : "drop");
    for (const Rule& rule : chain.rules) text += fmt::format("\t\t{}\n", ToText(rule));
    text += "\t}\n";
  }
  text += "}\n";
  return text;
}

}  // namespace sluice::nft
