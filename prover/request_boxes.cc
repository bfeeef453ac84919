#include "prover/request_boxes.h"

#include <algorithm>
#include <set>

#include "policy/match.h"
#include "policy/media_type.h"
#include "prover/query_text.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::Rule;
using policy::ValueMatcher;
using policy::Verb;
using Part = InnerRules::Part;

constexpr std::string_view kGraphqlQuery = "query";

bool AnyGlob(const std::vector<Glob>& globs, const std::string& text) {
  return std::any_of(globs.begin(), globs.end(), [&](const Glob& g) { return g.Matches(text); });
}

bool AllMatch(const ValueMatcher& matcher, const Values& values) {
  return !values.empty() &&
         std::all_of(values.begin(), values.end(), [&](const std::string& v) { return AnyGlob(matcher.values, v); });
}

bool AnyMatches(const ValueMatcher& matcher, const Values& values) {
  return std::any_of(values.begin(), values.end(), [&](const std::string& v) { return AnyGlob(matcher.values, v); });
}

std::string Lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return text;
}

// As RequestView::MayActAs reads the field.
bool NamesListedMethod(const Box& box, const Values& values) {
  const std::vector<std::string> methods = DeniedMethods(box);
  return std::any_of(values.begin(), values.end(), [&](const std::string& value) {
    return std::any_of(methods.begin(), methods.end(), [&](const std::string& listed) {
      return Lowered(listed) == Lowered(value) || (listed == "GET" && Lowered(value) == "head");
    });
  });
}

bool Contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// What a URL asks is the enforcer's to say: its own view of a request with one key and nothing else.
template <class F>
auto WithKey(const std::string& key, F f) {
  policy::CanonicalTarget target;
  target.path = "/";
  target.query = Encoded(key) + "=a";
  target.has_query = true;
  policy::RequestQuery query;
  query.method = "GET";
  query.target = &target;
  return f(policy::RequestView(query));
}

bool IsSign(const Rule& deny, const std::string& key) {
  Rule plain;
  plain.verb = deny.verb;
  plain.rpc = deny.rpc;
  if (plain.verb == Verb::kHttp) return false;
  return WithKey(key, [&](const policy::RequestView& view) { return view.DenyReading(plain).has_value(); });
}

// By which a server may take a GraphQL operation from the URL.
bool IsGraphqlSign(const std::string& key) {
  Rule deny;
  deny.verb = Verb::kGraphql;
  return IsSign(deny, key);
}

// A key of GraphQL's own GET form.
bool IsGraphqlMember(const std::string& key) {
  Rule allow;
  allow.allow = true;
  allow.verb = Verb::kGraphql;
  return WithKey(key, [&](const policy::RequestView& view) { return view.AllowCovers(allow); });
}

bool ShowsBody(const std::string& name, const Values& values) {
  return std::any_of(values.begin(), values.end(), [&](const std::string& v) { return name != "content-length" || v != "0"; });
}

bool MayHaveBody(const std::string& method) {
  return method != "GET" && method != "HEAD" && method != "OPTIONS" && method != "DELETE";
}

bool AllowAdmitsMethod(const Box& box, const std::string& method, bool web_socket) {
  if (web_socket || box.rule->verb == Verb::kWs) return web_socket && box.rule->verb == Verb::kWs && method == "GET";
  switch (box.part) {
    case Part::kGitRefs:
    case Part::kGraphqlGet:
    case Part::kMcpStream:
    case Part::kLfsLocks:
      return method == "GET";
    case Part::kLfsGet:
      return method == "GET" || method == "HEAD";
    case Part::kLfsPut:
      return method == "PUT";
    case Part::kMcpEnd:
      return method == "DELETE";
    case Part::kGitService:
    case Part::kLfsBatch:
    case Part::kLfsPost:
      return method == "POST";
    case Part::kPlain:
    case Part::kLfsOther:
      break;
  }
  return box.rule->verb == Verb::kHttp ? policy::ListsMethod(*box.rule, method) : method == "POST";
}

bool DenyAdmitsMethod(const Box& box, const std::string& method, bool web_socket) {
  const Verb verb = box.rule->verb;
  if (verb == Verb::kWs) return web_socket;
  if (box.sign == Box::Sign::kMethod && !MayHaveBody(method)) return false;
  if (!box.override_name.empty()) return true;
  if (box.part == Part::kLfsOther && verb == Verb::kGitFetchPack) return method == "GET" || method == "HEAD";
  return verb == Verb::kGrpc ? method == "POST" : policy::ListsMethod(*box.rule, method);
}

bool IsOfMedia(const Box& box, const Values& values) {
  const std::string_view type = values.size() == 1 ? std::string_view(values[0]) : std::string_view{};
  switch (MediaOf(box)) {
    case Media::kAny:
      return true;
    case Media::kJson:
      return policy::IsJson(type);
    case Media::kGrpc:
      return policy::IsGrpc(type);
    case Media::kGit:
      return type == GitContentType(box.rule->verb);
    case Media::kLfs:
      return policy::IsLfsJson(type);
  }
  return false;
}

policy::BodyKinds ReadingOf(const Rule& rule, Part part) {
  if (part == Part::kLfsBatch) return policy::kBodyLfs;
  switch (rule.verb) {
    case Verb::kGraphql:
      return policy::kBodyGraphql;
    case Verb::kJsonRpc:
    case Verb::kMcp:
      return part == Part::kPlain ? policy::kBodyRpc : policy::BodyKinds{0};
    case Verb::kHttp:
      return rule.json.empty() ? policy::BodyKinds{0} : policy::kBodyJson;
    case Verb::kGitReceivePack:
      return part == Part::kGitService && policy::ReadsPush(rule) ? policy::kBodyPush : policy::BodyKinds{0};
    default:
      return 0;
  }
}

void AddParts(Box box, std::vector<Box>* boxes) {
  const Rule& rule = *box.rule;
  const bool deny = IsDeny(box.role);
  std::vector<Part> parts{Part::kPlain};
  // Whoever may push some refs must see them all.
  if (policy::IsGit(rule.verb)) parts = {Part::kGitRefs, Part::kGitService};
  if (policy::IsGit(rule.verb) && deny && policy::ReadsPush(rule)) parts = {Part::kGitService};
  if (rule.lfs) parts.push_back(Part::kLfsBatch);
  if (rule.lfs && !deny && rule.verb == Verb::kGitFetchPack) parts.push_back(Part::kLfsGet);
  if (rule.lfs && !deny && rule.verb == Verb::kGitReceivePack)
    parts.insert(parts.end(), {Part::kLfsPut, Part::kLfsPost, Part::kLfsLocks});
  if (!deny && rule.verb == Verb::kGraphql && rule.graphql == policy::GraphqlKind::kQuery) parts.push_back(Part::kGraphqlGet);
  if (!deny && policy::HoldsMcpSession(rule)) parts.insert(parts.end(), {Part::kMcpStream, Part::kMcpEnd});
  for (const Part part : parts) {
    box.part = part;
    box.reading = ReadingOf(rule, part);
    boxes->push_back(box);
  }
}

// f(box) for each way in which a request shows that it may have a body.
template <class F>
void ForEachSign(Box box, const Names& names, F f) {
  const auto add = [&](Box::Sign sign, std::string name) {
    box.sign = sign;
    box.sign_name = std::move(name);
    f(box);
  };
  add(Box::Sign::kMethod, "");
  for (const std::string& name : names.headers)
    if (policy::IsMethodOverrideHeader(name) || name == "content-type" || name == "content-length" || name == "transfer-encoding")
      add(Box::Sign::kField, name);
  for (const std::string& key : names.query)
    if (IsSign(*box.rule, key)) add(Box::Sign::kKey, key);
}

// A deny's boxes, by what shows that there may be a body where it speaks of one.
void AddSigned(const Box& box, const Names& names, std::vector<Box>* boxes) {
  if (NeedsSign(*box.rule)) {
    ForEachSign(box, names, [&](const Box& signed_box) { AddParts(signed_box, boxes); });
  } else {
    AddParts(box, boxes);
  }
}

// A deny of LFS calls other than the batch: those that read for a fetch, those that may have a body for a push.
void AddLfsOther(Box box, const Names& names, std::vector<Box>* boxes) {
  box.part = Part::kLfsOther;
  if (NeedsSignOfLfs(*box.rule)) {
    ForEachSign(box, names, [&](const Box& signed_box) { boxes->push_back(signed_box); });
    return;
  }
  boxes->push_back(box);
  for (const std::string& name : names.headers) {
    if (!policy::IsMethodOverrideHeader(name)) continue;
    box.override_name = name;
    boxes->push_back(box);
  }
}

}  // namespace

bool NeedsSignOfLfs(const Rule& deny) { return deny.verb == Verb::kGitReceivePack && deny.lfs; }

bool NeedsSign(const Rule& deny) {
  return deny.verb == Verb::kGraphql || deny.verb == Verb::kJsonRpc || deny.verb == Verb::kMcp || !deny.json.empty();
}

std::vector<std::string> DeniedMethods(const Box& box) {
  if (box.rule->verb == Verb::kGrpc) return {"POST"};
  return box.part == Part::kLfsOther ? std::vector<std::string>{"GET"} : box.rule->methods;
}

namespace {

Nfa NfaOf(const Rule& rule, Part part) {
  if (!InnerRules::IsGitPart(part)) return AnyOf(rule.paths);
  switch (part) {
    case Part::kLfsBatch:
      return OfRepositories(rule, "/info/lfs/objects/batch");
    case Part::kLfsLocks:
      return OfRepositories(rule, "/info/lfs/locks");
    case Part::kLfsGet:
    case Part::kLfsPut:
      return OfLfsCalls(rule, LfsCalls::kObjects);
    case Part::kLfsPost:
      return OfLfsCalls(rule, LfsCalls::kPosts);
    case Part::kLfsOther:
      return OfLfsCalls(rule, LfsCalls::kAny);
    default:
      break;
  }
  Nfa nfa = OfRepositories(rule, part == Part::kGitRefs ? "/info/refs" : "/" + std::string(policy::GitService(rule.verb)));
  // A deny that speaks of LFS reads everything below "/info/lfs/" as a call of it.
  return rule.lfs && !rule.allow ? Without(nfa, "/info/lfs/") : nfa;
}

}  // namespace

InnerRules::InnerRules() {
  rules_.push_back(std::make_unique<Rule>());
  rules_.front()->method_override = true;
}

InnerId InnerRules::Intern(const Rule& rule, const std::vector<Glob>& within) {
  auto inner = std::make_unique<Rule>(rule);
  inner->host = {};
  inner->ports.clear();
  inner->by.clear();
  inner->under.clear();
  inner->ip.clear();
  inner->until.reset();
  inner->with.clear();
  inner->via.clear();
  inner->pins.clear();
  std::string meaning = policy::CanonicalText(*inner);
  for (const Glob& glob : within) meaning += '\n' + glob.text();
  const auto [at, fresh] = numbers_.try_emplace(std::move(meaning), static_cast<InnerId>(rules_.size()));
  if (fresh) rules_.push_back(std::move(inner));
  if (fresh && !within.empty()) within_.emplace(at->second, within);
  return at->second;
}

uint32_t InnerRules::PathsNumber(InnerId id, Part part) {
  if (!IsGitPart(part)) part = Part::kPlain;
  const auto [at, fresh] = path_numbers_.try_emplace({id, part}, 0);
  if (!fresh) return at->second;
  // All that Paths looks at.
  const Rule& rule = *rules_[id];
  std::string text{static_cast<char>('0' + static_cast<int>(part)), rule.allow || id == kUniversal ? 'a' : 'd',
                   rule.encoded_slash || id == kUniversal ? '%' : ' ', rule.path_params || id == kUniversal ? ';' : ' '};
  if (IsGitPart(part)) text += std::string(policy::GitService(rule.verb)) + (rule.lfs ? " lfs" : "");
  for (const Glob& glob : rule.paths) text += '\n' + glob.text();
  if (const auto bound = within_.find(id); bound != within_.end())
    for (const Glob& glob : bound->second) text += "\n within " + glob.text();
  at->second = path_texts_.try_emplace(std::move(text), static_cast<uint32_t>(path_texts_.size())).first->second;
  return at->second;
}

const PathPattern& InnerRules::Paths(InnerId id, Part part) {
  auto& pattern = paths_[PathsNumber(id, part)];
  if (pattern) return *pattern;
  const Rule& rule = *rules_[id];
  const bool universal = id == kUniversal;
  pattern = std::make_unique<PathPattern>();
  pattern->reading = rule.allow || universal ? Reading::kNarrow : Reading::kWide;
  pattern->encoded_slash = rule.encoded_slash || universal;
  pattern->path_params = rule.path_params || universal;
  pattern->nfa = NfaOf(rule, part);
  if (const auto bound = within_.find(id); bound != within_.end()) pattern->nfa = Both(pattern->nfa, AnyOf(bound->second));
  return *pattern;
}

bool AdmitsMethod(const Box& box, const std::string& method, policy::Upgrade upgrade) {
  if (box.universal()) return true;
  const bool web_socket = upgrade == policy::Upgrade::kWebSocket;
  return IsDeny(box.role) ? DenyAdmitsMethod(box, method, web_socket) : AllowAdmitsMethod(box, method, web_socket);
}

std::string GitContentType(policy::Verb verb) { return "application/x-" + std::string(policy::GitService(verb)) + "-request"; }

bool AdmitsHeader(const Box& box, const std::string& name, const Values& values) {
  const bool overrides = policy::IsMethodOverrideHeader(name);
  if (box.universal()) return true;
  const Rule& rule = *box.rule;
  if (IsDeny(box.role)) {
    for (size_t i = 0; i < rule.headers.size(); ++i)
      if (box.header_names[i] == name && !AnyMatches(rule.headers[i], values)) return false;
    if (box.sign == Box::Sign::kField && box.sign_name == name && !ShowsBody(name, values)) return false;
    return box.override_name != name || NamesListedMethod(box, values);
  }
  if (overrides && !values.empty() && !rule.method_override) return false;
  for (const ValueMatcher& matcher : rule.headers)
    if (matcher.key == name && !AllMatch(matcher, values)) return false;
  if (box.part == Part::kMcpStream && name == "accept")
    return std::any_of(values.begin(), values.end(),
                       [](const std::string& v) { return v.find("text/event-stream") != std::string::npos; });
  if (box.part == Part::kMcpEnd && name == "mcp-session-id")
    return std::any_of(values.begin(), values.end(), [](const std::string& v) { return !v.empty(); });
  return name != "content-type" || IsOfMedia(box, values);
}

bool AdmitsShape(const Box& box, QueryShape shape) {
  if (box.universal() || IsDeny(box.role)) return true;
  const Rule& rule = *box.rule;
  switch (box.part) {
    case Part::kPlain: {
      // What a URL says may count for more than the body, so these have no query.
      const bool bare = rule.verb == Verb::kGrpc || (rule.verb == Verb::kGraphql && rule.query.empty() && !rule.query_keys);
      return !bare || shape == QueryShape::kNone;
    }
    case Part::kGitService:
    case Part::kLfsBatch:
      return shape == QueryShape::kNone;
    case Part::kGitRefs:
      return shape == (rule.verb == Verb::kGitFetchPack ? QueryShape::kExactUpload : QueryShape::kExactReceive);
    case Part::kGraphqlGet:
      return shape != QueryShape::kNone && shape != QueryShape::kBare;
    case Part::kMcpStream:
    case Part::kMcpEnd:
    case Part::kLfsGet:
    case Part::kLfsPut:
    case Part::kLfsPost:
    case Part::kLfsLocks:
    case Part::kLfsOther:
      return true;
  }
  return true;
}

bool AdmitsQuery(const Box& box, const std::string& key, const Values& values) {
  if (box.universal()) return true;
  const Rule& rule = *box.rule;
  if (IsDeny(box.role)) {
    for (const ValueMatcher& matcher : rule.query)
      if (matcher.key == key && !AnyMatches(matcher, values)) return false;
    if (box.sign == Box::Sign::kKey && box.sign_name == key) return !values.empty();
    if (box.part != Part::kGitRefs || key != "service") return true;
    // Without a service it is a fetch of the dumb protocol.
    if (values.empty()) return rule.verb == Verb::kGitFetchPack;
    return Contains(values, std::string(policy::GitService(rule.verb)));
  }
  bool listed = !rule.query_keys || Contains(*rule.query_keys, key);
  for (const ValueMatcher& matcher : rule.query) {
    if (matcher.key != key) continue;
    listed = true;
    if (!AllMatch(matcher, values)) return false;
  }
  if (rule.verb == Verb::kGraphql && box.part == Part::kPlain) return values.empty() || (listed && !IsGraphqlSign(key));
  if (box.part != Part::kGraphqlGet) return listed || values.empty();
  // The operation stands in it, once.
  if (key == kGraphqlQuery) return values.size() == 1 && listed;
  const bool named = Contains(rule.query_keys.value_or(std::vector<std::string>{}), key) ||
                     std::any_of(rule.query.begin(), rule.query.end(), [&](const ValueMatcher& m) { return m.key == key; });
  return values.empty() || named || (IsGraphqlMember(key) && listed);
}

bool AdmitsOtherKey(const Box& box, OtherKey other) {
  if (other == OtherKey::kNone || box.universal() || IsDeny(box.role)) return true;
  if (box.part == Part::kGraphqlGet) return false;
  return !box.rule->query_keys && (other == OtherKey::kPlain || box.rule->query.empty());
}

Media MediaOf(const Box& box) {
  if (box.universal() || IsDeny(box.role)) return Media::kAny;
  const Verb verb = box.rule->verb;
  if (box.part == Part::kGitService) return Media::kGit;
  if (box.part == Part::kLfsBatch) return Media::kLfs;
  if (box.part != Part::kPlain) return Media::kAny;
  if (verb == Verb::kGrpc) return Media::kGrpc;
  const bool json = verb == Verb::kGraphql || verb == Verb::kJsonRpc || verb == Verb::kMcp || !box.rule->json.empty();
  return json ? Media::kJson : Media::kAny;
}

void AddBoxes(Role role, InnerId inner, const Rule& rule, const Names& names, std::vector<Box>* boxes) {
  if (!IsDeny(role)) {
    AddParts({role, inner, &rule}, boxes);
    return;
  }
  // Each matcher may be met by any field that is the same to some server.
  std::vector<Box> open{{role, inner, &rule}};
  for (const ValueMatcher& matcher : rule.headers) {
    std::vector<Box> next;
    for (const Box& box : open) {
      for (const std::string& name : names.headers) {
        if (!policy::SameToSomeServer(matcher.key, name)) continue;
        next.push_back(box);
        next.back().header_names.push_back(name);
      }
    }
    open = std::move(next);
  }
  const bool by_method = !rule.methods.empty() || rule.verb == Verb::kGrpc;
  for (const Box& box : open) {
    AddSigned(box, names, boxes);
    if (rule.lfs) AddLfsOther(box, names, boxes);
    if (!by_method) continue;
    for (const std::string& name : names.headers) {
      if (!policy::IsMethodOverrideHeader(name)) continue;
      // A request with such a field may have a body.
      Box overridden = box;
      overridden.override_name = name;
      AddParts(std::move(overridden), boxes);
    }
  }
}

}  // namespace sluice::prover
