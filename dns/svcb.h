#pragma once

// SVCB and HTTPS record data (RFC 9460): enough to judge where a record leads and to remove what would lead around the policy.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dns/name.h"

namespace sluice::dns {

struct SvcParam {
  uint16_t key = 0;
  std::string value;
};

struct Svcb {
  uint16_t priority = 0;         ///< 0: AliasMode
  Name target;                   ///< the root: the owner itself
  std::vector<SvcParam> params;  ///< keys strictly rising
};

/// Nothing for a compressed target, keys out of order, or lengths that do not add up.
[[nodiscard]] std::optional<Svcb> ParseSvcb(std::span<const uint8_t> rdata);
/// The port that the service listens on, where it is said.
[[nodiscard]] std::optional<uint16_t> PortOf(const Svcb& svcb);
[[nodiscard]] std::string EncodeSvcb(const Svcb& svcb);
/// Removes ipv4hint, ipv6hint and ech, also from the `mandatory` list; nothing when `mandatory` would then be a lie about the
/// rest (it named a key that is absent).
[[nodiscard]] std::optional<Svcb> StripSvcb(Svcb svcb);

}  // namespace sluice::dns
