#include "policy/import/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/printable.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxJsonDepth = 16;
constexpr size_t kMaxJsonNodes = 400'000;
constexpr size_t kMaxJsonKeys = 4096;

using Kind = JsonToken::Kind;

// Lines and columns of offsets that only grow.
class Places {
 public:
  Places(std::string_view text, const std::string& file) : text_(text), file_(file) {}
  SourceSpan Span(const JsonToken& token) {
    for (; at_ < std::min(token.offset, text_.size()); ++at_) {
      if (text_[at_] != '\n') continue;
      ++line_;
      line_start_ = at_ + 1;
    }
    return {file_, line_, static_cast<uint32_t>(token.offset - line_start_ + 1),
            static_cast<uint32_t>(std::max<size_t>(token.length, 1))};
  }

 private:
  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  size_t line_start_ = 0;
};

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& file)
      : scanner_(text, {.depth = kMaxJsonDepth, .values = kMaxJsonNodes}), places_(text, file) {}

  Result<Node> Read() {
    auto node = Value(scanner_.Next());
    if (!node) return node;
    if (const JsonToken end = scanner_.Next(); end.kind != Kind::kEnd) return Fail(end);
    return node;
  }

 private:
  std::unexpected<Error> Fail(const JsonToken& token, std::string_view why) {
    return std::unexpected(Error{Code::kInvalid, fmt::format("not valid JSON: {}", why), 0, places_.Span(token)});
  }
  std::unexpected<Error> Fail(const JsonToken& fault) { return Fail(fault, fault.text); }

  // Recursion is bounded by the scanner's depth.
  Result<Node> Value(const JsonToken& token) {
    switch (token.kind) {
      case Kind::kBeginObject:
        return Object(token);
      case Kind::kBeginArray:
        return Array(token);
      case Kind::kString:
        return String(token);
      case Kind::kNumber:
      case Kind::kTrue:
      case Kind::kFalse:
      case Kind::kNull:
        break;
      default:
        return Fail(token);
    }
    Node node;
    node.text = token.text;
    node.span = places_.Span(token);
    return node;
  }

  Result<Node> Object(const JsonToken& begin) {
    Node node;
    node.kind = Node::Kind::kMapping;
    node.span = places_.Span(begin);
    while (true) {
      const JsonToken token = scanner_.Next();
      if (token.kind == Kind::kEndObject) return node;
      if (token.kind != Kind::kKey) return Fail(token);
      auto key = String(token);
      if (!key) return key;
      for (const Member& other : node.members)
        if (other.key.text == key->text)
          return std::unexpected(
              Error{Code::kInvalid, fmt::format("`{}` is already set on line {}", key->text, other.key.span.line), 0, key->span});
      if (node.members.size() >= kMaxJsonKeys) return Fail(token, "too many keys in one object");
      auto value = Value(scanner_.Next());
      if (!value) return value;
      node.members.push_back({std::move(*key), std::move(*value)});
    }
  }

  Result<Node> Array(const JsonToken& begin) {
    Node node;
    node.kind = Node::Kind::kSequence;
    node.span = places_.Span(begin);
    while (true) {
      const JsonToken token = scanner_.Next();
      if (token.kind == Kind::kEndArray) return node;
      auto value = Value(token);
      if (!value) return value;
      node.items.push_back(std::move(*value));
    }
  }

  // Only what can be seen is taken from escapes; the rest of the file was looked through before.
  Result<Node> String(const JsonToken& token) {
    for (std::string_view rest = token.text; token.escaped && !rest.empty();) {
      const CodePoint point = DecodeUtf8(rest);
      if (point.value == '\n' || IsInvisible(point.value)) return Fail(token, "an escape stands for an invisible character");
      rest.remove_prefix(point.size);
    }
    if (token.text.find('\x7f') != std::string_view::npos) return Fail(token, "a control character in a string");
    Node node;
    node.style = Node::Style::kQuoted;
    node.text_offset = 1;
    node.verbatim = !token.escaped;
    node.text = token.text;
    node.span = places_.Span(token);
    return node;
  }

  JsonScanner scanner_;
  Places places_;
};

}  // namespace

Result<Node> ParseJson(std::string_view text, const std::string& file) { return JsonReader(text, file).Read(); }

}  // namespace sluice::policy
