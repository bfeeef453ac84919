#pragma once

// What the kernel may pass without asking anybody: address, transport and port of a name that an opaque rule allows to every
// process (`dns: real`). A lease is made before the answer that tells the address is sent. It may be missing (the connection then
// goes through the proxy, which decides again) and never wrong: each stands for a DecideConnect that said "opaque".
//
// Only `tcp` and `udp` make leases. A `tls` allow needs its SNI looked at, one with `by` or `under` the process, one with `via`
// the upstream proxy; the kernel sees none of these.

#include <chrono>
#include <compare>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "base/result.h"
#include "policy/snapshot.h"

namespace sluice::dns {

inline constexpr size_t kMaxLeasePorts = 64;            ///< of one name and transport
inline constexpr unsigned kMaxLeaseRange = 64;          ///< ports of one range in a rule; a wider one makes no lease
inline constexpr std::chrono::seconds kLeaseGrace{60};  ///< that a lease outlives the answer's TTL by

struct Lease {
  IpAddress address;
  policy::Transport transport = policy::Transport::kTcp;
  uint16_t port = 0;

  auto operator<=>(const Lease&) const = default;
};

/// Has the kernel take these for that long; a lease it holds for longer already is left as it is. Returns when it has taken all
/// of them, or none: within 50 ms, to which the time does not count that it waited for a change of the rules to end, and which it
/// tells. On the resolver's thread.
using Publish = std::function<Result<std::chrono::steady_clock::duration>(std::span<const Lease>, std::chrono::milliseconds)>;

struct Leases {
  std::vector<Lease> leases;        ///< sorted, each once
  std::optional<WallTime> until{};  ///< when the first of the rules behind them ends
};

/// What the name's addresses open now. `host_addresses`: as policy::ConnectQuery's.
[[nodiscard]] Leases LeasesFor(const policy::Snapshot& snapshot, std::string_view canonical_name,
                               std::span<const IpAddress> addresses, WallTime now,
                               std::span<const IpAddress> host_addresses = {});

/// Why a `udp` allow could never take effect where only leases and static prefixes carry UDP; empty where it can. For the loader,
/// which refuses such a rule.
[[nodiscard]] std::string WhyUnleasable(const policy::Snapshot& snapshot, policy::RuleRef rule);

}  // namespace sluice::dns
