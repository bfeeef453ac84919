#pragma once

// The text of a rule: verbs, targets and the values of the keys beside them. Everything here takes text and gives a value or
// an Error whose span has line 1 and a column inside that text; whoever knows the file moves it there.

#include <string>
#include <string_view>
#include <vector>

#include "policy/rule.h"

namespace sluice::policy {

enum class Effect : uint8_t { kAllow, kDeny };

/// A target in pieces, as the long form writes it. The compact form is cut into the same pieces.
struct Piece {
  std::string text;
  uint32_t column = 1;
};
struct RulePieces {
  Piece verb;  ///< "GET,POST", "git fetch-pack"
  std::optional<Piece> scheme{};
  std::optional<Piece> host{};
  std::optional<Piece> ports{};
  std::vector<Piece> paths{};  ///< of `grpc` package.Service/Method
};

/// "GET api.github.com/repos/**".
[[nodiscard]] Result<RulePieces> CutCompact(std::string_view text);
/// Checks the pieces together and fills in the defaults of allow and deny.
[[nodiscard]] Result<Rule> BuildRule(Effect effect, const RulePieces& pieces);
[[nodiscard]] Result<Rule> ParseCompact(Effect effect, std::string_view text);
/// What depends on the keys beside the verb: to be called once they are set.
[[nodiscard]] Result<void> CheckRule(const Rule& rule);

/// Whether a method is registered or in common use. Others are legal, and worth a remark: `sluice lint` says `unknown-method`.
[[nodiscard]] bool IsCommonMethod(std::string_view method);
/// Refuses what no rule can name: a lower-case word, a verb, and a near miss of a common method.
[[nodiscard]] Result<void> CheckMethod(std::string_view method);

/// `by`, `under`: an absolute path glob or sha256:HEX.
[[nodiscard]] Result<ExecutablePattern> ParseExecutable(std::string_view text);
/// The first instant after `until: 2027-01-31` or `until: 2027-01-31T12:00:00+01:00`.
[[nodiscard]] Result<WallTime> ParseUntil(std::string_view text);

/// The candidate nearest to `word`, or nothing where none is near.
[[nodiscard]] std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates);
/// "; did you mean `x`?" or nothing.
[[nodiscard]] std::string DidYouMean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace sluice::policy
