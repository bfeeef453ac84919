// CiliumNetworkPolicy: the egress rules by name and prefix. `matchName` is one host; in `matchPattern` a `*` stands for
// characters of one label, `**.` at the beginning for any depth, and `*` alone for every name.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

struct PortEntry {
  std::string verb;  ///< "tcp" or "udp"; empty is both
  std::string ports;
  const Node* http = nullptr;  ///< HTTP rules of its list
  const Node* at = nullptr;
};

constexpr std::string_view kPeers[] = {"toFQDNs", "toCIDR", "toCIDRSet", "toEntities"};

struct Destination {
  std::string host;  ///< as rules write it
  const Node* at = nullptr;
};

Result<std::string> FqdnHost(const Node& node, ImportBuilder* out) {
  auto fields = Fields::Of(node, "an entry of `toFQDNs`");
  if (!fields) return std::unexpected(fields.error());
  const Node* name = fields->Get("matchName");
  const Node* pattern = fields->Get("matchPattern");
  if (auto rest = fields->RefuseOthers("`toFQDNs`"); !rest) return std::unexpected(rest.error());
  if ((name == nullptr) == (pattern == nullptr)) return NodeError(node, "an entry has `matchName` or `matchPattern`");
  const Node& value = name != nullptr ? *name : *pattern;
  auto text = Text(value, name != nullptr ? "matchName" : "matchPattern");
  if (!text) return text;
  if (name != nullptr && text->find('*') != std::string::npos)
    return NodeError(value, "`matchName` takes no `*`; write `matchPattern`");
  const size_t stars = std::min(text->find_first_not_of('*'), text->size());
  if (stars == text->size() || (stars > 0 && stars + 1 == text->size() && text->ends_with('.'))) {
    out->Say(RemarkKind::kWider, fmt::format("`{}` is every name", *text), value.span);
    return std::string("**");
  }
  // Two stars and more before the first dot are any depth; elsewhere a run of stars is one.
  const bool deep = stars > 1 && (*text)[stars] == '.';
  std::string glob = deep ? "**" : "";
  for (size_t i = deep ? stars : 0; i < text->size(); ++i)
    if ((*text)[i] != '*' || i == 0 || (*text)[i - 1] != '*') glob += (*text)[i];
  if (deep) {
    out->Say(RemarkKind::kNote, fmt::format("`{0}`: any depth below {1}, not {1} itself", *text, text->substr(stars + 1)),
             value.span);
  } else if (glob.starts_with("*.")) {
    out->Say(RemarkKind::kNote, fmt::format("`{0}`: one label, so neither {1} itself nor a.b.{1}", *text, glob.substr(2)),
             value.span);
  }
  if (glob.ends_with('.')) glob.pop_back();  // Cilium adds it where it is missing
  auto host = HostAt(value, glob);
  if (!host) return std::unexpected(host.error());
  if (host->cidr) return NodeError(value, "a name is expected, not an address");
  return HostText(*host);
}

Result<void> ReadFqdns(const Node* list, ImportBuilder* out, std::vector<Destination>* destinations) {
  const auto items = List(list, "toFQDNs");
  if (!items) return std::unexpected(items.error());
  for (const Node* item : *items) {
    auto host = FqdnHost(*item, out);
    if (!host) return std::unexpected(host.error());
    // Names alone: a bare `**` would be addresses too, which no lookup gave.
    destinations->push_back({*host == "**" ? "**.*" : std::move(*host), item});
  }
  return {};
}

Result<void> ReadCidrs(Fields* fields, ImportBuilder* out, std::vector<Destination>* destinations) {
  const auto plain = List(fields->Get("toCIDR"), "toCIDR");
  if (!plain) return std::unexpected(plain.error());
  const auto sets = List(fields->Get("toCIDRSet"), "toCIDRSet");
  if (!sets) return std::unexpected(sets.error());
  std::vector<const Node*> nodes = *plain;
  for (const Node* item : *sets) {
    auto set = Fields::Of(*item, "an entry of `toCIDRSet`");
    if (!set) return std::unexpected(set.error());
    const Node* cidr = set->Get("cidr");
    if (auto refused = set->RefuseSet("except", "a rule has no exceptions; write a deny"); !refused) return refused;
    if (auto rest = set->RefuseOthers("`toCIDRSet`"); !rest) return rest;
    if (cidr == nullptr) return NodeError(*item, "an entry of `toCIDRSet` has a `cidr`");
    nodes.push_back(cidr);
  }
  for (const Node* node : nodes) {
    const auto text = Text(*node, "toCIDR");
    if (!text) return std::unexpected(text.error());
    const auto cidr = Cidr::Parse(*text);
    if (!cidr) return NodeError(*node, fmt::format("`{}` is no prefix without bits after its length", *text));
    if (const std::string range = PrivateInside(*cidr); !range.empty())
      out->Say(RemarkKind::kNarrower,
               fmt::format("`{}` holds {}, which here must be written by itself to be reached", *text, range), node->span);
    HostPattern host;
    host.text = cidr->ToString();
    destinations->push_back({HostText(host), node});
  }
  return {};
}

// Only what leaves for anywhere has a counterpart.
Result<void> ReadEntities(const Node* list, ImportBuilder* out, std::vector<Destination>* destinations) {
  const auto items = List(list, "toEntities");
  if (!items) return std::unexpected(items.error());
  for (const Node* item : *items) {
    const auto text = Text(*item, "toEntities");
    if (!text) return std::unexpected(text.error());
    if (*text == "none") continue;
    if (*text != "world" && *text != "all")
      return NodeError(*item, fmt::format("the entity `{}` cannot be kept: rules know names and addresses only", *text));
    out->Say(RemarkKind::kWider, fmt::format("`{}` is every host", *text), item->span);
    destinations->push_back({"**", item});
  }
  return {};
}

Result<PortEntry> ReadPort(const Node& node) {
  auto fields = Fields::Of(node, "a port");
  if (!fields) return std::unexpected(fields.error());
  const Node* port = fields->Get("port");
  const Node* end = fields->Get("endPort");
  const Node* protocol = fields->Get("protocol");
  if (auto rest = fields->RefuseOthers("a port"); !rest) return std::unexpected(rest.error());
  PortEntry entry;
  entry.at = port == nullptr ? &node : port;
  if (port == nullptr) return NodeError(node, "a port has a `port`");
  if (!port->text.empty() && port->text.find_first_not_of("0123456789") != std::string::npos)
    return NodeError(*port, fmt::format("the port name `{}` is known to the cluster only; write its number", port->text));
  const auto first = Port(*port, "port");
  if (!first) return std::unexpected(first.error());
  entry.ports = *first == 0 ? std::string(kAllPorts) : fmt::format("{}", *first);
  if (end != nullptr && !IsUnset(*end)) {
    const auto last = Port(*end, "endPort");
    if (!last) return std::unexpected(last.error());
    if (*first == 0 || *last < *first) return NodeError(*end, "`endPort` is not below `port`");
    entry.ports = fmt::format("{}-{}", *first, *last);
  }
  const auto word = protocol == nullptr ? Result<std::string>("ANY")
                                        : Word(*protocol, "protocol", {"TCP", "UDP", "ANY", "SCTP", "ICMP", "ICMPv6"});
  if (!word) return std::unexpected(word.error());
  if (*word == "SCTP" || word->starts_with("ICMP"))
    return NodeError(*protocol, fmt::format("`{}` cannot be kept: rules know TCP and UDP", *word));
  entry.verb = *word == "UDP" ? "udp" : *word == "TCP" ? "tcp" : "";
  return entry;
}

Result<std::vector<PortEntry>> ReadPorts(const Node* list, std::vector<const Node*>* dns) {
  std::vector<PortEntry> entries;
  const auto items = List(list, "toPorts");
  if (!items) return std::unexpected(items.error());
  for (const Node* item : *items) {
    auto fields = Fields::Of(*item, "an entry of `toPorts`");
    if (!fields) return std::unexpected(fields.error());
    const auto ports = List(fields->Get("ports"), "ports");
    if (!ports) return std::unexpected(ports.error());
    const Node* rules = fields->Get("rules");
    for (const std::string_view key : {"originatingTLS", "terminatingTLS", "serverNames", "listener"})
      if (auto refused = fields->RefuseSet(key, "it has no counterpart in a rule"); !refused)
        return std::unexpected(refused.error());
    if (auto rest = fields->RefuseOthers("`toPorts`"); !rest) return std::unexpected(rest.error());
    const Node* http = nullptr;
    if (rules != nullptr) {
      auto kinds = Fields::Of(*rules, "`rules`");
      if (!kinds) return std::unexpected(kinds.error());
      http = kinds->Get("http");
      const Node* names = kinds->Get("dns");
      for (const std::string_view key : {"kafka", "l7", "l7proto"})
        if (auto refused = kinds->RefuseSet(key, "rules know HTTP only"); !refused) return std::unexpected(refused.error());
      if (auto rest = kinds->RefuseOthers("`rules`"); !rest) return std::unexpected(rest.error());
      const auto lookups = List(names, "dns");
      if (!lookups) return std::unexpected(lookups.error());
      dns->insert(dns->end(), lookups->begin(), lookups->end());
    }
    for (const Node* port : *ports) {
      auto entry = ReadPort(*port);
      if (!entry) return std::unexpected(entry.error());
      entry->http = http;
      entries.push_back(std::move(*entry));
    }
  }
  return entries;
}

// Cilium matches paths and methods as regular expressions over the whole text; only those that are a glob at heart are taken.
Result<std::string> PathGlob(const Node& node, ImportBuilder* out) {
  const auto text = Text(node, "path");
  if (!text) return text;
  std::string glob;
  bool any_character = false;
  for (size_t i = 0; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (c == '.' && i + 1 < text->size() && (*text)[i + 1] == '*') {
      const bool alone = (glob.empty() || glob.ends_with('/')) && (i + 2 == text->size() || (*text)[i + 2] == '/');
      if (!alone) return NodeError(node, fmt::format("`{}`: `.*` is kept only as a whole segment", *text));
      glob += glob.empty() ? "/**" : "**";
      ++i;
    } else if (c == '\\' && i + 1 < text->size()) {
      glob += (*text)[++i];
    } else if (std::string_view("[](){}|+?*^$").find(c) != std::string_view::npos) {
      return NodeError(node, fmt::format("`{}`: this regular expression has no glob; write its paths out", *text));
    } else {
      any_character |= c == '.';
      glob += c;
    }
  }
  if (any_character) out->Say(RemarkKind::kNarrower, "an unescaped `.` is any character to Cilium; here it is a dot", node.span);
  return glob;
}

Result<void> AddHttp(const Destination& destination, const PortEntry& port, ImportBuilder* out) {
  const auto rules = List(port.http, "http");
  if (!rules) return std::unexpected(rules.error());
  for (const Node* rule : *rules) {
    auto fields = Fields::Of(*rule, "an HTTP rule");
    if (!fields) return std::unexpected(fields.error());
    const Node* method = fields->Get("method");
    const Node* path = fields->Get("path");
    for (const std::string_view key : {"host", "headers", "headerMatches"})
      if (auto refused = fields->RefuseSet(key, "it is a rule of its own kind"); !refused) return refused;
    if (auto rest = fields->RefuseOthers("an HTTP rule"); !rest) return rest;
    RuleParts parts{.verb = "http", .scheme = "http", .host = destination.host, .ports = port.ports};
    if (method != nullptr) {
      const auto text = Text(*method, "method");
      if (!text) return std::unexpected(text.error());
      if (text->find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ|") != std::string::npos)
        return NodeError(*method, fmt::format("`{}`: this regular expression is no list of methods", *text));
      parts.verb = *text;
      std::replace(parts.verb.begin(), parts.verb.end(), '|', ',');
    }
    if (path != nullptr) {
      auto glob = PathGlob(*path, out);
      if (!glob) return std::unexpected(glob.error());
      if (*glob != "/**") parts.paths = {std::move(*glob)};
    }
    if (auto added = out->Grant(parts, path != nullptr ? *path : *rule); !added) return added;
  }
  return {};
}

bool IsLookups(const std::vector<PortEntry>& ports) {
  return !ports.empty() &&
         std::all_of(ports.begin(), ports.end(), [](const PortEntry& p) { return p.ports == "53" && p.http == nullptr; });
}

// What goes to the cluster's resolver is a lookup here.
Result<void> AddLookups(const std::vector<const Node*>& dns, const Node& at, ImportBuilder* out) {
  if (dns.empty()) {
    out->Say(RemarkKind::kWider, "port 53 without DNS rules: every name may be looked up, which can carry data out", at.span);
    return out->Grant({.verb = "dns", .host = "**"}, at);
  }
  for (const Node* node : dns) {
    auto host = FqdnHost(*node, out);
    if (!host) return std::unexpected(host.error());
    if (auto added = out->Grant({.verb = "dns", .host = *host}, *node); !added) return added;
  }
  return {};
}

// Both transports where none is named: a deny in full, an allow as TCP, since a run carries no UDP but lookups.
Result<void> AddGrant(Effect effect, const Destination& destination, const PortEntry& port, ImportBuilder* out) {
  if (port.http != nullptr) return AddHttp(destination, port, out);
  RuleParts parts{.effect = effect, .verb = port.verb, .host = destination.host, .ports = port.ports};
  if (!port.verb.empty()) return out->Grant(parts, *destination.at);
  parts.verb = "tcp";
  if (auto added = out->Grant(parts, *destination.at); !added) return added;
  if (effect == Effect::kAllow) {
    out->SayOfFile(RemarkKind::kNarrower, "where no protocol is named TCP alone is granted here; Cilium grants every one",
                   port.at->span);
    return {};
  }
  parts.verb = "udp";
  return out->Grant(parts, *destination.at);
}

Result<void> Entry(const Node& node, Effect effect, ImportBuilder* out) {
  const char* what = effect == Effect::kAllow ? "an egress rule" : "an egress deny rule";
  auto fields = Fields::Of(node, what);
  if (!fields) return std::unexpected(fields.error());
  std::vector<Destination> destinations;
  std::vector<const Node*> dns;
  const Node* list = fields->Get("toPorts");
  const Node* peers = fields->Get("toEndpoints");
  auto ports = ReadPorts(list, &dns);
  if (!ports) return std::unexpected(ports.error());
  if (auto read = ReadFqdns(fields->Get("toFQDNs"), out, &destinations); !read) return read;
  if (auto read = ReadCidrs(&*fields, out, &destinations); !read) return read;
  if (auto read = ReadEntities(fields->Get("toEntities"), out, &destinations); !read) return read;
  for (const std::string_view key : {"toServices", "toGroups", "toNodes", "toRequires", "icmps", "authentication"})
    if (auto refused = fields->RefuseSet(key, "rules know names and addresses only"); !refused) return refused;
  if (auto rest = fields->RefuseOthers(what); !rest) return rest;
  if (IsLookups(*ports) && effect == Effect::kAllow && (peers != nullptr || destinations.empty()))
    return AddLookups(dns, node, out);
  if (!dns.empty()) return NodeError(*dns[0], "DNS rules are kept on port 53 only");
  if (peers != nullptr)
    return NodeError(*fields->KeyNode("toEndpoints"), "`toEndpoints` cannot be kept: rules know names and addresses only");
  const bool has_peer =
      std::any_of(std::begin(kPeers), std::end(kPeers), [&](auto key) { return fields->KeyNode(key) != nullptr; });
  if (!has_peer && list != nullptr) {
    out->Say(effect == Effect::kAllow ? RemarkKind::kWider : RemarkKind::kNote, "no destination: every host", node.span);
    destinations.push_back({"**", &node});
  }
  if (destinations.empty()) {
    out->Say(RemarkKind::kNothing, "an entry without destination and ports selects nothing; it only has egress denied otherwise",
             node.span);
    return {};
  }
  if (ports->empty()) ports->push_back({"", effect == Effect::kAllow ? std::string(kAllPorts) : "", nullptr, &node});
  for (const Destination& destination : destinations) {
    for (const PortEntry& port : *ports) {
      if (auto added = AddGrant(effect, destination, port, out); !added) return added;
    }
  }
  return {};
}

Result<void> Spec(const Node& node, ImportBuilder* out) {
  auto fields = Fields::Of(node, "`spec`");
  if (!fields) return std::unexpected(fields.error());
  for (const std::string_view key : {"endpointSelector", "nodeSelector"})
    if (fields->Get(key) != nullptr)
      out->SayOfFile(RemarkKind::kNote,
                     fmt::format("`{}` says whom the policy is for; a policy here is for the one workload it is given to", key),
                     fields->KeyNode(key)->span);
  for (const std::string_view key : {"ingress", "ingressDeny"})
    if (fields->Get(key) != nullptr)
      out->SayOfFile(RemarkKind::kNote, fmt::format("`{}` is not about egress and is not read", key), fields->KeyNode(key)->span);
  for (const std::string_view key : {"description", "labels", "enableDefaultDeny", "log"}) (void)fields->Get(key);
  if (const Node* deny = fields->Get("enableDefaultDeny"))
    for (const Member& member : deny->members)
      if (member.key.text == "egress" && member.value.text == "false")
        return NodeError(member.value, "`enableDefaultDeny.egress: false` cannot be kept: what no rule allows is denied");
  const auto allows = List(fields->Get("egress"), "egress");
  if (!allows) return std::unexpected(allows.error());
  const auto denies = List(fields->Get("egressDeny"), "egressDeny");
  if (!denies) return std::unexpected(denies.error());
  if (auto rest = fields->RefuseOthers("`spec`"); !rest) return rest;
  if (allows->empty() && denies->empty())
    out->Say(RemarkKind::kNothing, "no egress rule: Cilium then leaves egress alone, and everything passes; here it is denied",
             node.span);
  for (const Node* item : *allows) {
    if (auto added = Entry(*item, Effect::kAllow, out); !added) return added;
  }
  for (const Node* item : *denies) {
    if (auto added = Entry(*item, Effect::kDeny, out); !added) return added;
  }
  return {};
}

}  // namespace

Result<void> ImportCilium(const Node& root, const ImportInput&, ImportBuilder* out) {
  auto fields = Fields::Of(root, "a CiliumNetworkPolicy");
  if (!fields) return std::unexpected(fields.error());
  const Node* version = fields->Get("apiVersion");
  const Node* kind = fields->Get("kind");
  const Node* metadata = fields->Get("metadata");
  const Node* spec = fields->Get("spec");
  const auto specs = List(fields->Get("specs"), "specs");
  if (!specs) return std::unexpected(specs.error());
  (void)fields->Get("status");
  if (auto rest = fields->RefuseOthers("a CiliumNetworkPolicy"); !rest) return rest;
  if (version == nullptr || version->text != "cilium.io/v2")
    return NodeError(version == nullptr ? root : *version, "`apiVersion: cilium.io/v2` is expected");
  if (kind == nullptr) return NodeError(root, "`kind: CiliumNetworkPolicy` is missing");
  if (auto word = Word(*kind, "kind", {"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"}); !word)
    return std::unexpected(word.error());
  if (metadata != nullptr)
    for (const Member& member : metadata->members)
      if (member.key.text == "name" && !member.value.text.empty()) out->SetName(member.value.text);
  out->SayOfFile(RemarkKind::kNote, "a name without `*` is that host alone; bytes are not read but for HTTP rules", root.span);
  out->SayOfFile(RemarkKind::kNarrower, "a name that leads to a private address is refused here until its rule has `ip:`",
                 root.span);
  if (spec == nullptr && specs->empty()) return NodeError(root, "the policy has no `spec`");
  if (spec != nullptr) {
    if (auto done = Spec(*spec, out); !done) return done;
  }
  for (const Node* item : *specs) {
    if (auto done = Spec(*item, out); !done) return done;
  }
  return {};
}

}  // namespace sluice::policy
