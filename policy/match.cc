#include "policy/match.h"

#include <algorithm>
#include <array>

#include "base/hex.h"
#include "policy/credential.h"
#include "policy/media_type.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxDecoded = 16 * 1024;  // as long as a request target may be
constexpr std::string_view kInfoRefs = "/info/refs";
constexpr std::string_view kUploadPack = "git-upload-pack";
constexpr std::string_view kReceivePack = "git-receive-pack";
constexpr std::string_view kLfs = "/info/lfs/";
constexpr std::string_view kLfsBatch = "objects/batch";

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}

// A query's text decoded once: '+' is a space, a broken escape stands for itself.
using QueryBuffer = std::array<char, kMaxDecoded>;
std::string_view DecodeQuery(std::string_view raw, QueryBuffer* buffer) {
  size_t size = 0;
  for (size_t i = 0; i < raw.size() && size < buffer->size(); ++i) {
    char c = raw[i];
    if (c == '+') {
      c = ' ';
    } else if (c == '%' && i + 2 < raw.size() && HexValue(raw[i + 1]) >= 0 && HexValue(raw[i + 2]) >= 0) {
      c = static_cast<char>(HexValue(raw[i + 1]) * 16 + HexValue(raw[i + 2]));
      i += 2;
    }
    (*buffer)[size++] = c;
  }
  return {buffer->data(), size};
}

// What ends a pair. Some servers split at ';' too: no allow holds for such a query, and a deny is tested against both readings.
constexpr std::string_view kAmpersand = "&";
constexpr std::string_view kAmpersandOrSemicolon = "&;";
bool HasOtherReading(std::string_view query) { return query.find(';') != std::string_view::npos; }

// Calls f(key, value) for each pair until it returns false. "k" is "k=".
template <class F>
void ForEachPair(std::string_view query, std::string_view separators, F f) {
  QueryBuffer key_buffer;
  QueryBuffer value_buffer;
  while (!query.empty()) {
    const size_t end = query.find_first_of(separators);
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = DecodeQuery(pair.substr(0, equals), &key_buffer);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : DecodeQuery(pair.substr(equals + 1), &value_buffer);
    if (!f(key, value)) return;
  }
}

bool AnyGlob(const std::vector<Glob>& globs, std::string_view text) {
  return std::any_of(globs.begin(), globs.end(), [&](const Glob& g) { return g.Matches(text); });
}

// A query that two servers may cut into different pairs is in no allow that speaks of pairs.
bool AllowCoversQuery(const Rule& rule, std::string_view query) {
  if (rule.query.empty() && !rule.query_keys) return true;
  if (HasOtherReading(query)) return false;
  bool good = true;
  for (const ValueMatcher& matcher : rule.query) {
    bool present = false;
    ForEachPair(query, kAmpersand, [&](std::string_view key, std::string_view value) {
      if (key != matcher.key) return true;
      present = true;
      good = AnyGlob(matcher.values, value);
      return good;
    });
    if (!good || !present) return false;
  }
  if (!rule.query_keys) return true;
  ForEachPair(query, kAmpersand, [&](std::string_view key, std::string_view) {
    good = std::any_of(rule.query_keys->begin(), rule.query_keys->end(), [&](const std::string& k) { return k == key; }) ||
           std::any_of(rule.query.begin(), rule.query.end(), [&](const ValueMatcher& m) { return m.key == key; });
    return good;
  });
  return good;
}

// As a deny reads the query of `info/refs`: without a service it is a fetch of the dumb protocol.
bool AsksGitService(Verb verb, std::string_view query, std::string_view separators) {
  bool named = false;
  bool other = false;
  ForEachPair(query, separators, [&](std::string_view key, std::string_view value) {
    if (key == "service") (value == GitService(verb) ? named : other) = true;
    return true;
  });
  return named || (!other && verb == Verb::kGitFetchPack);
}

// Every listed key must have some value that matches.
bool DenyCoversReading(const Rule& rule, std::string_view query, std::string_view separators) {
  for (const ValueMatcher& matcher : rule.query) {
    bool hit = false;
    ForEachPair(query, separators, [&](std::string_view key, std::string_view value) {
      hit = key == matcher.key && AnyGlob(matcher.values, value);
      return !hit;
    });
    if (!hit) return false;
  }
  return true;
}

bool DenyCoversQuery(const Rule& rule, std::string_view query) {
  if (rule.query.empty()) return true;
  return DenyCoversReading(rule, query, kAmpersand) ||
         (HasOtherReading(query) && DenyCoversReading(rule, query, kAmpersandOrSemicolon));
}

// Keys of the GET form, and those by which servers look up a query that they hold. In any case: some servers do not look at it.
bool IsGraphqlKey(std::string_view key) {
  static constexpr std::string_view kKeys[] = {"query", "operationname", "variables", "extensions"};
  return std::any_of(std::begin(kKeys), std::end(kKeys), [&](std::string_view k) { return EqualIgnoringCase(k, key); });
}

bool HasQueryKey(std::string_view query, std::string_view key) {
  bool found = false;
  for (const std::string_view separators : {kAmpersand, kAmpersandOrSemicolon})
    ForEachPair(query, separators, [&](std::string_view k, std::string_view) {
      found |= EqualIgnoringCase(k, key);
      return !found;
    });
  return found;
}

bool HasGraphqlKey(std::string_view query) {
  static constexpr std::string_view kStored[] = {"id", "doc_id", "documentid", "queryid"};
  bool found = false;
  for (const std::string_view separators : {kAmpersand, kAmpersandOrSemicolon})
    ForEachPair(query, separators, [&](std::string_view key, std::string_view) {
      found |= IsGraphqlKey(key) ||
               std::any_of(std::begin(kStored), std::end(kStored), [&](std::string_view k) { return EqualIgnoringCase(k, key); });
      return !found;
    });
  return found;
}

bool HasHeader(std::span<const HeaderView> headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(), [&](const HeaderView& h) { return h.first == name && !h.second.empty(); });
}

bool AcceptsEventStream(std::span<const HeaderView> headers) {
  return std::any_of(headers.begin(), headers.end(), [](const HeaderView& h) {
    return h.first == "accept" && h.second.find("text/event-stream") != std::string_view::npos;
  });
}

bool AllowCoversHeaders(const Rule& rule, std::span<const HeaderView> headers) {
  for (const ValueMatcher& matcher : rule.headers) {
    bool present = false;
    for (const auto& [name, value] : headers) {
      if (name != matcher.key) continue;
      present = true;
      if (!AnyGlob(matcher.values, value)) return false;
    }
    if (!present) return false;
  }
  return true;
}

bool DenyCoversHeaders(const Rule& rule, std::span<const HeaderView> headers) {
  for (const ValueMatcher& matcher : rule.headers)
    if (!std::any_of(headers.begin(), headers.end(), [&](const HeaderView& h) {
          return SameToSomeServer(matcher.key, h.first) && AnyGlob(matcher.values, h.second);
        }))
      return false;
  return true;
}

bool HasGitContentType(std::span<const HeaderView> headers, std::string_view service) {
  size_t seen = 0;
  bool good = false;
  for (const auto& [name, value] : headers) {
    if (name != "content-type") continue;
    ++seen;
    constexpr std::string_view kPrefix = "application/x-";
    constexpr std::string_view kSuffix = "-request";
    good = value.size() == kPrefix.size() + service.size() + kSuffix.size() && value.starts_with(kPrefix) &&
           value.substr(kPrefix.size()).starts_with(service) && value.ends_with(kSuffix);
  }
  return seen == 1 && good;
}

// The repository of a path that ends in one of git's own, in lower case without ".git".
using RepoBuffer = std::array<char, kMaxDecoded>;
std::string_view NormalRepo(std::string_view repo, RepoBuffer* buffer) {
  const size_t size = std::min(repo.size(), buffer->size());
  std::transform(repo.begin(), repo.begin() + static_cast<std::ptrdiff_t>(size), buffer->begin(), Lower);
  std::string_view normal(buffer->data(), size);
  if (normal.ends_with(".git")) normal.remove_suffix(4);
  return normal;
}

// A server tries more spellings than one: "x.git.git" and "x/.git" may both be x, and a deny of x means them all.
bool DenyCoversRepo(const Rule& rule, std::string_view repo) {
  if (rule.paths.empty()) return true;
  RepoBuffer buffer;
  std::string_view normal = NormalRepo(repo, &buffer);
  while (true) {
    if (AnyGlob(rule.paths, normal)) return true;
    if (normal.ends_with(".git")) {
      normal.remove_suffix(4);
    } else if (normal.size() > 1 && normal.ends_with('/')) {
      normal.remove_suffix(1);
    } else {
      return false;
    }
  }
}

}  // namespace

std::string_view GitService(Verb verb) { return verb == Verb::kGitFetchPack ? kUploadPack : kReceivePack; }

bool ListsMethod(const Rule& rule, std::string_view method) {
  if (rule.methods.empty()) return true;
  for (const std::string& listed : rule.methods)
    if (listed == method || (listed == "GET" && method == "HEAD")) return true;
  return false;
}

bool AllowsExecutable(const std::vector<ExecutablePattern>& patterns, const Executable& exe) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const ExecutablePattern& p) {
    return p.sha256 ? exe.sha256 == p.sha256 : exe.trusted && !exe.path.empty() && p.path.Matches(exe.path);
  });
}

bool SameToSomeServer(std::string_view listed, std::string_view name) {
  return std::equal(listed.begin(), listed.end(), name.begin(), name.end(),
                    [](char x, char y) { return x == y || (x == '-' && y == '_') || (x == '_' && y == '-'); });
}

ConnectionView::ConnectionView(const ConnectQuery& q) : query(q) {
  if (q.address) special = FindSpecialRange(*q.address, q.host_addresses);
}

bool Holds(const Cidr& prefix, const IpAddress& address) { return prefix.is_v4() == address.is_v4() && prefix.Contains(address); }

bool AllowCoversProcess(const Rule& rule, const Process* process) {
  if (rule.by.empty() && rule.under.empty()) return true;
  if (process == nullptr) return false;
  if (!rule.by.empty() && !AllowsExecutable(rule.by, process->exe)) return false;
  if (rule.under.empty() || AllowsExecutable(rule.under, process->exe)) return true;
  return std::any_of(process->ancestors.begin(), process->ancestors.end(),
                     [&](const Executable& exe) { return AllowsExecutable(rule.under, exe); });
}

bool DenyCoversProcess(const Rule& rule, const Process* process) {
  if (rule.by.empty() || process == nullptr) return true;
  const Executable& exe = process->exe;
  if (!exe.trusted || exe.path.empty()) return true;
  return std::any_of(rule.by.begin(), rule.by.end(), [&](const ExecutablePattern& p) {
    return p.sha256 ? !exe.sha256 || exe.sha256 == p.sha256 : p.path.Matches(exe.path);
  });
}

bool AllowCoversAddress(const Rule& rule, const ConnectionView& connection) {
  if (!connection.query.address) return !connection.query.remote || (rule.ip.empty() && !rule.host.cidr);
  const IpAddress& address = *connection.query.address;
  if (!rule.ip.empty() && std::none_of(rule.ip.begin(), rule.ip.end(), [&](const Cidr& c) { return Holds(c, address); }))
    return false;
  if (!connection.special) return true;
  const auto unlocks = [&](const Cidr& c) { return Holds(c, address) && connection.special->range.Contains(c); };
  return (rule.host.cidr && unlocks(*rule.host.cidr)) || std::any_of(rule.ip.begin(), rule.ip.end(), unlocks);
}

bool DenyCoversAddress(const Rule& rule, const ConnectionView& connection) {
  if (rule.ip.empty()) return true;
  if (!connection.query.address) return connection.query.remote;
  return std::any_of(rule.ip.begin(), rule.ip.end(), [&](const Cidr& c) { return Holds(c, *connection.query.address); });
}

bool CoversPort(const Rule& rule, uint16_t port) {
  if (rule.ports.empty()) return true;
  return std::any_of(rule.ports.begin(), rule.ports.end(), [&](const PortRange& r) { return port >= r.first && port <= r.last; });
}

bool ScopeHolds(const CredentialScope& scope, const ConnectQuery& query) {
  const bool host = query.host.empty() ? scope.host.kind == HostPattern::Kind::kAny ||
                                             (scope.host.cidr && query.address && Holds(*scope.host.cidr, *query.address))
                                       : HostMatchesName(scope.host, query.host, true);
  return host && std::any_of(scope.ports.begin(), scope.ports.end(),
                             [&](const PortRange& r) { return query.port >= r.first && query.port <= r.last; });
}

bool AllowCoversConnection(const Rule& rule, const ConnectionView& connection) {
  return CoversPort(rule, connection.query.port) && (!rule.until || connection.query.now < *rule.until) &&
         AllowCoversProcess(rule, connection.query.process) && AllowCoversAddress(rule, connection);
}

Misses ConnectionMisses(const Rule& rule, const ConnectionView& connection) {
  Misses misses = 0;
  if (!CoversPort(rule, connection.query.port)) misses |= kMissPort;
  if (!AllowCoversProcess(rule, connection.query.process)) misses |= kMissBinary;
  if (!AllowCoversAddress(rule, connection)) misses |= kMissAddress;
  if (rule.until && connection.query.now >= *rule.until) misses |= kMissExpired;
  return misses;
}

bool IsMethodOverrideHeader(std::string_view name) {
  return SameToSomeServer("x-http-method-override", name) || SameToSomeServer("x-http-method", name) ||
         SameToSomeServer("x-method-override", name);
}

RequestView::RequestView(const RequestQuery& request) : request_(request) {
  for (const auto& header : request.headers) has_method_override_ |= IsMethodOverrideHeader(header.first);
  const std::string_view type = ContentTypeOf(request.headers);
  if (type.empty()) return;
  is_json_ = IsJson(type);
  is_lfs_json_ = IsLfsJson(type);
  is_grpc_ = IsGrpc(type);
}

bool RequestView::AllowCovers(const Rule& rule) const {
  const CanonicalTarget& target = *request_.target;
  // What fails most often first, and a glob once.
  if (!IsGit(rule.verb)) {
    if (!rule.paths.empty() && !AnyGlob(rule.paths, target.ForMatching())) return false;
    if (!ListsMethod(rule, request_.method)) return false;
  }
  return MissesBesidePath(rule) == 0;
}

Misses RequestView::AllowMisses(const Rule& rule) const {
  const bool elsewhere = !IsGit(rule.verb) && !rule.paths.empty() && !AnyGlob(rule.paths, request_.target->ForMatching());
  return MissesBesidePath(rule) | (elsewhere ? Misses{kMissPath} : Misses{0});
}

Misses RequestView::MissesBesidePath(const Rule& rule) const {
  Misses misses = 0;
  const CanonicalTarget& target = *request_.target;
  if (rule.scheme && *rule.scheme != request_.scheme) misses |= kMissPort;
  if (has_method_override_ && !rule.method_override) misses |= kMissHeader;
  if (!AllowCoversHeaders(rule, request_.headers)) misses |= kMissHeader;
  if (target.has_hidden_dots || (target.has_encoded_slash && !rule.encoded_slash) ||
      (target.has_path_params && !rule.path_params))
    misses |= kMissPath;
  // An upgrade is granted by `ws` alone.
  if ((request_.upgrade == Upgrade::kWebSocket) != (rule.verb == Verb::kWs)) misses |= kMissMethod;
  if (IsGit(rule.verb)) return misses | GitMisses(rule);
  misses |= VerbMisses(rule);
  if (!rule.json.empty() && rule.verb == Verb::kHttp && !is_json_) misses |= kMissHeader;
  if (!AllowCoversQuery(rule, target.query)) misses |= kMissQuery;
  return misses;
}

// What the verb itself asks of method and content type.
Misses RequestView::VerbMisses(const Rule& rule) const {
  const bool post = request_.method == "POST";
  switch (rule.verb) {
    case Verb::kWs:
      return request_.method == "GET" ? 0 : kMissMethod;
    case Verb::kGrpc:
      return (post ? 0u : Misses{kMissMethod}) | (is_grpc_ ? 0u : Misses{kMissHeader}) |
             (request_.target->has_query ? Misses{kMissQuery} : 0u);
    case Verb::kGraphql:
      return GraphqlMisses(rule);
    case Verb::kJsonRpc:
      return (post ? 0u : Misses{kMissMethod}) | (is_json_ ? 0u : Misses{kMissHeader});
    case Verb::kMcp:
      return McpMisses(rule);
    default:
      return ListsMethod(rule, request_.method) ? 0 : kMissMethod;
  }
}

// GraphQL over HTTP: POST, and GET of a query. Many servers take what the URL says for more than the body, so a POST has no query
// unless the rule speaks of its keys, and never one of GraphQL's own.
Misses RequestView::GraphqlMisses(const Rule& rule) const {
  const std::string_view query = request_.target->query;
  Misses misses = 0;
  if (request_.method == "POST") {
    if (!is_json_) misses |= kMissHeader;
    if (request_.target->has_query && rule.query.empty() && !rule.query_keys) misses |= kMissQuery;
    if (HasGraphqlKey(query)) misses |= kMissQuery;
  } else if (request_.method == "GET") {
    if (rule.graphql != GraphqlKind::kQuery) misses |= kMissMethod;
    if (HasOtherReading(query)) misses |= kMissQuery;
    ForEachPair(query, kAmpersand, [&](std::string_view key, std::string_view) {
      const bool known = IsGraphqlKey(key) ||
                         (rule.query_keys && std::any_of(rule.query_keys->begin(), rule.query_keys->end(),
                                                         [&](const std::string& k) { return k == key; })) ||
                         std::any_of(rule.query.begin(), rule.query.end(), [&](const ValueMatcher& m) { return m.key == key; });
      if (!known) misses |= kMissQuery;
      return known;
    });
  } else {
    misses |= kMissMethod;
  }
  return misses;
}

// Streamable HTTP: calls are posted. Whoever may initialize has the session too: its event stream and its end.
Misses RequestView::McpMisses(const Rule& rule) const {
  if (request_.method == "POST") return is_json_ ? 0 : kMissHeader;
  if (!HoldsMcpSession(rule)) return kMissMethod;
  if (request_.method == "GET") return AcceptsEventStream(request_.headers) ? 0 : kMissHeader;
  if (request_.method != "DELETE") return kMissMethod;
  return HasHeader(request_.headers, "mcp-session-id") ? 0 : kMissHeader;
}

BodyKinds RequestView::AllowReading(const Rule& rule) const {
  switch (rule.verb) {
    case Verb::kGraphql:
      return kBodyGraphql;
    case Verb::kJsonRpc:
      return kBodyRpc;
    case Verb::kMcp:
      return request_.method == "POST" ? kBodyRpc : 0;
    case Verb::kHttp:
      return rule.json.empty() ? 0 : kBodyJson;
    case Verb::kGitFetchPack:
    case Verb::kGitReceivePack: {
      // An object may have any name, that of a call too.
      const std::string_view path = request_.target->ForMatching();
      const auto ends = [&](std::string_view before, std::string_view call) {
        return path.ends_with(call) && path.substr(0, path.size() - call.size()).ends_with(before);
      };
      if (ReadsPush(rule) && ends("/", kReceivePack)) return kBodyPush;
      return rule.lfs && ends(kLfs, kLfsBatch) ? kBodyLfs : 0;
    }
    default:
      return 0;
  }
}

// Exactly the two requests of a smart HTTP exchange (gitprotocol-http(5)); anything else of the repository is not granted.
Misses RequestView::GitMisses(const Rule& rule) const {
  const std::string_view service = GitService(rule.verb);
  const CanonicalTarget& target = *request_.target;
  std::string_view path = target.ForMatching();
  Misses misses = 0;
  const auto service_path = [&](std::string_view name) {
    return path.ends_with(name) && path.size() > name.size() && path[path.size() - name.size() - 1] == '/';
  };
  if (path.ends_with(kInfoRefs)) {
    path.remove_suffix(kInfoRefs.size());
    if (request_.method != "GET") misses |= kMissMethod;
    constexpr std::string_view kKey = "service=";
    const std::string_view query = target.query;
    const std::string_view asked = query.starts_with(kKey) ? query.substr(kKey.size()) : std::string_view{};
    // The other service is another operation on the repository, which is what a method is.
    if (asked != service) misses |= asked == kUploadPack || asked == kReceivePack ? kMissMethod : kMissQuery;
  } else if (service_path(service)) {
    path.remove_suffix(service.size() + 1);
    if (request_.method != "POST") misses |= kMissMethod;
    if (target.has_query) misses |= kMissQuery;
    if (!HasGitContentType(request_.headers, service)) misses |= kMissHeader;
  } else if (const size_t lfs = path.rfind(kLfs); rule.lfs && lfs != std::string_view::npos) {
    misses |= LfsMisses(rule, path.substr(lfs + kLfs.size()));
    path = path.substr(0, lfs);
  } else if (const std::string_view other = service == kUploadPack ? kReceivePack : kUploadPack; service_path(other)) {
    path.remove_suffix(other.size() + 1);
    misses |= kMissMethod;
  } else {
    return kMissMethod | kMissPath;  // no request of git's: another path alone would not do
  }
  RepoBuffer buffer;
  if (path.empty() || (!rule.paths.empty() && !AnyGlob(rule.paths, NormalRepo(path, &buffer)))) misses |= kMissPath;
  return misses;
}

// The calls of git LFS (its API documents, "batch", "basic transfers" and "locking"), below `info/lfs/` of the repository. What a
// batch asks for is in its body; objects themselves may lie on another host, which is another rule's to name.
Misses RequestView::LfsMisses(const Rule& rule, std::string_view call) const {
  const std::string_view method = request_.method;
  const bool writes = rule.verb == Verb::kGitReceivePack;
  Misses misses = 0;
  if (call == kLfsBatch) {
    if (method != "POST") misses |= kMissMethod;
    if (request_.target->has_query) misses |= kMissQuery;
    if (!is_lfs_json_) misses |= kMissHeader;
    return misses;
  }
  bool good = false;
  if (call.starts_with("objects/") && call.size() > 8) {
    const bool verify = call.ends_with("/verify");
    good = writes ? (verify ? method == "POST" : method == "PUT") : !verify && (method == "GET" || method == "HEAD");
  } else if (writes && call == "verify") {
    good = method == "POST";
  } else if (writes && (call == "locks" || call.starts_with("locks/"))) {
    good = method == "POST" || (method == "GET" && call == "locks");
  } else {
    return kMissMethod | kMissPath;
  }
  return good ? misses : misses | kMissMethod;
}

// Whether a server may act on the request as one of this method: by its own, or by an override.
bool RequestView::MayActAs(std::string_view listed) const {
  if (listed == request_.method || (listed == "GET" && request_.method == "HEAD")) return true;
  if (!has_method_override_) return false;
  return std::any_of(request_.headers.begin(), request_.headers.end(), [&](const HeaderView& h) {
    return IsMethodOverrideHeader(h.first) &&
           (EqualIgnoringCase(listed, h.second) || (listed == "GET" && EqualIgnoringCase("HEAD", h.second)));
  });
}

bool RequestView::MayHaveBody() const {
  const std::string_view method = request_.method;
  if (method != "GET" && method != "HEAD" && method != "OPTIONS" && method != "DELETE") return true;
  return has_method_override_ || std::any_of(request_.headers.begin(), request_.headers.end(), [](const HeaderView& h) {
           return (h.first == "content-length" && h.second != "0") || h.first == "transfer-encoding" || h.first == "content-type";
         });
}

// Whether the method is one that a deny of the verb speaks of.
bool RequestView::DenyCoversVerb(const Rule& rule) const {
  switch (rule.verb) {
    case Verb::kHttp:
      if (!rule.json.empty() && !MayHaveBody()) return false;
      return rule.methods.empty() ||
             std::any_of(rule.methods.begin(), rule.methods.end(), [&](const std::string& m) { return MayActAs(m); });
    case Verb::kWs:
      return request_.upgrade == Upgrade::kWebSocket;
    case Verb::kGrpc:
      return MayActAs("POST");
    case Verb::kGraphql:
      return MayHaveBody() || HasGraphqlKey(request_.target->query);
    case Verb::kJsonRpc:
    case Verb::kMcp:
      return MayHaveBody() || HasQueryKey(request_.target->query, "method");
    default:
      return true;
  }
}

std::optional<BodyKinds> RequestView::DenyGitReading(const Rule& rule, std::string_view path) const {
  const std::string_view service = GitService(rule.verb);
  // Some servers take a final slash away before they route.
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const auto of = [&](BodyKinds kinds) { return DenyCoversRepo(rule, path) ? std::optional(kinds) : std::nullopt; };
  if (const size_t lfs = path.rfind(kLfs); rule.lfs && lfs != std::string_view::npos) {
    const std::string_view call = path.substr(lfs + kLfs.size());
    path = path.substr(0, lfs);
    if (call == kLfsBatch) return of(kBodyLfs);
    const bool writes = rule.verb == Verb::kGitReceivePack;
    const bool asked = writes ? MayHaveBody() : MayActAs("GET");
    return asked ? of(0) : std::nullopt;
  }
  if (path.ends_with(kInfoRefs)) {
    // Whoever may push some refs must see them all.
    if (ReadsPush(rule)) return std::nullopt;
    path.remove_suffix(kInfoRefs.size());
    if (!AsksGitService(rule.verb, request_.target->query, kAmpersand) &&
        !AsksGitService(rule.verb, request_.target->query, kAmpersandOrSemicolon))
      return std::nullopt;
    return of(0);
  }
  if (!path.ends_with(service)) return std::nullopt;
  path.remove_suffix(service.size());
  if (path.empty() || path.back() != '/') return std::nullopt;
  path.remove_suffix(1);
  return of(ReadsPush(rule) ? BodyKinds{kBodyPush} : BodyKinds{0});
}

std::optional<BodyKinds> RequestView::DenyPathReading(const Rule& rule, std::string_view path) const {
  if (IsGit(rule.verb)) return DenyGitReading(rule, path);
  if (!rule.paths.empty() && !AnyGlob(rule.paths, path)) return std::nullopt;
  if (rule.verb == Verb::kGraphql) return kBodyGraphql;
  if (rule.verb == Verb::kJsonRpc || rule.verb == Verb::kMcp) return kBodyRpc;
  return rule.json.empty() ? BodyKinds{0} : BodyKinds{kBodyJson};
}

std::optional<BodyKinds> RequestView::DenyReading(const Rule& rule) const {
  if (rule.scheme && *rule.scheme != request_.scheme) return std::nullopt;
  if (!DenyCoversVerb(rule)) return std::nullopt;
  const CanonicalTarget& target = *request_.target;
  auto reading = DenyPathReading(rule, target.ForMatching());
  for (size_t i = 0; !reading && i < target.wide_readings.size(); ++i) reading = DenyPathReading(rule, target.wide_readings[i]);
  if (!reading || !DenyCoversQuery(rule, target.query) || !DenyCoversHeaders(rule, request_.headers)) return std::nullopt;
  return reading;
}

std::optional<GitRequest> ReadGitRequest(const RequestQuery& request) {
  const std::string_view path = request.target->path;
  const std::string_view query = request.target->query;
  for (const Verb verb : {Verb::kGitFetchPack, Verb::kGitReceivePack}) {
    const std::string_view service = GitService(verb);
    if (path.ends_with(kInfoRefs) && path.size() > kInfoRefs.size() && query.starts_with("service=") &&
        query.substr(8) == service)
      return GitRequest{verb, path.substr(0, path.size() - kInfoRefs.size())};
    if (path.ends_with(service) && path.size() > service.size() + 1 && path[path.size() - service.size() - 1] == '/')
      return GitRequest{verb, path.substr(0, path.size() - service.size() - 1)};
  }
  return std::nullopt;
}

}  // namespace sluice::policy
