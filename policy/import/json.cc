#include "policy/import/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxJsonDepth = 16;
constexpr size_t kMaxJsonNodes = 400'000;
constexpr size_t kMaxJsonKeys = 4096;

void AppendUtf8(std::string* out, uint32_t c) {
  const auto put = [out](uint32_t byte) { *out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | (c >> 6));
    return put(0x80 | (c & 0x3f));
  }
  if (c < 0x10000) {
    put(0xe0 | (c >> 12));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3f));
  }
  put(0x80 | ((c >> 6) & 0x3f));
  put(0x80 | (c & 0x3f));
}

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<Node> Read() {
    auto node = Value(0);
    if (!node) return node;
    SkipBlanks();
    if (at_ < text_.size()) return Fail("text after the end of the JSON value", at_, 1);
    return node;
  }

 private:
  [[nodiscard]] SourceSpan Span(size_t from, size_t length) const {
    return {file_, line_, static_cast<uint32_t>(from - line_start_ + 1), static_cast<uint32_t>(std::max<size_t>(length, 1))};
  }
  [[nodiscard]] std::unexpected<Error> Fail(std::string message, size_t from, size_t length) const {
    return std::unexpected(Error{Code::kInvalid, fmt::format("not valid JSON: {}", message), 0, Span(from, length)});
  }

  void SkipBlanks() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  Result<Node> Value(size_t depth) {
    SkipBlanks();
    if (at_ >= text_.size()) return Fail("the text ends where a value should stand", at_, 1);
    if (depth >= kMaxJsonDepth) return Fail("nested too deeply", at_, 1);
    if (++nodes_ > kMaxJsonNodes) return Fail("too many values in one file", at_, 1);
    if (text_[at_] == '{') return Object(depth);
    if (text_[at_] == '[') return Array(depth);
    if (text_[at_] == '"') return String();
    return Literal();
  }

  Result<Node> Object(size_t depth) {
    Node node;
    node.kind = Node::Kind::kMapping;
    node.span = Span(at_++, 1);
    SkipBlanks();
    if (Take('}')) return node;
    while (true) {
      SkipBlanks();
      if (at_ >= text_.size() || text_[at_] != '"') return Fail("a key in double quotes is expected", at_, 1);
      auto key = String();
      if (!key) return key;
      for (const Member& other : node.members)
        if (other.key.text == key->text)
          return std::unexpected(
              Error{Code::kInvalid, fmt::format("`{}` is already set on line {}", key->text, other.key.span.line), 0, key->span});
      if (node.members.size() >= kMaxJsonKeys) return Fail("too many keys in one object", at_, 1);
      SkipBlanks();
      if (!Take(':')) return Fail("`:` is expected after a key", at_, 1);
      auto value = Value(depth + 1);
      if (!value) return value;
      node.members.push_back({std::move(*key), std::move(*value)});
      SkipBlanks();
      if (Take('}')) return node;
      if (!Take(',')) return Fail("`,` or `}` is expected", at_, 1);
    }
  }

  Result<Node> Array(size_t depth) {
    Node node;
    node.kind = Node::Kind::kSequence;
    node.span = Span(at_++, 1);
    SkipBlanks();
    if (Take(']')) return node;
    while (true) {
      auto value = Value(depth + 1);
      if (!value) return value;
      node.items.push_back(std::move(*value));
      SkipBlanks();
      if (Take(']')) return node;
      if (!Take(',')) return Fail("`,` or `]` is expected", at_, 1);
    }
  }

  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Result<Node> Literal() {
    const size_t from = at_;
    while (at_ < text_.size() && std::string_view(" \t\r\n,]}:").find(text_[at_]) == std::string_view::npos) ++at_;
    Node node;
    node.text = text_.substr(from, at_ - from);
    node.span = Span(from, at_ - from);
    const bool word = node.text == "true" || node.text == "false" || node.text == "null";
    const bool number = !node.text.empty() && (node.text[0] == '-' || (node.text[0] >= '0' && node.text[0] <= '9')) &&
                        node.text.find_first_not_of("0123456789+-.eE") == std::string::npos;
    if (node.text.empty()) return Fail("a value is expected", from, 1);
    if (!word && !number) return Fail(fmt::format("`{}` is no value", node.text), from, at_ - from);
    return node;
  }

  // The four digits at `at`, or -1.
  [[nodiscard]] int32_t FourHex(size_t at) const {
    if (at + 4 > text_.size()) return -1;
    int32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) {
      const int digit = HexValue(text_[i]);
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }

  // What stands after a backslash at `at_`, which is left behind it. Only what can be seen is taken.
  Result<void> Escape(std::string* out) {
    const size_t from = at_++;
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    if (c == '"' || c == '\\' || c == '/') {
      *out += c;
      return {};
    }
    if (c != 'u') return Fail("this escape stands for nothing that a policy holds", from, 2);
    const int32_t unit = FourHex(at_);
    if (unit < 0) return Fail("four hexadecimal digits are expected after `\\u`", from, 2);
    at_ += 4;
    uint32_t code = static_cast<uint32_t>(unit);
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      const int32_t low = FourHex(at_ + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (static_cast<uint32_t>(low) - 0xdc00);
        at_ += 6;
      }
    }
    if (code < 0x20 || (code >= 0x7f && code < 0xa1) || (code >= 0xd800 && code < 0xe000) || (code >= 0x2000 && code < 0x2070))
      return Fail("this escape stands for an invisible character or none", from, 6);
    AppendUtf8(out, code);
    return {};
  }

  Result<Node> String() {
    Node node;
    node.style = Node::Style::kQuoted;
    node.text_offset = 1;
    const size_t from = at_++;
    while (true) {
      if (at_ >= text_.size()) return Fail("a string is not closed", from, 1);
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return Fail("a control character in a string", at_, 1);
      if (c == '\\') {
        node.verbatim = false;
        if (auto good = Escape(&node.text); !good) return std::unexpected(good.error());
        continue;
      }
      node.text += c;
      ++at_;
    }
    ++at_;
    node.span = Span(from, at_ - from);
    return node;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  size_t line_start_ = 0;
  size_t nodes_ = 0;
};

}  // namespace

Result<Node> ParseJson(std::string_view text, const std::string& file) { return JsonReader(text, file).Read(); }

}  // namespace sluice::policy
