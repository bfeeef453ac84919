#include "policy/io/foreign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "policy/import/json.h"
#include "policy/io/yaml.h"

namespace sluice::policy {
namespace {

// The checks of YAML without its dislike of tabs, which JSON and lists may have between words.
Result<void> CheckSpaced(std::string_view text, const std::string& file) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '\t', ' ');
  return CheckCharacters(spaced, file);
}

bool IsListKind(const std::optional<ImportKind>& kind) { return kind == ImportKind::kAwf || kind == ImportKind::kHardenRunner; }

std::string Label(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? file : file.substr(slash + 1);
}

// By the two keys that most native files have, and no other tool's.
bool IsNative(const Node& tree) {
  const auto has = [&](std::string_view key) {
    return std::ranges::any_of(tree.members, [&](const Member& member) { return member.key.text == key; });
  };
  return has("version") && has("rules");
}

std::unexpected<Error> AtStart(std::string message, const std::string& file) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0, SourceSpan{file, 1, 1, 1}});
}

}  // namespace

Result<Node> ParsePolicyTree(std::string_view text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text.size() > kMaxFileBytes || (text[first] != '{' && text[first] != '['))
    return ParseYaml(text, file);
  auto json = ParseJson(text, file);
  if (!json && !file.ends_with(".json")) return ParseYaml(text, file);
  if (json && !DetectKind(*json)) return ParseYaml(text, file);
  if (auto clean = CheckSpaced(text, file); !clean) return std::unexpected(clean.error());
  return json;
}

Result<Imported> ReadForeign(std::string_view text, const std::string& file, const ForeignOptions& options) {
  if (text.size() > kMaxFileBytes) return AtStart("the file is larger than 1 MiB", file);
  const ImportInput input{file, Label(file), text, options.only};
  auto tree = ParsePolicyTree(text, file);
  const bool collection =
      tree && tree->kind != Node::Kind::kScalar && text.find_first_not_of(" \t\r\n") != std::string_view::npos;
  if (IsListKind(options.kind) && !collection) {
    if (auto clean = CheckSpaced(text, file); !clean) return std::unexpected(clean.error());
    return ImportList(*options.kind, input);
  }
  if (!tree) return std::unexpected(tree.error());
  const auto shape = DetectKind(*tree);
  const auto kind = options.kind ? options.kind : shape;
  if (kind) return ImportPolicy(*kind, *tree, input);
  if (IsNative(*tree)) return AtStart("this is a native policy already: there is nothing to import", file);
  return AtStart(fmt::format("this has the shape of none of {}; `--from` names one", fmt::join(ImportWords(), ", ")), file);
}

}  // namespace sluice::policy
