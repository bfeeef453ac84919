#pragma once

// The dimensions of a request other than its path, cut into elements for the boxes of one problem.

#include <string>
#include <vector>

#include "prover/budget.h"
#include "prover/request_boxes.h"
#include "prover/string_atoms.h"

namespace sluice::prover {

/// A set of boxes by number.
class BoxSet {
 public:
  explicit BoxSet(size_t count) : words_((count + 63) / 64) {}
  void Set(size_t box) { words_[box / 64] |= uint64_t{1} << (box % 64); }
  [[nodiscard]] bool Has(size_t box) const { return (words_[box / 64] >> (box % 64) & 1) != 0; }
  BoxSet operator&(const BoxSet& other) const {
    BoxSet both = *this;
    for (size_t i = 0; i < words_.size(); ++i) both.words_[i] &= other.words_[i];
    return both;
  }
  auto operator<=>(const BoxSet&) const = default;

 private:
  std::vector<uint64_t> words_;
};

struct MethodElement {
  std::string method{};
  policy::Upgrade upgrade = policy::Upgrade::kNone;
  std::vector<std::string> all{};  ///< every named method that is the same to the boxes; "*" for those nobody names
  BoxSet boxes;
};

/// The values of one key: none is absent, and comes first.
struct ValueElement {
  std::string key{};
  Values values{};
  BoxSet boxes;
};

class RequestDimensions {
 public:
  RequestDimensions(const std::vector<Box>& boxes, const Names& names, Budget* budget);

  [[nodiscard]] const std::vector<MethodElement>& methods() const { return methods_; }
  [[nodiscard]] const std::vector<std::vector<ValueElement>>& headers() const { return headers_; }
  [[nodiscard]] const std::vector<std::vector<ValueElement>>& query() const { return query_; }
  [[nodiscard]] const std::vector<QueryShape>& shapes() const { return shapes_; }
  [[nodiscard]] BoxSet ShapeBoxes(QueryShape shape) const;
  [[nodiscard]] BoxSet OtherKeyBoxes(OtherKey other) const;
  /// `service` with the one value of an exact shape.
  [[nodiscard]] const ValueElement* ServiceElement(QueryShape shape) const {
    return &service_[shape == QueryShape::kExactUpload ? 0 : 1];
  }
  /// Where `document` is given, it is the value of the key `query` if no rule speaks of that.
  [[nodiscard]] std::string QueryText(QueryShape shape, const std::vector<const ValueElement*>& query, OtherKey other,
                                      const std::string& document) const;

 private:
  void CutMethods();
  void AddMethod(const std::string& method, policy::Upgrade upgrade, const std::string& shown);
  void CutHeaders(const std::vector<std::string>& names);
  void CutQuery(const std::vector<std::string>& names);
  template <class Admits>
  std::vector<ValueElement> CutKey(const std::string& key, Language language, const std::vector<const Nfa*>& patterns,
                                   const std::unordered_set<std::string>& literals, Admits admits) const;

  const std::vector<Box>& boxes_;
  Budget* budget_;
  std::vector<MethodElement> methods_;
  std::vector<std::vector<ValueElement>> headers_;
  std::vector<std::vector<ValueElement>> query_;
  std::vector<QueryShape> shapes_;
  std::vector<ValueElement> service_;
  std::string other_key_;
  bool document_is_free_ = true;
};

}  // namespace sluice::prover
