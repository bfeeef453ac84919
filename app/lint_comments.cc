#include "app/lint_comments.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "app/file.h"
#include "policy/breadth.h"
#include "policy/comments.h"
#include "policy/compiled.h"
#include "policy/io/yaml.h"
#include "policy/target.h"

namespace sluice::app {
namespace {

constexpr std::string_view kMark = "sluice:ignore";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" #");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Each comment that speaks of one rule, with its line's text.
std::vector<std::string> CommentsOf(const policy::Comments& comments, const policy::Node& item) {
  std::vector<std::string> lines;
  const auto take = [&](const policy::Node& node) {
    const policy::Surroundings& around = comments.Of(node);
    for (const std::string& line : around.leading) lines.push_back(line);
    if (!around.trailing.empty()) lines.push_back(around.trailing);
  };
  take(item);
  for (const auto& member : item.members) take(member.key);
  return lines;
}

// Words that are names with a registrable domain.
std::set<std::string> HostsIn(std::string_view text) {
  std::set<std::string> hosts;
  for (size_t at = 0; at < text.size();) {
    const size_t first = text.find_first_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789*", at);
    if (first == std::string_view::npos) break;
    size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*@/", first);
    end = std::min(end, text.size());
    std::string_view word = text.substr(first, end - first);
    word = word.substr(0, word.find('/'));
    while (!word.empty() && (word.back() == '.' || word.back() == '-')) word.remove_suffix(1);
    at = end;
    if (word.find('*') != std::string_view::npos || word.find('@') != std::string_view::npos) continue;
    const auto name = policy::CanonicalName(word);
    if (name && policy::IsRegistrableName(*name)) hosts.insert(*name);
  }
  return hosts;
}

class CommentReader {
 public:
  CommentReader(const policy::Snapshot& snapshot, std::span<const CodeInfo> codes)
      : compiled_(snapshot.compiled()), codes_(codes) {}

  CommentRemarks Run() {
    std::map<std::string, std::map<uint32_t, uint32_t>> files;  // to rules by line
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) files[compiled_.rules[i].span.file][compiled_.rules[i].span.line] = i;
    for (const auto& [file, rules] : files) File(file, rules);
    return std::move(found_);
  }

 private:
  void File(const std::string& file, const std::map<uint32_t, uint32_t>& rules) {
    const auto text = ReadFile(file, policy::kMaxFileBytes);
    if (!text) return;
    const auto root = policy::ParseYaml(*text, file);
    if (!root) return;
    const policy::Comments comments(*text, *root);
    for (const auto& [key, value] : root->members) {
      if (key.text != "rules") continue;
      for (const policy::Node& item : value.items) {
        for (const auto& member : item.members) {
          const auto it = rules.find(member.key.span.line);
          if ((member.key.text == "allow" || member.key.text == "deny") && it != rules.end())
            Rule(it->second, CommentsOf(comments, item));
        }
      }
    }
  }

  void Rule(uint32_t index, const std::vector<std::string>& lines) {
    const policy::Rule& rule = compiled_.rules[index];
    std::string prose = rule.note;
    for (const std::string& line : lines) {
      const size_t mark = line.find(kMark);
      if (mark == std::string::npos) {
        prose += " " + line;
      } else {
        Ignore(index, std::string_view(line).substr(mark + kMark.size()));
      }
    }
    if (rule.allow && rule.host.kind == policy::HostPattern::Kind::kGlob) WiderThan(index, prose);
  }

  void Ignore(uint32_t index, std::string_view rest) {
    const SourceSpan& span = compiled_.rules[index].span;
    const std::string& rule = compiled_.info[index].text;
    rest = Trim(rest);
    const std::string code(rest.substr(0, rest.find(' ')));
    const std::string reason(Trim(rest.substr(std::min(code.size(), rest.size()))));
    const bool known = std::ranges::find(codes_, code, &CodeInfo::code) != codes_.end();
    if (known && !reason.empty()) {
      found_.ignores.push_back({span.file, span.line, rule, code, reason, false});
      return;
    }
    Remark remark;
    remark.code = "bad-ignore";
    remark.message = known ? fmt::format("`sluice:ignore {}` gives no reason; write one after the code", code)
                           : fmt::format("`sluice:ignore {}`: there is no such code", code);
    remark.span = span;
    remark.identity = fmt::format("{}\n{}", remark.message, rule);
    found_.remarks.push_back(std::move(remark));
  }

  // A comment that names one host, on a rule whose wildcard holds that host and more.
  void WiderThan(uint32_t index, std::string_view prose) {
    const policy::Rule& rule = compiled_.rules[index];
    for (const std::string& host : HostsIn(prose)) {
      if (!policy::HostMatchesName(rule.host, host, true)) continue;
      Remark remark;
      remark.code = "wider-than-comment";
      remark.message =
          fmt::format("`allow: {}` holds for more than `{}`, which its comment names", compiled_.info[index].text, host);
      remark.span = rule.span;
      remark.identity = compiled_.info[index].text + host;
      found_.remarks.push_back(std::move(remark));
    }
  }

  const policy::Snapshot::Compiled& compiled_;
  std::span<const CodeInfo> codes_;
  CommentRemarks found_;
};

}  // namespace

CommentRemarks ReadComments(const policy::Snapshot& snapshot, std::span<const CodeInfo> codes) {
  return CommentReader(snapshot, codes).Run();
}

void ApplyIgnores(std::vector<IgnoreComment> ignores, std::vector<Remark>* remarks) {
  std::erase_if(*remarks, [&](const Remark& remark) {
    bool ignored = false;
    for (IgnoreComment& ignore : ignores) {
      if (ignore.code != remark.code || ignore.line != remark.span.line || ignore.file != remark.span.file) continue;
      ignore.used = ignored = true;
    }
    return ignored;
  });
  for (const IgnoreComment& ignore : ignores) {
    if (ignore.used) continue;
    Remark remark;
    remark.code = "unused-ignore";
    remark.message = fmt::format("`sluice:ignore {}` leaves nothing out; remove it", ignore.code);
    remark.span = {ignore.file, ignore.line, 1, 0};
    remark.identity = fmt::format("{}\n{}", ignore.code, ignore.rule);
    remarks->push_back(std::move(remark));
  }
}

}  // namespace sluice::app
