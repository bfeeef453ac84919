// gh-aw-firewall: domains for its Squid proxy. A domain is itself and all below it, port 80 as HTTP and 443 as a tunnel; a `*`
// stands for any characters, dots included; what is blocked beats what is allowed.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

enum class Protocol : uint8_t { kBoth, kHttp, kHttps };

struct DomainEntry {
  Protocol protocol = Protocol::kBoth;
  std::string domain;
  uint32_t offset = 0;  ///< of the domain in the entry
};

Result<DomainEntry> Split(const Node& node) {
  const auto text = Text(node, "domain");
  if (!text) return std::unexpected(text.error());
  DomainEntry entry;
  std::string_view rest = *text;
  for (const auto& [prefix, protocol] : {std::pair{"http://", Protocol::kHttp}, {"https://", Protocol::kHttps}}) {
    if (!rest.starts_with(prefix)) continue;
    entry.protocol = protocol;
    entry.offset = static_cast<uint32_t>(std::string_view(prefix).size());
    rest.remove_prefix(entry.offset);
    break;
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    ++entry.offset;
  }
  if (rest.empty()) return NodeError(node, "an empty domain");
  if (rest.find_first_of(":/") != std::string_view::npos)
    return NodeError(node, fmt::format("`{}`: a domain without port and path is expected", *text));
  if (rest.find_first_not_of("*.") == std::string_view::npos)
    return NodeError(node, "gh-aw-firewall refuses a pattern that is every domain");
  entry.domain = rest;
  return entry;
}

// The hosts that the entry stands for.
Result<std::vector<HostPattern>> Hosts(Effect effect, const Node& node, const DomainEntry& entry, ImportBuilder* out) {
  std::vector<std::string> texts;
  const std::string& domain = entry.domain;
  const size_t star = domain.rfind('*');
  if (star == std::string::npos) {
    auto host = HostAt(node, domain, entry.offset);
    if (!host) return std::unexpected(host.error());
    if (host->cidr) {
      if (host->cidr->length128() != 128) return NodeError(node, "gh-aw-firewall takes no prefix");
      return std::vector<HostPattern>{*host};
    }
    out->Say(effect == Effect::kAllow ? RemarkKind::kWider : RemarkKind::kNote,
             fmt::format("`{0}` is {0} and every name below it", domain), node.span);
    texts = {domain, "**." + domain};
  } else if (star == 0 && domain.starts_with("*.")) {
    out->Say(RemarkKind::kNote, fmt::format("`{0}`: any depth below {1}, not {1} itself", domain, domain.substr(2)), node.span);
    texts = {"*" + domain};
  } else if (effect == Effect::kAllow) {
    out->Say(RemarkKind::kNarrower,
             fmt::format("the `*` of `{}` crosses dots in gh-aw-firewall; here it stays within its label", domain), node.span);
    texts = {domain};
  } else {
    // A deny must reach whatever the pattern does: all below what stands fixed at its end.
    const size_t dot = domain.find('.', star);
    if (dot == std::string::npos) return NodeError(node, fmt::format("`{}` blocks too much to be written as a rule", domain));
    out->Say(RemarkKind::kNarrower,
             fmt::format("`{}` has no exact form here: this blocks all below {}", domain, domain.substr(dot + 1)), node.span);
    texts = {"**" + domain.substr(dot)};
  }
  std::vector<HostPattern> hosts;
  for (const std::string& text : texts) {
    auto host = HostAt(node, text, 0);
    if (!host) return NodeError(node, host.error().message);
    hosts.push_back(std::move(*host));
  }
  return hosts;
}

Result<void> Allow(const Node& node, ImportBuilder* out) {
  const auto entry = Split(node);
  if (!entry) return std::unexpected(entry.error());
  const auto hosts = Hosts(Effect::kAllow, node, *entry, out);
  if (!hosts) return std::unexpected(hosts.error());
  for (const HostPattern& host : *hosts) {
    if (entry->protocol != Protocol::kHttp) {
      if (auto added = out->Grant({.verb = "tcp", .host = HostText(host), .ports = "443"}, node); !added) return added;
    }
    if (entry->protocol != Protocol::kHttps) {
      if (auto added = out->Grant({.verb = "http", .scheme = "http", .host = HostText(host)}, node); !added) return added;
    }
  }
  return {};
}

Result<void> Block(const Node& node, ImportBuilder* out) {
  const auto entry = Split(node);
  if (!entry) return std::unexpected(entry.error());
  const auto hosts = Hosts(Effect::kDeny, node, *entry, out);
  if (!hosts) return std::unexpected(hosts.error());
  for (const HostPattern& host : *hosts) {
    RuleParts parts{.effect = Effect::kDeny, .verb = host.cidr ? "tcp" : "dns", .host = HostText(host)};
    if (entry->protocol == Protocol::kHttp)
      parts = {.effect = Effect::kDeny, .verb = "tcp", .host = HostText(host), .ports = "80"};
    if (entry->protocol == Protocol::kHttps)
      parts = {.effect = Effect::kDeny, .verb = "tcp", .host = HostText(host), .ports = "443"};
    if (auto added = out->Grant(parts, node); !added) return added;
  }
  return {};
}

void OfWholeFile(const SourceSpan& span, ImportBuilder* out) {
  out->SayOfFile(RemarkKind::kNote, "ports 80 (as HTTP) and 443 (as bytes); no other", span);
  out->SayOfFile(RemarkKind::kNarrower, "a name that leads to a private address is refused here until its rule has `ip:`", span);
}

Result<void> Network(const Node& node, ImportBuilder* out) {
  auto fields = Fields::Of(node, "`network`");
  if (!fields) return std::unexpected(fields.error());
  const auto allowed = List(fields->Get("allowDomains"), "allowDomains");
  if (!allowed) return std::unexpected(allowed.error());
  const auto blocked = List(fields->Get("blockDomains"), "blockDomains");
  if (!blocked) return std::unexpected(blocked.error());
  if (auto refused = fields->RefuseSet("upstreamProxy", "write `proxies:` and `via:` in a native policy"); !refused)
    return refused;
  if (fields->Get("dnsServers") != nullptr)
    out->SayOfFile(RemarkKind::kNote, "`dnsServers` is the flag `--resolver` of `sluice run`",
                   fields->KeyNode("dnsServers")->span);
  if (auto rest = fields->RefuseOthers("`network`"); !rest) return rest;
  for (const Node* item : *allowed) {
    if (auto added = Allow(*item, out); !added) return added;
  }
  for (const Node* item : *blocked) {
    if (auto added = Block(*item, out); !added) return added;
  }
  return {};
}

// What restricts or opens egress beside the lists.
Result<void> Security(const Node& node, ImportBuilder* out) {
  auto fields = Fields::Of(node, "`security`");
  if (!fields) return std::unexpected(fields.error());
  for (const auto& [key, why] : {std::pair{"enableDlp", "what leaves is not inspected in this version"},
                                 {"allowUrls", "it restricts paths under its own rules"},
                                 {"difcProxy", "write `proxies:` and `via:` in a native policy"}})
    if (auto refused = fields->RefuseSet(key, why); !refused) return refused;
  for (const std::string_view key : {"sslBump", "enableHostAccess", "allowHostPorts", "allowHostServicePorts"})
    if (const Node* value = fields->Get(key); value != nullptr && !IsUnset(*value))
      out->SayOfFile(RemarkKind::kNarrower, fmt::format("`{}` opens no way to the host here", key), fields->KeyNode(key)->span);
  return fields->RefuseOthers("`security`");
}

}  // namespace

Result<void> ImportAwf(const Node& root, const ImportInput&, ImportBuilder* out) {
  auto fields = Fields::Of(root, "a gh-aw-firewall configuration");
  if (!fields) return std::unexpected(fields.error());
  const Node* network = fields->Get("network");
  const Node* security = fields->Get("security");
  for (const auto& [key, why] : {std::pair{"apiProxy", "write `credentials:` and `with:` in a native policy"},
                                 {"rateLimiting", "rates are not limited in this version"}}) {
    const Node* section = fields->Get(key);
    if (section == nullptr || section->kind != Node::Kind::kMapping) continue;
    for (const Member& member : section->members)
      if (member.key.text == "enabled" && member.value.text == "true")
        return NodeError(member.key, fmt::format("`{}` cannot be kept: {}", key, why));
  }
  for (const std::string_view key : {"container", "environment", "logging"})
    if (fields->Get(key) != nullptr)
      out->SayOfFile(RemarkKind::kNote, fmt::format("`{}` is not about egress and is not read", key), fields->KeyNode(key)->span);
  (void)fields->Get("$schema");
  if (auto rest = fields->RefuseOthers("a gh-aw-firewall configuration"); !rest) return rest;
  if (security != nullptr) {
    if (auto read = Security(*security, out); !read) return read;
  }
  if (network == nullptr) return NodeError(root, "the configuration has no `network`");
  OfWholeFile(network->span, out);
  return Network(*network, out);
}

Result<void> ImportAwfList(const std::vector<Node>& entries, ImportBuilder* out) {
  if (!entries.empty()) OfWholeFile(entries[0].span, out);
  for (const Node& entry : entries) {
    if (auto added = Allow(entry, out); !added) return added;
  }
  return {};
}

std::vector<Node> WordsOfLines(std::string_view text, const std::string& file, uint32_t first, uint32_t last) {
  std::vector<Node> words;
  uint32_t line = 1;
  for (size_t at = 0; at <= text.size() && line < last; ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view whole = text.substr(at, end - at);
    const std::string_view content = whole.substr(0, whole.find('#'));
    for (size_t i = 0; line >= first && i < content.size();) {
      const size_t from = content.find_first_not_of(" \t\r,", i);
      if (from == std::string_view::npos) break;
      const size_t to = std::min(content.find_first_of(" \t\r,", from), content.size());
      Node word;
      word.text = content.substr(from, to - from);
      word.span = {file, line, static_cast<uint32_t>(from + 1), static_cast<uint32_t>(to - from)};
      words.push_back(std::move(word));
      i = to;
    }
    at = end + 1;
  }
  return words;
}

}  // namespace sluice::policy
