#pragma once

// What can be asked inside a connection under one policy and not under another.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "prover/budget.h"
#include "prover/prove.h"
#include "prover/request_boxes.h"

namespace sluice::prover {

/// The inner rules that are alive at a connection, without doubles, sorted.
struct RequestProblem {
  std::vector<InnerId> head_allows{};  ///< kUniversal among them: an opaque allow, or `mode: audit`
  std::vector<InnerId> head_denies{};
  std::vector<InnerId> base_allows{};
  std::vector<InnerId> base_denies{};
  std::vector<InnerId> head_within{};   ///< denies; where there are any, only what one of them covers is asked about
  std::vector<InnerId> head_also{};     ///< allows; the same
  std::vector<InnerId> base_excepts{};  ///< allows; what they cover the base lacks
  std::vector<InnerId> base_weak{};     ///< the same where no `base_keeps` covers it too
  std::vector<InnerId> base_keeps{};
  std::vector<InnerId> base_spares{};  ///< denies; what they cover the base has, whatever is excepted
  std::vector<InnerId> accepted{};     ///< taken out of the gains, whatever the base denies
  auto operator<=>(const RequestProblem&) const = default;
};

struct RequestGain {
  InnerId allow = kUniversal;
  std::string method{};
  policy::Upgrade upgrade = policy::Upgrade::kNone;
  WitnessBody body{};
  std::vector<std::string> methods{};  ///< all that the gain holds for: named ones, "*" for any other
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string query{};
  bool has_query = false;
  std::string path{};
};

/// At least one gain for each head allow that has any; several where they differ by method, by query or by what the base denies.
/// Answers are kept: hosts with the same rules ask the same.
class Requests {
 public:
  explicit Requests(Budget* budget) : budget_(budget) {}
  InnerRules& rules() { return rules_; }
  [[nodiscard]] const std::vector<RequestGain>& Solve(const RequestProblem& problem);

 private:
  friend class RequestSearch;
  /// The shortest path for patterns; answers are kept.
  [[nodiscard]] std::optional<std::string> Path(const std::vector<std::pair<InnerId, InnerRules::Part>>& inside,
                                                const std::vector<std::pair<InnerId, InnerRules::Part>>& outside,
                                                bool encoded_slash, bool path_params);

  struct PathNumbers {
    std::set<uint32_t> inside{};
    std::set<uint32_t> outside{};
    auto operator<=>(const PathNumbers&) const = default;
  };
  struct KnownPaths {
    std::map<PathNumbers, std::string> found{};
    std::vector<PathNumbers> empty{};  ///< those that have no path; none holds another
  };

  Budget* budget_;
  InnerRules rules_;
  std::map<RequestProblem, std::vector<RequestGain>> solved_;
  std::map<std::pair<bool, bool>, KnownPaths> paths_;  ///< by encoded slash and path parameters
};

}  // namespace sluice::prover
