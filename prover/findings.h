#pragma once

// Gains as they are found, each replayed at once, and of those that say the same the one with the shortest witness.

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "prover/prove.h"
#include "prover/replay.h"

namespace sluice::prover {

/// What was found for a rule at one cell.
struct Candidate {
  policy::RuleRef rule = policy::RuleRef::kNone;
  Witness witness;
  std::vector<policy::PortRange> ports{};  ///< all for which it holds
  std::vector<std::string> methods{};
};

class Findings {
 public:
  /// `winner` reaches what `loser` does not; `accepted` is taken out of it, or null.
  Findings(const policy::Snapshot& winner, const policy::Snapshot& loser, const policy::Snapshot* accepted)
      : winner_(winner), loser_(loser), accepted_(accepted) {}
  /// The loser is everything but what its deny covers.
  void LoserIsAllBut() { all_but_ = true; }

  void Add(Candidate candidate);
  /// The differences in the order of the winner's rules.
  [[nodiscard]] std::vector<Difference> Take();
  [[nodiscard]] bool replay_failed() const { return replay_failed_; }
  /// The last witness that did not hold.
  [[nodiscard]] const std::string& unheld() const { return unheld_; }
  [[nodiscard]] bool empty() const { return found_.empty(); }

 private:
  struct Key {
    policy::RuleRef rule;
    bool lookup;  ///< a rule's lookups are of interest only where it gives nothing more
    policy::Reason reason;
    policy::RuleRef refused_by;
    Way way;
    std::string ways;  ///< the names of both
    bool operator<(const Key& other) const;
  };
  struct Found {
    Witness witness;
    std::tuple<int, size_t, std::string> rank;  ///< oddness, then length
    std::vector<policy::PortRange> ports;
    std::set<std::string> methods;
    std::string other_way;
  };
  void Keep(Candidate candidate, const Answer& lost, const std::string& ways);

  const policy::Snapshot& winner_;
  const policy::Snapshot& loser_;
  const policy::Snapshot* accepted_;
  bool all_but_ = false;
  bool replay_failed_ = false;
  std::string unheld_;
  std::map<Key, Found> found_;
  std::set<policy::RuleRef> deeper_;
};

}  // namespace sluice::prover
