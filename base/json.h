#pragma once

// JSON texts (RFC 8259) token by token, read strictly: UTF-8 that is checked, no byte order mark, no comment, no trailing comma,
// numbers by the grammar, surrogates in pairs, nothing after the value. Duplicate keys are the caller's to refuse, since it holds
// the keys. Nothing is copied but strings that hold an escape.
//
//   JsonScanner scanner(text, {.depth = 64, .values = 100'000});
//   for (JsonToken token = scanner.Next(); token.kind != JsonToken::Kind::kEnd; token = scanner.Next())
//     if (token.kind == JsonToken::Kind::kFault) …token.text says why, token.offset where…

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct JsonToken {
  enum class Kind : uint8_t {
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray,
    kKey,  ///< its colon is read along; the value follows
    kString,
    kNumber,
    kTrue,
    kFalse,
    kNull,
    kEnd,    ///< the text ended where it may
    kFault,  ///< no JSON, or over a bound; every later call answers the same
  };
  Kind kind = Kind::kFault;
  bool escaped = false;  ///< a key or string that holds a backslash: `text` is not what stands in the source
  /// A key or string decoded, a number as written, a fault's sentence without its stop (static). Valid until the next call.
  std::string_view text;
  size_t offset = 0;  ///< of its first byte in the source
  size_t length = 0;  ///< in bytes; at least 1 in a fault
};

/// What a text may hold; more is a fault.
struct JsonBounds {
  size_t depth = 0;   ///< arrays and objects open at a time
  size_t values = 0;  ///< over the whole text; keys do not count
};

class JsonScanner {
 public:
  /// `text` must outlive the scanner.
  JsonScanner(std::string_view text, JsonBounds bounds) : text_(text), bounds_(bounds) {}
  JsonScanner(const JsonScanner&) = delete;
  JsonScanner& operator=(const JsonScanner&) = delete;

  JsonToken Next();

 private:
  enum class Expect : uint8_t { kValue, kFirstElement, kFirstKey, kKey, kSeparator, kNothing, kFault };

  void SkipBlanks();
  [[nodiscard]] bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  JsonToken Fault(std::string_view why, size_t offset, size_t length);
  JsonToken Value();
  JsonToken Open(JsonToken::Kind kind, Expect next);
  JsonToken Close(JsonToken::Kind kind);
  JsonToken Key();
  JsonToken String(JsonToken::Kind kind);
  JsonToken Escape(size_t* at);
  JsonToken Word();

  std::string_view text_;
  JsonBounds bounds_;
  size_t at_ = 0;
  size_t values_ = 0;
  Expect expect_ = Expect::kValue;
  std::vector<bool> open_;  // true: an object
  std::string decoded_;     // the last key or string with an escape
  JsonToken fault_;
};

/// Whether `text` is a number by the grammar of RFC 8259 section 6.
[[nodiscard]] bool IsJsonNumber(std::string_view text);

}  // namespace sluice
