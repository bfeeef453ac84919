// Which fields and keys the boxes of one problem are asked about: those that rules name, and one besides for what they leave out.

#include <algorithm>
#include <set>

#include "policy/match.h"
#include "prover/request_boxes.h"

namespace sluice::prover {
namespace {

using policy::Rule;
using policy::ValueMatcher;
using policy::Verb;

const std::string kQuery = "query";
const std::string kMethod = "method";

// The listed name and its spellings with '-' and '_' exchanged, as many as are worth trying.
std::vector<std::string> Spellings(const std::string& name) {
  std::vector<std::string> spellings{name};
  for (size_t i = 0; i < name.size() && spellings.size() < 64; ++i) {
    if (name[i] != '-' && name[i] != '_') continue;
    const size_t count = spellings.size();
    for (size_t s = 0; s < count; ++s) {
      spellings.push_back(spellings[s]);
      spellings.back()[i] = name[i] == '-' ? '_' : '-';
    }
  }
  return spellings;
}

// The word in a case of letters that is not among the names; empty where all are.
std::string InOtherCase(const std::string& word, const std::set<std::string>& named) {
  for (size_t upper = 0; upper >> word.size() == 0; ++upper) {
    std::string text = word;
    for (size_t i = 0; i < word.size(); ++i)
      if ((upper >> i & 1) != 0) text[i] = static_cast<char>(text[i] ^ 0x20);
    if (!named.contains(text)) return text;
  }
  return "";
}

// A key by which servers read an operation from the URL as they do by `query`, of those that no rule names: a member of GraphQL's
// GET form where there is one.
std::string UnnamedGraphqlKey(const std::set<std::string>& named) {
  for (const char* member : {"variables", "operationName", "extensions"})
    if (!named.contains(member)) return member;
  return InOtherCase("documentid", named);
}

void AddWord(std::string word, std::set<std::string>* words) {
  if (!word.empty()) words->insert(std::move(word));
}

// One spelling that no allow looks at, where there is one.
void AddUnlisted(const std::string& name, std::set<std::string>* names, const std::set<std::string>& listed) {
  for (const std::string& spelling : Spellings(name)) {
    if (listed.contains(spelling)) continue;
    names->insert(spelling);
    return;
  }
}

}  // namespace

Names NamesOf(const std::vector<std::pair<Role, const Rule*>>& rules) {
  std::set<std::string> listed;
  std::set<std::string> keys;
  bool graphql = false;
  bool calls = false;
  bool overrides = false;
  bool signs = false;
  for (const auto& [role, rule] : rules) {
    for (const ValueMatcher& matcher : rule->query) keys.insert(matcher.key);
    if (rule->query_keys) keys.insert(rule->query_keys->begin(), rule->query_keys->end());
    graphql |= rule->verb == Verb::kGraphql;
    if (IsDeny(role)) {
      signs |= NeedsSign(*rule) || NeedsSignOfLfs(*rule);
      calls |= rule->verb == Verb::kJsonRpc || rule->verb == Verb::kMcp;
      continue;
    }
    for (const ValueMatcher& matcher : rule->headers) listed.insert(matcher.key);
    if (policy::IsGit(rule->verb) || rule->verb == Verb::kGrpc || policy::ReadsBody(*rule)) listed.insert("content-type");
    if (policy::HoldsMcpSession(*rule)) listed.insert({"accept", "mcp-session-id"});
    overrides |= role == Role::kHeadAllow && rule->method_override;
  }
  // What rules say of some keys they may not say of others that mean the same to a server.
  const std::set<std::string> named = keys;
  if (graphql) keys.insert(kQuery);
  if (graphql && !named.empty()) AddWord(UnnamedGraphqlKey(named), &keys);
  if (calls) keys.insert(kMethod);
  if (calls && named.contains(kMethod)) AddWord(InOtherCase(kMethod, named), &keys);
  std::set<std::string> names = listed;
  if (overrides) AddUnlisted("x-http-method-override", &names, listed);
  for (const auto& [role, rule] : rules)
    if (IsDeny(role))
      for (const ValueMatcher& matcher : rule->headers) AddUnlisted(matcher.key, &names, listed);
  // Of the fields that show a body the next one counts where rules speak of the one before it.
  bool spoken = signs;
  for (const std::string sign : {"content-type", "content-length", "transfer-encoding"}) {
    if (!spoken) break;
    names.insert(sign);
    spoken = std::any_of(rules.begin(), rules.end(), [&](const auto& r) {
      return std::any_of(r.second->headers.begin(), r.second->headers.end(),
                         [&](const ValueMatcher& m) { return policy::SameToSomeServer(m.key, sign); });
    });
  }
  return {{names.begin(), names.end()}, {keys.begin(), keys.end()}};
}

}  // namespace sluice::prover
