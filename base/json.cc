#include "base/json.h"

#include <algorithm>

#include "base/hex.h"
#include "base/printable.h"

namespace sluice {
namespace {

using Kind = JsonToken::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

size_t SkipDigits(std::string_view text, size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

// The four digits at `at`, or -1.
int32_t FourHex(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const int digit = HexValue(text[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// What a one-letter escape stands for, or NUL.
char Plain(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return '\0';
  }
}

}  // namespace

bool IsJsonNumber(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const size_t integer = at;
  at = SkipDigits(text, at);
  if (at == integer || (text[integer] == '0' && at > integer + 1)) return false;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = at + 1;
    at = SkipDigits(text, fraction);
    if (at == fraction) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = at;
    at = SkipDigits(text, exponent);
    if (at == exponent) return false;
  }
  return at == text.size();
}

JsonToken JsonScanner::Fault(std::string_view why, size_t offset, size_t length) {
  expect_ = Expect::kFault;
  fault_ = {Kind::kFault, false, why, offset, std::max<size_t>(length, 1)};
  return fault_;
}

void JsonScanner::SkipBlanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
}

JsonToken JsonScanner::Next() {
  if (expect_ == Expect::kFault) return fault_;
  SkipBlanks();
  if (expect_ == Expect::kSeparator && At(',')) {
    ++at_;
    SkipBlanks();
    expect_ = open_.back() ? Expect::kKey : Expect::kValue;
  }
  switch (expect_) {
    case Expect::kNothing:
      if (at_ < text_.size()) return Fault("text after the end of the JSON value", at_, 1);
      return {Kind::kEnd, false, {}, at_, 0};
    case Expect::kFirstKey:
      if (At('}')) return Close(Kind::kEndObject);
      return Key();
    case Expect::kKey:
      return Key();
    case Expect::kFirstElement:
      if (At(']')) return Close(Kind::kEndArray);
      return Value();
    case Expect::kSeparator:
      if (open_.back()) return At('}') ? Close(Kind::kEndObject) : Fault("`,` or `}` is expected", at_, 1);
      return At(']') ? Close(Kind::kEndArray) : Fault("`,` or `]` is expected", at_, 1);
    default:
      return Value();
  }
}

JsonToken JsonScanner::Value() {
  if (at_ >= text_.size()) return Fault("the text ends where a value should stand", at_, 1);
  if (++values_ > bounds_.values) return Fault("too many values in one text", at_, 1);
  if (At('{')) return Open(Kind::kBeginObject, Expect::kFirstKey);
  if (At('[')) return Open(Kind::kBeginArray, Expect::kFirstElement);
  const JsonToken token = At('"') ? String(Kind::kString) : Word();
  if (token.kind != Kind::kFault) expect_ = open_.empty() ? Expect::kNothing : Expect::kSeparator;
  return token;
}

JsonToken JsonScanner::Open(Kind kind, Expect next) {
  if (open_.size() >= bounds_.depth) return Fault("nested too deeply", at_, 1);
  open_.push_back(kind == Kind::kBeginObject);
  expect_ = next;
  return {kind, false, {}, at_++, 1};
}

JsonToken JsonScanner::Close(Kind kind) {
  open_.pop_back();
  expect_ = open_.empty() ? Expect::kNothing : Expect::kSeparator;
  return {kind, false, {}, at_++, 1};
}

JsonToken JsonScanner::Key() {
  if (!At('"')) return Fault("a key in double quotes is expected", at_, 1);
  const JsonToken key = String(Kind::kKey);
  if (key.kind == Kind::kFault) return key;
  SkipBlanks();
  if (!At(':')) return Fault("`:` is expected after a key", at_, 1);
  ++at_;
  expect_ = Expect::kValue;
  return key;
}

JsonToken JsonScanner::String(Kind kind) {
  const size_t from = at_;
  size_t at = from + 1;
  size_t copied = at;  // what stands before it is in decoded_
  bool escaped = false;
  while (true) {
    if (at >= text_.size()) return Fault("a string is not closed", from, 1);
    const auto c = static_cast<unsigned char>(text_[at]);
    if (c == '"') break;
    if (c < 0x20) return Fault("a control character in a string", at, 1);
    if (c == '\\') {
      if (!escaped) decoded_.clear();
      escaped = true;
      decoded_.append(text_, copied, at - copied);
      if (const JsonToken fault = Escape(&at); fault.length != 0) return fault;
      copied = at;
    } else if (c < 0x80) {
      ++at;
    } else {
      const CodePoint point = DecodeUtf8(text_.substr(at));
      if (point.size == 0) return Fault("this byte is not UTF-8", at, 1);
      at += point.size;
    }
  }
  if (escaped) decoded_.append(text_, copied, at - copied);
  at_ = at + 1;
  return {kind, escaped, escaped ? std::string_view(decoded_) : text_.substr(from + 1, at - from - 1), from, at_ - from};
}

// What stands at the backslash `*at`, which is left behind it. A token of length 0 says that all is well.
JsonToken JsonScanner::Escape(size_t* at) {
  const size_t from = *at;
  const char c = from + 1 < text_.size() ? text_[from + 1] : '\0';
  *at = from + 2;
  if (const char plain = Plain(c); plain != '\0') {
    decoded_ += plain;
    return {};
  }
  if (c != 'u') return Fault("this escape stands for nothing", from, 2);
  const int32_t unit = FourHex(text_, *at);
  if (unit < 0) return Fault("four hexadecimal digits are expected after `\\u`", from, 2);
  *at += 4;
  auto code = static_cast<uint32_t>(unit);
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(*at, 2) == "\\u") {
    const int32_t low = FourHex(text_, *at + 2);
    if (low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (static_cast<uint32_t>(low) - 0xdc00);
      *at += 6;
    }
  }
  if (code >= 0xd800 && code < 0xe000) return Fault("half of a surrogate pair", from, 6);
  AppendUtf8(&decoded_, code);
  return {};
}

JsonToken JsonScanner::Word() {
  const size_t from = at_;
  const std::string_view word = text_.substr(from, text_.find_first_of(" \t\r\n,]}:", from) - from);
  if (word.empty()) return Fault("a value is expected", from, 1);
  const bool number = word[0] == '-' || IsDigit(word[0]);
  const Kind kind = word == "true"    ? Kind::kTrue
                    : word == "false" ? Kind::kFalse
                    : word == "null"  ? Kind::kNull
                    : number          ? Kind::kNumber
                                      : Kind::kFault;
  if (kind == Kind::kFault || (number && !IsJsonNumber(word))) return Fault("a word that is no value", from, word.size());
  at_ += word.size();
  return {kind, false, word, from, word.size()};
}

}  // namespace sluice
