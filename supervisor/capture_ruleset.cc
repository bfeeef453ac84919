#include "supervisor/capture_ruleset.h"

#include <array>

namespace sluice::supervisor {
namespace {

using nft::DestinationIn;
using nft::DestinationPort;
using nft::IcmpUnreachable;
using nft::Protocol;
using nft::ProtocolIs;
using nft::Reject;
using nft::Rule;
using nft::Verdict;

constexpr int32_t kManglePriority = -150;  // before routing would look at the packet; tproxy needs it
constexpr int32_t kFilterPriority = 0;

// The namespace's own addresses: the workload's loopback.
std::array<Cidr, 4> OwnAddresses() {
  return {Cidr::Of(IpAddress::FromV4(0x7f000000), 8), Cidr::Of(kCaptureV4, 32),
          Cidr::Of(IpAddress::FromV6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), 128), Cidr::Of(kCaptureV6, 128)};
}

// The tail of both chains. ICMP that says "unreachable" is how the kernel answers; an echo would be answered by this very
// machine as if it were the destination, so it is refused like every other protocol.
void RefuseTheRest(std::vector<Rule>& rules) {
  rules.push_back({DestinationPort{Protocol::kUdp, kDnsPort}, Verdict::kAccept});
  rules.push_back({IcmpUnreachable{Protocol::kIcmp}, Verdict::kAccept});
  rules.push_back({IcmpUnreachable{Protocol::kIcmp6}, Verdict::kAccept});
  rules.push_back({ProtocolIs{Protocol::kUdp}, Reject::kPortUnreachable});
  rules.push_back({Reject::kAdminProhibited});
}

nft::Chain Incoming(uint16_t listener_port) {
  nft::Chain chain{"incoming", nft::Hook::kPrerouting, kManglePriority, nft::Policy::kDrop, {}};
  // Nobody dials the listener itself: its destination would be loopback.
  for (const Cidr& own : OwnAddresses())
    chain.rules.push_back({DestinationIn{own}, DestinationPort{Protocol::kTcp, listener_port}, Reject::kTcpReset});
  for (const Cidr& own : OwnAddresses()) chain.rules.push_back({DestinationIn{own}, Verdict::kAccept});
  chain.rules.push_back({DestinationPort{Protocol::kTcp, kDnsPort}, Verdict::kAccept});
  chain.rules.push_back({ProtocolIs{Protocol::kTcp}, nft::SocketIsTransparent{}, Verdict::kAccept});
  chain.rules.push_back({ProtocolIs{Protocol::kTcp}, nft::TproxyTo{listener_port}, Verdict::kAccept});
  // The supervisor is gone: without this a listener of the workload's own would answer for any address.
  chain.rules.push_back({nft::OpensTcp{}, Reject::kTcpReset});
  chain.rules.push_back({ProtocolIs{Protocol::kTcp}, Verdict::kAccept});
  RefuseTheRest(chain.rules);
  return chain;
}

// Refusing on the way out gives the sender its errno in the call itself.
nft::Chain Outgoing() {
  nft::Chain chain{"outgoing", nft::Hook::kOutput, kFilterPriority, nft::Policy::kDrop, {}};
  // First what there is most of.
  chain.rules.push_back({ProtocolIs{Protocol::kTcp}, Verdict::kAccept});
  for (const Cidr& own : OwnAddresses()) chain.rules.push_back({DestinationIn{own}, Verdict::kAccept});
  RefuseTheRest(chain.rules);
  return chain;
}

}  // namespace

nft::Table CaptureRuleset(uint16_t listener_port) {
  return {nft::Family::kInet, "sluice_capture", {Incoming(listener_port), Outgoing()}};
}

}  // namespace sluice::supervisor
