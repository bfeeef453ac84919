// Settings of Anthropic's sandbox-runtime. Names alone count: an exact host, or `*.x` for all below x; a port where one is
// written; a denied entry beats an allowed one.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

struct DomainEntry {
  HostPattern host;
  std::string port;  ///< empty: every port
};

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text[0] != '0' && text.find_first_not_of("0123456789") == std::string_view::npos &&
         std::stoul(std::string(text)) <= 65535;
}

Result<DomainEntry> ReadDomain(const Node& node, Effect effect) {
  const auto text = Text(node, effect == Effect::kAllow ? "allowedDomains" : "deniedDomains");
  if (!text) return std::unexpected(text.error());
  std::string_view host = *text;
  if (host.find('/') != std::string_view::npos)
    return NodeError(node, fmt::format("`{}`: a domain without protocol and path is expected", *text));
  DomainEntry entry;
  const size_t colon = host.rfind(':');
  const bool bracketed = host.starts_with('[');
  if (!bracketed && std::count(host.begin(), host.end(), ':') > 1) return NodeError(node, "write an IPv6 address in brackets");
  if (colon != std::string_view::npos && (!bracketed || colon > host.find(']'))) {
    if (!IsPort(host.substr(colon + 1))) return NodeError(node, fmt::format("`{}` does not end in a port", *text));
    entry.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host == "*" && effect == Effect::kDeny) {
    entry.host.text = "**";
    return entry;
  }
  std::string pattern(host);
  const bool below = host.starts_with("*.");
  if (host.find('*', below ? 1 : 0) != std::string_view::npos)
    return NodeError(node, "`*` stands only in `*.` at the beginning of a domain");
  if (below) {
    if (host.find('.', 2) == std::string_view::npos)
      return NodeError(node, "sandbox-runtime refuses a wildcard over a whole top-level domain");
    pattern = "*" + pattern;
  } else if (host != "localhost" && host.find_first_of(".:") == std::string_view::npos) {
    return NodeError(node, fmt::format("sandbox-runtime takes no single label but `localhost`, so not `{}`", host));
  }
  if (host.ends_with('.')) return NodeError(node, "a domain without its final dot is expected");
  auto read = HostAt(node, below ? host.substr(2) : std::string_view(pattern), below ? 2 : 0);
  if (!read) return std::unexpected(read.error());
  if (read->cidr && (below || read->cidr->length128() != 128))
    return NodeError(node, "a domain or an address is expected, no prefix");
  entry.host = std::move(*read);
  if (below) {
    auto deep = HostAt(node, "**." + entry.host.text);
    if (!deep) return std::unexpected(deep.error());
    entry.host = std::move(*deep);
  }
  return entry;
}

Result<void> Allow(const Node& node, ImportBuilder* out) {
  const auto entry = ReadDomain(node, Effect::kAllow);
  if (!entry) return std::unexpected(entry.error());
  if (entry->host.kind == HostPattern::Kind::kGlob)
    out->Say(RemarkKind::kNote, fmt::format("`*.{0}`: any depth below {0}, not {0} itself", entry->host.text.substr(3)),
             node.span);
  if (entry->host.text == "localhost")
    out->Say(RemarkKind::kNarrower, "here `localhost` is the workload's own, never the host's", node.span);
  return out->Grant(
      {.verb = "tcp", .host = HostText(entry->host), .ports = entry->port.empty() ? std::string(kAllPorts) : entry->port}, node);
}

Result<void> Deny(const Node& node, const Node* reasons, ImportBuilder* out) {
  const auto entry = ReadDomain(node, Effect::kDeny);
  if (!entry) return std::unexpected(entry.error());
  const bool by_name = entry->host.kind == HostPattern::Kind::kName || entry->host.kind == HostPattern::Kind::kGlob;
  RuleParts parts{.effect = Effect::kDeny,
                  .verb = by_name && entry->port.empty() ? "dns" : "tcp",
                  .host = HostText(entry->host),
                  .ports = entry->port};
  auto rule = ImportBuilder::Make(parts, node);
  if (!rule) return std::unexpected(rule.error());
  if (reasons != nullptr)
    for (const Member& member : reasons->members)
      if (member.key.text == node.text) rule->note = member.value.text;
  out->Add(std::move(*rule), node.span);
  return {};
}

Result<void> Network(const Node& node, ImportBuilder* out) {
  auto fields = Fields::Of(node, "`network`");
  if (!fields) return std::unexpected(fields.error());
  const auto allowed = List(fields->Get("allowedDomains"), "allowedDomains");
  if (!allowed) return std::unexpected(allowed.error());
  const auto denied = List(fields->Get("deniedDomains"), "deniedDomains");
  if (!denied) return std::unexpected(denied.error());
  const Node* reasons = fields->Get("deniedDomainReasons");
  if (reasons != nullptr && reasons->kind != Node::Kind::kMapping) return NodeError(*reasons, "`deniedDomainReasons` is a map");
  for (const auto& [key, why] : {std::pair{"httpProxyPort", "another proxy would decide instead of the lists"},
                                 {"socksProxyPort", "another proxy would decide instead of the lists"},
                                 {"mitmProxy", "write `proxies:` and `via:` in a native policy"},
                                 {"parentProxy", "write `proxies:` and `via:` in a native policy"},
                                 {"filterRequest", "it is a program"}})
    if (auto refused = fields->RefuseSet(key, why); !refused) return refused;
  for (const std::string_view key :
       {"allowUnixSockets", "allowAllUnixSockets", "allowLocalBinding", "allowMachLookup", "tlsTerminate"})
    if (const Node* value = fields->Get(key); value != nullptr && !IsUnset(*value))
      out->SayOfFile(key == "allowUnixSockets" || key == "allowAllUnixSockets" ? RemarkKind::kNarrower : RemarkKind::kNote,
                     fmt::format("`{}` has no counterpart in a rule and is not read", key), fields->KeyNode(key)->span);
  const Node* strict = fields->Get("strictAllowlist");
  if (strict == nullptr || strict->text != "true")
    out->SayOfFile(RemarkKind::kNarrower, "a program around sandbox-runtime may ask about hosts in no list; here they are denied",
                   node.span);
  if (auto rest = fields->RefuseOthers("`network`"); !rest) return rest;
  for (const Node* item : *allowed) {
    if (auto done = Allow(*item, out); !done) return done;
  }
  for (const Node* item : *denied) {
    if (auto done = Deny(*item, reasons, out); !done) return done;
  }
  return {};
}

Result<void> Credentials(const Node& node, ImportBuilder* out) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, "`credentials` is a map");
  for (const Member& group : node.members)
    for (const Node& entry : group.value.items)
      for (const Member& field : entry.members)
        if (field.key.text == "mode" && field.value.text == "mask")
          return NodeError(field.value, "`mode: mask` cannot be kept: write `credentials:` and `with:` in a native policy");
  out->SayOfFile(RemarkKind::kNote,
                 "`credentials` hides files and variables; `sluice run` passes none that look like credentials", node.span);
  return {};
}

}  // namespace

Result<void> ImportSandboxRuntime(const Node& root, const ImportInput&, ImportBuilder* out) {
  auto fields = Fields::Of(root, "sandbox-runtime settings");
  if (!fields) return std::unexpected(fields.error());
  const Node* network = fields->Get("network");
  if (const Node* credentials = fields->Get("credentials")) {
    if (auto read = Credentials(*credentials, out); !read) return read;
  }
  for (const std::string_view key : {"filesystem", "ignoreViolations", "enableWeakerNestedSandbox",
                                     "enableWeakerNetworkIsolation", "allowAppleEvents", "ripgrep", "mandatoryDenySearchDepth",
                                     "allowPty", "seccomp", "bwrapPath", "socatPath", "javaAgentJarPath", "windows", "git"})
    if (fields->Get(key) != nullptr)
      out->SayOfFile(RemarkKind::kNote, fmt::format("`{}` is not about egress and is not read", key), fields->KeyNode(key)->span);
  if (auto rest = fields->RefuseOthers("sandbox-runtime settings"); !rest) return rest;
  if (network == nullptr) return NodeError(root, "the settings have no `network`");
  out->SayOfFile(RemarkKind::kNote,
                 "a domain without `*` is that host alone, without its subdomains; without a port it is every TCP port; requests "
                 "are not read",
                 network->span);
  out->SayOfFile(RemarkKind::kNarrower, "a name that leads to a private address is refused here until its rule has `ip:`",
                 network->span);
  return Network(*network, out);
}

}  // namespace sluice::policy
