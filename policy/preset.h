#pragma once

// Presets: versioned rule sets that ship with the program, with places for hosts and the like. A use of one is expanded into
// plain rules before a policy is compiled, so whatever reads rules reads a preset's too. A version never changes once it has
// shipped. The texts are policy/presets/*.yaml; reading one is io/preset_store.h's work.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/node.h"
#include "policy/rule.h"

namespace sluice::policy {

/// One shipped text, compiled into the program.
struct PresetText {
  std::string_view name;
  uint32_t version = 0;
  std::string_view text;
};
/// By name, then by version.
[[nodiscard]] const std::vector<PresetText>& PresetTexts();

/// What a value may be. None can hold a wildcard, a space, or anything else that has a meaning in a rule.
enum class ParameterType : uint8_t {
  kHost,         ///< a name or an address, with a port or without
  kPath,         ///< "/a/b"; "/" is the root
  kSegments,     ///< "group/subgroup"
  kName,         ///< one segment of a path
  kLabel,        ///< one label of a host
  kScheme,       ///< https or http
  kPrefixes,     ///< a list for the key `ip`
  kExecutables,  ///< a list for the key `by`, without wildcards
};
[[nodiscard]] std::string_view ParameterTypeText(ParameterType type);
/// The value in the form that is put into rules. kPrefixes and kExecutables stay as they are.
[[nodiscard]] Result<std::string> CheckParameter(ParameterType type, std::string_view text);

struct PresetParameter {
  std::string name;
  ParameterType type = ParameterType::kHost;
  std::optional<std::string> fallback{};  ///< may name earlier parameters, and may hold what a value may not
  bool optional = false;                  ///< rules that name it are left out where it is not given
  std::string about;
  [[nodiscard]] bool required() const { return !fallback && !optional; }
};

struct Preset {
  std::string name;
  uint32_t version = 0;
  std::string about;
  std::string notes;
  std::vector<PresetParameter> parameters;  ///< `ip` and `by`, which every preset takes, are not among them
  std::vector<Node> rules;                  ///< entries as of `rules:`, with ${host} for the host
  [[nodiscard]] std::string Id() const;     ///< "npm@1"
};
/// The two parameters of every preset: they narrow, or for `ip` bind, each of its rules.
[[nodiscard]] const std::vector<PresetParameter>& CommonParameters();

[[nodiscard]] Result<Preset> ReadPreset(const Node& root);

/// An entry of `presets:`, or the text of a `--preset`.
struct PresetUse {
  std::string name;
  std::optional<uint32_t> version{};
  SourceSpan span{};                            ///< of "npm@1"
  std::vector<std::pair<Node, Node>> values{};  ///< parameter, value
  std::string id{};                             ///< begins the ids of its rules: "policy.yaml:7"
};
[[nodiscard]] Result<PresetUse> ReadPresetUse(const Node& item);
/// "npm@1:host=registry.corp.example,path=/npm"; a list's values are given one by one. `where` is the text's place, column 1.
[[nodiscard]] Result<PresetUse> ParsePresetUse(std::string_view text, const SourceSpan& where);
/// An entry's name and version among the shipped ones. Without a version it is an error in a file.
enum class VersionNeed : uint8_t { kWritten, kNewestByDefault };
[[nodiscard]] Result<const PresetText*> FindPreset(const PresetUse& use, VersionNeed need);

/// The rules of a use. Their span is the use's; their origin the preset's own line, in a file called "preset:npm@1".
[[nodiscard]] Result<std::vector<Rule>> ExpandPreset(const Preset& preset, const PresetUse& use);
/// Values of the parameters as they are put into rules; those neither given nor defaulted are not among them.
using PresetValues = std::vector<std::pair<std::string, std::string>>;
enum class Missing : uint8_t { kRefused, kLeftOpen };
[[nodiscard]] Result<PresetValues> BindParameters(const Preset& preset, const PresetUse& use, Missing missing);
/// `text` with each ${name} that has a value replaced; `open` is told whether one was left.
[[nodiscard]] std::string FillPlaces(std::string_view text, const PresetValues& values, bool* open);

}  // namespace sluice::policy
