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
  }
  return "?";
}

std::string_view Name(Hook hook) {
  constexpr std::array<std::string_view, 5> kNames = {"prerouting", "input", "forward", "output", "postrouting"};
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

// nft prints a full-length prefix as a bare address.
std::string PrefixText(const Cidr& prefix) { return prefix.length128() == 128 ? prefix.base().ToString() : prefix.ToString(); }

struct Printer {
  std::string operator()(const DestinationIn& e) const {
    return fmt::format("{} daddr {}", e.prefix.is_v4() ? "ip" : "ip6", PrefixText(e.prefix));
  }
  std::string operator()(const ProtocolIs& e) const { return fmt::format("meta l4proto {}", Name(e.protocol)); }
  std::string operator()(const DestinationPort& e) const { return fmt::format("{} dport {}", Name(e.protocol), e.port); }
  std::string operator()(const OpensTcp&) const { return "tcp flags & (syn | ack) == syn"; }
  std::string operator()(const SocketIsTransparent&) const { return "socket transparent 1"; }
  std::string operator()(const IcmpUnreachable& e) const {
    return fmt::format("{} type destination-unreachable", e.protocol == Protocol::kIcmp ? "icmp" : "icmpv6");
  }
  std::string operator()(const TproxyTo& e) const { return fmt::format("tproxy to :{}", e.port); }
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
};

}  // namespace

std::string ToText(const Rule& rule) {
  std::string text;
  for (const Expression& expression : rule) {
    if (!text.empty()) text += ' ';
    text += std::visit(Printer{}, expression);
  }
  return text;
}

std::string ToText(const Table& table) {
  std::string text = fmt::format("table {} {} {{\n", Name(table.family), table.name);
  for (const Chain& chain : table.chains) {
    text += fmt::format("\tchain {} {{\n\t\ttype filter hook {} priority {}; policy {};\n", chain.name, Name(chain.hook),
                        chain.priority, chain.policy == Policy::kAccept ? "accept" : "drop");
    for (const Rule& rule : chain.rules) text += fmt::format("\t\t{}\n", ToText(rule));
    text += "\t}\n";
  }
  text += "}\n";
  return text;
}

}  // namespace sluice::nft
