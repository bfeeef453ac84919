#include "policy/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "policy/import/converters.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

constexpr std::array<std::string_view, 7> kWords = {"openshell",     "sandbox-runtime", "opensandbox", "gh-aw-firewall",
                                                    "harden-runner", "smokescreen",     "cilium"};
constexpr std::array<std::string_view, 7> kTitles = {"an OpenShell policy",          "a sandbox-runtime settings file",
                                                     "an OpenSandbox egress policy", "a gh-aw-firewall configuration",
                                                     "a harden-runner step",         "a smokescreen ACL",
                                                     "a CiliumNetworkPolicy"};

const Node* Find(const Node& map, std::string_view key) {
  for (const Member& member : map.members)
    if (member.key.text == key) return &member.value;
  return nullptr;
}

bool HasAny(const Node* map, std::initializer_list<std::string_view> keys) {
  return map != nullptr &&
         std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return Find(*map, key) != nullptr; });
}

bool IsText(const Node* node, std::string_view prefix) {
  return node != nullptr && node->kind == Node::Kind::kScalar && node->text.starts_with(prefix);
}

bool IsVersion1(const Node* node) { return node != nullptr && node->kind == Node::Kind::kScalar && node->text == "v1"; }

Result<void> Convert(ImportKind kind, const Node& root, const ImportInput& input, ImportBuilder* out) {
  switch (kind) {
    case ImportKind::kOpenShell:
      return ImportOpenShell(root, input, out);
    case ImportKind::kSandboxRuntime:
      return ImportSandboxRuntime(root, input, out);
    case ImportKind::kOpenSandbox:
      return ImportOpenSandbox(root, input, out);
    case ImportKind::kAwf:
      return ImportAwf(root, input, out);
    case ImportKind::kHardenRunner:
      return ImportHardenRunner(root, input, out);
    case ImportKind::kSmokescreen:
      return ImportSmokescreen(root, input, out);
    case ImportKind::kCilium:
      return ImportCilium(root, input, out);
  }
  return Fail(Code::kInternal, "an unknown kind of policy");
}

}  // namespace

std::string_view ImportWord(ImportKind kind) { return kWords[static_cast<size_t>(kind)]; }
std::string_view ImportTitle(ImportKind kind) { return kTitles[static_cast<size_t>(kind)]; }
std::span<const std::string_view> ImportWords() { return kWords; }

std::optional<ImportKind> ParseImportKind(std::string_view word) {
  if (word == "srt") return ImportKind::kSandboxRuntime;
  if (word == "awf") return ImportKind::kAwf;
  for (size_t i = 0; i < kWords.size(); ++i)
    if (kWords[i] == word) return static_cast<ImportKind>(i);
  return std::nullopt;
}

std::optional<ImportKind> DetectKind(const Node& root) {
  constexpr std::string_view kAction = "step-security/harden-runner";
  if (root.kind == Node::Kind::kSequence) {
    for (const Node& item : root.items)
      if (item.kind == Node::Kind::kMapping && IsText(Find(item, "uses"), kAction)) return ImportKind::kHardenRunner;
    return std::nullopt;
  }
  if (root.kind != Node::Kind::kMapping) return std::nullopt;
  if (HasAny(&root, {"rules", "include", "presets"})) return std::nullopt;  // our own, whatever else it may hold
  if (HasAny(&root, {"network_policies", "filesystem_policy", "landlock", "network_middlewares"})) return ImportKind::kOpenShell;
  if (IsText(Find(root, "apiVersion"), "cilium.io/")) return ImportKind::kCilium;
  const Node* network = Find(root, "network");
  if (network != nullptr && network->kind == Node::Kind::kMapping) {
    if (HasAny(network, {"allowedDomains", "deniedDomains"})) return ImportKind::kSandboxRuntime;
    if (HasAny(network, {"allowDomains", "blockDomains"})) return ImportKind::kAwf;
  }
  if (HasAny(&root, {"jobs", "allowed-endpoints", "egress-policy"}) || IsText(Find(root, "uses"), kAction))
    return ImportKind::kHardenRunner;
  if (HasAny(&root, {"defaultAction", "egress"})) return ImportKind::kOpenSandbox;
  if (HasAny(&root, {"services", "global_deny_list", "global_allow_list"}) || IsVersion1(Find(root, "version")))
    return ImportKind::kSmokescreen;
  return std::nullopt;
}

Result<Imported> ImportPolicy(ImportKind kind, const Node& root, const ImportInput& input) {
  ImportBuilder builder(kind);
  if (auto done = Convert(kind, root, input, &builder); !done) return std::unexpected(done.error());
  return builder.Finish(input.label);
}

Result<Imported> ImportList(ImportKind kind, const ImportInput& input) {
  ImportBuilder builder(kind);
  const auto lines = static_cast<uint32_t>(std::count(input.text.begin(), input.text.end(), '\n')) + 2;
  const std::vector<Node> entries = WordsOfLines(input.text, input.file, 1, lines);
  if (kind != ImportKind::kAwf && kind != ImportKind::kHardenRunner)
    return std::unexpected(
        Error{Code::kInvalid, fmt::format("{} is no plain list", ImportTitle(kind)), 0, SourceSpan{input.file, 1, 1, 1}});
  auto done = kind == ImportKind::kAwf ? ImportAwfList(entries, &builder) : ImportHardenRunnerList(entries, &builder);
  if (!done) return std::unexpected(done.error());
  return builder.Finish(input.label);
}

}  // namespace sluice::policy
