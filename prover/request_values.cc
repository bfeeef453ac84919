#include "prover/request_values.h"

#include <algorithm>
#include <set>

#include "policy/layers.h"
#include "policy/match.h"
#include "prover/query_text.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::Rule;
using policy::ValueMatcher;

constexpr size_t kMaxValueSets = 4096;
const ValueMatcher kEventStream{"accept", {*Glob::Text("*text/event-stream*")}};

// The patterns of one key, gathered from the boxes.
struct KeyPatterns {
  std::vector<std::unique_ptr<Nfa>> nfas{};
  std::vector<const Nfa*> patterns{};
  std::set<std::string> seen{};
  std::unordered_set<std::string> literals{};

  void Add(Nfa nfa) {
    nfas.push_back(std::make_unique<Nfa>(std::move(nfa)));
    patterns.push_back(nfas.back().get());
  }
  void Add(Media media, const Box& box) {
    if (media == Media::kGit) literals.insert(GitContentType(box.rule->verb));
    if (media == Media::kJson && seen.insert("json types").second) Add(OfJsonTypes());
    if (media == Media::kLfs && seen.insert("lfs type").second) Add(OfLfsType());
    if (media == Media::kGrpc && seen.insert("grpc types").second) Add(OfGrpcTypes());
  }
  void Add(const ValueMatcher& matcher) {
    for (const Glob& glob : matcher.values) {
      if (glob.is_literal()) {
        literals.insert(glob.tokens().empty() ? std::string() : glob.tokens()[0].literal);
      } else if (seen.insert(glob.text()).second) {
        Add(OfGlob(glob));
      }
    }
  }
};

std::string Service(QueryShape shape) {
  return std::string(
      policy::GitService(shape == QueryShape::kExactUpload ? policy::Verb::kGitFetchPack : policy::Verb::kGitReceivePack));
}

bool IsGitBox(const Box& box) { return InnerRules::IsGitPart(box.part) && !InnerRules::IsLfsPart(box.part); }

}  // namespace

RequestDimensions::RequestDimensions(const std::vector<Box>& boxes, const Names& names, Budget* budget)
    : boxes_(boxes), budget_(budget) {
  CutMethods();
  CutHeaders(names.headers);
  CutQuery(names.query);
}

void RequestDimensions::CutMethods() {
  std::vector<std::string> methods{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"};
  std::set<std::string> named(methods.begin(), methods.end());
  for (const Box& box : boxes_) {
    if (box.universal()) continue;
    for (const std::string& method : box.rule->methods)
      if (!policy::NeverForwarded(method) && named.insert(method).second) methods.push_back(method);
  }
  // One that nobody names: those that people know first.
  std::string other;
  for (const char* known : {"PROPFIND", "MKCOL", "REPORT", "LOCK", "SEARCH"})
    if (other.empty() && !named.contains(known)) other = known;
  for (int i = 0; other.empty(); ++i)
    if (const std::string made = "X" + std::to_string(i); !named.contains(made)) other = made;
  methods.push_back(other);
  for (const std::string& method : methods) AddMethod(method, policy::Upgrade::kNone, method == other ? "*" : method);
  AddMethod("GET", policy::Upgrade::kWebSocket, "websocket");
}

void RequestDimensions::AddMethod(const std::string& method, policy::Upgrade upgrade, const std::string& shown) {
  BoxSet set(boxes_.size());
  for (size_t b = 0; b < boxes_.size(); ++b)
    if (AdmitsMethod(boxes_[b], method, upgrade)) set.Set(b);
  const auto same = std::find_if(methods_.begin(), methods_.end(), [&](const MethodElement& e) { return e.boxes == set; });
  if (same != methods_.end()) {
    same->all.push_back(shown);
  } else {
    methods_.push_back({method, upgrade, {shown}, std::move(set)});
  }
}

// The sets of values that differ to some box: one value of each atom, then unions of those, until nothing new comes.
template <class Admits>
std::vector<ValueElement> RequestDimensions::CutKey(const std::string& key, Language language,
                                                    const std::vector<const Nfa*>& patterns,
                                                    const std::unordered_set<std::string>& literals, Admits admits) const {
  std::vector<ValueElement> elements;
  std::set<BoxSet> seen;
  const auto add = [&](Values values) {
    if (!budget_->Spend(1 + boxes_.size() / 4)) return;
    BoxSet set(boxes_.size());
    for (size_t b = 0; b < boxes_.size(); ++b)
      if (admits(boxes_[b], key, values)) set.Set(b);
    // Absent is apart from the rest: a query without pairs is not one with some.
    if (seen.insert(set).second || values.empty()) elements.push_back({key, std::move(values), std::move(set)});
  };
  add({});
  seen.clear();
  std::vector<std::string> texts = StringAtoms(patterns, language, budget_).Members(literals, budget_);
  for (const std::string& literal : literals)
    if (InLanguage(language, literal)) texts.push_back(literal);
  std::sort(texts.begin(), texts.end(), ShorterFirst);
  for (const std::string& text : texts) add({text});
  const size_t singles = elements.size();
  for (size_t i = 1; i < elements.size(); ++i) {
    for (size_t s = 1; s < singles && !budget_->exhausted(); ++s) {
      Values both = elements[i].values;
      both.push_back(elements[s].values[0]);
      add(std::move(both));
    }
    if (elements.size() > kMaxValueSets) budget_->Exhaust("the values of `" + key + "` combine in too many ways");
    if (budget_->exhausted()) break;
  }
  return elements;
}

void RequestDimensions::CutHeaders(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    KeyPatterns key;
    for (const Box& box : boxes_) {
      if (box.universal()) continue;
      for (size_t i = 0; i < box.rule->headers.size(); ++i)
        if ((IsDeny(box.role) ? box.header_names[i] : box.rule->headers[i].key) == name) key.Add(box.rule->headers[i]);
      if (box.override_name == name) {
        std::vector<std::string> words = DeniedMethods(box);
        if (std::find(words.begin(), words.end(), "GET") != words.end()) words.emplace_back("HEAD");
        key.Add(OfWords(words));
      }
      if (name == "content-type") key.Add(MediaOf(box), box);
      if (box.part == InnerRules::Part::kMcpStream && name == "accept") key.Add(kEventStream);
      // Some of these must not be empty, or not be nothing.
      if (name == "mcp-session-id") key.literals.insert("");
      if (name == "content-length") key.literals.insert("0");
    }
    headers_.push_back(CutKey(name, Language::kHeaderValue, key.patterns, key.literals, AdmitsHeader));
    // No request with it is forwarded but an upgrade to WebSocket, which has none in HTTP/2 (RFC 8441): so it is absent.
    if (name == "upgrade") headers_.back().erase(headers_.back().begin() + 1, headers_.back().end());
  }
}

void RequestDimensions::CutQuery(const std::vector<std::string>& names) {
  std::map<std::string, KeyPatterns> keys;
  bool git_allow = false;
  bool bare = false;  // some box tells a bare '?' from none
  for (const std::string& name : names) keys[name];
  for (const Box& box : boxes_) {
    if (box.universal()) continue;
    bare |= !AdmitsShape(box, QueryShape::kBare);
    for (const ValueMatcher& matcher : box.rule->query) {
      keys[matcher.key].Add(matcher);
      document_is_free_ &= matcher.key != "query";
    }
    if (!IsGitBox(box)) continue;
    git_allow |= !IsDeny(box.role);
    for (const QueryShape shape : {QueryShape::kExactUpload, QueryShape::kExactReceive})
      keys["service"].literals.insert(Service(shape));
  }
  other_key_ = "a";
  while (keys.contains(other_key_) || keys.contains(other_key_ + ';')) other_key_ += 'a';
  for (auto& [name, key] : keys) query_.push_back(CutKey(name, Language::kQueryValue, key.patterns, key.literals, AdmitsQuery));
  shapes_.push_back(QueryShape::kNone);
  if (git_allow) shapes_.insert(shapes_.end(), {QueryShape::kExactUpload, QueryShape::kExactReceive});
  const bool closed =
      std::any_of(boxes_.begin(), boxes_.end(), [](const Box& b) { return !b.universal() && b.rule->query_keys.has_value(); });
  if (bare || closed || !keys.empty()) shapes_.push_back(QueryShape::kPairs);
  if (bare) shapes_.push_back(QueryShape::kBare);
  for (const QueryShape shape : {QueryShape::kExactUpload, QueryShape::kExactReceive}) {
    BoxSet set(boxes_.size());
    for (size_t b = 0; b < boxes_.size(); ++b)
      if (AdmitsQuery(boxes_[b], "service", {Service(shape)})) set.Set(b);
    service_.push_back({"service", {Service(shape)}, std::move(set)});
  }
}

BoxSet RequestDimensions::ShapeBoxes(QueryShape shape) const {
  BoxSet set(boxes_.size());
  for (size_t b = 0; b < boxes_.size(); ++b)
    if (AdmitsShape(boxes_[b], shape)) set.Set(b);
  return set;
}

BoxSet RequestDimensions::OtherKeyBoxes(OtherKey other) const {
  BoxSet set(boxes_.size());
  for (size_t b = 0; b < boxes_.size(); ++b)
    if (AdmitsOtherKey(boxes_[b], other)) set.Set(b);
  return set;
}

std::string RequestDimensions::QueryText(QueryShape shape, const std::vector<const ValueElement*>& query, OtherKey other,
                                         const std::string& document) const {
  if (shape == QueryShape::kNone || shape == QueryShape::kBare) return "";
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    // A pair of nothing would be no pair.
    const bool bare = value.empty() && !key.empty();
    text += (text.empty() ? "" : "&") + Encoded(key) + (bare ? "" : "=" + Encoded(value));
  };
  for (const ValueElement* element : query)
    for (const std::string& value : element->values)
      add(element->key, element->key == "query" && document_is_free_ && !document.empty() ? document : value);
  if (other != OtherKey::kNone) add(other_key_, "");
  if (other == OtherKey::kSemicolon) text += ';';
  // Pairs that are no git request must not look like one.
  if (shape == QueryShape::kPairs &&
      (text == "service=" + Service(QueryShape::kExactUpload) || text == "service=" + Service(QueryShape::kExactReceive)))
    text += '&';
  return text;
}

}  // namespace sluice::prover
