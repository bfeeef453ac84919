#pragma once

// Answers of one policy at one moment, so that equal questions are asked once: when a policy changes under ten thousand open
// exchanges, most of them are few programs' requests to few places.
//
// Two questions are equal where all that a decision may look at is, byte by byte; what was read of a body is not compared, and
// such a question is always asked. One thread's; no longer than the snapshot.

#include <cstddef>
#include <string>

#include "base/keyed_hash.h"
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
  const policy::SnapshotPtr snapshot_;
  const WallTime now_;
  size_t asked_ = 0;
  std::string key_;
  KeyedMap<std::string, policy::ConnectDecision> connects_;
  KeyedMap<std::string, policy::Decision> requests_;
};

}  // namespace sluice::proxy
