// smokescreen's ACL: a list per service. Its domains come first, then the global deny list, then the global allow list, then the
// action: the first that speaks decides.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/import/first_match.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

struct Service {
  std::string name;
  const Node* at = nullptr;
  std::string action;
  const Node* action_node = nullptr;
  std::vector<HostPattern> hosts;
  std::vector<const Node*> nodes;
};

// "*.x" or a name; "**.x" here, for smokescreen's is any depth.
Result<HostPattern> ReadGlob(const Node& node) {
  const auto text = Text(node, "domain");
  if (!text) return std::unexpected(text.error());
  const bool below = text->starts_with("*.");
  if (*text == "*" || *text == "*.") return NodeError(node, "smokescreen refuses a domain that is every domain");
  if (text->find('*', below ? 1 : 0) != std::string::npos)
    return NodeError(node, "smokescreen takes `*` only as the whole first label of a domain");
  const bool upper = std::any_of(text->begin(), text->end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (upper || text->ends_with('.'))
    return NodeError(node, fmt::format("smokescreen refuses `{}`: domains are lower-case and without a final dot", *text));
  auto host = HostAt(node, below ? "*" + *text : *text);
  if (host && host->cidr) return NodeError(node, "addresses are allowed in smokescreen's main configuration, not in an ACL");
  return host;
}

Result<Service> ReadService(const Node& node, bool named) {
  Service service;
  service.at = &node;
  auto fields = Fields::Of(node, named ? "a service" : "`default`");
  if (!fields) return std::unexpected(fields.error());
  const Node* name = fields->Get("name");
  (void)fields->Get("project");
  service.action_node = fields->Get("action");
  const auto domains = List(fields->Get("allowed_domains"), "allowed_domains");
  if (!domains) return std::unexpected(domains.error());
  if (auto r =
          fields->RefuseSet("mitm_domains", "requests of these domains would be changed or logged by smokescreen's own rules");
      !r)
    return std::unexpected(r.error());
  if (auto r = fields->RefuseSet("allowed_external_proxies", "write `proxies:` and `via:` in a native policy"); !r)
    return std::unexpected(r.error());
  if (auto rest = fields->RefuseOthers(named ? "a service" : "`default`"); !rest) return std::unexpected(rest.error());
  if (named) {
    if (name == nullptr) return NodeError(node, "a service has a `name`");
    const auto text = Text(*name, "name");
    if (!text) return std::unexpected(text.error());
    service.name = *text;
    service.at = name;
  }
  if (service.action_node == nullptr) return NodeError(node, "an `action` is missing: `enforce`, `report` or `open`");
  const auto action = Word(*service.action_node, "action", {"enforce", "report", "open"});
  if (!action) return std::unexpected(action.error());
  service.action = *action;
  for (const Node* domain : *domains) {
    auto host = ReadGlob(*domain);
    if (!host) return std::unexpected(host.error());
    service.hosts.push_back(std::move(*host));
    service.nodes.push_back(domain);
  }
  return service;
}

// The one list that a workload would be held to. Which one is never guessed.
Result<const Service*> Choose(const std::vector<Service>& services, const std::optional<Service>& fallback,
                              const ImportInput& input, const Node& root) {
  if (!input.only.empty()) {
    if (input.only == "default" && fallback) return &*fallback;
    for (const Service& service : services)
      if (service.name == input.only) return &service;
    return NodeError(root, fmt::format("no service `{}` in this file", input.only));
  }
  if (services.size() == 1 && !fallback) return services.data();
  if (services.empty() && fallback) return &*fallback;
  std::string names;
  for (const Service& service : services) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", service.name);
  if (fallback) names += fmt::format("{}`default`", names.empty() ? "" : ", ");
  return NodeError(services.empty() ? root : *services[0].at,
                   fmt::format("the file holds {}, and a policy is for one: `sluice import --only NAME` writes it out", names));
}

Result<void> AddGlobal(const Node* list, std::string_view key, Effect effect, std::vector<FirstMatchEntry>* out) {
  const auto items = List(list, key);
  if (!items) return std::unexpected(items.error());
  for (const Node* item : *items) {
    auto host = ReadGlob(*item);
    if (!host) return std::unexpected(host.error());
    out->push_back({effect, std::move(*host), item});
  }
  return {};
}

}  // namespace

Result<void> ImportSmokescreen(const Node& root, const ImportInput& input, ImportBuilder* out) {
  auto fields = Fields::Of(root, "a smokescreen ACL");
  if (!fields) return std::unexpected(fields.error());
  const Node* version = fields->Get("version");
  if (version == nullptr || version->text != "v1")
    return NodeError(version == nullptr ? root : *version, "a smokescreen ACL has `version: v1`");
  const Node* list = fields->Get("services");
  const Node* standard = fields->Get("default");
  const Node* denied = fields->Get("global_deny_list");
  const Node* allowed = fields->Get("global_allow_list");
  if (auto rest = fields->RefuseOthers("a smokescreen ACL"); !rest) return rest;
  if (list == nullptr) return NodeError(root, "a smokescreen ACL has `services`, if only an empty list");
  const auto items = List(list, "services");
  if (!items) return std::unexpected(items.error());
  std::vector<Service> services;
  for (const Node* item : *items) {
    auto service = ReadService(*item, true);
    if (!service) return std::unexpected(service.error());
    for (const Service& other : services)
      if (other.name == service->name)
        return NodeError(*service->at, fmt::format("`{}` is already the service of line {}", other.name, other.at->span.line));
    services.push_back(std::move(*service));
  }
  std::optional<Service> fallback;
  if (standard != nullptr) {
    auto service = ReadService(*standard, false);
    if (!service) return std::unexpected(service.error());
    fallback = std::move(*service);
  }
  const auto chosen = Choose(services, fallback, input, root);
  if (!chosen) return std::unexpected(chosen.error());
  const Service& service = **chosen;
  std::vector<FirstMatchEntry> entries;
  entries.reserve(service.hosts.size());
  for (size_t i = 0; i < service.hosts.size(); ++i) entries.push_back({Effect::kAllow, service.hosts[i], service.nodes[i]});
  if (auto added = AddGlobal(denied, "global_deny_list", Effect::kDeny, &entries); !added) return added;
  if (auto added = AddGlobal(allowed, "global_allow_list", Effect::kAllow, &entries); !added) return added;
  out->SayOfFile(RemarkKind::kNote,
                 fmt::format("the list of {}; a domain without `*` is that host alone, and every TCP port",
                             service.name.empty() ? "`default`" : fmt::format("the service `{}`", service.name)),
                 service.at->span);
  if (service.action != "enforce") {
    out->SayOfFile(RemarkKind::kWider,
                   fmt::format("`action: {}` lets everything through that the global deny list does not name", service.action),
                   service.action_node->span);
    FirstMatchEntry all{Effect::kAllow, {}, service.action_node};
    all.host.text = "**";
    entries.push_back(std::move(all));
  }
  return AddFirstMatch(entries, "smokescreen", out);
}

}  // namespace sluice::policy
