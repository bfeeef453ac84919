#pragma once

// The name servers of a resolv.conf (resolv.conf(5)).

#include <string_view>
#include <vector>

#include "base/ip.h"

namespace sluice::dns {

inline constexpr size_t kMaxServers = 8;

/// Port 53 of each `nameserver` line that holds an address literal. An address with a zone ("fe80::1%eth0") is left out: no
/// Endpoint can carry it.
[[nodiscard]] std::vector<Endpoint> ParseResolvConf(std::string_view text);

}  // namespace sluice::dns
