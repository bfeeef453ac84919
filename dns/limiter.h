#pragma once

// Bounds on what a workload can spell out in lookups. A name that stands in a rule as written carries nothing; a name that a
// wildcard let through may carry bytes, so its shape and the rate of new ones are bounded. Time is a parameter.

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/keyed_hash.h"
#include "dns/shared_rations.h"

namespace sluice::dns {

/// Names that passed, domains and clients whose rates are known; one too many, and all of its kind are forgotten.
inline constexpr size_t kMaxKnownNames = 65536;
inline constexpr size_t kMaxDomains = 4096;
inline constexpr size_t kMaxClients = 4096;

struct Limits {
  size_t wildcard_name = 128;        ///< octets of a name under a wildcard
  size_t wildcard_label = 40;        ///< octets of one of its labels
  size_t wildcard_labels = 8;        ///< labels beyond the rule's own
  double new_names_per_minute = 60;  ///< under a wildcard, for one CountingDomain; a name counts by what it may carry
  double absent_share = 0.75;        ///< of a domain's names of late that do not exist, above which it gets no new ones …
  double absent_names = 20;          ///< … once there are so many; both are halved every minute
  double client_per_second = 50;     ///< lookups that no cache answers, of one client
  double client_burst = 200;
  double upstream_per_second = 200;  ///< the same, of all clients
  double upstream_burst = 800;
};

/// By how much a name counts against its domain's ration: 1 for a short or plain one, up to 4 for long labels of many
/// different characters. A score, never a verdict: real names look like random ones often enough.
[[nodiscard]] double NameWeight(std::string_view canonical_name, std::string_view counting_domain);

/// A rate that may be exceeded for a moment.
class TokenBucket {
 public:
  TokenBucket(double per_second, double burst) : rate_(per_second), burst_(burst), tokens_(burst) {}
  /// Takes `cost`, or nothing where there is less.
  [[nodiscard]] bool Take(SteadyTime now, double cost = 1);

 private:
  double rate_;
  double burst_;
  double tokens_;
  SteadyTime last_{};
};

/// One thread.
class Limiter {
 public:
  /// `shared`: what is counted for domains and for all clients is counted there, with others; null: here alone.
  explicit Limiter(Limits limits, std::shared_ptr<SharedRations> shared = nullptr)
      : limits_(limits), shared_(std::move(shared)), upstream_(limits.upstream_per_second, limits.upstream_burst) {}

  /// Whose lookup it is: a process where it is known, else a source address. 0 is one client like any other.
  using Client = uint64_t;

  /// What of the name itself is too much; nothing when it may pass. `rule_text` is the allow that matched.
  [[nodiscard]] std::optional<std::string> JudgeShape(std::string_view name, std::string_view rule_text) const;
  /// The same for the rate at which names not asked before may be asked. Counts this one.
  [[nodiscard]] std::optional<std::string> JudgeNewName(std::string_view name, std::string_view rule_text, SteadyTime now);
  /// The same for a domain most of whose new names do not exist: that is a channel, or a search list at work.
  [[nodiscard]] std::optional<std::string> JudgeAbsence(std::string_view name, std::string_view rule_text, SteadyTime now);
  [[nodiscard]] std::optional<std::string> JudgeUpstream(Client client, SteadyTime now);
  /// Whether JudgeNewName has yet to let it pass.
  [[nodiscard]] bool IsNew(std::string_view name, std::string_view rule_text) const;
  /// What the upstream said of a name that was new.
  void NoteExistence(std::string_view name, std::string_view rule_text, bool exists, SteadyTime now);

 private:
  struct Domain {
    TokenBucket ration;
    double seen = 0;    // names of late
    double absent = 0;  // of these, those that do not exist
    SteadyTime halved{};
  };
  [[nodiscard]] Domain& Find(std::string_view domain);
  [[nodiscard]] bool TakeNewName(std::string_view name, std::string_view domain, SteadyTime now);
  [[nodiscard]] bool TakeUpstream(SteadyTime now);
  [[nodiscard]] SharedShare::Counts Existence(std::string_view domain, SteadyTime now);
  static void Age(Domain* domain, SteadyTime now);

  Limits limits_;
  const std::shared_ptr<SharedRations> shared_;
  TokenBucket upstream_;
  boost::unordered_flat_map<Client, TokenBucket> clients_;
  boost::unordered_flat_set<uint64_t> known_;  // keyed hashes of names that passed
  boost::unordered_flat_map<std::string, Domain, KeyedHasher, std::equal_to<>> domains_;
};

/// Whether the rule's own text spells the name: then the author did, and it carries nothing.
[[nodiscard]] bool IsSpelledOut(std::string_view name, std::string_view rule_text);

/// Whose names are counted together: the longest end of the name that the rule spells ("a.test" under `*.a.test`); under a bare
/// wildcard the last two labels, or three where those two are like "co.uk". Without a public suffix list, near enough.
[[nodiscard]] std::string_view CountingDomain(std::string_view canonical_name, std::string_view rule_text);

}  // namespace sluice::dns
