#pragma once

// A running sidecar or run, as its administration sees it (health, metrics, policy, decisions). Every call may come from any
// thread.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "dns/cached_entry.h"
#include "policy/snapshot.h"
#include "supervisor/io/fence.h"
#include "supervisor/launch_spec.h"
#include "supervisor/published_port.h"

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

/// How a supervised command stands.
struct RunStatus {
  enum class State : uint8_t {
    kWaiting,  ///< its sandbox is being built, or waits for who holds it
    kRunning,
    kEnded,
    kFailed,  ///< it never ran; `error` says why
  };
  State state = State::kWaiting;
  std::string command{};  ///< argv[0]
  int pid = 0;            ///< of the command, in the supervisor's process namespace; 0 before it runs
  std::string error{};
  int exit_code = 0;             ///< what the supervisor exits with, once it has ended or failed
  supervisor::ExitStatus end{};  ///< kEnded alone
  uint64_t allowed = 0;          ///< decisions so far
  uint64_t denied = 0;
  std::vector<supervisor::PublishedPort> published{};
};

/// "command", "timeout" and so on, as results and the administration say it.
[[nodiscard]] std::string_view EndedText(supervisor::EndedBy ended_by);

/// What a controller may do to a supervised command.
class RunSteering {
 public:
  virtual ~RunSteering() = default;
  [[nodiscard]] virtual RunStatus Status() const = 0;
  /// SIGTERM to the command, and `grace` later SIGKILL to all it started. Returns at once; the sooner of two calls counts.
  /// Nothing where it has ended.
  virtual void Stop(std::chrono::milliseconds grace) = 0;
};

class ServedControl {
 public:
  virtual ~ServedControl() = default;

  /// All must be ok. A sidecar's canary is what was seen last, at most some seconds ago.
  [[nodiscard]] virtual std::vector<ReadinessCheck> Readiness() const = 0;
  [[nodiscard]] virtual ServedPolicy Policy() const = 0;
  /// Puts `next` in force, as a reload of the file does. Rules that could not be judged here are refused.
  [[nodiscard]] virtual PolicyOutcome SetPolicy(policy::SnapshotPtr next, std::string source,
                                                std::optional<uint64_t> if_revision) = 0;
  [[nodiscard]] virtual size_t OpenConnections() const = 0;
  /// The names that lookups were told this address for, newest first, and how many addresses are remembered.
  [[nodiscard]] virtual std::vector<std::string> NamesOf(const IpAddress& address) const = 0;
  [[nodiscard]] virtual size_t ToldAddresses() const = 0;
  /// What the workload's resolver has cached, in the order of its keys: at most `limit` entries beyond `after`. Waits for the
  /// resolver's thread; kTimeout after a second.
  [[nodiscard]] virtual Result<dns::CachePage> ResolverCache(const std::string& /*after*/, size_t /*limit*/) {
    return dns::CachePage{};
  }
  [[nodiscard]] virtual std::chrono::seconds Uptime() const = 0;

  /// A sidecar's; null: nothing is fenced.
  [[nodiscard]] virtual supervisor::Fence* fence() { return nullptr; }
  /// A run's; null: there is no command.
  [[nodiscard]] virtual RunSteering* run() { return nullptr; }
};

}  // namespace sluice::app
