#include "prover/request_bodies.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "policy/operation.h"
#include "prover/numbers.h"
#include "prover/string_atoms.h"

namespace sluice::prover {
namespace {

using policy::BodyKinds;
using policy::Glob;
using policy::GraphqlKind;
using policy::JsonLeaf;
using policy::JsonLeaves;
using policy::Rule;
using Kind = WitnessBody::Kind;

constexpr size_t kMaxBodies = 4096;
constexpr std::string_view kToolsCall = "tools/call";
constexpr std::string_view kOperation = "/operation";
constexpr std::string_view kOther = "the body cannot be read this way";

// A pointer as readers that ignore case see it (policy/operation.cc): the Kelvin sign and the long s are letters besides.
std::string Folded(const std::string& pointer) {
  std::string text;
  for (size_t i = 0; i < pointer.size(); ++i) {
    const std::string_view rest = std::string_view(pointer).substr(i);
    const bool kelvin = rest.starts_with("\xe2\x84\xaa");
    const bool long_s = rest.starts_with("\xc5\xbf");
    const char c = kelvin ? 'k' : long_s ? 's' : pointer[i];
    text += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    i += kelvin ? 2 : long_s ? 1 : 0;
  }
  return text;
}

// Whether values at both bear on one rule: the same pointer to some reader, or one below the other.
bool Bear(const std::string& a, const std::string& b) {
  const std::string x = Folded(a);
  const std::string y = Folded(b);
  return x == y || x.starts_with(y + '/') || y.starts_with(x + '/');
}

bool IsBelow(const std::string& pointer, const std::string& parent) { return Folded(pointer).starts_with(Folded(parent) + '/'); }

bool IsNumber(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// A pointer below the parent that no pointer of the group bears on but those above it.
std::string PointerBelow(const std::string& parent, const std::vector<std::string>& group) {
  std::string pointer = parent + "/a";
  while (std::any_of(group.begin(), group.end(), [&](const std::string& p) { return Bear(p, pointer) && !IsBelow(pointer, p); }))
    pointer += 'a';
  return pointer;
}

bool IsGraphqlName(const std::string& text) {
  return !text.empty() && (text[0] < '0' || text[0] > '9') && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// What a batch call of git LFS has at its operation, by number. Other bodies have the last: they are asked about first.
constexpr std::array<std::string_view, 2> kOperations{"download", "upload"};
constexpr size_t kNoOperation = kOperations.size();
size_t OperationOf(policy::LfsOperation operation) { return operation == policy::LfsOperation::kDownload ? 0 : 1; }
JsonLeaf OperationLeaf(size_t number) {
  return {std::string(kOperation), JsonLeaf::Type::kString, std::string(kOperations[number])};
}

template <class Item>
policy::BodyReading<Item> One(const Item& item) {
  return {{item}, {}};
}
template <class Item>
policy::BodyReading<Item> Unreadable() {
  return {{}, std::string(kOther)};
}

}  // namespace

policy::RequestBody AsRequestBody(const WitnessBody& body, BodyKinds wanted) {
  policy::RequestBody out;
  if ((wanted & policy::kBodyGraphql) != 0)
    out.graphql = body.kind == Kind::kGraphql ? One(body.graphql) : Unreadable<policy::GraphqlItem>();
  if ((wanted & policy::kBodyRpc) != 0) out.rpc = body.kind == Kind::kRpc ? One(body.rpc) : Unreadable<policy::RpcItem>();
  if ((wanted & policy::kBodyPush) != 0) out.push = body.kind == Kind::kPush ? One(body.push) : Unreadable<policy::RefUpdate>();
  if (out.push && body.PushesNothing()) out.push->items.clear();
  if ((wanted & policy::kBodyLfs) != 0) out.lfs = body.lfs ? One(*body.lfs) : Unreadable<policy::LfsOperation>();
  if ((wanted & policy::kBodyJson) != 0) {
    out.json = body.json ? policy::BodyReading<JsonLeaf>{*body.json, {}} : Unreadable<JsonLeaf>();
  }
  return out;
}

BodyDimension::BodyDimension(const std::vector<Box>& boxes, Budget* budget) : boxes_(boxes), budget_(budget) {
  for (const Box& box : boxes_) {
    read_ |= box.reading;
    bare_.emplace_back();
    if (box.reading == 0) continue;
    bare_.back() = std::make_unique<Rule>(*box.rule);
    Rule& bare = *bare_.back();
    if (bare.json.empty()) continue;
    bare.json.clear();
    // Without `json` it would have the session (policy::HoldsMcpSession).
    if (bare.verb == policy::Verb::kMcp) bare.verb = policy::Verb::kJsonRpc;
  }
  asks_operation_ = (read_ & policy::kBodyLfs) != 0 && std::any_of(boxes_.begin(), boxes_.end(), [](const Box& box) {
                      return box.reading != 0 && std::any_of(box.rule->json.begin(), box.rule->json.end(),
                                                             [](const auto& m) { return Bear(m.key, std::string(kOperation)); });
                    });
  CutItems();
  CutLeaves();
}

size_t BodyDimension::AskedOf(const BodyElement& body) const {
  const size_t operation = asks_operation_ && body.body.lfs ? OperationOf(*body.body.lfs) : kNoOperation;
  return (body.json ? 1u : 0u) | (body.message ? 2u : 0u) | kModes * operation;
}

// Whether the box speaks of the item. Of JSON values it is asked in AdmitsLeaves.
bool BodyDimension::Admits(size_t b, const WitnessBody& body, BodyKinds readable) const {
  const Box& box = boxes_[b];
  if (box.reading == 0) return true;
  const bool deny = IsDeny(box.role);
  if ((readable & box.reading) == 0) return deny;
  if (box.reading == policy::kBodyJson) return !(body.kind == Kind::kRpc && body.batch);
  // Which denies bear on it hangs on the allow.
  if (body.PushesNothing()) return true;
  const Rule& rule = *bare_[b];
  if (deny) return policy::DenyCoversBody(rule, box.reading, AsRequestBody(body, box.reading));
  if (box.reading == policy::kBodyGraphql) return policy::AllowCoversItem(rule, body.graphql);
  if (box.reading == policy::kBodyRpc) return policy::AllowCoversItem(rule, body.rpc);
  if (box.reading == policy::kBodyLfs) return policy::AllowCoversItem(rule, *body.lfs);
  return policy::AllowCoversItem(rule, body.push);
}

void BodyDimension::Add(WitnessBody body, BodyKinds readable) {
  if (!budget_->Spend(1 + boxes_.size() / 4)) return;
  BodyElement element{.boxes = BoxSet(boxes_.size())};
  for (size_t b = 0; b < boxes_.size(); ++b)
    if (Admits(b, body, readable)) element.boxes.Set(b);
  element.json = (readable & policy::kBodyJson) != 0 && !body.batch;
  element.message = (readable & policy::kBodyRpc) != 0;
  const bool in_url = body.kind == Kind::kGraphql;
  const bool nothing = body.PushesNothing();
  element.body = std::move(body);
  auto& elements = elements_[nothing ? 2 * kAsked : AskedOf(element) + (in_url ? kAsked : 0)];
  if (std::any_of(elements.begin(), elements.end(), [&](const BodyElement& e) { return e.boxes == element.boxes; })) return;
  elements.push_back(std::move(element));
  if (elements.size() > kMaxBodies) budget_->Exhaust("what bodies ask for combines in too many ways");
}

// A batch call is a JSON text with an operation, so that a pointer to that says what it is; and nothing keeps it from being a
// GraphQL request or a call besides.
void BodyDimension::AddWithBatches(const WitnessBody& body, BodyKinds readable) {
  Add(body, readable);
  AddBatches(body, readable);
}

void BodyDimension::AddBatches(const WitnessBody& body, BodyKinds readable) {
  const bool other_json = (read_ & policy::kBodyJson) != 0 && (readable & policy::kBodyJson) == 0;
  if ((read_ & policy::kBodyLfs) == 0 || other_json || body.batch) return;
  for (const auto operation : {policy::LfsOperation::kDownload, policy::LfsOperation::kUpload}) {
    WitnessBody batch = body;
    batch.lfs = operation;
    if (batch.kind == Kind::kNone || batch.kind == Kind::kJson) batch.kind = Kind::kLfs;
    if (batch.json) batch.json = {OperationLeaf(OperationOf(operation))};
    if (batch.kind == Kind::kRpc && asks_operation_) batch.rpc.message = {OperationLeaf(OperationOf(operation))};
    Add(std::move(batch), readable | policy::kBodyLfs);
  }
}

void BodyDimension::CutItems() {
  if ((read_ & policy::kBodyJson) != 0) {
    WitnessBody body{.kind = Kind::kJson};
    body.json.emplace();
    AddWithBatches(body, policy::kBodyJson);
  }
  if ((read_ & policy::kBodyGraphql) != 0) CutGraphql();
  if ((read_ & policy::kBodyRpc) != 0) CutCalls();
  if ((read_ & policy::kBodyPush) != 0) CutPushes();
  // What nobody can read, or nobody looks at. Last: others say more.
  AddBatches({}, 0);
  Add({}, 0);
}

// One text for each way in which the globs can match.
std::vector<std::string> BodyDimension::Texts(const std::vector<const Glob*>& globs, const std::vector<std::string>& more,
                                              std::vector<const Nfa*> patterns) const {
  std::vector<std::unique_ptr<Nfa>> nfas;
  std::unordered_set<std::string> literals(more.begin(), more.end());
  std::set<std::string> seen;
  for (const Glob* glob : globs) {
    if (glob->is_literal()) {
      literals.insert(glob->tokens().empty() ? std::string() : glob->tokens()[0].literal);
    } else if (seen.insert(glob->text()).second) {
      nfas.push_back(std::make_unique<Nfa>(OfGlob(*glob)));
      patterns.push_back(nfas.back().get());
    }
  }
  std::vector<std::string> texts = StringAtoms(patterns, Language::kQueryValue, budget_).Members(literals, budget_);
  texts.insert(texts.end(), literals.begin(), literals.end());
  std::sort(texts.begin(), texts.end(), ShorterFirst);
  return texts;
}

void BodyDimension::CutGraphql() {
  static const Nfa kName = OfGraphqlNames();
  std::vector<const Glob*> operations;
  std::vector<const Glob*> fields;
  for (const Box& box : boxes_) {
    if (box.reading != policy::kBodyGraphql) continue;
    for (const Glob& glob : box.rule->operation) operations.push_back(&glob);
    for (const Glob& glob : box.rule->fields) fields.push_back(&glob);
  }
  const bool json = (read_ & policy::kBodyJson) != 0;
  // An operation may have no name; a field has one.
  for (const std::string& operation : Texts(operations, {""}, {&kName})) {
    if (!operation.empty() && !IsGraphqlName(operation)) continue;
    for (const std::string& field : Texts(fields, {""}, {&kName})) {
      if (!IsGraphqlName(field)) continue;
      for (const GraphqlKind kind : {GraphqlKind::kQuery, GraphqlKind::kMutation, GraphqlKind::kSubscription}) {
        if (budget_->exhausted()) return;
        WitnessBody body{.kind = Kind::kGraphql, .graphql = {kind, operation, field}};
        AddWithBatches(body, policy::kBodyGraphql);
        if (!json) continue;
        body.json.emplace();
        AddWithBatches(body, policy::kBodyGraphql | policy::kBodyJson);
      }
    }
  }
}

void BodyDimension::CutCalls() {
  std::vector<const Glob*> methods;
  std::vector<const Glob*> tools;
  static const auto kNotifications = Glob::Text("notifications/*");
  for (const Box& box : boxes_) {
    if (box.reading != policy::kBodyRpc) continue;
    methods.push_back(&box.rule->rpc);
    for (const Glob& glob : box.rule->tool) tools.push_back(&glob);
    if (policy::HoldsMcpSession(*box.rule) && kNotifications) methods.push_back(&*kNotifications);
  }
  const bool json = (read_ & policy::kBodyJson) != 0;
  const auto add = [&](const std::string& method, std::optional<std::string> tool) {
    WitnessBody body{.kind = Kind::kRpc, .rpc = {method, std::move(tool), {}}};
    if (json) {
      // The one message, or a list of it, where pointers into a message lead nowhere.
      body.json.emplace();
      AddWithBatches(body, policy::kBodyRpc | policy::kBodyJson);
      body.json = {{"", JsonLeaf::Type::kArray, ""}};
      body.batch = true;
      Add(std::move(body), policy::kBodyRpc | policy::kBodyJson);
    } else {
      AddWithBatches(body, policy::kBodyRpc);
    }
  };
  // Without a method it is an answer.
  for (const std::string& method : Texts(methods, {"", "ping", std::string(kToolsCall)})) {
    if (method != kToolsCall) {
      add(method, std::nullopt);
      continue;
    }
    for (const std::string& tool : Texts(tools, {""}))
      if (!tool.empty()) add(method, tool);
  }
}

void BodyDimension::CutPushes() {
  std::vector<const Glob*> refs;
  for (const Box& box : boxes_)
    if (box.reading == policy::kBodyPush)
      for (const Glob& glob : box.rule->refs) refs.push_back(&glob);
  for (const std::string& ref : Texts(refs, {""})) {
    if (ref.empty()) continue;
    for (const policy::RefChange change : {policy::kRefUpdate, policy::kRefCreate, policy::kRefDelete})
      Add({.kind = Kind::kPush, .push = {ref, change}}, policy::kBodyPush);
  }
  Add({.kind = Kind::kPush}, policy::kBodyPush);
}

void BodyDimension::CutLeaves() {
  std::set<std::string> pointers;
  for (const Box& box : boxes_)
    if (box.reading != 0)
      for (const auto& matcher : box.rule->json) pointers.insert(matcher.key);
  std::vector<std::vector<std::string>> groups;
  for (const std::string& pointer : pointers) {
    std::vector<std::string> group{pointer};
    std::erase_if(groups, [&](const std::vector<std::string>& other) {
      const bool bears = std::any_of(other.begin(), other.end(), [&](const std::string& p) { return Bear(p, pointer); });
      if (bears) group.insert(group.end(), other.begin(), other.end());
      return bears;
    });
    std::sort(group.begin(), group.end());
    groups.push_back(std::move(group));
  }
  for (std::vector<std::string>& group : groups) {
    // A list has more values below a pointer than those that pointers lead to.
    std::vector<std::string> parents = group;
    std::erase_if(parents, [&](const std::string& parent) {
      return std::none_of(group.begin(), group.end(), [&](const std::string& p) { return IsBelow(p, parent); });
    });
    for (const std::string& parent : parents) group.push_back(PointerBelow(parent, group));
    CutGroup(group);
  }
}

bool BodyDimension::AdmitsLeaves(size_t b, const JsonLeaves& leaves, const std::vector<std::string>& group) const {
  Rule part;
  part.allow = boxes_[b].rule->allow;
  for (const auto& matcher : boxes_[b].rule->json)
    if (std::find(group.begin(), group.end(), matcher.key) != group.end()) part.json.push_back(matcher);
  if (part.json.empty()) return true;
  return IsDeny(boxes_[b].role) ? policy::DenyCoversJson(part, leaves) : policy::AllowCoversJson(part, leaves);
}

JsonLeaves BodyDimension::ValuesAt(const std::string& pointer) const {
  std::vector<const Glob*> globs;
  std::set<std::string> numbers;
  for (const Box& box : boxes_) {
    if (box.reading == 0) continue;
    for (const auto& matcher : box.rule->json) {
      if (!Bear(matcher.key, pointer)) continue;
      for (const Glob& glob : matcher.values) {
        globs.push_back(&glob);
        if (IsDeny(box.role) && glob.is_literal() && IsNumber(glob.text())) numbers.insert(glob.text());
      }
    }
  }
  // A deny of a number means its other spellings too, and what cannot be read as one. Where globs tell no texts apart but those
  // that they name, the spelling that is named says as much as another.
  std::vector<std::unique_ptr<Nfa>> nfas;
  std::vector<const Nfa*> patterns;
  const bool spelled =
      std::any_of(globs.begin(), globs.end(), [](const Glob* g) { return !g->is_literal() && g->text() != "*"; });
  for (const std::string& number : numbers) {
    if (!spelled) break;
    nfas.push_back(std::make_unique<Nfa>(OfNumber(number, globs)));
    if (!budget_->Spend(nfas.back()->nodes.size())) return {};
  }
  if (!numbers.empty()) nfas.push_back(std::make_unique<Nfa>(OfNumbersOutOfRange()));
  for (const auto& nfa : nfas) patterns.push_back(nfa.get());
  JsonLeaves values;
  for (std::string& text : Texts(globs, {}, patterns)) {
    if (!numbers.empty() && IsJsonNumber(text)) values.push_back({pointer, JsonLeaf::Type::kNumber, text});
    values.push_back({pointer, JsonLeaf::Type::kString, std::move(text)});
  }
  return values;
}

void BodyDimension::CutGroup(const std::vector<std::string>& group) {
  for (size_t operation = asks_operation_ ? 0 : kNoOperation; operation <= kNoOperation; ++operation) CutGroup(group, operation);
}

// `known` is what a batch call has at its operation.
void BodyDimension::CutGroup(const std::vector<std::string>& group, size_t known) {
  const bool bears = known != kNoOperation && Bear(group.front(), std::string(kOperation));
  const JsonLeaves given = bears ? JsonLeaves{OperationLeaf(known)} : JsonLeaves{};
  // The values of each pointer: none, and one for each way in which the globs there can match.
  std::vector<JsonLeaves> choices;
  for (const std::string& pointer : group) choices.push_back(ValuesAt(pointer));
  std::vector<JsonLeaves> sets{given};
  for (const JsonLeaves& values : choices) {
    const size_t before = sets.size();
    for (size_t i = 0; i < before; ++i) {
      for (const JsonLeaf& leaf : values) {
        // What has something below it is no value, and a batch call has one operation.
        if (std::any_of(sets[i].begin(), sets[i].end(), [&](const JsonLeaf& l) {
              return leaf.pointer == l.pointer || IsBelow(leaf.pointer, l.pointer) || IsBelow(l.pointer, leaf.pointer);
            }))
          continue;
        sets.push_back(sets[i]);
        sets.back().push_back(leaf);
        if (sets.size() > kMaxBodies) return budget_->Exhaust("the values of `json` combine in too many ways");
      }
    }
  }
  for (size_t mode = 0; mode < kModes; ++mode) leaves_[mode + kModes * known].emplace_back();
  for (JsonLeaves& leaves : sets) {
    if (!budget_->Spend(1 + boxes_.size() / 2)) return;
    std::vector<bool> admits;
    for (size_t b = 0; b < boxes_.size(); ++b) admits.push_back(boxes_[b].reading == 0 || AdmitsLeaves(b, leaves, group));
    leaves.erase(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(given.size()));  // the body has them
    for (size_t mode = 0; mode < kModes; ++mode) {
      LeavesElement element{leaves, BoxSet(boxes_.size())};
      for (size_t b = 0; b < boxes_.size(); ++b) {
        const BodyKinds reading = boxes_[b].reading;
        const bool asked = (reading == policy::kBodyJson && (mode & 1) != 0) || (reading == policy::kBodyRpc && (mode & 2) != 0);
        if (!asked || admits[b]) element.boxes.Set(b);
      }
      auto& elements = leaves_[mode + kModes * known].back();
      const bool told =
          std::any_of(elements.begin(), elements.end(), [&](const LeavesElement& e) { return e.boxes == element.boxes; });
      if (!told) elements.push_back(std::move(element));
    }
  }
}

}  // namespace sluice::prover
