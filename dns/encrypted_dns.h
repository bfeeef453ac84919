#pragma once

// Names by which a program leaves the policy's resolver for another one: the canaries by which browsers ask whether they may,
// the discovery of RFC 9462, and public resolvers that speak DNS over HTTPS or TLS. A wildcard does not mean them: a rule must
// spell them. A list is never whole: what is not on it is closed by having no rule, not by this.

#include <cstdint>
#include <string_view>

namespace sluice::dns {

enum class OtherResolver : uint8_t {
  kNone,
  kCanary,     ///< "use-application-dns.net", "mask.icloud.com": NXDOMAIN says no
  kDiscovery,  ///< "resolver.arpa" and below: NODATA says that there is none (RFC 9462 section 6.4)
  kPublic,     ///< such as "dns.google"
};

/// `domain` is the entry that holds the name.
struct OtherResolverName {
  OtherResolver kind = OtherResolver::kNone;
  std::string_view domain{};
};
[[nodiscard]] OtherResolverName FindOtherResolver(std::string_view canonical_name);

}  // namespace sluice::dns
