#pragma once

// Answers of one policy at one moment, so that equal questions are asked once: when a policy changes under ten thousand open
// exchanges, most of them are few programs' requests to few places.
//
// Two questions are equal where all that a decision may look at is, byte by byte; what was read of a body is not compared, and
// such a question is always asked. One thread's; no longer than the snapshot.

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "policy/snapshot.h"

namespace sluice::proxy {

inline constexpr size_t kMaxMemoAnswers = 4096;  ///< of each kind; further ones are not kept

class DecisionMemo {
 public:
  /// Every question is asked as of `now`.
  DecisionMemo(policy::SnapshotPtr snapshot, WallTime now) : snapshot_(std::move(snapshot)), now_(now) {}

  [[nodiscard]] policy::ConnectDecision Decide(policy::ConnectQuery query);
  [[nodiscard]] policy::Decision Decide(policy::RequestQuery query);
  /// Questions that were put to the policy.
  [[nodiscard]] size_t asked() const { return asked_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <class Answer>
  using Answers = std::unordered_map<std::string, Answer, Hash, std::equal_to<>>;

  const policy::SnapshotPtr snapshot_;
  const WallTime now_;
  size_t asked_ = 0;
  std::string key_;
  Answers<policy::ConnectDecision> connects_;
  Answers<policy::Decision> requests_;
};

}  // namespace sluice::proxy
