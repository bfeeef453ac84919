#include "proxy/body/json_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace sluice::proxy {
namespace {

using Kind = JsonToken::Kind;
using policy::JsonLeaf;
using policy::JsonLeaves;

void AppendEscaped(std::string* pointer, std::string_view key) {
  *pointer += '/';
  for (const char c : key) {
    if (c == '~') {
      *pointer += "~0";
    } else if (c == '/') {
      *pointer += "~1";
    } else {
      *pointer += c;
    }
  }
}

class LeafReader {
 public:
  explicit LeafReader(std::string_view text) : scanner_(text, {.depth = kMaxBodyDepth, .values = kMaxBodyValues}) {}

  // One value and the end of the text.
  bool Whole(JsonLeaves* leaves) { return Message(scanner_.Next(), leaves) && End(); }

  bool Messages(JsonMessages* out) {
    JsonToken token = scanner_.Next();
    out->batch = token.kind == Kind::kBeginArray;
    if (!out->batch) return Message(token, &out->messages.emplace_back()) && End();
    for (token = scanner_.Next(); token.kind != Kind::kEndArray; token = scanner_.Next())
      if (!Message(token, &out->messages.emplace_back())) return false;
    return End();
  }

  [[nodiscard]] std::string TakeFault() { return std::move(fault_); }

 private:
  bool Fail(const JsonToken& token, std::string_view why) {
    fault_ = fmt::format("the body is not JSON that every reader takes alike: {}, at byte {}", why, token.offset);
    return false;
  }

  bool End() {
    const JsonToken token = scanner_.Next();
    return token.kind == Kind::kEnd || Fail(token, token.text);
  }

  bool Message(const JsonToken& token, JsonLeaves* leaves) {
    leaves_ = leaves;
    pointer_.clear();
    if (!Value(token)) return false;
    std::sort(leaves->begin(), leaves->end(), [](const JsonLeaf& a, const JsonLeaf& b) { return a.pointer < b.pointer; });
    return true;
  }

  bool Add(const JsonToken& token, JsonLeaf::Type type, std::string_view text) {
    pointer_bytes_ += pointer_.size();
    if (pointer_bytes_ > kMaxPointerBytes) return Fail(token, "keys that are too long together");
    leaves_->push_back({pointer_, type, std::string(text)});
    return true;
  }

  // Recursion is bounded by the scanner's depth.
  bool Value(const JsonToken& token) {
    using Type = JsonLeaf::Type;
    switch (token.kind) {
      case Kind::kBeginObject:
        return Add(token, Type::kObject, {}) && Object();
      case Kind::kBeginArray:
        return Add(token, Type::kArray, {}) && Array();
      case Kind::kString:
        if (token.text.find('\0') != std::string_view::npos) return Fail(token, "a NUL character");
        return Add(token, Type::kString, token.text);
      case Kind::kNumber:
        return Add(token, Type::kNumber, token.text);
      case Kind::kTrue:
      case Kind::kFalse:
        return Add(token, Type::kBoolean, token.text);
      case Kind::kNull:
        return Add(token, Type::kNull, token.text);
      default:
        return Fail(token, token.text);
    }
  }

  bool Object() {
    const size_t base = pointer_.size();
    std::vector<std::string> keys;
    while (true) {
      const JsonToken token = scanner_.Next();
      if (token.kind == Kind::kEndObject) return Distinct(token, &keys);
      if (token.kind != Kind::kKey) return Fail(token, token.text);
      if (token.text.find('\0') != std::string_view::npos) return Fail(token, "a NUL character");
      keys.push_back(FoldCase(token.text));
      AppendEscaped(&pointer_, token.text);
      if (!Value(scanner_.Next())) return false;
      pointer_.resize(base);
    }
  }

  bool Distinct(const JsonToken& end, std::vector<std::string>* keys) {
    std::sort(keys->begin(), keys->end());
    if (std::adjacent_find(keys->begin(), keys->end()) == keys->end()) return true;
    return Fail(end, "a key stands twice, or in two cases, in the object that ends here");
  }

  bool Array() {
    const size_t base = pointer_.size();
    for (size_t i = 0;; ++i) {
      const JsonToken token = scanner_.Next();
      if (token.kind == Kind::kEndArray) return true;
      fmt::format_to(std::back_inserter(pointer_), "/{}", i);
      if (!Value(token)) return false;
      pointer_.resize(base);
    }
  }

  JsonScanner scanner_;
  JsonLeaves* leaves_ = nullptr;
  std::string pointer_;
  size_t pointer_bytes_ = 0;
  std::string fault_;
};

}  // namespace

std::string FoldCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (text.substr(i, 2) == "\xC5\xBF") {
      out += 's';
      i += 1;
    } else if (text.substr(i, 3) == "\xE2\x84\xAA") {
      out += 'k';
      i += 2;
    } else {
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return out;
}

policy::BodyReading<JsonLeaf> ReadJson(std::string_view text) {
  policy::BodyReading<JsonLeaf> out;
  LeafReader reader(text);
  if (!reader.Whole(&out.items)) return {{}, reader.TakeFault()};
  return out;
}

JsonMessages ReadJsonMessages(std::string_view text) {
  JsonMessages out;
  LeafReader reader(text);
  if (!reader.Messages(&out)) return {false, {}, reader.TakeFault()};
  return out;
}

const JsonLeaf* FindLeaf(const JsonLeaves& leaves, std::string_view pointer) {
  const auto at = std::lower_bound(leaves.begin(), leaves.end(), pointer,
                                   [](const JsonLeaf& leaf, std::string_view wanted) { return leaf.pointer < wanted; });
  return at != leaves.end() && at->pointer == pointer ? &*at : nullptr;
}

bool HasOnlyMembers(const JsonLeaves& leaves, std::initializer_list<std::string_view> names) {
  return std::all_of(leaves.begin(), leaves.end(), [&](const JsonLeaf& leaf) {
    if (leaf.pointer.empty()) return true;
    const std::string_view name = std::string_view(leaf.pointer).substr(1);
    return name.find('/') != std::string_view::npos || std::find(names.begin(), names.end(), name) != names.end();
  });
}

}  // namespace sluice::proxy
