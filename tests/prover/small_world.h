#pragma once

// Small worlds: rules drawn from short lists, and every tuple that those rules can tell apart, so that what a policy reaches can
// be written down as a set by asking the enforcer about each.

#include <set>
#include <string>
#include <vector>

#include "policy/compiled.h"
#include "prover/prove.h"
#include "tests/prover/small_draw.h"
#include "tests/prover/small_ways.h"

namespace sluice::prover {

inline const WallTime kNow = std::chrono::sys_days{std::chrono::year{2026} / 11 / 29};

struct World {
  std::string name;
  size_t pairs = 0;                ///< compared by the tests: fewer where brute force is slow, 113,850 in all
  std::vector<std::string> verbs;  ///< "GET", "tls", "http://GET": a scheme may stand before a method
  std::vector<std::string> hosts;
  std::vector<std::string> ports{""};
  std::vector<std::string> paths{""};
  std::vector<std::string> by{""};
  std::vector<std::string> under{""};
  std::vector<std::string> ip{""};
  std::vector<std::string> query{""};    ///< "k=a*|b"
  std::vector<std::string> headers{""};  ///< "x-a=a*"
  std::vector<std::string> query_keys{""};
  std::vector<std::string> fields{""};     ///< "a|b*", of graphql
  std::vector<std::string> operation{""};  ///< the same
  std::vector<std::string> tool{""};       ///< the same, of "mcp tools/call"
  std::vector<std::string> json{""};       ///< "/x=1|b*", of what looks into bodies
  std::vector<std::string> refs{""};       ///< "r/*", of pushes
  std::vector<unsigned> changes{0};        ///< policy::RefChanges; 0: not said
  std::vector<int> until{0};               ///< days from now; 0: none
  bool types = false;
  bool opening_paths = false;     ///< encoded-slash, path-params
  bool opening_methods = false;   ///< method-override
  unsigned audit_in = 0;          ///< one policy in so many is `mode: audit`
  bool ways = false;              ///< credentials, upstream proxies, pins
  std::vector<size_t> scopes{0};  ///< where credentials may go
  bool remote = false;            ///< rules by address beside upstream proxies
  bool lfs = false;               ///< `lfs: true` beside git verbs
  // The tuples.
  std::vector<std::string> names{};  ///< "" is by literal
  std::vector<std::string> addresses{"1.1.1.1"};
  std::vector<uint16_t> port_list{443};
  std::vector<WitnessProcess> processes{WitnessProcess{}};
  std::vector<std::string> methods{"GET"};
  std::vector<std::string> targets{"/"};  ///< path and query
  std::vector<std::vector<std::pair<std::string, std::string>>> header_sets{{}};
  std::vector<WitnessBody> bodies{WitnessBody{}};
  bool upgrades = false;
  std::vector<std::string> sockets{};
  std::vector<int> days{0};
  bool both_schemes = false;
  std::vector<Witness> tuples{};  ///< all of the above, filled in by Worlds()
  size_t connections = 0;
  std::vector<size_t> cells{};  ///< by tuple: connections have numbers, equal for all layers of one
};

[[nodiscard]] const std::vector<World>& Worlds();
[[nodiscard]] policy::Rule DrawRule(const World& world, const Draw& draw);
struct SmallPolicy {
  std::vector<policy::Rule> rules;
  policy::Mode mode = policy::Mode::kEnforce;
  bool ways = false;  ///< has the credentials and proxies that `definitions` says
  std::string via{};  ///< of the settings
  Definitions definitions{};
  /// Null: two rules give one request two ways.
  [[nodiscard]] policy::SnapshotPtr Compiled() const;
};
[[nodiscard]] SmallPolicy DrawPolicy(const World& world, const Draw& draw);
/// A few rules added, taken away or changed.
[[nodiscard]] SmallPolicy DrawEdit(const World& world, const SmallPolicy& from, const Draw& draw);

using Bits = std::vector<bool>;
/// How each tuple that is let out travels: credential, proxy and pins in one text each.
struct WayTexts {
  bool reached = false;
  std::string credential{};
  std::string replaced{};  ///< the field that the credential takes
  std::string proxy{};
  std::vector<policy::Pin> pins{};
};
[[nodiscard]] std::vector<WayTexts> WaysOf(const World& world, const policy::Snapshot& snapshot);
/// By tuple of the world.
[[nodiscard]] Bits ReachOf(const World& world, const policy::Snapshot& snapshot);
[[nodiscard]] bool IsReached(const policy::Snapshot& snapshot, const Witness& witness);
/// Whether the one deny that the snapshot holds speaks of it, whatever layer it closes. Bytes have no request in them.
[[nodiscard]] bool IsDenied(const policy::Snapshot& deny, const Witness& witness);
/// Given up where rules by address meet an upstream proxy, as it may be in a world that has both, and is no pass.
[[nodiscard]] bool IsGivenUp(const World& world, const Proof& proof);
[[nodiscard]] std::string Shown(const SmallPolicy& policy);

}  // namespace sluice::prover
