#include "proxy/body/graphql.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/keyed_hash.h"
#include "proxy/body/graphql_document.h"
#include "proxy/body/json_body.h"
#include "proxy/body/url_query.h"

namespace sluice::proxy {
namespace {

using policy::GraphqlItem;
using policy::JsonLeaf;
using policy::JsonLeaves;
using Type = JsonLeaf::Type;

constexpr std::string_view kPersisted = "the request names a persisted query, which cannot be judged by its text";

// Parameters that servers know beside the standard ones, each for a document kept elsewhere.
constexpr std::string_view kForeignKeys[] = {"id", "doc_id", "docid", "documentid", "document", "queryid", "hash", "sha256hash"};

// The root fields of one operation, each once, fragments expanded.
class Expansion {
 public:
  Expansion(const GraphqlDocument& document, const GraphqlOperation& operation, std::vector<GraphqlItem>* items)
      : operation_(operation), items_(items) {
    for (const GraphqlFragment& fragment : document.fragments) fragments_.emplace(fragment.name, &fragment);
  }

  // The fault, or an empty text.
  std::string Run() {
    Expand(operation_.selections);
    return std::move(fault_);
  }

 private:
  // Each fragment is entered once, so the depth is bounded by their number: kept in a list of what is open instead of recursion.
  void Expand(const std::vector<GraphqlSelection>& roots) {
    struct Open {
      const std::vector<GraphqlSelection>* selections;
      size_t next;
      std::string_view fragment;
    };
    std::vector<Open> open{{&roots, 0, {}}};
    while (!open.empty() && fault_.empty()) {
      Open& top = open.back();
      if (top.next == top.selections->size()) {
        active_.erase(top.fragment);
        open.pop_back();
        continue;
      }
      const GraphqlSelection& selection = (*top.selections)[top.next++];
      if (selection.kind == GraphqlSelection::Kind::kField) {
        Add(selection.name);
      } else if (const GraphqlFragment* fragment = Enter(selection.name)) {
        open.push_back({&fragment->selections, 0, fragment->name});
      }
    }
  }

  const GraphqlFragment* Enter(std::string_view name) {
    const auto at = fragments_.find(name);
    if (at == fragments_.end()) {
      fault_ = "the GraphQL operation uses a fragment that is not there";
      return nullptr;
    }
    if (active_.contains(name)) fault_ = "a fragment of the GraphQL document holds itself";
    if (!seen_.insert(name).second) return nullptr;
    active_.insert(name);
    return at->second;
  }

  void Add(std::string_view field) {
    if (!fields_.insert(field).second) return;
    if (items_->size() >= kMaxGraphqlItems) {
      fault_ = fmt::format("the GraphQL request has more than {} root fields", kMaxGraphqlItems);
      return;
    }
    items_->push_back({operation_.kind, std::string(operation_.name), std::string(field)});
  }

  const GraphqlOperation& operation_;
  std::vector<GraphqlItem>* items_;
  KeyedMap<std::string_view, const GraphqlFragment*> fragments_;
  KeyedSet<std::string_view> seen_;
  KeyedSet<std::string_view> active_;
  KeyedSet<std::string_view> fields_;
  std::string fault_;
};

// Appends the items of the operation that would run; the fault, or an empty text.
std::string ReadOperation(std::string_view text, std::string_view operation_name, std::vector<GraphqlItem>* items) {
  GraphqlDocument document;
  if (auto why = ParseGraphql(text, &document)) return *std::move(why);
  const GraphqlOperation* chosen = nullptr;
  if (operation_name.empty()) {
    if (document.operations.size() != 1)
      return "the GraphQL document has not exactly one operation, and none is selected by name";
    chosen = &document.operations.front();
  } else {
    for (const GraphqlOperation& operation : document.operations)
      if (operation.name == operation_name) chosen = &operation;
    if (chosen == nullptr) return "operationName names no operation of the GraphQL document";
  }
  return Expansion(document, *chosen, items).Run();
}

// `pointer` begins at the message; "/persistedQuery" for a text of extensions alone.
bool NamesPersisted(const JsonLeaves& leaves, std::string_view below) {
  return std::any_of(leaves.begin(), leaves.end(), [&](const JsonLeaf& leaf) {
    return leaf.pointer.starts_with(below) &&
           FoldCase(std::string_view(leaf.pointer).substr(below.size())).starts_with("persisted");
  });
}

bool IsObjectOrNull(const JsonLeaf* leaf) { return leaf == nullptr || leaf->type == Type::kObject || leaf->type == Type::kNull; }

std::string ReadMessage(const JsonLeaves& message, std::vector<GraphqlItem>* items) {
  if (message.front().type != Type::kObject) return "the body is no GraphQL request: it is no object";
  if (NamesPersisted(message, "/extensions/")) return std::string(kPersisted);
  if (!HasOnlyMembers(message, {"query", "operationName", "variables", "extensions"}))
    return "the GraphQL request has a member other than query, operationName, variables and extensions";
  if (!IsObjectOrNull(FindLeaf(message, "/variables")) || !IsObjectOrNull(FindLeaf(message, "/extensions")))
    return "variables or extensions of the GraphQL request are no object";
  const JsonLeaf* query = FindLeaf(message, "/query");
  if (query == nullptr || query->type != Type::kString) return "the GraphQL request has no query text";
  const JsonLeaf* name = FindLeaf(message, "/operationName");
  if (name != nullptr && name->type != Type::kString && name->type != Type::kNull) return "operationName is no text";
  return ReadOperation(query->text, name != nullptr && name->type == Type::kString ? name->text : std::string_view{}, items);
}

bool IsForeignKey(std::string_view folded) {
  return std::find(std::begin(kForeignKeys), std::end(kForeignKeys), folded) != std::end(kForeignKeys);
}

// The parameters of the GET form, as they stand.
struct GetForm {
  std::optional<std::string> query;
  std::optional<std::string> operation_name;
  std::optional<std::string> variables;
  std::optional<std::string> extensions;

  // Where this parameter belongs; null for others.
  std::optional<std::string>* Find(std::string_view key) {
    return key == "query"           ? &query
           : key == "operationName" ? &operation_name
           : key == "variables"     ? &variables
           : key == "extensions"    ? &extensions
                                    : nullptr;
  }
};

std::string TakeParameter(QueryParameter parameter, GetForm* form) {
  std::optional<std::string>* place = form->Find(parameter.key);
  if (place == nullptr) {
    const std::string bare = BareKey(parameter.key);
    if (GetForm{}.Find(bare) != nullptr || bare == "operationname")
      return "a parameter of the query that some reader takes for another";
    if (IsForeignKey(bare)) return std::string(kPersisted);
    return {};
  }
  if (*place) return "a parameter of the GraphQL request stands twice in the query";
  *place = std::move(parameter.value);
  return {};
}

std::string CheckObject(const std::optional<std::string>& text, JsonLeaves* leaves) {
  if (!text || text->empty()) return {};
  auto json = ReadJson(*text);
  if (!json.readable()) return "a parameter of the query is not JSON that every reader takes alike";
  if (!IsObjectOrNull(&json.items.front())) return "variables or extensions of the GraphQL request are no object";
  *leaves = std::move(json.items);
  return {};
}

std::string ReadForm(const GetForm& form, std::vector<GraphqlItem>* items) {
  JsonLeaves variables;
  JsonLeaves extensions;
  if (std::string why = CheckObject(form.variables, &variables); !why.empty()) return why;
  if (std::string why = CheckObject(form.extensions, &extensions); !why.empty()) return why;
  if (NamesPersisted(extensions, "/")) return std::string(kPersisted);
  if (!form.query) return "the GraphQL request has no query text";
  return ReadOperation(*form.query, form.operation_name.value_or(""), items);
}

}  // namespace

GraphqlReading ReadGraphqlJson(std::string_view text) {
  const JsonMessages read = ReadJsonMessages(text);
  if (!read.fault.empty()) return {{}, read.fault};
  if (read.messages.empty()) return {{}, "the body is an empty GraphQL batch"};
  if (read.messages.size() > kMaxGraphqlBatch)
    return {{}, fmt::format("a GraphQL batch of more than {} requests", kMaxGraphqlBatch)};
  GraphqlReading out;
  for (const JsonLeaves& message : read.messages)
    if (std::string why = ReadMessage(message, &out.items); !why.empty()) return {{}, std::move(why)};
  return out;
}

GraphqlReading ReadGraphqlDocument(std::string_view text, std::string_view operation_name) {
  GraphqlReading out;
  if (std::string why = ReadOperation(text, operation_name, &out.items); !why.empty()) return {{}, std::move(why)};
  return out;
}

GraphqlReading ReadGraphqlQuery(std::string_view query) {
  if (query.find(';') != std::string_view::npos) return {{}, "a semicolon in the query, which some readers take for a separator"};
  GetForm form;
  std::string why;
  const bool decoded = ForEachParameter(query, [&](QueryParameter parameter) {
    why = TakeParameter(std::move(parameter), &form);
    return why.empty();
  });
  if (!decoded) return {{}, "the query cannot be decoded"};
  GraphqlReading out;
  if (why.empty()) why = ReadForm(form, &out.items);
  if (!why.empty()) return {{}, std::move(why)};
  return out;
}

bool QueryHoldsGraphql(std::string_view query) {
  bool found = false;
  const bool decoded = ForEachParameter(query, [&](const QueryParameter& parameter) {
    const std::string bare = BareKey(parameter.key);
    found = GetForm{}.Find(bare) != nullptr || bare == "operationname" || IsForeignKey(bare);
    return !found;
  });
  return found || !decoded;
}

}  // namespace sluice::proxy
