// Words for whoever was refused: what came nearest, and the smallest rule that would do.
#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/asked.h"
#include "policy/index.h"
#include "policy/rule_text.h"
#include "policy/target.h"

namespace sluice::policy {
namespace {

constexpr uint32_t kNoIndex = 0xffffffff;
constexpr size_t kMaxShown = 120;  // characters of a path in a sentence

struct NearestRule {
  uint32_t index = kNoIndex;
  Misses misses = 0;
  int count = 99;
  void Offer(uint32_t i, Misses m) {
    const int n = std::popcount(m);
    if (n > count || (n == count && (m < misses || (m == misses && i > index)))) return;
    *this = {i, m, n};
  }
};

std::string HostText(const ConnectQuery& query) {
  if (!query.host.empty()) return std::string(query.host);
  if (!query.address) return "?";
  return query.address->is_v4() ? query.address->ToString() : fmt::format("[{}]", query.address->ToString());
}

std::string Shown(std::string_view path) {
  return path.size() <= kMaxShown ? std::string(path) : fmt::format("{}...", path.substr(0, kMaxShown));
}

// A path as a rule writes it: what the shell or the glob would read otherwise goes escaped. Nothing for a path that the
// compact form cannot grant.
std::string RulePath(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/:@%+,=").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out.size() <= kMaxGlob ? out : "";
}

std::string PlaceOf(const RuleInfo& info) {
  const size_t slash = info.span.file.rfind('/');
  SourceSpan span = info.span;
  if (slash != std::string::npos) span.file.erase(0, slash + 1);
  return PlaceText(span, info.origin);
}

std::string DenySentence(const Snapshot& snapshot, RuleRef ref, std::string_view what) {
  const RuleInfo* info = snapshot.rule(ref);
  if (info == nullptr) return fmt::format("a deny refuses {}", what);
  return fmt::format("{} is refused by deny: {} ({})", what, info->text, PlaceOf(*info));
}

// What the nearest rule lacks. Of the address the rest of the sentence speaks.
std::string Lack(Misses misses) {
  static constexpr std::pair<Misses, std::string_view> kWords[] = {
      {kMissBinary, "program"}, {kMissPort, "port"},     {kMissMethod, "method"},      {kMissPath, "path"},
      {kMissQuery, "query"},    {kMissHeader, "header"}, {kMissOperation, "operation"}};
  std::vector<std::string_view> lacks;
  for (const auto& [bit, word] : kWords)
    if ((misses & bit) != 0) lacks.push_back(word);
  std::string text;
  for (size_t i = 0; i < lacks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ", for another " : i + 1 == lacks.size() ? " and " : ", ", lacks[i]);
  if ((misses & kMissExpired) != 0) text += text.empty() ? ", which has expired" : ", and expired";
  return text;
}

std::string NearestText(const Snapshot& snapshot, const NearestRule& nearest) {
  if (nearest.index == kNoIndex) return "";
  const RuleInfo& info = snapshot.rules()[nearest.index];
  return fmt::format("; nearest: {} ({}){}", info.text, PlaceOf(info), Lack(nearest.misses));
}

std::string GuardSentence(const ConnectionView& connection, std::string_view what) {
  const std::string address = connection.query.address ? connection.query.address->ToString() : "an address";
  const char* name = connection.special ? connection.special->name : nullptr;
  if (connection.query.host.empty() && name != nullptr)
    return fmt::format("{} goes to a special address ({}); a rule would have to write it out: {}", what, name, address);
  const std::string kind = name == nullptr ? "outside the rule's `ip:`" : fmt::format("special ({})", name);
  return fmt::format("{} leads to {}, which is {}; a rule would need ip: [{}]", what, address, kind, address);
}

// A suggestion that the loader would refuse (a method that looks misspelt, for one) is none.
void KeepIfRule(std::string* suggest) {
  if (!suggest->empty() && !ParseCompact(Effect::kAllow, *suggest)) suggest->clear();
}

// A special address that the nearest rule opens is not what is wrong.
bool IsGuarded(const ConnectionView& connection, Reason reason, const NearestRule& nearest) {
  if (reason == Reason::kPrivateAddress) return true;
  return connection.special && (nearest.index == kNoIndex || (nearest.misses & kMissAddress) != 0);
}

}  // namespace

Advice Snapshot::AdviseConnect(const ConnectQuery& query, const ConnectDecision& denied) const {
  Advice advice;
  const ConnectionView connection(query);
  NearestRule nearest;
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (!query.address && !query.host.empty() && rule.host.kind == HostPattern::Kind::kAddress) return;
    if (rule.allow && rule.verb != Verb::kDns && (rule.verb == Verb::kUdp) == (query.transport == Transport::kUdp))
      nearest.Offer(i, ConnectionMisses(rule, connection));
  });
  if (nearest.index != kNoIndex) advice.nearest = RuleRef{nearest.index};
  const std::string host = HostText(query);
  const std::string what =
      fmt::format("{} {}:{}", query.transport == Transport::kUdp ? "UDP to" : "a connection to", host, query.port);
  if (denied.decision.reason == Reason::kDenyRule) {
    advice.explanation = DenySentence(*this, denied.decision.rule, what);
    return advice;
  }
  if (IsGuarded(connection, denied.decision.reason, nearest)) {
    advice.explanation = GuardSentence(connection, what);
    return advice;
  }
  advice.explanation = fmt::format("no rule allows {}{}", what, NearestText(*this, nearest));
  if (query.port == 0 || query.transport == Transport::kUdp || connection.special) return advice;
  // Where requests can be judged, the narrower rule is one that judges them.
  if (query.port == 443) {
    advice.suggest = fmt::format("GET {}", host);
  } else if (query.port == 80) {
    advice.suggest = fmt::format("GET http://{}", host);
  } else {
    advice.suggest = fmt::format("tcp {}:{}", host, query.port);
  }
  KeepIfRule(&advice.suggest);
  return advice;
}

Advice Snapshot::AdviseRequest(const RequestQuery& request, const Decision& denied) const {
  Advice advice;
  const ConnectQuery& query = request.connection;
  const ConnectionView connection(query);
  const std::string host = HostText(query);
  const std::string what = fmt::format("{} to {}", IsToken(request.method) ? Shown(request.method) : "this method", host);
  if (request.target == nullptr || denied.reason == Reason::kProtocol) {
    advice.explanation = fmt::format("{} is never forwarded", what);
    return advice;
  }
  if (denied.reason == Reason::kUnsupported) {
    advice.explanation = fmt::format("an upgrade of {} is not forwarded", what);
    return advice;
  }
  const RequestView view(request);
  NearestRule nearest;
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (!rule.allow || !IsInner(rule.verb)) return;
    const Misses misses = ConnectionMisses(rule, connection) | view.AllowMisses(rule);
    nearest.Offer(i, misses == 0 ? Misses{kMissOperation} : misses);
  });
  if (nearest.index != kNoIndex) advice.nearest = RuleRef{nearest.index};
  const bool cleartext = request.scheme == Scheme::kHttp;
  const std::string port = query.port == (cleartext ? 80 : 443) ? "" : fmt::format(":{}", query.port);
  const AskedTarget place{host + port, RulePath(request.target->path), cleartext};
  const Asked operation = AskedOf(*compiled_, request, advice.nearest, place);
  const auto git = ReadGitRequest(request);
  const std::string asked = !operation.words.empty() ? operation.words
                            : git                    ? fmt::format("{} of {}{}", VerbText(git->verb), host, Shown(git->repo))
                                                     : what;
  if (denied.reason == Reason::kDenyRule) {
    advice.explanation = DenySentence(*this, denied.rule, asked);
    return advice;
  }
  if (IsGuarded(connection, denied.reason, nearest)) {
    advice.explanation = GuardSentence(connection, asked);
    return advice;
  }
  advice.explanation = fmt::format("no rule allows {}{}", asked, NearestText(*this, nearest));
  if (!operation.fault.empty()) {
    advice.explanation =
        fmt::format("{}: its body cannot be judged ({}){}", asked, Shown(operation.fault), NearestText(*this, nearest));
    return advice;
  }
  if (connection.special) return advice;
  const CanonicalTarget& target = *request.target;
  if (target.has_hidden_dots) {
    advice.explanation += "; no rule can: to some servers its path has a dot segment";
    return advice;
  }
  if (target.has_encoded_slash || target.has_path_params || view.has_method_override()) {
    advice.explanation += fmt::format("; it would need the key `{}: true`", target.has_encoded_slash ? "encoded-slash"
                                                                            : target.has_path_params ? "path-params"
                                                                                                     : "method-override");
    return advice;
  }
  if (!operation.words.empty()) {
    advice.suggest = operation.suggest;
    KeepIfRule(&advice.suggest);
    if (!advice.suggest.empty() && !operation.key.empty())
      advice.explanation += fmt::format("; a rule that has `{}` beside it allows no more than that", operation.key);
    return advice;
  }
  // A body that no rule grants is not granted by another rule of its method alone.
  if (denied.reason == Reason::kOperation) return advice;
  if (git && !cleartext) {
    std::string repo = RulePath(git->repo);
    if (repo.ends_with(".git")) repo.resize(repo.size() - 4);
    if (repo.size() > 1) advice.suggest = fmt::format("{} {}{}{}", VerbText(git->verb), host, port, repo);
    KeepIfRule(&advice.suggest);
    return advice;
  }
  const std::string& path = place.path;
  if (!path.empty()) advice.suggest = fmt::format("{} {}{}{}{}", request.method, cleartext ? "http://" : "", host, port, path);
  KeepIfRule(&advice.suggest);
  return advice;
}

Advice Snapshot::AdviseName(const NameQuery& query, const NameDecision& denied) const {
  Advice advice;
  const std::string type = DnsTypeText(query.type);
  const std::string what = fmt::format("a lookup of {}", query.name.empty() ? "the root" : query.name);
  if (denied.decision.reason == Reason::kDenyRule) {
    advice.explanation = DenySentence(*this, denied.decision.rule, what);
    return advice;
  }
  NearestRule nearest;
  if (!query.name.empty()) {
    ForEachByName(*compiled_, query.name, [&](uint32_t i) {
      const Rule& rule = compiled_->rules[i];
      if (!rule.allow) return;
      Misses misses = 0;
      if (!AllowCoversProcess(rule, query.process)) misses |= kMissBinary;
      if (rule.until && query.now >= *rule.until) misses |= kMissExpired;
      nearest.Offer(i, misses);
    });
  }
  if (nearest.index != kNoIndex) advice.nearest = RuleRef{nearest.index};
  advice.explanation = fmt::format("no rule allows {}{}", what, NearestText(*this, nearest));
  if (nearest.index != kNoIndex && nearest.misses == 0 && compiled_->rules[nearest.index].verb == Verb::kDns)
    advice.explanation += ", for other types";
  // Every rule implies A and AAAA lookups of its own host, and a lookup alone is seldom what was wanted.
  if (!query.name.empty() && (query.type == kDnsA || query.type == kDnsAaaa)) {
    advice.explanation += "; a rule for what will be done there allows the lookup too";
    advice.suggest = fmt::format("GET {}", query.name);
    KeepIfRule(&advice.suggest);
  } else if (!type.empty()) {
    advice.explanation += fmt::format("; type {} needs a rule `dns` with `types: [{}]`", type, type);
  }
  return advice;
}

Advice Snapshot::AdviseAnswer(const ConnectQuery& query) const {
  Advice advice;
  const ConnectionView connection(query);
  NearestRule nearest;
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (rule.allow) nearest.Offer(i, ConnectionMisses(rule, connection) & ~Misses{kMissPort});
  });
  if (nearest.index != kNoIndex) advice.nearest = RuleRef{nearest.index};
  advice.explanation = GuardSentence(connection, query.host);
  // Where a person would write it; a lookup's own rule takes no `ip:`.
  if (nearest.index != kNoIndex && compiled_->rules[nearest.index].verb != Verb::kDns)
    advice.explanation += NearestText(*this, nearest);
  return advice;
}

}  // namespace sluice::policy
