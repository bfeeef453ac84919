#include <fmt/format.h>

#include <algorithm>

#include "policy/import/openshell.h"
#include "policy/import/openshell_glob.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

constexpr std::string_view kCredentials = "write `credentials:` and `with:` in a native policy";
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"websocket_credential_rewrite", kCredentials},
    {"request_body_credential_rewrite", kCredentials},
    {"allow_uninspected_credentials", kCredentials},
    {"credential_signing", kCredentials},
    {"signing_service", kCredentials},
    {"signing_region", kCredentials},
    {"credential_binding", kCredentials},
    {"graphql_persisted_queries", "a persisted query that is sent as a hash alone is not readable here"},
    {"graphql_max_body_bytes", "the bound of a body is Sluice's own"},
    {"json_rpc", "the bound of a body is Sluice's own"},
    {"mcp", "options of MCP have no form here"},
};

constexpr std::string_view kKnown[] = {"host",
                                       "path",
                                       "port",
                                       "ports",
                                       "protocol",
                                       "tls",
                                       "enforcement",
                                       "access",
                                       "rules",
                                       "allowed_ips",
                                       "deny_rules",
                                       "allow_encoded_slash",
                                       "persisted_queries"};

struct Named {
  const char* text;
  const char* name;
};
constexpr Named kAlwaysBlocked[] = {{"127.0.0.0/8", "loopback"}, {"169.254.0.0/16", "link-local"}, {"0.0.0.0/32", "unspecified"},
                                    {"::1/128", "loopback"},     {"fe80::/10", "link-local"},      {"::/128", "unspecified"}};
bool Overlap(const Cidr& a, const Cidr& b) { return a.is_v4() == b.is_v4() && (a.Contains(b) || b.Contains(a)); }

// "10.1.2.3/8" is 10.0.0.0/8 to OpenShell.
std::optional<Cidr> LooseCidr(std::string_view text) {
  if (const auto strict = Cidr::Parse(text)) return strict;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto base = IpAddress::Parse(text.substr(0, slash));
  const std::string_view digits = text.substr(slash + 1);
  if (!base || digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  const unsigned length = static_cast<unsigned>(std::stoul(std::string(digits)));
  if (length > (base->is_v4() ? 32u : 128u)) return std::nullopt;
  return Cidr::Of(*base, length);
}

class Reader {
 public:
  Result<OpenShellPolicy> Policy(const Member& member) {
    OpenShellPolicy policy;
    policy.key = &member.key;
    auto fields = Fields::Of(member.value, fmt::format("the network policy `{}`", member.key.text));
    if (!fields) return std::unexpected(fields.error());
    if (const Node* name = fields->Get("name")) {
      if (auto text = Text(*name, "name"); !text) return std::unexpected(text.error());
    }
    const auto endpoints = List(fields->Get("endpoints"), "endpoints");
    if (!endpoints) return std::unexpected(endpoints.error());
    const auto binaries = List(fields->Get("binaries"), "binaries");
    if (!binaries) return std::unexpected(binaries.error());
    if (auto rest = fields->RefuseOthers("a network policy"); !rest) return std::unexpected(rest.error());
    for (const Node* node : *binaries) {
      if (auto read = Binary(*node, &policy.binaries); !read) return std::unexpected(read.error());
    }
    for (const Node* node : *endpoints) {
      if (auto read = Endpoint(*node, &policy.endpoints); !read) return std::unexpected(read.error());
    }
    return policy;
  }

 private:
  Result<void> Binary(const Node& node, std::vector<ExecutablePattern>* out) {
    auto fields = Fields::Of(node, "a binary");
    if (!fields) return std::unexpected(fields.error());
    const Node* path = fields->Get("path");
    if (const Node* harness = fields->Get("harness")) {
      if (auto flag = Flag(*harness, "harness"); !flag) return std::unexpected(flag.error());
    }
    if (auto rest = fields->RefuseOthers("a binary"); !rest) return rest;
    if (path == nullptr) return NodeError(node, "a binary has a `path`");
    const auto text = Text(*path, "path");
    if (!text) return std::unexpected(text.error());
    std::vector<std::string> globs = {*text};
    if (text->find('*') != std::string::npos) {
      auto rewritten = RewritePathGlob(Effect::kAllow, *text);
      if (!rewritten) return NodeError(*path, rewritten.error().message);
      globs = std::move(rewritten->globs);
      if (globs.empty()) return NodeError(*path, fmt::format("`{}` matches no absolute path", *text));
    }
    for (const std::string& glob : globs) {
      auto pattern = ParseExecutable(glob);
      if (!pattern) return MovedInto(*path, pattern.error());
      out->push_back(std::move(*pattern));
    }
    return {};
  }

  Result<void> Endpoint(const Node& node, std::vector<OpenShellEndpoint>* out) {
    OpenShellEndpoint endpoint;
    endpoint.at = &node;
    auto fields = Fields::Of(node, "an endpoint");
    if (!fields) return std::unexpected(fields.error());
    for (const auto& [key, why] : kRefused) {
      if (auto refused = fields->RefuseSet(key, why); !refused) return refused;
    }
    for (const std::string_view key : kKnown) (void)fields->Get(key);
    if (auto rest = fields->RefuseOthers("an endpoint"); !rest) return rest;
    if (auto read = Addresses(&*fields, &endpoint); !read) return read;
    const auto reachable = Host(&*fields, &endpoint);
    if (!reachable) return std::unexpected(reachable.error());
    if (auto read = Ports(&*fields, &endpoint); !read) return read;
    if (auto read = Inspection(&*fields, &endpoint); !read) return read;
    endpoint.reachable = *reachable;
    endpoint.remarks = std::move(remarks_);
    remarks_.clear();
    out->push_back(std::move(endpoint));
    return {};
  }

  Result<void> Addresses(Fields* fields, OpenShellEndpoint* endpoint) {
    const auto items = List(fields->Get("allowed_ips"), "allowed_ips");
    if (!items) return std::unexpected(items.error());
    for (const Node* item : *items) {
      const auto text = Text(*item, "allowed_ips");
      if (!text) return std::unexpected(text.error());
      const auto cidr = LooseCidr(*text);
      if (!cidr) return NodeError(*item, fmt::format("`{}` is no address or prefix", *text));
      for (const auto& [blocked, name] : kAlwaysBlocked)
        if (Overlap(*cidr, *Cidr::Parse(blocked)))
          return NodeError(*item, fmt::format("`{}` overlaps {} ({}), which OpenShell never dials", *text, blocked, name));
      if (const std::string range = PrivateInside(*cidr); !range.empty())
        Say(RemarkKind::kNarrower, fmt::format("`{}` holds {}, which here must be written by itself to be reached", *text, range),
            item->span);
      endpoint->ips.push_back(*cidr);
    }
    return {};
  }

  // False where OpenShell never reaches such a host; that is said.
  Result<bool> Host(Fields* fields, OpenShellEndpoint* endpoint) {
    const Node* node = fields->Get("host");
    const bool hostless = node == nullptr || (node->kind == Node::Kind::kScalar && node->text.empty());
    if (hostless) {
      if (endpoint->ips.empty()) return NodeError(fields->node(), "an endpoint has a `host`, or `allowed_ips` without one");
      endpoint->host.text = "**";
      endpoint->host_text = "**";
      Say(RemarkKind::kWider,
          "no host: every name that leads to these addresses, and so every name may be looked up, which can carry data out",
          fields->node().span);
      return true;
    }
    const auto text = Text(*node, "host");
    if (!text) return std::unexpected(text.error());
    endpoint->at = node;
    if (text->find('*') != std::string::npos) {
      if (auto good = Wildcard(*node, *text); !good) return std::unexpected(good.error());
    }
    const bool final_dot = text->ends_with('.') && text->size() > 1;
    auto host = HostAt(*node, final_dot ? std::string_view(*text).substr(0, text->size() - 1) : std::string_view(*text));
    if (!host) return std::unexpected(host.error());
    if (host->cidr && host->cidr->length128() != 128)
      return NodeError(*node, fmt::format("`{}` is a prefix; it belongs into `allowed_ips`", *text));
    endpoint->host = std::move(*host);
    endpoint->host_text = HostText(endpoint->host);
    if (final_dot) {
      Say(RemarkKind::kNothing, fmt::format("OpenShell compares `{}` with its final dot, which no client sends", *text),
          node->span);
      return false;
    }
    if (const std::string_view why = UnreachableLiteral(endpoint->host); !why.empty()) {
      Say(RemarkKind::kNothing, fmt::format("OpenShell never dials {} ({})", *text, why), node->span);
      return false;
    }
    return true;
  }

  Result<void> Wildcard(const Node& node, const std::string& text) {
    const size_t dot = text.find('.');
    if (text == "*" || text == "**") return NodeError(node, "OpenShell refuses a host that is every host");
    if (dot == std::string::npos || text.find('.', dot + 1) == std::string::npos)
      return NodeError(node, "OpenShell refuses a wildcard over a whole top-level domain");
    if (text.find('*', dot) != std::string::npos)
      return NodeError(node, "OpenShell takes wildcards in the first label of a host only");
    const std::string base = text.substr(dot + 1);
    if (text.starts_with("**.")) {
      Say(RemarkKind::kNote, fmt::format("`{}`: any depth below {}, not {} itself", text, base, base), node.span);
    } else if (text.starts_with("*.")) {
      Say(RemarkKind::kNote, fmt::format("`{0}`: one label, so neither {1} itself nor a.b.{1}", text, base), node.span);
    }
    return {};
  }

  Result<void> Ports(Fields* fields, OpenShellEndpoint* endpoint) {
    const Node* single = fields->Get("port");
    const Node* several = fields->Get("ports");
    const auto items = List(several, "ports");
    if (!items) return std::unexpected(items.error());
    std::vector<const Node*> nodes = *items;
    if (single != nullptr && !IsUnset(*single)) {
      if (!nodes.empty()) return NodeError(*fields->KeyNode("port"), "an endpoint has `port` or `ports`, not both");
      nodes.push_back(single);
    }
    for (const Node* node : nodes) {
      const auto port = Port(*node, "port");
      if (!port) return std::unexpected(port.error());
      if (*port == 0) return NodeError(*node, "port 0 is none");
      endpoint->ports += fmt::format("{}{}", endpoint->ports.empty() ? "" : ",", *port);
      endpoint->ranges.push_back({*port, *port});
    }
    if (nodes.empty()) return NodeError(fields->node(), "an endpoint has a `port` or `ports`");
    std::sort(endpoint->ranges.begin(), endpoint->ranges.end());
    return {};
  }

  Result<void> Inspection(Fields* fields, OpenShellEndpoint* endpoint) {
    const Node* protocol = fields->Get("protocol");
    const Node* tls = fields->Get("tls");
    const Node* enforcement = fields->Get("enforcement");
    const Node* path = fields->Get("path");
    endpoint->access = fields->Get("access");
    const auto rules = List(fields->Get("rules"), "rules");
    if (!rules) return std::unexpected(rules.error());
    const auto denies = List(fields->Get("deny_rules"), "deny_rules");
    if (!denies) return std::unexpected(denies.error());
    for (const std::string_view key : {"rules", "deny_rules"})
      if (const Node* list = fields->Get(key); list != nullptr && list->items.empty())
        return NodeError(*list, fmt::format("OpenShell refuses an empty `{}`; leave it out", key));
    for (const Node* rule : *rules) {
      auto one = Fields::Of(*rule, "a rule");
      if (!one) return std::unexpected(one.error());
      const Node* allow = one->Get("allow");
      if (auto rest = one->RefuseOthers("a rule, which is `allow: …`"); !rest) return rest;
      if (allow == nullptr) return NodeError(*rule, "a rule is `allow: …`");
      endpoint->rules.push_back(allow);
    }
    endpoint->denies = *denies;
    if (const Node* slash = fields->Get("allow_encoded_slash")) {
      const auto flag = Flag(*slash, "allow_encoded_slash");
      if (!flag) return std::unexpected(flag.error());
      endpoint->encoded_slash = *flag;
    }
    if (auto good = Access(*endpoint); !good) return good;
    if (const Node* persisted = fields->Get("persisted_queries"); persisted != nullptr && !IsUnset(*persisted)) {
      if (auto word = Word(*persisted, "persisted_queries", {"deny"}); !word) return std::unexpected(word.error());
    }
    const auto inspects = Protocol(protocol, *fields, endpoint);
    if (!inspects) return std::unexpected(inspects.error());
    const auto skips = Tls(tls, *inspects);
    if (!skips) return std::unexpected(skips.error());
    if (path != nullptr && !IsUnset(*path)) {
      if (auto text = Text(*path, "path"); !text) return std::unexpected(text.error());
      if (*inspects && !*skips) endpoint->path_node = path;
      if (!*inspects) Say(RemarkKind::kWider, "`path` restricts nothing on an endpoint without `protocol`", path->span);
    }
    return Enforcement(enforcement, *inspects && !*skips, endpoint);
  }

  static Result<void> Access(const OpenShellEndpoint& endpoint) {
    if (endpoint.access == nullptr) return {};
    if (auto word = Word(*endpoint.access, "access", {"read-only", "read-write", "full"}); !word)
      return std::unexpected(word.error());
    if (!endpoint.rules.empty()) return NodeError(*endpoint.access, "an endpoint has `access` or `rules`, not both");
    return {};
  }

  // Whether requests are read.
  Result<bool> Protocol(const Node* node, const Fields& fields, OpenShellEndpoint* read) {
    const OpenShellEndpoint& endpoint = *read;
    const bool restricts = endpoint.access != nullptr || !endpoint.rules.empty();
    if (node == nullptr || IsUnset(*node)) {
      if (!endpoint.denies.empty()) return NodeError(*endpoint.denies[0], "`deny_rules` need a `protocol`");
      if (restricts)
        Say(RemarkKind::kWider, "without `protocol`, OpenShell does not read requests: `access` and `rules` restrict nothing",
            (endpoint.access != nullptr ? endpoint.access : endpoint.rules[0])->span);
      return false;
    }
    const auto text = Text(*node, "protocol");
    if (!text) return std::unexpected(text.error());
    std::string word = *text;
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    if (word == "sql") return NodeError(*node, "`protocol: sql` cannot be kept: SQL is not read here");
    using Kind = OpenShellEndpoint::Protocol;
    for (const auto& [name, kind] : {std::pair{"rest", Kind::kRest},
                                     {"websocket", Kind::kWebsocket},
                                     {"graphql", Kind::kGraphql},
                                     {"json-rpc", Kind::kJsonRpc},
                                     {"mcp", Kind::kMcp}})
      if (word == name) read->protocol = kind;
    if (word == "tcp") {
      for (const std::string_view key : {"path", "enforcement", "access", "rules", "deny_rules", "allow_encoded_slash"})
        if (const Node* at = fields.KeyNode(key)) return NodeError(*at, fmt::format("`protocol: tcp` takes no `{}`", key));
      return false;
    }
    if (auto known = Word(*node, "protocol", {"rest", "tcp", "websocket", "graphql", "json-rpc", "mcp"});
        read->protocol == Kind::kNone && !known)
      return std::unexpected(known.error());
    if (!restricts) return NodeError(*node, fmt::format("`protocol: {}` needs `rules` or `access`", word));
    return true;
  }

  // Whether TLS is passed through, so that nothing inside can be read.
  Result<bool> Tls(const Node* node, bool inspects) {
    if (node == nullptr || IsUnset(*node)) return false;
    const auto word = Word(*node, "tls", {"skip", "terminate", "passthrough"});
    if (!word) return std::unexpected(word.error());
    if (*word == "skip") {
      if (inspects)
        Say(RemarkKind::kWider,
            "`tls: skip`: the bytes are passed on unread, so `rules`, `access` and `deny_rules` restrict nothing", node->span);
      return true;
    }
    Say(RemarkKind::kNote,
        fmt::format("`tls: {}` is an old word without effect: OpenShell terminates TLS where it reads requests", *word),
        node->span);
    return false;
  }

  Result<void> Enforcement(const Node* node, bool inspects, OpenShellEndpoint* endpoint) {
    bool enforces = false;
    if (node != nullptr && !IsUnset(*node)) {
      const auto word = Word(*node, "enforcement", {"enforce", "audit"});
      if (!word) return std::unexpected(word.error());
      enforces = *word == "enforce";
    }
    endpoint->inspected = inspects && enforces;
    endpoint->audited = inspects && !enforces;
    if (!endpoint->audited) return {};
    Say(RemarkKind::kWider,
        fmt::format(
            "`enforcement` is {}: what the rules do not allow is logged and forwarded, so all of {}:{}{} is granted; write "
            "`enforcement: enforce` to have the rules kept",
            node == nullptr ? "left out, which means `audit`" : "`audit`", endpoint->host_text, endpoint->ports,
            endpoint->path_node == nullptr ? "" : fmt::format(" under `{}`", endpoint->path_node->text)),
        node != nullptr ? node->span : endpoint->at->span);
    return {};
  }

  void Say(RemarkKind kind, std::string text, const SourceSpan& span) { remarks_.push_back({kind, std::move(text), span}); }

  std::vector<OpenShellRemark> remarks_;  ///< of the endpoint being read
};

}  // namespace

Result<std::vector<OpenShellPolicy>> ReadOpenShell(const Node& root, ImportBuilder* out) {
  auto fields = Fields::Of(root, "an OpenShell policy");
  if (!fields) return std::unexpected(fields.error());
  const Node* version = fields->Get("version");
  if (version == nullptr || version->kind != Node::Kind::kScalar || version->text != "1")
    return NodeError(version == nullptr ? root : *version, "an OpenShell policy begins with `version: 1`");
  for (const std::string_view key : {"filesystem_policy", "landlock", "process"})
    if (const Node* section = fields->Get(key))
      out->SayOfFile(RemarkKind::kNote, fmt::format("`{}` is not about egress and is not read", key),
                     section->span.line == 0 ? root.span : fields->KeyNode(key)->span);
  if (auto refused = fields->RefuseSet("network_middlewares", "middleware reads and changes traffic, which Sluice does not");
      !refused)
    return std::unexpected(refused.error());
  const Node* policies = fields->Get("network_policies");
  if (auto rest = fields->RefuseOthers("an OpenShell policy"); !rest) return std::unexpected(rest.error());
  std::vector<OpenShellPolicy> list;
  if (policies == nullptr) return list;
  if (policies->kind != Node::Kind::kMapping) return NodeError(*policies, "`network_policies` is a map of named policies");
  Reader reader;
  for (const Member& member : policies->members) {
    auto policy = reader.Policy(member);
    if (!policy) return std::unexpected(policy.error());
    list.push_back(std::move(*policy));
  }
  return list;
}

}  // namespace sluice::policy
