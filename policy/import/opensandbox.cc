// OpenSandbox's egress policy: names in order, the first match decides; addresses as sets, where a deny wins.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/import/first_match.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

constexpr std::string_view kTool = "OpenSandbox";

std::string Trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(' ');
  return from == std::string_view::npos ? "" : std::string(text.substr(from, text.find_last_not_of(' ') - from + 1));
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return text;
}

// "allow" or "deny"; OpenSandbox reads neither case nor blanks.
Result<Effect> Action(const Node* node, std::string_view slot) {
  if (node == nullptr) return Effect::kDeny;
  const auto text = Text(*node, slot);
  if (!text) return std::unexpected(text.error());
  const std::string word = Lower(Trimmed(*text));
  if (word == "allow") return Effect::kAllow;
  if (word == "deny" || word.empty()) return Effect::kDeny;
  return NodeError(*node, fmt::format("`{}` is `allow` or `deny`, not `{}`", slot, *text));
}

struct RuleEntry {
  FirstMatchEntry match;
  std::string ports{};  ///< as a rule writes them; empty: all
};

// Only its address rules have ports: it looks names up without knowing what for.
Result<std::string> Ports(const Node& node, const HostPattern& host) {
  const auto list = List(&node, "ports");
  if (!list) return std::unexpected(list.error());
  if (list->empty()) return std::string();
  if (host.kind != HostPattern::Kind::kAddress) return NodeError(node, "OpenSandbox has `ports` for addresses alone");
  std::string ports;
  for (const Node* item : *list) {
    const auto port = Port(*item, "ports");
    if (!port) return std::unexpected(port.error());
    ports += fmt::format("{}{}", ports.empty() ? "" : ",", *port);
  }
  return ports;
}

Result<RuleEntry> ReadRuleEntry(const Node& node, ImportBuilder* out) {
  auto fields = Fields::Of(node, "an egress rule");
  if (!fields) return std::unexpected(fields.error());
  const Node* action = fields->Get("action");
  const Node* target = fields->Get("target");
  const Node* ports = fields->Get("ports");
  if (auto rest = fields->RefuseOthers("an egress rule"); !rest) return std::unexpected(rest.error());
  if (target == nullptr) return NodeError(node, "an egress rule has a `target`");
  const auto effect = Action(action, "action");
  if (!effect) return std::unexpected(effect.error());
  if (action == nullptr) out->SayOfFile(RemarkKind::kNote, "without `action` a rule denies", target->span);
  const auto text = Text(*target, "target");
  if (!text) return std::unexpected(text.error());
  std::string host = Trimmed(*text);
  if (host.empty()) return NodeError(*target, "`target` is empty");
  const bool below = host.starts_with("*.");
  if (host.find('*', below ? 1 : 0) != std::string::npos)
    return NodeError(*target, "OpenSandbox compares this `*` as a character, which no name has; write `*.` at the beginning");
  if (below) host = "*" + host;
  auto pattern = HostAt(*target, host);
  if (!pattern) return std::unexpected(pattern.error());
  RuleEntry entry{{*effect, std::move(*pattern), target}};
  if (ports == nullptr) return entry;
  auto listed = Ports(*ports, entry.match.host);
  if (!listed) return std::unexpected(listed.error());
  entry.ports = *std::move(listed);
  return entry;
}

}  // namespace

Result<void> ImportOpenSandbox(const Node& root, const ImportInput&, ImportBuilder* out) {
  auto fields = Fields::Of(root, "an OpenSandbox policy");
  if (!fields) return std::unexpected(fields.error());
  const Node* fallback = fields->Get("defaultAction");
  const auto rules = List(fields->Get("egress"), "egress");
  if (!rules) return std::unexpected(rules.error());
  if (auto rest = fields->RefuseOthers("an OpenSandbox policy"); !rest) return rest;
  const auto otherwise = Action(fallback, "defaultAction");
  if (!otherwise) return std::unexpected(otherwise.error());
  out->SayOfFile(RemarkKind::kNarrower,
                 "UDP and private addresses are not granted; OpenSandbox, which decides when a name is looked up, grants every "
                 "protocol and port",
                 root.span);
  out->SayOfFile(RemarkKind::kNote,
                 "a name is that host alone, `*.x` all below x without x; addresses count in its mode `dns+nft` only", root.span);
  std::vector<FirstMatchEntry> names;
  std::vector<RuleEntry> addresses;
  for (const Node* node : *rules) {
    auto entry = ReadRuleEntry(*node, out);
    if (!entry) return std::unexpected(entry.error());
    if (entry->match.host.kind == HostPattern::Kind::kAddress) {
      addresses.push_back(std::move(*entry));
    } else {
      names.push_back(std::move(entry->match));
    }
  }
  if (*otherwise == Effect::kAllow) {
    FirstMatchEntry all{Effect::kAllow, {}, fallback};
    all.host.text = "**";
    names.push_back(std::move(all));
    out->SayOfFile(RemarkKind::kWider, "`defaultAction: allow`: everything that no rule denies", fallback->span);
  }
  if (auto added = AddFirstMatch(names, kTool, out); !added) return added;
  for (const auto& [entry, ports] : addresses) {
    RuleParts parts{.effect = entry.effect, .verb = "tcp", .host = HostText(entry.host), .ports = ports};
    if (entry.effect == Effect::kAllow) {
      if (ports.empty()) parts.ports = kAllPorts;
      if (const std::string range = PrivateInside(*entry.host.cidr); !range.empty())
        out->Say(RemarkKind::kNarrower,
                 fmt::format("the prefix holds {}, which here must be written by itself to be reached", range), entry.at->span);
    }
    if (auto added = out->Grant(parts, *entry.at); !added) return added;
  }
  return {};
}

}  // namespace sluice::policy
