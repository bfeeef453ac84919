#include "proxy/body/graphql_document.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/body/graphql.h"
#include "proxy/body/graphql_lexer.h"

namespace sluice::proxy {
namespace {

using policy::GraphqlKind;
using Selections = std::vector<GraphqlSelection>;

enum class Values : uint8_t { kAny, kConstant };

std::optional<GraphqlKind> KindOf(const GraphqlToken& token) {
  if (token.IsName("query")) return GraphqlKind::kQuery;
  if (token.IsName("mutation")) return GraphqlKind::kMutation;
  if (token.IsName("subscription")) return GraphqlKind::kSubscription;
  return std::nullopt;
}

// Recursive descent; each method leaves token_ behind what it read, and false means that why_ is set. Depth is counted in every
// recursion.
class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  std::optional<std::string> Document(GraphqlDocument* out) {
    bool good = Advance();
    do {
      good = good && Definition(out);
    } while (good && token_.kind != GraphqlToken::Kind::kEnd);
    if (good) return std::nullopt;
    return fmt::format("the GraphQL document is not understood: {}, at byte {}", why_, token_.offset);
  }

 private:
  // One level deeper while it lives.
  class Level {
   public:
    explicit Level(size_t* depth) : depth_(depth) { ++*depth_; }
    ~Level() { --*depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    [[nodiscard]] bool good() const { return *depth_ <= kMaxGraphqlDepth; }

   private:
    size_t* depth_;
  };

  bool Fail(std::string_view why) {
    if (why_.empty()) why_ = why;
    return false;
  }

  bool Advance() {
    token_ = lexer_.Next();
    if (token_.kind == GraphqlToken::Kind::kFault) return Fail(token_.text);
    return ++tokens_ <= kMaxGraphqlTokens || Fail("too many tokens");
  }

  bool Expect(std::string_view punctuator) {
    if (!token_.Is(punctuator)) return Fail("a sign is missing or out of place");
    return Advance();
  }

  bool Name(std::string_view* name) {
    if (token_.kind != GraphqlToken::Kind::kName) return Fail("a name is expected");
    *name = token_.text;
    return Advance();
  }

  bool Definition(GraphqlDocument* out) {
    if (token_.Is("{")) {
      GraphqlOperation& operation = out->operations.emplace_back();
      return SelectionSet(&operation.selections);
    }
    if (token_.IsName("fragment")) return Fragment(&out->fragments.emplace_back());
    const auto kind = KindOf(token_);
    if (!kind) return Fail("neither an operation nor a fragment");
    return Operation(&out->operations.emplace_back(GraphqlOperation{*kind, {}, {}}));
  }

  bool Operation(GraphqlOperation* operation) {
    if (!Advance()) return false;
    if (token_.kind == GraphqlToken::Kind::kName && !Name(&operation->name)) return false;
    if (token_.Is("(") && !VariableDefinitions()) return false;
    return Directives(Values::kConstant) && SelectionSet(&operation->selections);
  }

  bool Fragment(GraphqlFragment* fragment) {
    if (!Advance()) return false;
    if (token_.IsName("on")) return Fail("a fragment may not be named `on`");
    return Name(&fragment->name) && TypeCondition() && Directives(Values::kAny) && SelectionSet(&fragment->selections);
  }

  bool TypeCondition() {
    std::string_view type;
    if (!token_.IsName("on")) return Fail("`on` is expected");
    return Advance() && Name(&type);
  }

  // `roots` is null below the root: there a selection is checked only.
  bool SelectionSet(Selections* roots) {
    const Level level(&depth_);
    if (!level.good()) return Fail("nested too deeply");
    if (!Expect("{")) return false;
    do {
      if (!Selection(roots)) return false;
    } while (!token_.Is("}"));
    return Advance();
  }

  bool Selection(Selections* roots) {
    if (!token_.Is("...")) return Field(roots);
    if (!Advance()) return false;
    if (token_.kind == GraphqlToken::Kind::kName && !token_.IsName("on")) {
      if (roots != nullptr) roots->push_back({GraphqlSelection::Kind::kSpread, token_.text});
      return Advance() && Directives(Values::kAny);
    }
    if (token_.IsName("on") && !TypeCondition()) return false;
    return Directives(Values::kAny) && SelectionSet(roots);
  }

  bool Field(Selections* roots) {
    std::string_view name;
    if (!Name(&name)) return false;
    if (token_.Is(":") && !(Advance() && Name(&name))) return false;
    if (roots != nullptr) roots->push_back({GraphqlSelection::Kind::kField, name});
    if (token_.Is("(") && !Arguments(Values::kAny)) return false;
    if (!Directives(Values::kAny)) return false;
    return !token_.Is("{") || SelectionSet(nullptr);
  }

  bool Arguments(Values values) {
    if (!Expect("(")) return false;
    do {
      std::string_view name;
      if (!Name(&name) || !Expect(":") || !Value(values)) return false;
    } while (!token_.Is(")"));
    return Advance();
  }

  bool Directives(Values values) {
    while (token_.Is("@")) {
      std::string_view name;
      if (!Advance() || !Name(&name)) return false;
      if (token_.Is("(") && !Arguments(values)) return false;
    }
    return true;
  }

  bool VariableDefinitions() {
    if (!Expect("(")) return false;
    do {
      std::string_view name;
      if (!Expect("$") || !Name(&name) || !Expect(":") || !Type()) return false;
      if (token_.Is("=") && !(Advance() && Value(Values::kConstant))) return false;
      if (!Directives(Values::kConstant)) return false;
    } while (!token_.Is(")"));
    return Advance();
  }

  bool Type() {
    const Level level(&depth_);
    if (!level.good()) return Fail("nested too deeply");
    std::string_view name;
    if (token_.Is("[")) {
      if (!Advance() || !Type() || !Expect("]")) return false;
    } else if (!Name(&name)) {
      return false;
    }
    return !token_.Is("!") || Advance();
  }

  bool Value(Values values) {
    const Level level(&depth_);
    if (!level.good()) return Fail("nested too deeply");
    if (token_.Is("[")) {
      if (!Advance()) return false;
      while (!token_.Is("]"))
        if (!Value(values)) return false;
      return Advance();
    }
    if (token_.Is("{")) return Object(values);
    if (token_.Is("$")) {
      std::string_view name;
      if (values == Values::kConstant) return Fail("a variable where a constant must stand");
      return Advance() && Name(&name);
    }
    if (token_.kind == GraphqlToken::Kind::kPunctuator || token_.kind == GraphqlToken::Kind::kEnd)
      return Fail("a value is expected");
    return Advance();
  }

  bool Object(Values values) {
    if (!Advance()) return false;
    while (!token_.Is("}")) {
      std::string_view name;
      if (!Name(&name) || !Expect(":") || !Value(values)) return false;
    }
    return Advance();
  }

  GraphqlLexer lexer_;
  GraphqlToken token_{};
  std::string_view why_{};
  size_t tokens_ = 0;
  size_t depth_ = 0;
};

template <class Definition>
bool NamesTwice(const std::vector<Definition>& definitions) {
  std::vector<std::string_view> names;
  names.reserve(definitions.size());
  for (const Definition& definition : definitions) names.push_back(definition.name);
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

}  // namespace

std::optional<std::string> ParseGraphql(std::string_view text, GraphqlDocument* out) {
  if (auto why = Parser(text).Document(out)) return why;
  const bool nameless = std::any_of(out->operations.begin(), out->operations.end(), [](const auto& o) { return o.name.empty(); });
  if (nameless && out->operations.size() > 1) return "the GraphQL document has an operation without a name beside others";
  if (NamesTwice(out->operations)) return "two operations of the GraphQL document have one name";
  if (NamesTwice(out->fragments)) return "two fragments of the GraphQL document have one name";
  return std::nullopt;
}

}  // namespace sluice::proxy
