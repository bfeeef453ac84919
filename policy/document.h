#pragma once

// One policy file as values: its rules, and what only a top file may set. Includes are named here and read by io/load.

#include <optional>
#include <string>
#include <vector>

#include "policy/compiled.h"
#include "policy/node.h"
#include "policy/preset.h"
#include "policy/rule.h"

namespace sluice::policy {

enum class FileRole : uint8_t { kTop, kIncluded };

struct IncludeName {
  std::string path;
  SourceSpan span;
};

struct Document {
  std::string name;
  Mode mode = Mode::kEnforce;
  Settings settings;
  std::vector<Credential> credentials;
  std::vector<UpstreamProxy> proxies;
  std::vector<IncludeName> includes;
  std::vector<PresetUse> presets;
  std::vector<Rule> rules;  ///< in the order of the file; each has an id
  std::vector<Assertion> assertions;
};

/// `label` names the file in the ids of rules that have none of their own: "policy.yaml:7".
[[nodiscard]] Result<Document> ReadDocument(const Node& root, FileRole role, const std::string& label);

}  // namespace sluice::policy
