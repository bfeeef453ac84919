#pragma once

// What a request's body asks for, cut into elements for the boxes of one problem. A body of one item is enough: bodies are judged
// item by item, each allowed by some rule and none denied, so one of several items is gained only if it is with one of them
// alone. Of one item the reading decides who speaks of it, and no body can be read as GraphQL and as JSON-RPC at once. A batch
// call of git LFS may be either besides.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "prover/budget.h"
#include "prover/prove.h"
#include "prover/request_boxes.h"
#include "prover/request_values.h"

namespace sluice::prover {

/// One item, without the values at JSON pointers.
struct BodyElement {
  WitnessBody body{};
  bool json = false;     ///< whether `json` of HTTP rules is asked about the values
  bool message = false;  ///< whether `json` of rules about calls is
  BoxSet boxes;
};

/// Values at pointers that bear on each other.
struct LeavesElement {
  policy::JsonLeaves leaves{};
  BoxSet boxes;
};

class BodyDimension {
  static constexpr size_t kModes = 4;           // of a body: whether JSON values are asked about, and those of a message
  static constexpr size_t kAsked = 3 * kModes;  // beside what a batch call's own value is
 public:
  BodyDimension(const std::vector<Box>& boxes, Budget* budget);

  /// By what is asked about JSON values, what is known of them, and whether a URL can say the same: those with unlike answers
  /// cannot stand for each other. The last is a push of nothing, which every rule that looks at pushes is said to speak of.
  [[nodiscard]] const std::array<std::vector<BodyElement>, 2 * kAsked + 1>& elements() const { return elements_; }
  /// The dimensions of values for such a body, one for each group of pointers.
  [[nodiscard]] const std::vector<std::vector<LeavesElement>>& leaves(const BodyElement& body) const {
    return leaves_[AskedOf(body)];
  }

 private:
  void CutItems();
  void CutGraphql();
  void CutCalls();
  void CutPushes();
  void CutLeaves();
  void CutGroup(const std::vector<std::string>& pointers);
  void CutGroup(const std::vector<std::string>& pointers, size_t known);
  /// The body, and where that can be a batch call of git LFS besides, each such.
  void AddWithBatches(const WitnessBody& body, policy::BodyKinds readable);
  void AddBatches(const WitnessBody& body, policy::BodyKinds readable);
  void Add(WitnessBody body, policy::BodyKinds readable);
  [[nodiscard]] bool Admits(size_t box, const WitnessBody& body, policy::BodyKinds readable) const;
  [[nodiscard]] bool AdmitsLeaves(size_t box, const policy::JsonLeaves& leaves, const std::vector<std::string>& group) const;
  /// `patterns` are told apart besides the globs.
  [[nodiscard]] std::vector<std::string> Texts(const std::vector<const policy::Glob*>& globs,
                                               const std::vector<std::string>& more, std::vector<const Nfa*> patterns = {}) const;
  /// One value at the pointer for each way in which what boxes say there, above it and below it can match.
  [[nodiscard]] policy::JsonLeaves ValuesAt(const std::string& pointer) const;

  const std::vector<Box>& boxes_;
  Budget* budget_;
  policy::BodyKinds read_ = 0;                       ///< readings that some box looks at
  std::vector<std::unique_ptr<policy::Rule>> bare_;  ///< by box: the rule without `json`, where it looks at the body
  bool asks_operation_ = false;                      ///< `json` looks at the operation of a batch call
  [[nodiscard]] size_t AskedOf(const BodyElement& body) const;
  std::array<std::vector<BodyElement>, 2 * kAsked + 1> elements_;
  std::array<std::vector<std::vector<LeavesElement>>, kAsked> leaves_;
};

/// The body in the readings that a policy asks for.
[[nodiscard]] policy::RequestBody AsRequestBody(const WitnessBody& body, policy::BodyKinds wanted);

}  // namespace sluice::prover
