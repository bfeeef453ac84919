#include "policy/import/openshell.h"

#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/import/openshell_glob.h"
#include "policy/overlap.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

using Endpoint = OpenShellEndpoint;

constexpr size_t kMaxEndpointPairs = 4'000'000;  // inspected ones times the others

bool CoversPorts(const std::vector<PortRange>& outer, const std::vector<PortRange>& inner) {
  return std::all_of(inner.begin(), inner.end(),
                     [&](const PortRange& p) { return std::find(outer.begin(), outer.end(), p) != outer.end(); });
}

// Whether every path of `inner` is one of `outer`, where that is plain to see.
bool PathCovers(const Glob& outer, const Glob& inner) {
  const std::string& text = outer.text();
  if (outer == inner || text == "/**" || (inner.is_literal() && outer.Matches(inner.text()))) return true;
  const std::string prefix = text.ends_with("/**") ? text.substr(0, text.size() - 2) : "";
  return !prefix.empty() && prefix.find('*') == std::string::npos && inner.text().starts_with(prefix);
}

// What one `allow` or `deny_rules` entry says.
struct Matcher {
  std::string verb;
  std::vector<std::string> paths;  ///< empty is all
  std::vector<ValueMatcher> query;
  bool matches_nothing = false;
};

class Converter {
 public:
  Converter(std::vector<OpenShellPolicy> policies, ImportBuilder* out) : policies_(std::move(policies)), out_(out) {}

  Result<void> Run() {
    size_t inspected = 0;
    size_t opaque = 0;
    for (const OpenShellPolicy& policy : policies_)
      for (const Endpoint& endpoint : policy.endpoints)
        ++(endpoint.inspected || endpoint.path_node != nullptr ? inspected : opaque);
    if (inspected * opaque > kMaxEndpointPairs)
      return std::unexpected(Error{Code::kExhausted, "too many endpoints to compare those that are inspected with the others", 0,
                                   policies_[0].key->span});
    for (const OpenShellPolicy& policy : policies_) {
      if (auto done = Policy(policy); !done) return done;
    }
    return {};
  }

 private:
  Result<void> Policy(const OpenShellPolicy& policy) {
    if (policy.binaries.empty() && !policy.endpoints.empty()) {
      out_->Say(RemarkKind::kNothing, fmt::format("`{}` lists no binaries, and so no program may use it", policy.key->text),
                policy.key->span);
      return {};
    }
    if (policy.endpoints.empty())
      out_->Say(RemarkKind::kNothing, fmt::format("`{}` has no endpoint", policy.key->text), policy.key->span);
    for (const Endpoint& endpoint : policy.endpoints) {
      for (const OpenShellRemark& remark : endpoint.remarks) out_->Say(remark.kind, remark.text, remark.span);
      if (!endpoint.reachable) continue;
      OfWholeFile(endpoint);
      auto done = endpoint.inspected ? Inspected(policy, endpoint) : Opaque(policy, endpoint);
      if (!done) return done;
    }
    return {};
  }

  void OfWholeFile(const Endpoint& endpoint) {
    if (endpoint.host.kind == HostPattern::Kind::kName && endpoint.ips.empty())
      out_->SayOfFile(RemarkKind::kNarrower,
                      "a host written out may lead to a private address in OpenShell; here that takes `allowed_ips`",
                      endpoint.at->span);
    if (!endpoint.inspected)
      out_->SayOfFile(
          RemarkKind::kWider,
          "bytes that are not inspected pass unread here; OpenShell still refuses HTTP requests for another host in them, and "
          "other malformed ones",
          endpoint.at->span);
    if (endpoint.inspected && !endpoint.by_operation())
      out_->SayOfFile(
          RemarkKind::kNarrower,
          "where requests are read, WebSocket upgrades and paths with `;` are refused here, and port 443 is https, port 80 "
          "http; OpenShell takes either on any port",
          endpoint.at->span);
    out_->SayOfFile(
        RemarkKind::kNote,
        "a policy's binaries also stand for what they start (`under`); symbolic links among them are resolved at the start "
        "of a run",
        endpoint.at->span);
  }

  // A grant of bytes. Where another endpoint reads the requests of the same connection, OpenShell reads them, and this grant adds
  // nothing; here bytes that may pass unread do.
  Result<void> Opaque(const OpenShellPolicy& policy, const Endpoint& endpoint) {
    if (endpoint.by_operation()) {
      ImportBuilder unused(ImportKind::kOpenShell);
      if (auto known = ImportOpenShellOperations(policy, endpoint, &unused); !known) return known;
      return Bytes(policy, endpoint);
    }
    for (const Node* node : endpoint.rules)
      if (auto known = EntryFields(Effect::kAllow, *node); !known) return std::unexpected(known.error());
    for (const Node* node : endpoint.denies)
      if (auto known = EntryFields(Effect::kDeny, *node); !known) return std::unexpected(known.error());
    return Bytes(policy, endpoint);
  }

  Result<void> Bytes(const OpenShellPolicy& policy, const Endpoint& endpoint) {
    std::vector<ExecutablePattern> binaries = policy.binaries;
    for (const OpenShellPolicy& other : policies_) {
      for (const Endpoint& reader : other.endpoints) {
        if (&reader == &endpoint || !reader.reachable || !Narrows(reader, endpoint) || !SameConnections(endpoint, reader))
          continue;
        const bool covered =
            !endpoint.audited && HostCovers(reader.host, endpoint.host) && CoversPorts(reader.ranges, endpoint.ranges);
        if (covered) DropShared(other.binaries, &binaries);
        const uint32_t line = reader.at->span.line;
        if (binaries.empty()) {
          out_->Say(
              RemarkKind::kNothing,
              fmt::format(
                  "OpenShell reads every request of these programs to {} for the endpoint of line {}, whose rules alone count",
                  endpoint.host_text, line),
              endpoint.at->span);
          return {};
        }
        out_->Say(
            RemarkKind::kWider,
            fmt::format(
                "a program that the endpoint of line {0} covers too, by itself or through what started it, has its requests "
                "read by OpenShell; here its bytes pass unread{1}",
                line, covered && binaries.size() < policy.binaries.size() ? " (those listed in both are left out)" : ""),
            endpoint.at->span);
      }
    }
    RuleParts parts{.verb = "tcp", .host = endpoint.host_text, .ports = endpoint.ports};
    if (endpoint.path_node == nullptr) return Add(parts, endpoint, binaries, nullptr, *endpoint.at);
    // What no endpoint's `path` matches is refused there even where nothing is enforced.
    Matcher matcher{.verb = "http", .paths = {}, .query = {}};
    if (auto paths = Restrict(Effect::kAllow, endpoint, *endpoint.path_node, &matcher); !paths) return paths;
    const std::string text = endpoint.path_node->text;
    if (text.ends_with("/**") && text.find('*') == text.size() - 2 && text.size() > 3)
      matcher.paths.push_back(text.substr(0, text.size() - 3));  // such a path is also its own prefix when it selects an endpoint
    return AddMatcher(Effect::kAllow, binaries, endpoint, matcher, *endpoint.path_node);
  }

  // Whether, where both endpoints are met, the one refuses what the other alone would let through.
  static bool Narrows(const Endpoint& reader, const Endpoint& other) {
    return reader.inspected || (reader.audited && reader.path_node != nullptr && !other.audited);
  }

  static bool SameConnections(const Endpoint& a, const Endpoint& b) {
    return PortsOverlap(a.ranges, b.ranges) && HostsMeet(a.host, b.host);
  }

  static void DropShared(const std::vector<ExecutablePattern>& others, std::vector<ExecutablePattern>* binaries) {
    std::erase_if(*binaries, [&](const ExecutablePattern& mine) {
      return std::any_of(others.begin(), others.end(), [&](const ExecutablePattern& theirs) { return theirs.text == mine.text; });
    });
  }

  // An endpoint that reads operations speaks for its paths alone: what another lets through there is refused by OpenShell.
  Result<void> ByOperation(const OpenShellPolicy& policy, const Endpoint& endpoint) {
    for (const OpenShellPolicy& other : policies_)
      for (const Endpoint& reader : other.endpoints)
        if (&reader != &endpoint && reader.inspected && SameConnections(endpoint, reader) && PathsMayMeet(endpoint, reader))
          return NodeError(*endpoint.at,
                           fmt::format("the endpoint of line {} reads the same requests in another way, which cannot be "
                                       "kept; give both a `path` apart",
                                       reader.at->span.line));
    return ImportOpenShellOperations(policy, endpoint, out_);
  }

  static bool PathsMayMeet(const Endpoint& a, const Endpoint& b) {
    if (a.path_node == nullptr || b.path_node == nullptr) return true;
    const auto x = RewritePathGlob(Effect::kDeny, a.path_node->text);
    const auto y = RewritePathGlob(Effect::kDeny, b.path_node->text);
    if (!x || !y) return true;
    return std::any_of(x->globs.begin(), x->globs.end(), [&](const std::string& one) {
      return std::any_of(y->globs.begin(), y->globs.end(), [&](const std::string& other) {
        const auto left = Glob::Path(one);
        const auto right = Glob::Path(other);
        return !left || !right || GlobsOverlap(*left, *right);
      });
    });
  }

  Result<void> Inspected(const OpenShellPolicy& policy, const Endpoint& endpoint) {
    if (endpoint.by_operation()) return ByOperation(policy, endpoint);
    if (endpoint.access != nullptr) {
      const std::string& word = endpoint.access->text;
      Matcher matcher;
      matcher.verb = word == "full" ? "http" : word == "read-only" ? "GET,OPTIONS" : "GET,OPTIONS,PATCH,POST,PUT";
      if (auto paths = Restrict(Effect::kAllow, endpoint, *endpoint.access, &matcher); !paths) return paths;
      if (auto added = AddMatcher(Effect::kAllow, policy.binaries, endpoint, matcher, *endpoint.access); !added) return added;
    }
    for (const Node* node : endpoint.rules) {
      if (auto added = Entry(Effect::kAllow, policy, endpoint, *node); !added) return added;
    }
    for (const Node* node : endpoint.denies) {
      out_->Say(
          RemarkKind::kNarrower,
          "OpenShell refuses this to the programs of its policy alone; here to every program, since a deny cannot follow who "
          "started whom",
          node->span);
      if (auto added = Entry(Effect::kDeny, policy, endpoint, *node); !added) return added;
    }
    return {};
  }

  Result<void> Entry(Effect effect, const OpenShellPolicy& policy, const Endpoint& endpoint, const Node& node) {
    auto matcher = ReadMatcher(effect, node);
    if (!matcher) return std::unexpected(matcher.error());
    if (auto paths = Restrict(effect, endpoint, node, &*matcher); !paths) return paths;
    if (matcher->matches_nothing) {
      out_->Say(RemarkKind::kNothing, "no request matches this", node.span);
      return {};
    }
    if (effect == Effect::kAllow && (matcher->verb == "CONNECT" || matcher->verb == "TRACE")) {
      out_->Say(RemarkKind::kNothing, fmt::format("{} is never forwarded here", matcher->verb), node.span);
      return {};
    }
    return AddMatcher(effect, policy.binaries, endpoint, *matcher, node);
  }

  // The fields of an entry; what this version cannot keep and what no version knows is refused, also where an entry only logs.
  static Result<Fields> EntryFields(Effect effect, const Node& node) {
    const std::string what = effect == Effect::kAllow ? "an allow rule" : "a deny rule";
    auto fields = Fields::Of(node, what);
    if (!fields) return fields;
    for (const auto& [key, why] : {std::pair{"command", "SQL rules are not in this version"},
                                   {"operation_type", "it belongs to `protocol: graphql`"},
                                   {"operation_name", "it belongs to `protocol: graphql`"},
                                   {"fields", "it belongs to `protocol: graphql`"},
                                   {"tool", "it belongs to `protocol: mcp`"},
                                   {"params", "it belongs to `protocol: mcp`"}})
      if (auto refused = fields->RefuseSet(key, why); !refused) return std::unexpected(refused.error());
    for (const std::string_view key : {"method", "path", "query"}) (void)fields->Get(key);
    if (auto rest = fields->RefuseOthers(what); !rest) return std::unexpected(rest.error());
    return fields;
  }

  Result<Matcher> ReadMatcher(Effect effect, const Node& node) {
    Matcher matcher;
    auto fields = EntryFields(effect, node);
    if (!fields) return std::unexpected(fields.error());
    const Node* method = fields->Get("method");
    const Node* path = fields->Get("path");
    const Node* query = fields->Get("query");
    if (method == nullptr || path == nullptr)
      return NodeError(node,
                       fmt::format("{} rule has a `method` and a `path`", effect == Effect::kAllow ? "an allow" : "a deny"));
    if (auto read = Method(*method, &matcher); !read) return std::unexpected(read.error());
    if (auto read = Path(effect, *path, &matcher); !read) return std::unexpected(read.error());
    if (query != nullptr) {
      if (auto read = Query(effect, *query, &matcher); !read) return std::unexpected(read.error());
    }
    return matcher;
  }

  static Result<void> Method(const Node& node, Matcher* matcher) {
    auto text = Text(node, "method");
    if (!text) return std::unexpected(text.error());
    for (char& c : *text)
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 0x20);
    if (*text == "WEBSOCKET_TEXT") return NodeError(node, "`WEBSOCKET_TEXT` cannot be kept: it belongs to `protocol: websocket`");
    if (text->find(',') != std::string::npos) return NodeError(node, "`method` is one method, or `*`");
    matcher->verb = *text == "*" ? "http" : *text;
    return {};
  }

  Result<void> Path(Effect effect, const Node& node, Matcher* matcher) {
    const auto text = Text(node, "path");
    if (!text) return std::unexpected(text.error());
    if (*text == "**" || *text == "/**") return {};
    auto rewritten = RewritePathGlob(effect, *text);
    if (!rewritten) return NodeError(node, rewritten.error().message);
    SayOfGlob(effect, *rewritten, node.span);
    matcher->paths = std::move(rewritten->globs);
    matcher->matches_nothing = matcher->paths.empty();
    return {};
  }

  void SayOfGlob(Effect effect, const RewrittenGlob& glob, const SourceSpan& span) {
    if (glob.empty_segments)
      out_->Say(RemarkKind::kNote, "`/**/` stands for no segment too in OpenShell's code, so both forms are written", span);
    if (glob.glued_stars && effect == Effect::kAllow)
      out_->Say(RemarkKind::kNarrower,
                "a `**` glued to other characters stays within one segment in OpenShell's code, whatever its manual says", span);
    if (glob.widened) out_->Say(RemarkKind::kNarrower, "the pattern has no exact form here: this refuses more", span);
  }

  Result<void> Query(Effect effect, const Node& node, Matcher* matcher) {
    if (node.kind != Node::Kind::kMapping) return NodeError(node, "`query` is a map of matchers");
    for (const Member& member : node.members) {
      std::vector<const Node*> globs = {&member.value};
      if (member.value.kind == Node::Kind::kMapping) {
        auto fields = Fields::Of(member.value, "a query matcher");
        const Node* any = fields->Get("any");
        const Node* glob = fields->Get("glob");
        if (auto rest = fields->RefuseOthers("a query matcher"); !rest) return rest;
        if ((any == nullptr) == (glob == nullptr)) return NodeError(member.value, "a query matcher has `any` or `glob`");
        const auto items = List(any, "any");
        if (!items) return std::unexpected(items.error());
        if (any != nullptr && items->empty()) return NodeError(*any, "`any` is empty, which matches nothing");
        globs = any != nullptr ? *items : std::vector<const Node*>{glob};
      }
      ValueMatcher value{member.key.text, {}};
      for (const Node* item : globs) {
        if (auto read = QueryValue(effect, *item, &value); !read) return read;
      }
      matcher->query.push_back(std::move(value));
    }
    return {};
  }

  Result<void> QueryValue(Effect effect, const Node& node, ValueMatcher* value) {
    const auto text = Text(node, "query");
    if (!text) return std::unexpected(text.error());
    const auto rewritten = RewriteValueGlob(effect, *text);
    if (!rewritten) return NodeError(node, rewritten.error().message);
    if (effect == Effect::kAllow && text->find('*') != std::string::npos && text->find("**") == std::string::npos)
      out_->Say(RemarkKind::kWider, "a `*` in a query value stops at a `.` in OpenShell's code; here it does not", node.span);
    if (rewritten->widened) out_->Say(RemarkKind::kNarrower, "the pattern has no exact form here: this refuses more", node.span);
    for (const std::string& text_of : rewritten->globs) {
      auto glob = Glob::Text(text_of);
      if (!glob) return MovedInto(node, glob.error());
      value->values.push_back(std::move(*glob));
    }
    return {};
  }

  // The endpoint's own `path` and the entry's must both match.
  Result<void> Restrict(Effect effect, const Endpoint& endpoint, const Node& at, Matcher* matcher) {
    if (endpoint.path_node == nullptr || matcher->matches_nothing) return {};
    Matcher outer;
    if (auto read = Path(effect, *endpoint.path_node, &outer); !read) return read;
    if (outer.paths.empty() && !outer.matches_nothing) return {};
    if (matcher->paths.empty()) {
      matcher->paths = outer.paths;
      matcher->matches_nothing = outer.matches_nothing;
      return {};
    }
    std::vector<std::string> both;
    for (const std::string& inner_text : matcher->paths) {
      const auto inner = Glob::Path(inner_text);
      if (!inner) return NodeError(at, inner.error().message);
      for (const std::string& outer_text : outer.paths) {
        const auto limit = Glob::Path(outer_text);
        if (!limit) return NodeError(*endpoint.path_node, limit.error().message);
        if (PathCovers(*limit, *inner)) {
          both.push_back(inner_text);
        } else if (PathCovers(*inner, *limit)) {
          both.push_back(outer_text);
        } else if (GlobsOverlap(*inner, *limit)) {
          if (effect == Effect::kAllow)
            return NodeError(at, fmt::format("what `{}` and the endpoint's `{}` have in common is no one path; write it out",
                                             inner_text, outer_text));
          both.push_back(inner_text);
        }
      }
    }
    std::sort(both.begin(), both.end());
    both.erase(std::unique(both.begin(), both.end()), both.end());
    matcher->paths = std::move(both);
    matcher->matches_nothing = matcher->paths.empty();
    return {};
  }

  Result<void> AddMatcher(Effect effect, const std::vector<ExecutablePattern>& binaries, const Endpoint& endpoint,
                          const Matcher& matcher, const Node& at) {
    RuleParts parts{
        .effect = effect, .verb = matcher.verb, .host = endpoint.host_text, .ports = endpoint.ports, .paths = matcher.paths};
    if (effect == Effect::kDeny) return Add(parts, endpoint, {}, &matcher, at);
    std::string https;
    std::string http;
    for (const PortRange& port : endpoint.ranges) {
      if (port.first != 80) https += fmt::format("{}{}", https.empty() ? "" : ",", port.first);
      if (port.first != 443) http += fmt::format("{}{}", http.empty() ? "" : ",", port.first);
    }
    for (const auto& [scheme, ports] : {std::pair{"", https}, {"http", http}}) {
      if (ports.empty()) continue;
      parts.scheme = scheme;
      parts.ports = ports;
      if (auto added = Add(parts, endpoint, binaries, &matcher, at); !added) return added;
    }
    return {};
  }

  Result<void> Add(const RuleParts& parts, const Endpoint& endpoint, const std::vector<ExecutablePattern>& binaries,
                   const Matcher* matcher, const Node& at) {
    auto rule = ImportBuilder::Make(parts, at);
    if (!rule) return std::unexpected(rule.error());
    rule->under = binaries;
    if (parts.effect == Effect::kAllow) {
      rule->ip = endpoint.ips;
      rule->encoded_slash = endpoint.encoded_slash && matcher != nullptr;
    }
    if (matcher != nullptr) rule->query = matcher->query;
    if (auto checked = CheckRule(*rule); !checked) return NodeError(at, checked.error().message);
    out_->Add(std::move(*rule), at.span);
    return {};
  }

  std::vector<OpenShellPolicy> policies_;
  ImportBuilder* out_;
};

}  // namespace

Result<void> ImportOpenShell(const Node& root, const ImportInput&, ImportBuilder* out) {
  auto policies = ReadOpenShell(root, out);
  if (!policies) return std::unexpected(policies.error());
  return Converter(std::move(*policies), out).Run();
}

}  // namespace sluice::policy
