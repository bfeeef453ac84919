#pragma once

// What the rules that may speak for one connection say of it, layer by layer. The decisions and the prover share it. Nothing here
// allocates.

#include <algorithm>

#include "policy/match.h"

namespace sluice::policy {

inline constexpr uint32_t kNoIndex = 0xffffffff;

// What the rules say of a connection, layer by layer (exact points 2 to 4). Each field is the first rule of its kind.
struct Layers {
  uint32_t outer_deny = kNoIndex;      ///< dns, or the transport
  uint32_t tls_deny = kNoIndex;        ///< closes TLS and what is in it
  uint32_t under_tcp_deny = kNoIndex;  ///< tls, HTTP or git: void an opaque tcp allow here
  uint32_t under_tls_deny = kNoIndex;  ///< HTTP or git that may travel in TLS: void an opaque tls allow here
  uint32_t transport_allow = kNoIndex;
  uint32_t tls_allow = kNoIndex;
  uint32_t https_allow = kNoIndex;
  uint32_t http_allow = kNoIndex;
  bool guard_passed = false;  ///< some allow of this connection may lead to the address

  [[nodiscard]] uint32_t OpaqueTcp() const { return under_tcp_deny == kNoIndex ? transport_allow : kNoIndex; }
  [[nodiscard]] uint32_t OpaqueTls() const { return tls_deny == kNoIndex && under_tls_deny == kNoIndex ? tls_allow : kNoIndex; }
};

inline void Keep(uint32_t* slot, uint32_t index) { *slot = std::min(*slot, index); }

// A deny of lookups closes what they lead to: an A lookup leads to IPv4.
inline bool DnsDenyCloses(const Rule& rule, const ConnectQuery& query) {
  if (query.host.empty()) return false;
  if (rule.types.empty()) return true;
  const auto lists = [&](uint16_t type) { return std::find(rule.types.begin(), rule.types.end(), type) != rule.types.end(); };
  if (!query.address) return lists(kDnsA) && lists(kDnsAaaa);
  return lists(query.address->is_v4() ? kDnsA : kDnsAaaa);
}

// For an opaque allow, an inner deny without a port counts as 80 and 443 (exact point 3).
inline bool CountsAsInner(const Rule& rule, uint16_t port) { return !rule.ports.empty() || port == 80 || port == 443; }

inline void AddDeny(const Rule& rule, uint32_t index, const ConnectionView& connection, Layers* layers) {
  const ConnectQuery& query = connection.query;
  if (!DenyCoversProcess(rule, query.process)) return;
  if (rule.verb == Verb::kDns) {
    if (DnsDenyCloses(rule, query)) Keep(&layers->outer_deny, index);
    return;
  }
  if (!CoversPort(rule, query.port) || !DenyCoversAddress(rule, connection)) return;
  if (rule.verb == Verb::kTcp || rule.verb == Verb::kUdp) {
    if ((rule.verb == Verb::kTcp) == (query.transport == Transport::kTcp)) Keep(&layers->outer_deny, index);
    return;
  }
  if (query.transport != Transport::kTcp) return;
  if (rule.verb == Verb::kTls) Keep(&layers->tls_deny, index);
  if (!CountsAsInner(rule, query.port)) return;
  Keep(&layers->under_tcp_deny, index);
  if (IsInner(rule.verb) && rule.scheme != Scheme::kHttp) Keep(&layers->under_tls_deny, index);
}

inline bool CarriedBy(const Rule& rule, Transport transport) {
  return rule.verb != Verb::kDns && (rule.verb == Verb::kUdp) == (transport == Transport::kUdp);
}

// Whether the allow covers the connection.
inline bool AddAllow(const Rule& rule, uint32_t index, const ConnectionView& connection, Layers* layers) {
  if (!CarriedBy(rule, connection.query.transport)) return false;
  if (!AllowCoversConnection(rule, connection)) return false;
  layers->guard_passed = true;
  if (rule.verb == Verb::kTcp || rule.verb == Verb::kUdp) Keep(&layers->transport_allow, index);
  if (rule.verb == Verb::kTls) Keep(&layers->tls_allow, index);
  if (IsInner(rule.verb)) Keep(rule.scheme == Scheme::kHttp ? &layers->http_allow : &layers->https_allow, index);
  return true;
}

// `mode: audit` forwards what enforce would refuse, but never past the address guard (exact point 19).
inline bool GuardRefuses(const Layers& layers, const ConnectionView& connection) {
  return connection.special && !layers.guard_passed;
}

/// Requests that no rule can grant: CONNECT, TRACE, what is no token, and misspellings of known methods.
[[nodiscard]] bool NeverForwarded(std::string_view method);

}  // namespace sluice::policy
