#include "app/accept.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "app/file.h"
#include "policy/io/yaml.h"
#include "policy/rule_keys.h"
#include "policy/rule_text.h"

namespace sluice::app {
namespace {

using policy::Node;
using policy::NodeError;

Result<void> ReadEntryText(const Node& value, std::string_view key, std::string* slot) {
  auto text = policy::ReadText(value, key);
  if (!text) return std::unexpected(text.error());
  if (text->empty()) return NodeError(value, fmt::format("`{}` is empty", key));
  *slot = *std::move(text);
  return {};
}

// An entry is a rule with three keys of its own.
Result<Acceptance> ReadAcceptance(const Node& item, const std::string& label) {
  if (item.kind != Node::Kind::kMapping)
    return NodeError(item, "an entry is a map: `allow: RULE`, `owner:`, `reason:`, `expires:`");
  Acceptance acceptance;
  Node rule = item;
  rule.members.clear();
  bool has_end = false;
  for (const auto& member : item.members) {
    const std::string& key = member.key.text;
    if (key == "owner" || key == "reason") {
      if (auto read = ReadEntryText(member.value, key, key == "owner" ? &acceptance.owner : &acceptance.reason); !read)
        return std::unexpected(read.error());
    } else if (key == "expires") {
      const auto end = policy::ParseUntil(member.value.text);
      if (!end) return policy::MovedInto(member.value, end.error());
      acceptance.expires = *end;
      has_end = true;
    } else if (key == "until") {
      return NodeError(member.key, "`until` belongs to policies; here it is `expires`");
    } else if (key == "deny") {
      return NodeError(member.key, "what is accepted is written as the `allow` that would grant it");
    } else {
      rule.members.push_back(member);
    }
  }
  if (acceptance.owner.empty()) return NodeError(item, "`owner` is missing: who answers for it");
  if (acceptance.reason.empty()) return NodeError(item, "`reason` is missing");
  if (!has_end) return NodeError(item, "`expires` is missing, as in `expires: 2027-01-31`");
  auto read = policy::ReadRule(rule, label);
  if (!read) return std::unexpected(read.error());
  acceptance.region = *std::move(read);
  return acceptance;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// "<64 hex digits>  /path", as sha256sum prints it.
std::optional<std::array<uint8_t, 32>> DigestBefore(std::string_view* line) {
  std::array<uint8_t, 32> digest{};
  if (line->size() < 66 || (*line)[64] != ' ') return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexValue((*line)[2 * i]);
    const int low = HexValue((*line)[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  *line = Trim(line->substr(66));
  return digest;
}

class ManifestReader {
 public:
  explicit ManifestReader(std::string file) : file_(std::move(file)) {}

  Result<void> Line(std::string_view text, uint32_t number) {
    std::string_view line = Trim(text);
    if (line.empty() || line[0] == '#') return {};
    const auto digest = DigestBefore(&line);
    const size_t arrow = line.find(" -> ");
    const std::string_view path = Trim(arrow == std::string_view::npos ? line : line.substr(arrow + 4));
    const std::string_view link = arrow == std::string_view::npos ? std::string_view{} : Trim(line.substr(0, arrow));
    if (!path.starts_with('/') || (!link.empty() && !link.starts_with('/')))
      return std::unexpected(Error{Code::kInvalid, "a line is an absolute path, or `LINK -> PATH`", 0,
                                   SourceSpan{file_, number, 1, static_cast<uint32_t>(text.size())}});
    prover::ManifestEntry& entry = entries_[std::string(path)];
    entry.path = path;
    if (digest) entry.sha256 = digest;
    if (!link.empty()) entry.links.emplace_back(link);
    return {};
  }

  std::vector<prover::ManifestEntry> Take() {
    std::vector<prover::ManifestEntry> list;
    for (auto& [path, entry] : entries_) list.push_back(std::move(entry));
    return list;
  }

 private:
  std::string file_;
  std::map<std::string, prover::ManifestEntry> entries_;
};

}  // namespace

Result<std::vector<Acceptance>> ReadAcceptances(const std::string& file) {
  const auto text = ReadFile(file, policy::kMaxFileBytes);
  if (!text) return std::unexpected(text.error());
  const auto root = policy::ParseYaml(*text, file);
  if (!root) return std::unexpected(root.error());
  if (root->kind != Node::Kind::kMapping) return NodeError(*root, "an acceptance file is a map: `version: 1` and `accepted:`");
  std::vector<Acceptance> list;
  bool versioned = false;
  for (const auto& [key, value] : root->members) {
    if (key.text == "version") {
      if (value.text != "1") return NodeError(value, "this version reads `version: 1`");
      versioned = true;
    } else if (key.text == "accepted") {
      if (value.kind != Node::Kind::kSequence) return NodeError(value, "`accepted` is a list");
      if (value.items.size() > kMaxAcceptances) return NodeError(value, fmt::format("more than {} entries", kMaxAcceptances));
      for (const Node& item : value.items) {
        auto entry = ReadAcceptance(item, file);
        if (!entry) return std::unexpected(entry.error());
        list.push_back(*std::move(entry));
      }
    } else {
      return NodeError(key, fmt::format("unknown key `{}`; an acceptance file has `version` and `accepted`", key.text));
    }
  }
  if (!versioned) return NodeError(*root, "`version: 1` is missing");
  return list;
}

Result<std::vector<prover::ManifestEntry>> ReadManifest(const std::string& file) {
  const auto text = ReadFile(file);
  if (!text) return std::unexpected(text.error());
  ManifestReader reader(file);
  uint32_t number = 0;
  for (size_t at = 0; at < text->size();) {
    if (++number > kMaxManifestLines)
      return Fail(Code::kExhausted, fmt::format("{} has more than {} lines", file, kMaxManifestLines));
    const size_t end = std::min(text->find('\n', at), text->size());
    if (auto read = reader.Line(std::string_view(*text).substr(at, end - at), number); !read)
      return std::unexpected(read.error());
    at = end + 1;
  }
  return reader.Take();
}

}  // namespace sluice::app
