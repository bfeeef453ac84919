#pragma once

// A running sidecar, as its administration sees it (health, metrics, policy, decisions). Every call may come from any thread.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "policy/snapshot.h"
#include "supervisor/io/fence.h"

namespace sluice::app {

/// One condition of being ready.
struct ReadinessCheck {
  std::string name;  ///< "fence", "canary", "resolver", "policy", "audit"
  bool ok = false;
  std::string detail;  ///< a sentence; empty where there is nothing to say
};

/// What the policy in force is, and where it came from.
struct ServedPolicy {
  policy::SnapshotPtr snapshot;
  uint64_t revision = 0;  ///< rises with each policy that is put in force
  std::string source;     ///< "policy.yaml", "the admin API"
};

/// What became of a policy that was to be put in force.
struct PolicyOutcome {
  enum class Kind : uint8_t {
    kSet,
    kConflict,  ///< another revision is in force than the one that was asked for
    kRefused,   ///< `error` says why; the old one stays
    kFailed,    ///< the kernel did not take its rules; the old one stays, and all is shut until its rules are in force again
  };
  Kind kind = Kind::kRefused;
  uint64_t revision = 0;  ///< the one in force now
  Error error{};
};

class SidecarControl {
 public:
  virtual ~SidecarControl() = default;

  /// All must be ok. The canary is what was seen last, at most some seconds ago.
  [[nodiscard]] virtual std::vector<ReadinessCheck> Readiness() const = 0;
  [[nodiscard]] virtual ServedPolicy Policy() const = 0;
  /// Puts `next` in force, as a reload of the file does. Rules that could not be judged here are refused.
  [[nodiscard]] virtual PolicyOutcome SetPolicy(policy::SnapshotPtr next, std::string source,
                                                std::optional<uint64_t> if_revision) = 0;
  [[nodiscard]] virtual supervisor::Fence& fence() = 0;
  [[nodiscard]] virtual size_t OpenConnections() const = 0;
  /// The names that lookups were told this address for, newest first, and how many addresses are remembered.
  [[nodiscard]] virtual std::vector<std::string> NamesOf(const IpAddress& address) const = 0;
  [[nodiscard]] virtual size_t ToldAddresses() const = 0;
  [[nodiscard]] virtual std::chrono::seconds Uptime() const = 0;
};

}  // namespace sluice::app
