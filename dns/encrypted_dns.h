#pragma once

// Names by which a program leaves the policy's resolver for another one: the canaries by which browsers ask whether they may
// (always answered "no"), the discovery of RFC 9462, and the public resolvers that speak DNS over HTTPS or TLS. A list is never
// whole: what is not on it is closed by having no rule, not by this.

#include <cstdint>
#include <string_view>

namespace sluice::dns {

enum class OtherResolver : uint8_t {
  kNone,
  kCanary,    ///< NXDOMAIN, whatever the policy says: "use-application-dns.net", "mask.icloud.com"
  kDiscovery, ///< NODATA, whatever the policy says: "resolver.arpa" and below (RFC 9462 section 6.4)
  kPublic,    ///< denied under a wildcard, allowed where a rule spells it
};

/// `domain` is the entry that holds the name.
struct OtherResolverName {
  OtherResolver kind = OtherResolver::kNone;
  std::string_view domain{};
};
[[nodiscard]] OtherResolverName FindOtherResolver(std::string_view canonical_name);

}  // namespace sluice::dns
