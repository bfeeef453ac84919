#include "supervisor/fence_ruleset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace sluice::supervisor {
namespace {

using nft::AddTo;
using nft::AnsweredFrom;
using nft::Comment;
using nft::Counter;
using nft::DestinationIn;
using nft::DestinationPort;
using nft::Field;
using nft::HasOwner;
using nft::Icmp6Types;
using nft::InSet;
using nft::Ip6Carries;
using nft::MarkIs;
using nft::OnDevice;
using nft::OnLoopback;
using nft::PriorityIs;
using nft::Protocol;
using nft::ProtocolIs;
using nft::RedirectTo;
using nft::Reject;
using nft::Rewritten;
using nft::Rule;
using nft::SetMark;
using nft::SetPriority;
using nft::Test;
using nft::Verdict;
using nft::Way;

constexpr int32_t kBeforeDefragment = -450;  // NF_IP_PRI_CONNTRACK_DEFRAG is -400
constexpr int32_t kAntiSpoof = -300;
constexpr int32_t kCapture = -101;  // service meshes redirect at -100
constexpr int32_t kJudge = 10;      // after what others rewrite
constexpr int32_t kLast = 300;

constexpr uint16_t kDnsPort = 53;
constexpr uint32_t kLoggedPerSecond = 5;
constexpr uint32_t kLoggedAtOnce = 20;

// On `lo` this tells the prerouting chain that no socket sent the packet: a reset that the kernel makes carries a foreign source.
// It need not be secret, since the loopback chain writes it or zero on whatever passes.
constexpr uint32_t kOfKernel = 0x51ce;

// Of what Sluice itself opens. Any but the default, in which everybody else's flows are.
constexpr uint16_t kOwnZone = 0x51ce;

// UDP ports of lookups that would go past the resolver: DNS over QUIC (RFC 9250 and what came before), multicast DNS, LLMNR,
// NetBIOS. Those by TLS meet the proxy, as all TCP does.
constexpr std::array<uint16_t, 6> kOtherResolvers = {853, 784, 8853, 5353, 5355, 137};

Cidr V4(uint32_t base, unsigned length) { return Cidr::Of(IpAddress::FromV4(base), length); }
Cidr V6(const char* text) { return Cidr::Parse(text).value_or(Cidr::Of(IpAddress{}, 128)); }
// Where redirect sends what this machine sends.
constexpr IpAddress kRedirected4 = IpAddress::FromV4(0x7f000001);
constexpr IpAddress kRedirected6 = IpAddress::FromV6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});

const std::vector<Field> kTarget4 = {Field::kDestination4, Field::kProtocol, Field::kDestinationPort};
const std::vector<Field> kTarget6 = {Field::kDestination6, Field::kProtocol, Field::kDestinationPort};

std::optional<std::vector<nft::Element>> Allowed(const FencePlan& plan, bool v4) {
  std::vector<nft::Box> boxes;
  for (const FenceCidr& cidr : plan.allow)
    if (cidr.prefix.is_v4() == v4)
      boxes.push_back({cidr.prefix, static_cast<uint8_t>(cidr.protocol), cidr.first_port, cidr.last_port});
  return nft::Disjoint(boxes, kFenceStaticElements);
}

// `fits`: false where a set of the policy's own prefixes would have too many entries, and has none.
std::vector<nft::Set> Sets(const FencePlan& plan, bool* fits) {
  const std::vector<nft::KeyType> target4 = {nft::KeyType::kAddress4, nft::KeyType::kProtocol, nft::KeyType::kPort};
  const std::vector<nft::KeyType> target6 = {nft::KeyType::kAddress6, nft::KeyType::kProtocol, nft::KeyType::kPort};
  // What has many receivers is no one's allowed destination, and a copy of it would keep its seal on the way back in.
  std::vector<Cidr> deny4 = {V4(0xe0000000, 4), V4(0xffffffff, 32)};
  std::vector<Cidr> deny6 = {V6("ff00::/8")};
  for (const Cidr& prefix : plan.deny) (prefix.is_v4() ? deny4 : deny6).push_back(prefix);
  const auto interval = nft::SetKind::kInterval;
  const auto within = [fits](std::optional<std::vector<nft::Element>> elements) {
    if (elements && elements->size() <= kFenceStaticElements) return *std::move(elements);
    *fits = false;
    return std::vector<nft::Element>();
  };
  return {
      {.name = "dyn4", .key = target4, .size = kFenceElements, .timeouts = true},
      {.name = "dyn6", .key = target6, .size = kFenceElements, .timeouts = true},
      {.name = "cidr4", .key = target4, .kind = interval, .elements = within(Allowed(plan, true))},
      {.name = "cidr6", .key = target6, .kind = interval, .elements = within(Allowed(plan, false))},
      {.name = "deny4", .key = {nft::KeyType::kAddress4}, .kind = interval, .elements = within(nft::Ranges(deny4))},
      {.name = "deny6", .key = {nft::KeyType::kAddress6}, .kind = interval, .elements = within(nft::Ranges(deny6))},
      {.name = "tried",
       .key = {nft::KeyType::kMark},
       .size = kFenceGuesses,
       .timeouts = true,
       .timeout = kFenceGuessMemory,
       .dynamic = true},
      {.name = "alarm", .key = {nft::KeyType::kFamily}, .size = 4, .timeouts = true, .timeout = kFenceAlarm, .dynamic = true},
  };
}

// The tail of a rule that lets a packet out: the devices' chains take it by this. Most packets end at one of these, and a counter
// costs each of them.
void Pass(Rule& rule, const FencePlan& plan, const char* name) {
  rule.insert(rule.end(), {SetMark{plan.passage.mark}, SetPriority{plan.passage.priority}, Verdict::kAccept, Comment{name}});
}

Rule Sealed(const FencePlan& plan) { return {MarkIs{plan.seal.mark}, PriorityIs{plan.seal.priority}}; }

// A hop-by-hop header is of a kernel's own multicast listener reports (RFC 3810 section 5), and dropped on whatever else has one;
// `where` narrows to what is judged.
void HopByHop(nft::Chain& chain, const Rule& where) {
  const auto add = [&](std::initializer_list<nft::Expression> rest) {
    Rule rule = where;
    rule.emplace_back(nft::Ip6Header::kHopByHop);
    rule.insert(rule.end(), rest);
    chain.rules.push_back(std::move(rule));
  };
  add({Icmp6Types{131, 132}, Verdict::kAccept});
  add({Icmp6Types{143, 143}, Verdict::kAccept});
  add({Counter{}, Verdict::kDrop, Comment{"extension-headers"}});
}

// What a raw socket can make so that the judging chains would not see a port, or another destination than the packet will have;
// and the counting of guesses. Before fragments are put together.
nft::Chain Early(const FencePlan& plan) {
  nft::Chain chain{"malformed", nft::Hook::kOutput, kBeforeDefragment, nft::Policy::kAccept, {}};
  // First what is most: Sluice's own, which is told by a secret, and TCP and UDP without a mark, a fragment, an option or an
  // extension header.
  // The workload asks the server that Sluice asks, and in time from the same ports: were both one flow to connection tracking,
  // the one that came later would go where the other's was sent.
  Rule sealed = Sealed(plan);
  sealed.insert(sealed.end(), {nft::SetFlowZone{kOwnZone}, Verdict::kAccept});
  chain.rules.push_back(std::move(sealed));
  chain.rules.push_back({nft::IsFragment{Test::kNotEqual}, nft::HasIp4Options{Test::kNotEqual}, MarkIs{0}, Verdict::kAccept});
  for (const Protocol protocol : {Protocol::kTcp, Protocol::kUdp})
    chain.rules.push_back({Ip6Carries{protocol}, MarkIs{0}, Verdict::kAccept});
  chain.rules.push_back({nft::IsFragment{}, Counter{}, Verdict::kDrop, Comment{"fragments"}});
  // A source route leads on from an allowed host, and any program may ask for one. What a closed socket still sends has no owner.
  chain.rules.push_back({nft::HasIp4Options{}, Counter{}, Verdict::kDrop, Comment{"options"}});
  for (const nft::Ip6Header header : {nft::Ip6Header::kFragment, nft::Ip6Header::kRouting, nft::Ip6Header::kDestination})
    chain.rules.push_back({header, Counter{}, Verdict::kDrop, Comment{"extension-headers"}});
  chain.rules.push_back({nft::Ip6Header::kHopByHop, HasOwner{}, Counter{}, Verdict::kDrop, Comment{"extension-headers"}});
  HopByHop(chain, {});
  chain.rules.push_back({MarkIs{0}, Verdict::kAccept});
  chain.rules.push_back({OnLoopback{Way::kOut}, Verdict::kAccept});
  // A program's own mark is remembered and goes on; one too many is somebody looking for the seal.
  chain.rules.push_back({AddTo{{Field::kMark}, "tried"}, Counter{}, Verdict::kAccept, Comment{"marked"}});
  chain.rules.push_back({AddTo{{Field::kFamily}, "alarm"}, Counter{}, Verdict::kDrop, Comment{"guessed"}});
  return chain;
}

// The sets whose elements are let out; a static one that is empty is not looked at.
std::vector<std::pair<std::vector<Field>, const char*>> PassingSets(const FencePlan& plan) {
  std::vector<std::pair<std::vector<Field>, const char*>> sets = {{kTarget4, "dyn4"}, {kTarget6, "dyn6"}};
  const auto of = [](bool v4) { return [v4](const FenceCidr& allow) { return allow.prefix.is_v4() == v4; }; };
  if (std::ranges::any_of(plan.allow, of(true))) sets.emplace_back(kTarget4, "cidr4");
  if (std::ranges::any_of(plan.allow, of(false))) sets.emplace_back(kTarget6, "cidr6");
  return sets;
}

nft::Chain Capture(const FencePlan& plan) {
  nft::Chain chain{"capture", nft::Hook::kOutput, kCapture, nft::Policy::kAccept, {}, nft::ChainType::kNat};
  Rule sealed = Sealed(plan);
  sealed.emplace_back(Verdict::kAccept);
  chain.rules.push_back(std::move(sealed));
  if (plan.dns_port != 0)
    for (const Protocol protocol : {Protocol::kUdp, Protocol::kTcp})
      chain.rules.push_back({DestinationPort{protocol, kDnsPort}, RedirectTo{plan.dns_port}});
  chain.rules.push_back({OnLoopback{Way::kOut}, Verdict::kAccept});
  // What the judging chain refuses or passes by itself.
  chain.rules.push_back({InSet{{Field::kDestination4}, "deny4"}, Verdict::kAccept});
  chain.rules.push_back({InSet{{Field::kDestination6}, "deny6"}, Verdict::kAccept});
  for (const auto& [key, set] : PassingSets(plan)) chain.rules.push_back({InSet{key, set}, Verdict::kAccept});
  if (plan.proxy_port != 0) chain.rules.push_back({ProtocolIs{Protocol::kTcp}, RedirectTo{plan.proxy_port}});
  return chain;
}

void DenySets(nft::Chain& chain) {
  for (const auto& [field, set] : {std::pair(Field::kDestination4, "deny4"), std::pair(Field::kDestination6, "deny6")})
    chain.rules.push_back({InSet{{field}, set}, Counter{}, Reject::kAdminProhibited, Comment{"denied"}});
  // Only what was rewritten had another destination before.
  for (const auto& [field, set] :
       {std::pair(Field::kOriginalDestination4, "deny4"), std::pair(Field::kOriginalDestination6, "deny6")})
    chain.rules.push_back({Rewritten{Test::kEqual}, InSet{{field}, set}, Counter{}, Reject::kAdminProhibited, Comment{"denied"}});
}

// Flows that the sets pass, in the kernel. One that another table rewrote is not: its destination is not the one that was judged.
void FastPath(nft::Chain& chain, const FencePlan& plan) {
  const uint32_t mark = GenerationMark(plan);
  Rule known = {nft::FlowMarkIs{plan.mark_mask, mark}, nft::DirectionIs{nft::Direction::kOriginal},
                nft::StateIn{nft::kEstablished}};
  Pass(known, plan, "passed");
  chain.rules.push_back(std::move(known));
  for (const auto& [key, set] : PassingSets(plan)) {
    Rule rule = {InSet{key, set}, Rewritten{Test::kNotEqual}, nft::SetFlowMark{plan.mark_mask, mark}};
    Pass(rule, plan, "passed");
    chain.rules.push_back(std::move(rule));
  }
  // Refused as the rest is, but counted apart and not logged: programs try these unasked.
  for (const uint16_t port : kOtherResolvers)
    chain.rules.push_back(
        {DestinationPort{Protocol::kUdp, port}, Counter{}, Reject::kPortUnreachable, Comment{"other-resolvers"}});
}

nft::Chain Outgoing(const FencePlan& plan) {
  nft::Chain chain{"outgoing", nft::Hook::kOutput, kJudge, nft::Policy::kDrop, {}};
  // Whatever answers a flow goes where its first packet claimed to come from, so that must be here. Sluice's own never lies.
  chain.rules.push_back({MarkIs{plan.seal.mark, Test::kNotEqual}, nft::StateIn{nft::kNew}, nft::SourceIsForeign{}, Counter{},
                         Verdict::kDrop, Comment{"spoofed"}});
  // Routed to a device before it was redirected to this machine. What is about to leave by one needs the passage besides.
  for (const IpAddress& own : {kRedirected4, kRedirected6})
    chain.rules.push_back({DestinationIn{Cidr::Of(own, own.is_v4() ? 32 : 128)}, Rewritten{Test::kEqual}, Verdict::kAccept});
  // Nobody dials the listener itself.
  if (plan.proxy_port != 0)
    chain.rules.push_back({OnLoopback{Way::kOut}, DestinationPort{Protocol::kTcp, plan.proxy_port}, Rewritten{Test::kNotEqual},
                           Counter{}, Reject::kTcpReset, Comment{"direct"}});
  chain.rules.push_back({OnLoopback{Way::kOut}, Verdict::kAccept});
  // Guesses of the seal are being made: nothing could be told by whether a packet gets out.
  chain.rules.push_back({InSet{{Field::kFamily}, "alarm"}, Counter{}, Verdict::kDrop, Comment{"alarm"}});
  // Neighbour discovery and multicast listener reports of the kernel's own: a socket's would be a way out.
  chain.rules.push_back({Icmp6Types{131, 143}, HasOwner{}, Counter{}, Verdict::kDrop, Comment{"forged-neighbours"}});
  for (const auto& types : {Icmp6Types{131, 133}, Icmp6Types{135, 136}, Icmp6Types{143, 143}}) {
    Rule rule = {types};
    Pass(rule, plan, "neighbours");
    chain.rules.push_back(std::move(rule));
  }
  DenySets(chain);
  Rule sealed = Sealed(plan);
  Pass(sealed, plan, "sealed");
  chain.rules.push_back(std::move(sealed));
  if (plan.inbound == FenceInbound::kAccept) {
    Rule answer = {ProtocolIs{Protocol::kTcp}, nft::DirectionIs{nft::Direction::kReply}, nft::StateIn{nft::kEstablished}};
    Pass(answer, plan, "answers");
    chain.rules.push_back(std::move(answer));
  }
  FastPath(chain, plan);
  chain.rules.push_back({nft::Limit{kLoggedPerSecond, kLoggedAtOnce}, nft::Log{"sluice refused: "}});
  chain.rules.push_back({ProtocolIs{Protocol::kTcp}, Counter{}, Reject::kTcpReset, Comment{"refused"}});
  chain.rules.push_back({ProtocolIs{Protocol::kUdp}, Counter{}, Reject::kPortUnreachable, Comment{"refused"}});
  chain.rules.push_back({Counter{}, Verdict::kDrop, Comment{"dropped"}});
  return chain;
}

nft::Chain Incoming(const FencePlan& plan) {
  nft::Chain chain{"incoming", nft::Hook::kInput, kJudge, nft::Policy::kDrop, {}};
  chain.rules.push_back({OnLoopback{Way::kIn}, Verdict::kAccept});
  chain.rules.push_back({nft::StateIn{nft::kEstablished | nft::kRelated}, Verdict::kAccept});
  for (const auto& types : {Icmp6Types{130, 130}, Icmp6Types{134, 136}}) chain.rules.push_back({types, Verdict::kAccept});
  for (const uint16_t port : {plan.proxy_port, plan.dns_port})
    if (port != 0) chain.rules.push_back({DestinationPort{Protocol::kTcp, port}, Counter{}, Verdict::kDrop, Comment{"incoming"}});
  if (plan.inbound == FenceInbound::kAccept)
    chain.rules.push_back({nft::OpensTcp{}, nft::StateIn{nft::kNew}, Counter{}, Verdict::kAccept, Comment{"inbound"}});
  chain.rules.push_back({Counter{}, Verdict::kDrop, Comment{"incoming"}});
  return chain;
}

// A packet socket can put frames on `lo` that look as if they came from anywhere. Fragments before they are put together; the
// rest in the same chain, since each that a packet meets costs more than a few rules do.
nft::Chain Spoofed() {
  nft::Chain chain{"spoofed", nft::Hook::kPrerouting, kBeforeDefragment, nft::Policy::kAccept, {}};
  chain.rules.push_back({nft::IsFragment{}, OnLoopback{Way::kIn}, Counter{}, Verdict::kDrop, Comment{"fragments"}});
  chain.rules.push_back({nft::Ip6Header::kFragment, OnLoopback{Way::kIn}, Counter{}, Verdict::kDrop, Comment{"fragments"}});
  chain.rules.push_back({OnLoopback{Way::kIn}, MarkIs{kOfKernel}, SetMark{0}, Verdict::kAccept});
  // What the proxy and the resolver answer got its foreign source on the way here, and brings its flow along; a frame has none
  // yet, and neither has an answer that somebody makes up for a flow of Sluice's own. What such a flow brings the other way had
  // its source looked at when it began.
  for (const IpAddress& own : {kRedirected4, kRedirected6})
    chain.rules.push_back({OnLoopback{Way::kIn}, nft::StateIn{nft::kEstablished}, AnsweredFrom{own}, Verdict::kAccept});
  chain.rules.push_back({OnLoopback{Way::kIn}, nft::SourceIsForeign{}, Counter{}, Verdict::kDrop, Comment{"spoofed"}});
  return chain;
}

nft::Chain Forwarded() {
  return {"forwarded", nft::Hook::kForward, kJudge, nft::Policy::kDrop, {{Counter{}, Verdict::kDrop, Comment{"forwarded"}}}};
}

nft::Table Shared(const FencePlan& plan, bool* fits) {
  return {nft::Family::kInet,
          kFenceTable,
          {Early(plan), Spoofed(), Capture(plan), Outgoing(plan), Incoming(plan), Forwarded()},
          Sets(plan, fits)};
}

nft::Table Egress(const FencePlan& plan) {
  nft::Table table{nft::Family::kNetdev, kFenceEgressTable, {}};
  nft::Chain loopback{"loopback", nft::Hook::kEgress, kLast, nft::Policy::kAccept, {}};
  loopback.devices = {"lo"};
  loopback.rules.push_back({HasOwner{}, SetMark{0}, SetPriority{0}, Verdict::kAccept});
  loopback.rules.push_back({SetMark{kOfKernel}, SetPriority{0}, Verdict::kAccept});
  table.chains.push_back(std::move(loopback));
  const std::vector<std::string> names = DeviceChains(plan);
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    nft::Chain chain{names[i], nft::Hook::kEgress, kLast, nft::Policy::kDrop, {}};
    chain.devices = {plan.devices[i]};
    chain.rules.push_back(
        {MarkIs{plan.passage.mark}, PriorityIs{plan.passage.priority}, SetMark{0}, SetPriority{0}, Verdict::kAccept});
    chain.rules.push_back({HasOwner{}, Counter{}, Verdict::kDrop, Comment{"egress"}});
    chain.rules.push_back({nft::IsArp{}, Verdict::kAccept});
    chain.rules.push_back({Counter{}, Verdict::kDrop, Comment{"egress"}});
    table.chains.push_back(std::move(chain));
  }
  return table;
}

// The workload's namespace ends in a device of this one, which only what is captured may enter.
nft::Table Behind(const FencePlan& plan) {
  const OnDevice from{Way::kIn, plan.downlink.device};
  nft::Chain spoofed{"spoofed", nft::Hook::kPrerouting, kAntiSpoof, nft::Policy::kAccept, {}};
  spoofed.rules.push_back({from, nft::IsFragment{}, Counter{}, Verdict::kDrop, Comment{"fragments"}});
  spoofed.rules.push_back({from, nft::HasIp4Options{}, Counter{}, Verdict::kDrop, Comment{"options"}});
  for (const nft::Ip6Header header : {nft::Ip6Header::kFragment, nft::Ip6Header::kRouting, nft::Ip6Header::kDestination})
    spoofed.rules.push_back({from, header, Counter{}, Verdict::kDrop, Comment{"extension-headers"}});
  HopByHop(spoofed, {from});
  for (const IpAddress& address : plan.downlink.addresses)
    spoofed.rules.push_back({from, nft::SourceIn{Cidr::Of(address, address.is_v4() ? 32 : 128)}, Verdict::kAccept});
  for (const auto& types : {Icmp6Types{131, 133}, Icmp6Types{135, 136}, Icmp6Types{143, 143}})
    spoofed.rules.push_back({from, types, Verdict::kAccept});
  spoofed.rules.push_back({from, Counter{}, Verdict::kDrop, Comment{"spoofed"}});

  nft::Chain capture{"capture", nft::Hook::kPrerouting, kCapture, nft::Policy::kAccept, {}, nft::ChainType::kNat};
  if (plan.dns_port != 0)
    for (const Protocol protocol : {Protocol::kUdp, Protocol::kTcp})
      capture.rules.push_back({from, DestinationPort{protocol, kDnsPort}, RedirectTo{plan.dns_port}});
  if (plan.proxy_port != 0) capture.rules.push_back({from, ProtocolIs{Protocol::kTcp}, RedirectTo{plan.proxy_port}});

  nft::Chain incoming{"incoming", nft::Hook::kInput, kJudge, nft::Policy::kAccept, {}};
  for (const auto& types : {Icmp6Types{133, 133}, Icmp6Types{135, 136}})
    incoming.rules.push_back({from, types, Verdict::kAccept});
  incoming.rules.push_back({from, Rewritten{Test::kEqual}, Verdict::kAccept});
  incoming.rules.push_back({from, ProtocolIs{Protocol::kUdp}, Counter{}, Reject::kPortUnreachable, Comment{"refused"}});
  incoming.rules.push_back({from, ProtocolIs{Protocol::kTcp}, Counter{}, Reject::kTcpReset, Comment{"refused"}});
  incoming.rules.push_back({from, Counter{}, Verdict::kDrop, Comment{"dropped"}});

  nft::Chain forwarded{"forwarded", nft::Hook::kForward, kJudge, nft::Policy::kAccept, {}};
  forwarded.rules.push_back({from, ProtocolIs{Protocol::kUdp}, Counter{}, Reject::kPortUnreachable, Comment{"refused"}});
  forwarded.rules.push_back({from, Counter{}, Verdict::kDrop, Comment{"forwarded"}});
  forwarded.rules.push_back({OnDevice{Way::kOut, plan.downlink.device}, Counter{}, Verdict::kDrop, Comment{"forwarded"}});
  return {nft::Family::kInet, kFenceTable, {std::move(spoofed), std::move(capture), std::move(incoming), std::move(forwarded)}};
}

std::vector<nft::Table> Tables(const FencePlan& plan, bool* fits) {
  if (plan.layout == FenceLayout::kBehind) return {Behind(plan)};
  return {Shared(plan, fits), Egress(plan)};
}

}  // namespace

std::vector<Cidr> MetadataAddresses() { return {V4(0xa9fea9fe, 32), V6("fd00:ec2::254")}; }

uint32_t GenerationMark(const FencePlan& plan) {
  if (plan.mark_mask == 0) return 0;
  const int shift = std::countr_zero(plan.mark_mask);
  const uint32_t most = plan.mark_mask >> shift;
  return (plan.generation % most + 1) << shift;
}

std::vector<std::string> DeviceChains(const FencePlan& plan) {
  std::vector<std::string> names;
  for (const std::string& device : plan.devices) {
    std::string name = "on_";
    for (const char c : device) name += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    while (std::ranges::find(names, name) != names.end()) name += '_';
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<nft::Table> FenceRuleset(const FencePlan& plan) {
  bool fits = true;
  return Tables(plan, &fits);
}

Result<std::vector<nft::Table>> CheckedFenceRuleset(const FencePlan& plan) {
  bool fits = true;
  std::vector<nft::Table> tables = Tables(plan, &fits);
  if (fits) return tables;
  return Fail(
      Code::kExhausted,
      fmt::format("the rules by address ({}) become more than {} entries of a set of the kernel, once overlaps are split; "
                  "write them as fewer prefixes and ranges of ports",
                  plan.allow.size(), kFenceStaticElements));
}

FencePlan ClosedPlan(const FencePlan& plan) {
  FencePlan closed = plan;
  closed.proxy_port = 0;
  closed.dns_port = 0;
  closed.allow.clear();
  closed.inbound = FenceInbound::kDrop;
  return closed;
}

bool StaticallyAllowed(const FencePlan& plan, const FenceElement& element) {
  if (std::ranges::any_of(plan.deny, [&](const Cidr& prefix) { return prefix.Contains(element.address); })) return false;
  return std::ranges::any_of(plan.allow, [&](const FenceCidr& allow) {
    return allow.prefix.Contains(element.address) && allow.protocol == element.protocol && allow.first_port <= element.port &&
           element.port <= allow.last_port;
  });
}

StaticAllows::StaticAllows(const FencePlan& plan)
    : deny_(plan.deny),
      allow4_(Allowed(plan, true).value_or(std::vector<nft::Element>())),
      allow6_(Allowed(plan, false).value_or(std::vector<nft::Element>())) {}

// nft::Disjoint has them in order: by protocol, then pieces of ports, then addresses.
bool StaticAllows::Contain(const FenceElement& element) const {
  const bool v4 = element.address.is_v4();
  const std::vector<nft::Element>& allow = v4 ? allow4_ : allow6_;
  const size_t width = v4 ? 4 : 16;
  const auto place = [width](const nft::Key& key) {
    const uint8_t* rest = key.bytes().data() + width;
    return rest[0] << 16 | rest[4] << 8 | rest[5];
  };
  const auto address = [width](const nft::Key& key) { return key.bytes().first(width); };
  const auto less = [](std::span<const uint8_t> a, std::span<const uint8_t> b) {
    return std::ranges::lexicographical_compare(a, b);
  };
  const nft::Key key = nft::Key().Address(element.address).Protocol(static_cast<uint8_t>(element.protocol)).Port(element.port);
  const auto from =
      std::partition_point(allow.begin(), allow.end(), [&](const nft::Element& e) { return place(e.last) < place(key); });
  const auto end = std::partition_point(from, allow.end(), [&](const nft::Element& e) { return place(e.first) <= place(key); });
  const auto found = std::partition_point(from, end, [&](const nft::Element& e) { return less(address(e.last), address(key)); });
  if (found == end || less(address(key), address(found->first))) return false;
  return std::ranges::none_of(deny_, [&](const Cidr& prefix) { return prefix.Contains(element.address); });
}

}  // namespace sluice::supervisor
