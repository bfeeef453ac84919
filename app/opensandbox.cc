#include "app/opensandbox.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/file.h"
#include "base/keyed_hash.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/import/import.h"
#include "policy/import/json.h"

namespace sluice::app {
namespace {

using policy::Node;

constexpr std::string_view kAuthField = "opensandbox-egress-auth";
constexpr std::string_view kVaultPath = "/credential-vault";
constexpr std::string_view kAllowed = "GET, POST, PUT, PATCH, DELETE";
constexpr const char* kEnforcement = "dns+nft";
constexpr const char* kPolicyName = "opensandbox";
constexpr size_t kMaxAlwaysBytes = 1u << 20;
constexpr std::array kPlatformVariables = {"OPENSANDBOX_EGRESS_MODE",      "OPENSANDBOX_EGRESS_RULES",
                                           "OPENSANDBOX_EGRESS_TOKEN",     "OPENSANDBOX_EGRESS_TOKEN_FILE",
                                           "OPENSANDBOX_EGRESS_HTTP_ADDR", "OPENSANDBOX_EGRESS_POLICY_FILE"};

std::string Trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t\r\n");
  return from == std::string_view::npos ? "" : std::string(text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1));
}

std::string Variable(const std::function<const char*(const char*)>& get, const char* name) {
  const char* value = get(name);
  return value == nullptr ? std::string() : Trimmed(value);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

Result<std::string> TextOf(const Node& node, std::string_view key) {
  if (node.kind != Node::Kind::kScalar || node.style == Node::Style::kPlain)
    return Fail(Code::kInvalid, fmt::format("`{}` is a text", key));
  return node.text;
}

Result<std::string> ActionOf(const Node& node, std::string_view key) {
  auto text = TextOf(node, key);
  if (!text) return text;
  const std::string word = Lower(Trimmed(*text));
  if (word.empty()) return std::string("deny");
  if (word == "allow" || word == "deny") return word;
  return Fail(Code::kInvalid, fmt::format("unsupported action \"{}\"", Printable(*text)));
}

Result<std::vector<uint16_t>> PortsOf(const Node& node) {
  if (node.kind != Node::Kind::kSequence) return Fail(Code::kInvalid, "`ports` is a list");
  std::vector<uint16_t> ports;
  for (const Node& item : node.items) {
    uint16_t port = 0;
    const char* end = item.text.data() + item.text.size();
    const auto [stop, error] = std::from_chars(item.text.data(), end, port);
    if (item.kind != Node::Kind::kScalar || item.style != Node::Style::kPlain || error != std::errc{} || stop != end || port == 0)
      return Fail(Code::kInvalid, fmt::format("port {} out of range 1-65535", Printable(item.text)));
    if (std::ranges::find(ports, port) != ports.end()) return Fail(Code::kInvalid, fmt::format("duplicate port {}", port));
    ports.push_back(port);
  }
  return ports;
}

Result<EgressRule> RuleOf(const Node& node) {
  if (node.kind != Node::Kind::kMapping) return Fail(Code::kInvalid, "an egress rule is an object with `action` and `target`");
  EgressRule rule{"deny", ""};
  for (const policy::Member& member : node.members) {
    const std::string& key = member.key.text;
    if (key == "ports") {
      auto ports = PortsOf(member.value);
      if (!ports) return std::unexpected(ports.error());
      rule.ports = *std::move(ports);
      continue;
    }
    if (key != "action" && key != "target") return Fail(Code::kInvalid, fmt::format("unknown field \"{}\"", Printable(key)));
    auto text = key == "action" ? ActionOf(member.value, key) : TextOf(member.value, key);
    if (!text) return std::unexpected(text.error());
    (key == "action" ? rule.action : rule.target) = Trimmed(*text);
  }
  if (rule.target.empty()) return Fail(Code::kInvalid, "egress target cannot be empty");
  return rule;
}

Result<std::vector<EgressRule>> RulesOf(const Node& node) {
  if (node.kind != Node::Kind::kSequence) return Fail(Code::kInvalid, "egress rules are a list");
  std::vector<EgressRule> rules;
  for (const Node& item : node.items) {
    auto rule = RuleOf(item);
    if (!rule) return std::unexpected(rule.error());
    rules.push_back(*std::move(rule));
  }
  return rules;
}

Result<Node> Parse(std::string_view json) {
  if (json.size() > kMaxEgressPolicyBytes) return Fail(Code::kExhausted, "longer than 1 MiB");
  auto root = policy::ParseJson(json, kPolicyName);
  if (!root && root.error().span)
    root.error().message = fmt::format("line {}: {}", root.error().span->line, root.error().message);
  return root;
}

bool IsNull(const Node& node) {
  return node.kind == Node::Kind::kScalar && node.style == Node::Style::kPlain && node.text == "null";
}

nlohmann::json RuleJson(const EgressRule& rule) {
  nlohmann::json out{{"action", rule.action}, {"target", rule.target}};
  if (!rule.ports.empty()) out["ports"] = rule.ports;
  return out;
}

nlohmann::json PolicyJson(const EgressPolicy& policy) {
  nlohmann::json out{{"defaultAction", policy.default_action}, {"egress", nlohmann::json::array()}};
  for (const EgressRule& rule : policy.egress) out["egress"].push_back(RuleJson(rule));
  return out;
}

std::string Dump(const nlohmann::json& json) { return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace); }

// As Go's http.Error answers.
AdminResponse PlainError(int status, std::string_view text) {
  AdminResponse response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.fields.emplace_back("X-Content-Type-Options", "nosniff");
  response.body = fmt::format("{}\n", text);
  return response;
}

AdminResponse JsonAnswer(const nlohmann::json& json) {
  AdminResponse response;
  response.body = Dump(json) + "\n";
  return response;
}

Result<void> Save(const std::string& path, const std::string& text) {
  auto replaced = ReplaceFile(path, text, {.aside = path + ".next"});
  if (!replaced) return std::unexpected(replaced.error());
  return {};
}

}  // namespace

Result<EgressPolicy> ParseEgressPolicy(std::string_view json) {
  EgressPolicy policy;
  if (Trimmed(json).empty()) return policy;
  const auto root = Parse(json);
  if (!root) return std::unexpected(root.error());
  if (IsNull(*root)) return policy;
  if (root->kind != Node::Kind::kMapping) return Fail(Code::kInvalid, "a policy is an object with `defaultAction` and `egress`");
  for (const policy::Member& member : root->members) {
    const std::string& key = member.key.text;
    if (key == "defaultAction") {
      if (IsNull(member.value)) continue;
      auto action = ActionOf(member.value, key);
      if (!action) return std::unexpected(action.error());
      policy.default_action = *std::move(action);
    } else if (key == "egress") {
      if (IsNull(member.value)) continue;
      auto rules = RulesOf(member.value);
      if (!rules) return std::unexpected(rules.error());
      policy.egress = *std::move(rules);
    } else {
      return Fail(Code::kInvalid, fmt::format("unknown field \"{}\"", Printable(key)));
    }
  }
  return policy;
}

Result<std::vector<EgressRule>> ParseEgressRules(std::string_view json) {
  const auto root = Parse(json);
  if (!root) return std::unexpected(root.error());
  auto rules = RulesOf(*root);
  if (rules && rules->empty()) return Fail(Code::kInvalid, "empty array");
  return rules;
}

Result<std::vector<std::string>> ParseEgressTargets(std::string_view json) {
  const auto root = Parse(json);
  if (!root) return std::unexpected(root.error());
  if (root->kind != Node::Kind::kSequence) return Fail(Code::kInvalid, "targets are a list of texts");
  std::vector<std::string> targets;
  for (const Node& item : root->items) {
    auto text = TextOf(item, "target");
    if (!text) return std::unexpected(text.error());
    targets.push_back(*std::move(text));
  }
  if (targets.empty()) return Fail(Code::kInvalid, "empty array");
  return targets;
}

std::string EgressPolicyJson(const EgressPolicy& policy) { return PolicyJson(policy).dump(2, ' ', true) + "\n"; }

std::vector<EgressRule> MergeEgress(const std::vector<EgressRule>& base, const std::vector<EgressRule>& additions) {
  std::vector<EgressRule> merged;
  KeyedSet<std::string> seen;
  for (const auto* list : {&additions, &base})
    for (const EgressRule& rule : *list)
      if (seen.insert(Lower(rule.target)).second) merged.push_back(rule);
  return merged;
}

std::string_view EgressMode(const EgressPolicy& policy) {
  if (!policy.egress.empty()) return "enforcing";
  return policy.default_action == "allow" ? "allow_all" : "deny_all";
}

Result<std::vector<EgressRule>> ParseAlwaysRules(std::string_view text, std::string_view action, std::string_view file) {
  std::vector<EgressRule> rules;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string target = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (target.empty() || target.starts_with('#')) continue;
    if (target.find_first_of(" \t") != std::string::npos)
      return Fail(Code::kInvalid, fmt::format("{}:{}: one target a line, not `{}`", file, line, Printable(target)));
    rules.push_back({std::string(action), target});
  }
  return rules;
}

Result<std::string> NativeText(const EgressPolicy& policy, const EgressOverlay& overlay) {
  EgressPolicy whole{policy.default_action};
  for (const auto* list : {&overlay.deny, &overlay.allow, &policy.egress})
    whole.egress.insert(whole.egress.end(), list->begin(), list->end());
  const std::string json = EgressPolicyJson(whole);
  const auto root = policy::ParseJson(json, kPolicyName);
  if (!root) return std::unexpected(root.error());
  const auto imported = policy::ImportPolicy(policy::ImportKind::kOpenSandbox, *root, {kPolicyName, kPolicyName, json});
  if (!imported) return Fail(imported.error().code, imported.error().message);
  return policy::WriteNative(*imported, "its /policy calls");
}

bool IsOpenSandboxEnvironment(const std::function<const char*(const char*)>& get) {
  return std::ranges::any_of(kPlatformVariables, [&](const char* name) { return !Variable(get, name).empty(); });
}

void TakeOpenSandboxSettings(const std::function<const char*(const char*)>& get, std::vector<std::string>* resolvers,
                             std::vector<std::string>* labels) {
  if (resolvers->empty()) {
    std::istringstream servers(Variable(get, "OPENSANDBOX_EGRESS_DNS_UPSTREAM"));
    for (std::string server; std::getline(servers, server, ',');)
      if (server = Trimmed(server); !server.empty()) resolvers->push_back(std::move(server));
  }
  const bool named = std::ranges::any_of(*labels, [](const std::string& label) { return label.starts_with("sandbox="); });
  if (const std::string id = Variable(get, "OPENSANDBOX_EGRESS_SANDBOX_ID"); !named && !id.empty())
    labels->push_back("sandbox=" + id);
}

Result<OpenSandboxOptions> OpenSandboxFromEnvironment(const std::function<const char*(const char*)>& get) {
  OpenSandboxOptions options;
  const auto text = [&get](const char* name) { return Variable(get, name); };
  options.token = text("OPENSANDBOX_EGRESS_TOKEN");
  if (const std::string file = text("OPENSANDBOX_EGRESS_TOKEN_FILE"); options.token.empty() && !file.empty()) {
    auto token = ReadFile(file, 4096);
    if (!token) return Fail(token.error().code, fmt::format("OPENSANDBOX_EGRESS_TOKEN_FILE: {}", token.error().message));
    options.token = Trimmed(*token);
    if (options.token.empty()) return Fail(Code::kInvalid, fmt::format("OPENSANDBOX_EGRESS_TOKEN_FILE: {} is empty", file));
  }
  options.policy_file = text("OPENSANDBOX_EGRESS_POLICY_FILE");
  if (const std::string most = text("OPENSANDBOX_EGRESS_MAX_RULES"); !most.empty()) {
    const char* end = most.data() + most.size();
    const auto [stop, error] = std::from_chars(most.data(), end, options.max_rules);
    if (error != std::errc{} || stop != end)
      return Fail(Code::kInvalid, fmt::format("OPENSANDBOX_EGRESS_MAX_RULES: `{}` is no number", Printable(most)));
  }
  return options;
}

Result<EgressPolicy> InitialEgressPolicy(const OpenSandboxOptions& options, const char* rules) {
  if (!options.policy_file.empty() && ::access(options.policy_file.c_str(), F_OK) == 0) {
    auto text = ReadFile(options.policy_file, kMaxEgressPolicyBytes);
    if (!text) return std::unexpected(text.error());
    auto policy = ParseEgressPolicy(*text);
    if (!policy) return Fail(policy.error().code, fmt::format("{}: {}", options.policy_file, policy.error().message));
    return policy;
  }
  auto policy = ParseEgressPolicy(rules == nullptr ? "" : rules);
  if (!policy) return Fail(policy.error().code, fmt::format("OPENSANDBOX_EGRESS_RULES: {}", policy.error().message));
  return policy;
}

Result<EgressOverlay> ReadOverlay(const std::string& folder) {
  EgressOverlay overlay;
  for (const auto& [name, action, rules] :
       {std::tuple("deny.always", "deny", &overlay.deny), std::tuple("allow.always", "allow", &overlay.allow)}) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) continue;
    auto text = ReadFile(path, kMaxAlwaysBytes);
    if (!text) return std::unexpected(text.error());
    auto parsed = ParseAlwaysRules(*text, action, path);
    if (!parsed) return std::unexpected(parsed.error());
    *rules = *std::move(parsed);
  }
  return overlay;
}

OpenSandboxFront::OpenSandboxFront(OpenSandboxOptions options, EgressPolicy first, EgressOverlay overlay, Apply apply)
    : options_(std::move(options)), apply_(std::move(apply)), policy_(std::move(first)), overlay_(std::move(overlay)) {}

// The workload shares the namespace: without a token, whoever calls from here may be the one that is fenced.
std::optional<AdminResponse> OpenSandboxFront::RefuseChange(const AdminRequest& request) const {
  const std::string* shown = request.Field(kAuthField);
  if (options_.token.empty() ? !request.from_here : shown != nullptr && SameSecret(*shown, options_.token)) return std::nullopt;
  return PlainError(
      401, options_.token.empty() ? "unauthorized: from inside the sandbox OPENSANDBOX_EGRESS_TOKEN is needed" : "unauthorized");
}

AdminResponse OpenSandboxFront::Handle(const AdminRequest& request) {
  const bool vault = request.path == kVaultPath || request.path.starts_with(std::string(kVaultPath) + "/");
  if (request.path != "/policy" && !vault) return PlainError(404, "404 page not found");
  const bool looks = request.method == "GET";
  if (!looks || !options_.token.empty())
    if (auto refused = RefuseChange(request)) return *std::move(refused);
  if (vault) return RefuseVault(request);
  const std::lock_guard lock(mutex_);
  if (looks)
    return JsonAnswer(
        {{"status", "ok"}, {"mode", EgressMode(policy_)}, {"enforcementMode", kEnforcement}, {"policy", PolicyJson(policy_)}});
  if (request.method == "POST" || request.method == "PUT") return Replace(request);
  if (request.method == "PATCH") return Patch(request);
  if (request.method == "DELETE") return Remove(request);
  AdminResponse response = PlainError(405, "method not allowed");
  response.fields.emplace_back("Allow", kAllowed);
  return response;
}

// Secrets over this port would be secrets that the sandbox's neighbours hand in; here they come from the operator's own files. As
// its API answers where there is no vault, and where one cannot be made.
AdminResponse OpenSandboxFront::RefuseVault(const AdminRequest& request) {
  const bool whole = request.path == kVaultPath;
  if (whole && request.method == "POST")
    return PlainError(
        412,
        "credential vault: not ready: sluice takes no secrets over this API; name them under `credentials:` of a native policy");
  if (request.method == "GET" || (whole && (request.method == "PATCH" || request.method == "DELETE")))
    return PlainError(404, "credential vault: not found");
  AdminResponse response = PlainError(405, "method not allowed");
  response.fields.emplace_back("Allow", whole ? "GET, POST, PATCH, DELETE" : "GET");
  return response;
}

AdminResponse OpenSandboxFront::Replace(const AdminRequest& request) {
  auto next = ParseEgressPolicy(request.body);
  if (!next) return PlainError(400, fmt::format("invalid policy: {}", next.error().message));
  if (auto refused = Commit(*std::move(next))) return *std::move(refused);
  return Done(Trimmed(request.body).empty() ? "policy reset to default deny-all" : "");
}

AdminResponse OpenSandboxFront::Patch(const AdminRequest& request) {
  if (Trimmed(request.body).empty()) return PlainError(400, "empty body");
  const auto rules = ParseEgressRules(request.body);
  if (!rules) return PlainError(400, fmt::format("invalid patch rules: {}", rules.error().message));
  EgressPolicy next{policy_.default_action, MergeEgress(policy_.egress, *rules)};
  if (auto refused = Commit(std::move(next))) return *std::move(refused);
  return Done("");
}

AdminResponse OpenSandboxFront::Remove(const AdminRequest& request) {
  if (Trimmed(request.body).empty()) return PlainError(400, "empty body");
  const auto targets = ParseEgressTargets(request.body);
  if (!targets) return PlainError(400, fmt::format("invalid delete targets: {}", targets.error().message));
  KeyedSet<std::string> gone;
  for (const std::string& target : *targets) gone.insert(Lower(Trimmed(target)));
  EgressPolicy next = policy_;
  if (std::erase_if(next.egress, [&](const EgressRule& rule) { return gone.contains(Lower(rule.target)); }) == 0)
    return Done("no matching targets found");
  if (auto refused = Commit(std::move(next))) return *std::move(refused);
  return Done("");
}

std::optional<AdminResponse> OpenSandboxFront::Commit(EgressPolicy next) {
  if (options_.max_rules != 0 && next.egress.size() > options_.max_rules)
    return PlainError(413, fmt::format("egress rule total count {} exceeds limit {}", next.egress.size(), options_.max_rules));
  const auto text = NativeText(next, overlay_);
  if (!text) return PlainError(400, fmt::format("invalid policy: {}", text.error().message));
  // On the disk first, so that no restart goes back; what is not put in force is taken back.
  if (!options_.policy_file.empty())
    if (auto saved = Save(options_.policy_file, EgressPolicyJson(next)); !saved)
      return PlainError(500, fmt::format("failed to persist policy: {}", saved.error().message));
  if (auto applied = apply_(*text); !applied) {
    if (!options_.policy_file.empty())
      if (auto back = Save(options_.policy_file, EgressPolicyJson(policy_)); !back) LogError("{}", back.error().message);
    const bool theirs = applied.error().code == Code::kInvalid;
    return PlainError(theirs ? 400 : 500, fmt::format("failed to apply policy: {}", applied.error().message));
  }
  policy_ = std::move(next);
  return std::nullopt;
}

AdminResponse OpenSandboxFront::Done(std::string_view reason) const {
  nlohmann::json out{{"status", "ok"}, {"mode", EgressMode(policy_)}, {"enforcementMode", kEnforcement}};
  if (!reason.empty()) out["reason"] = reason;
  return JsonAnswer(out);
}

Result<bool> OpenSandboxFront::ReloadOverlay() {
  auto overlay = ReadOverlay(options_.rules_folder);
  if (!overlay) return std::unexpected(overlay.error());
  const std::lock_guard lock(mutex_);
  if (overlay->deny == overlay_.deny && overlay->allow == overlay_.allow) return false;
  const auto text = NativeText(policy_, *overlay);
  if (!text) return std::unexpected(text.error());
  if (auto applied = apply_(*text); !applied) return std::unexpected(applied.error());
  overlay_ = *std::move(overlay);
  return true;
}

Result<std::string> OpenSandboxFront::Text() const {
  const std::lock_guard lock(mutex_);
  return NativeText(policy_, overlay_);
}

}  // namespace sluice::app
