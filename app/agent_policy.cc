#include "app/agent_policy.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <vector>

#include "app/file.h"

namespace sluice::app {
namespace {

constexpr size_t kMaxSelect = 256 * 1024;
constexpr size_t kMaxLabel = 256;
constexpr std::string_view kNames[] = {kNameAnnotation, "io.kubernetes.cri.container-name", "io.kubernetes.container.name",
                                       "nerdctl/name"};
constexpr std::string_view kNamespaces[] = {"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace",
                                            "nerdctl/namespace"};
constexpr std::string_view kPods[] = {"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"};

// Who starts a container under one orchestrator may write the annotations by which another names things.
template <size_t N>
Result<void> CheckOneName(const supervisor::OciState& state, const std::string_view (&keys)[N], std::string_view what) {
  const std::string* first = nullptr;
  for (const std::string_view key : keys) {
    const auto it = state.annotations.find(std::string(key));
    if (key == kNameAnnotation || it == state.annotations.end() || it->second.empty()) continue;
    if (first != nullptr && *first != it->second)
      return Fail(Code::kInvalid,
                  fmt::format("its annotations give it more than one {}: `{}` and `{}`", what, *first, it->second));
    first = &it->second;
  }
  return {};
}

template <size_t N>
std::string FirstOf(const supervisor::OciState& state, const std::string_view (&keys)[N]) {
  for (const std::string_view key : keys)
    if (const auto it = state.annotations.find(std::string(key)); it != state.annotations.end() && !it->second.empty())
      return it->second;
  return {};
}

std::string Annotation(const supervisor::OciState& state, std::string_view key) {
  const auto it = state.annotations.find(std::string(key));
  return it == state.annotations.end() ? std::string() : it->second;
}

// Whoever starts containers chooses among the operator's files, and reads no other.
bool IsPlainName(std::string_view name) {
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  return !name.empty() && name.size() <= 255 && !name.starts_with('.') &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool Matches(const std::string& pattern, const std::string& text) { return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0; }

Result<std::string> FileIn(const std::string& folder, const std::string& name, std::string_view who) {
  if (!IsPlainName(name) || name == kSelectFile)
    return Fail(Code::kInvalid, fmt::format("{} names no policy file: `{}`", who, name));
  for (const char* suffix : {"", ".yaml", ".yml"})
    if (const std::string path = folder + "/" + name + suffix; ::access(path.c_str(), F_OK) == 0) return path;
  return Fail(Code::kInvalid, fmt::format("{} names the policy `{}`, and {} has no such file", who, name, folder));
}

// Empty: it names none.
Result<std::string> AsItsAnnotationSays(const std::string& folder, const supervisor::OciState& state) {
  if (const std::string name = Annotation(state, kPolicyAnnotation); !name.empty())
    return FileIn(folder, name, fmt::format("its annotation {}", kPolicyAnnotation));
  if (state.metadata.starts_with(kPolicyMetadata))
    return FileIn(folder, state.metadata.substr(kPolicyMetadata.size()), "its listenerMetadata");
  return std::string();
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream in(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

struct Line {
  std::string kind;
  std::string pattern;
  std::string file;
};

Result<std::optional<Line>> ParseLine(const std::string& text, const std::string& place) {
  constexpr std::array<std::string_view, 6> kKinds = {"any", "id", "name", "namespace", "label", "metadata"};
  const std::vector<std::string> words = Words(text);
  if (words.empty()) return std::nullopt;
  if (words.size() == 1 && words[0] == "annotation") return Line{words[0], "", ""};
  if (words.size() != 3 || std::ranges::find(kKinds, words[0]) == kKinds.end())
    return Fail(Code::kInvalid, fmt::format("{}: write `KIND PATTERN FILE`, with a kind of any, id, name, namespace, label or "
                                            "metadata, or `annotation` alone",
                                            place));
  if (words[0] == "label" && words[1].find('=') == std::string::npos)
    return Fail(Code::kInvalid, fmt::format("{}: after `label` comes KEY=PATTERN", place));
  return Line{words[0], words[1], words[2]};
}

// Not by an annotation of Sluice's, which is whoever's who starts it.
std::string GivenName(const supervisor::OciState& state) {
  supervisor::OciState others = state;
  others.annotations.erase(std::string(kNameAnnotation));
  return ContainerName(others);
}

bool LineMatches(const Line& line, const supervisor::OciState& state) {
  if (line.kind == "id") return Matches(line.pattern, state.id);
  if (line.kind == "name" || line.kind == "any") return Matches(line.pattern, GivenName(state));
  if (line.kind == "namespace") return Matches(line.pattern, ContainerNamespace(state));
  if (line.kind == "metadata") return Matches(line.pattern, state.metadata);
  const size_t equals = line.pattern.find('=');
  const auto it = state.annotations.find(line.pattern.substr(0, equals));
  return it != state.annotations.end() && Matches(line.pattern.substr(equals + 1), it->second);
}

// Empty: nothing in it matches. Every line is read, so that one that is wrong is told whichever container comes first.
Result<std::string> AsSelectSays(const std::string& folder, const std::string& text, const supervisor::OciState& state) {
  std::optional<std::string> chosen;
  size_t number = 0;
  for (const std::string& written : SplitLines(text)) {
    const std::string place = fmt::format("{}/{}:{}", folder, kSelectFile, ++number);
    auto line = ParseLine(written, place);
    if (!line) return std::unexpected(line.error());
    if (!*line || chosen) continue;
    if ((*line)->kind == "annotation") {
      auto named = AsItsAnnotationSays(folder, state);
      if (!named) return named;
      if (!named->empty()) chosen = *std::move(named);
    } else if (LineMatches(**line, state)) {
      auto file = FileIn(folder, (*line)->file, place);
      if (!file) return file;
      chosen = *std::move(file);
    }
  }
  return chosen.value_or("");
}

}  // namespace

std::string ContainerName(const supervisor::OciState& state) {
  std::string name = FirstOf(state, kNames);
  return name.empty() ? state.id : name;
}

std::string ContainerNamespace(const supervisor::OciState& state) { return FirstOf(state, kNamespaces); }

std::map<std::string, std::string> ContainerLabels(const supervisor::OciState& state, const std::vector<std::string>& more) {
  std::map<std::string, std::string> labels;
  const auto put = [&labels](const std::string& key, const std::string& value) {
    if (!value.empty()) labels.emplace(key, value.substr(0, kMaxLabel));
  };
  put("container.id", state.id);
  put("container.name", ContainerName(state));
  put("container.namespace", ContainerNamespace(state));
  put("container.pod", FirstOf(state, kPods));
  put("container.metadata", state.metadata);
  for (const std::string& key : more) put(key, Annotation(state, key));
  return labels;
}

Result<std::string> ChoosePolicy(const std::string& folder, const std::string& fallback, const supervisor::OciState& state) {
  std::string chosen;
  if (!folder.empty()) {
    const std::string select = folder + "/" + std::string(kSelectFile);
    const bool selects = ::access(select.c_str(), F_OK) == 0;
    if (auto one = CheckOneName(state, kNamespaces, "namespace"); selects && !one) return std::unexpected(one.error());
    if (auto one = CheckOneName(state, kNames, "name"); selects && !one) return std::unexpected(one.error());
    auto text = selects ? ReadFile(select, kMaxSelect) : Result<std::string>(std::string());
    if (!text) return std::unexpected(text.error());
    auto found = selects ? AsSelectSays(folder, *text, state) : AsItsAnnotationSays(folder, state);
    if (!found) return found;
    chosen = *std::move(found);
  }
  if (chosen.empty()) chosen = fallback;
  if (chosen.empty())
    return Fail(Code::kNotFound,
                fmt::format("no policy is for it: give it the annotation {}=NAME, add a line to {}/{}, or give the "
                            "agent a --policy",
                            kPolicyAnnotation, folder, kSelectFile));
  return chosen;
}

}  // namespace sluice::app
