#pragma once

// What the converters share: rules made of texts, remarks beside them, and maps read so that no key is passed over.

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "policy/import/import.h"
#include "policy/rule_text.h"

namespace sluice::policy {

enum class RemarkKind : uint8_t {
  kNote,      ///< means here what it means there, though a reader may think otherwise
  kNarrower,  ///< reaches less here than there
  kWider,     ///< reaches more than the author may think, or than it does there
  kNothing,   ///< gives no rule
};

/// Every port, as rules print it.
inline constexpr std::string_view kAllPorts = "1-65535";

/// The texts of a rule before they are checked.
struct RuleParts {
  Effect effect = Effect::kAllow;
  std::string verb{};
  std::string scheme{};
  std::string host{};
  std::string ports{};  ///< "443,8443"; empty is the default of the verb
  std::vector<std::string> paths{};
};

class ImportBuilder {
 public:
  explicit ImportBuilder(ImportKind kind) { imported_.kind = kind; }

  /// Checks the parts as the native reader does. A fault of the host is placed inside `at` where that is the node it came from.
  [[nodiscard]] static Result<Rule> Make(const RuleParts& parts, const Node& at);
  void Add(Rule rule, const SourceSpan& span);
  /// Make and Add.
  [[nodiscard]] Result<void> Grant(const RuleParts& parts, const Node& at);

  /// Stands before the rule that is added next.
  void Say(RemarkKind kind, std::string text, const SourceSpan& span);
  /// Stands at the head of the file; said once for each text.
  void SayOfFile(RemarkKind kind, std::string text, const SourceSpan& span);
  void SetName(std::string name) { imported_.name = std::move(name); }

  [[nodiscard]] Imported Finish(const std::string& label);

 private:
  ImportRemark& Push(RemarkKind kind, std::string text, const SourceSpan& span);

  Imported imported_;
  std::unordered_set<std::string> said_of_file_;
};

/// A map whose every key must be asked for or named as harmless.
class Fields {
 public:
  [[nodiscard]] static Result<Fields> Of(const Node& node, std::string_view what);

  /// The value of `key`, or null where it is absent or null.
  [[nodiscard]] const Node* Get(std::string_view key);
  [[nodiscard]] const Node* KeyNode(std::string_view key) const;
  /// An error at the first key that was not asked for.
  [[nodiscard]] Result<void> RefuseOthers(std::string_view what) const;
  /// An error where `key` is there with another value than an empty or false one.
  [[nodiscard]] Result<void> RefuseSet(std::string_view key, std::string_view why);
  [[nodiscard]] const Node& node() const { return *node_; }

 private:
  const Node* node_ = nullptr;
  std::vector<std::string_view> asked_;
};

/// A scalar as text, whatever it may look like; null and collections are refused.
[[nodiscard]] Result<std::string> Text(const Node& node, std::string_view slot);
[[nodiscard]] Result<std::string> Word(const Node& node, std::string_view slot, std::initializer_list<std::string_view> values);
[[nodiscard]] Result<bool> Flag(const Node& node, std::string_view slot);
[[nodiscard]] Result<uint16_t> Port(const Node& node, std::string_view slot);
/// The entries of a list; null is an empty one. Bounded.
[[nodiscard]] Result<std::vector<const Node*>> List(const Node* node, std::string_view slot);
/// Whether a value says nothing: null, false, "", an empty list or map.
[[nodiscard]] bool IsUnset(const Node& node);

/// The host as a pattern, its faults placed inside the node. Names in another script or with a final dot are refused: what other
/// tools compare has neither.
[[nodiscard]] Result<HostPattern> HostAt(const Node& node, std::string_view text, uint32_t offset = 0);
/// "[fd00::1]" for a literal, else the text.
[[nodiscard]] std::string HostText(const HostPattern& host);
/// Whether every name and literal of `inner` is one of `outer`. Says no where it is not plain to see.
[[nodiscard]] bool HostCovers(const HostPattern& outer, const HostPattern& inner);
/// Whether some name or some literal is one of both: a name and an address are never the same host to the tools. Says yes where
/// it cannot tell cheaply.
[[nodiscard]] bool HostsMeet(const HostPattern& a, const HostPattern& b);
/// A private range that the prefix holds beside others, so that a rule with the prefix does not reach it (exact point 11); or
/// nothing.
[[nodiscard]] std::string PrivateInside(const Cidr& prefix);
/// Why a literal is beyond what any of the tools would dial (loopback, link-local, a metadata service), or nothing.
[[nodiscard]] std::string_view UnreachableLiteral(const HostPattern& host);

}  // namespace sluice::policy
