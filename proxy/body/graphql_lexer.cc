#include "proxy/body/graphql_lexer.h"

#include "base/hex.h"
#include "base/printable.h"

namespace sluice::proxy {
namespace {

using Kind = GraphqlToken::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

size_t SkipDigits(std::string_view text, size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

// The size of the character at `at`, 0 where it may not stand in a document: no UTF-8, or a control character.
size_t CharacterSize(std::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c < 0x20) return c == '\t' || c == '\n' || c == '\r' ? 1 : 0;
  return c < 0x7f ? 1 : c == 0x7f ? 0 : DecodeUtf8(text.substr(at)).size;
}

bool EndsLineSomewhere(uint32_t code_point) { return code_point == 0x85 || code_point == 0x2028 || code_point == 0x2029; }

}  // namespace

GraphqlToken GraphqlLexer::Fault(std::string_view why, size_t offset) {
  faulty_ = true;
  fault_ = {Kind::kFault, why, offset};
  return fault_;
}

GraphqlToken GraphqlLexer::Token(Kind kind, size_t end) {
  const GraphqlToken token{kind, text_.substr(at_, end - at_), at_};
  at_ = end;
  return token;
}

std::string_view GraphqlLexer::SkipComment() {
  while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
    const size_t size = CharacterSize(text_, at_);
    if (size == 0) return "a character that may not stand in a document";
    if (size > 1 && EndsLineSomewhere(DecodeUtf8(text_.substr(at_)).value)) return "an odd end of line in a comment";
    at_ += size;
  }
  return {};
}

std::string_view GraphqlLexer::SkipIgnored() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      if (const std::string_view why = SkipComment(); !why.empty()) return why;
    } else if (c == '\r') {
      if (text_.substr(at_, 2) != "\r\n") return "a carriage return without a line feed";
      at_ += 2;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == ',') {
      ++at_;
    } else {
      break;
    }
  }
  return {};
}

GraphqlToken GraphqlLexer::Next() {
  if (faulty_) return fault_;
  if (const std::string_view why = SkipIgnored(); !why.empty()) return Fault(why, at_);
  if (at_ >= text_.size()) return {Kind::kEnd, {}, at_};
  const char c = text_[at_];
  if (IsNameStart(c)) {
    size_t end = at_ + 1;
    while (end < text_.size() && (IsNameStart(text_[end]) || IsDigit(text_[end]))) ++end;
    return Token(Kind::kName, end);
  }
  if (IsDigit(c) || c == '-') return Number();
  if (c == '"') return text_.substr(at_, 3) == "\"\"\"" ? BlockString() : String();
  if (text_.substr(at_, 3) == "...") return Token(Kind::kPunctuator, at_ + 3);
  if (std::string_view("!$&():=@[]{|}").find(c) != std::string_view::npos) return Token(Kind::kPunctuator, at_ + 1);
  return Fault("a character that begins nothing", at_);
}

GraphqlToken GraphqlLexer::Number() {
  const size_t integer = at_ + (text_[at_] == '-' ? 1 : 0);
  size_t end = SkipDigits(text_, integer);
  if (end == integer || (text_[integer] == '0' && end > integer + 1)) return Fault("a malformed number", at_);
  if (end < text_.size() && text_[end] == '.') {
    const size_t fraction = end + 1;
    end = SkipDigits(text_, fraction);
    if (end == fraction) return Fault("a malformed number", at_);
  }
  if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
    ++end;
    if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
    const size_t exponent = end;
    end = SkipDigits(text_, exponent);
    if (end == exponent) return Fault("a malformed number", at_);
  }
  // A number that a name or a dot follows would be two tokens to some readers.
  if (end < text_.size() && (text_[end] == '.' || IsNameStart(text_[end]))) return Fault("a malformed number", at_);
  return Token(Kind::kNumber, end);
}

GraphqlToken GraphqlLexer::String() {
  size_t at = at_ + 1;
  while (at < text_.size() && text_[at] != '"') {
    const char c = text_[at];
    if (c == '\n' || c == '\r') return Fault("a line that ends in a string", at);
    if (c == '\\') {
      const char kind = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (kind == 'u') {
        for (size_t i = at + 2; i < at + 6; ++i)
          if (i >= text_.size() || HexValue(text_[i]) < 0) return Fault("a malformed escape", at);
        at += 6;
        continue;
      }
      if (kind == '\0' || std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos)
        return Fault("a malformed escape", at);
      at += 2;
      continue;
    }
    const size_t size = CharacterSize(text_, at);
    if (size == 0) return Fault("a character that may not stand in a document", at);
    at += size;
  }
  if (at >= text_.size()) return Fault("a string that is not closed", at_);
  return Token(Kind::kString, at + 1);
}

GraphqlToken GraphqlLexer::BlockString() {
  size_t at = at_ + 3;
  while (text_.substr(at, 3) != "\"\"\"") {
    if (at >= text_.size()) return Fault("a block string that is not closed", at_);
    if (text_.substr(at, 4) == "\\\"\"\"") {
      at += 4;
      continue;
    }
    const size_t size = CharacterSize(text_, at);
    if (size == 0) return Fault("a character that may not stand in a document", at);
    at += size;
  }
  return Token(Kind::kString, at + 3);
}

}  // namespace sluice::proxy
