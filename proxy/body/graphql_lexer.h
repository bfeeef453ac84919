#pragma once

// Tokens of a GraphQL document (specification of October 2021, section 2.1). Refused beyond it, since readers differ: byte order
// marks, carriage returns that stand alone, and in comments what some reader takes for the end of a line.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::proxy {

struct GraphqlToken {
  enum class Kind : uint8_t { kPunctuator, kName, kNumber, kString, kEnd, kFault };
  Kind kind = Kind::kFault;
  std::string_view text{};  ///< as it stands in the document; a fault's sentence (static)
  size_t offset = 0;
  [[nodiscard]] bool Is(std::string_view punctuator) const { return kind == Kind::kPunctuator && text == punctuator; }
  [[nodiscard]] bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

class GraphqlLexer {
 public:
  /// `text` must outlive the lexer and its tokens.
  explicit GraphqlLexer(std::string_view text) : text_(text) {}
  /// After kEnd or kFault the same again.
  GraphqlToken Next();

 private:
  [[nodiscard]] GraphqlToken Fault(std::string_view why, size_t offset);
  GraphqlToken Token(GraphqlToken::Kind kind, size_t end);
  /// The fault's sentence, or nothing; leaves at_ at the next token.
  std::string_view SkipIgnored();
  std::string_view SkipComment();
  GraphqlToken Number();
  GraphqlToken String();
  GraphqlToken BlockString();

  std::string_view text_;
  size_t at_ = 0;
  GraphqlToken fault_{};
  bool faulty_ = false;
};

}  // namespace sluice::proxy
