#pragma once

// Globs of paths, executables, query values and labels, matched in time linear in the subject for each literal of the
// glob: no construct makes it exponential. The tokens stay readable, for the prover.
//
//   const auto glob = Glob::Path("/repos/*/issues/**");
//   glob->Matches("/repos/a/issues/7");  // true

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::policy {

/// The longest glob that a policy may hold, in bytes.
inline constexpr size_t kMaxGlob = 1024;

class Glob {
 public:
  enum class Kind : uint8_t {
    kLiteral,
    kSegment,  ///< zero or more characters other than '/'
    kAny,      ///< zero or more characters
  };
  struct Token {
    Kind kind = Kind::kLiteral;
    std::string literal{};  ///< for kLiteral, never empty
    bool operator==(const Token&) const = default;
  };

  /// '*' inside one segment, '**' anything but only as a whole segment; "%2A" is a literal star. The text is canonical
  /// (CanonicalizePathGlob) or an absolute file path.
  static Result<Glob> Path(std::string_view text);
  /// '*' and '**' alike: zero or more of any character.
  static Result<Glob> Text(std::string_view text);

  [[nodiscard]] bool Matches(std::string_view subject) const;
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<Token>& tokens() const { return tokens_; }
  [[nodiscard]] bool is_literal() const { return tokens_.empty() || (tokens_.size() == 1 && tokens_[0].kind == Kind::kLiteral); }

  bool operator==(const Glob&) const = default;

 private:
  std::string text_;
  std::vector<Token> tokens_;
};

}  // namespace sluice::policy
