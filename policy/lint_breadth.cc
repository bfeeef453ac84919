// What an allow grants that its author may not have meant: too many hosts, too many requests, too many programs, too long.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "policy/breadth.h"
#include "policy/compiled.h"
#include "policy/finding.h"

namespace sluice::policy {
namespace {

constexpr std::chrono::days kSoon{30};

class BreadthLinter {
 public:
  BreadthLinter(const Snapshot& snapshot, WallTime now) : compiled_(snapshot.compiled()), now_(now) {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) {
      const Rule& rule = compiled_.rules[i];
      if (!rule.allow || rule.verb == Verb::kUnix) continue;
      ++allows_;
      if (rule.by.empty()) continue;
      ++with_by_;
      named_by_.try_emplace(rule.host.text, i);
    }
  }

  std::vector<Finding> Run() {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) {
      const Rule& rule = compiled_.rules[i];
      if (!rule.allow || (rule.until && now_ >= *rule.until)) continue;
      if (rule.until && *rule.until - now_ < kSoon) ExpiresSoon(i, rule);
      if (rule.verb == Verb::kUnix) continue;
      Host(i, rule);
      if (rule.verb == Verb::kHttp && rule.methods.empty() && rule.paths.empty() && rule.query.empty() && rule.headers.empty())
        Add(Finding::Severity::kNote, "any-request", i,
            fmt::format("{} lets every method and every path through; name the methods", Text(i)));
      if (rule.by.empty()) MissingBy(i, rule);
    }
    return std::move(findings_);
  }

 private:
  [[nodiscard]] std::string Text(uint32_t i) const { return fmt::format("`allow: {}`", compiled_.info[i].text); }

  void Add(Finding::Severity severity, std::string code, uint32_t i, std::string message, SourceSpan other = {}) {
    if (findings_.size() >= kMaxFindings) return;
    const Rule& rule = compiled_.rules[i];
    if (rule.origin.line != 0) message += fmt::format(" ({})", PlaceText(rule.span, rule.origin));
    findings_.push_back({severity, std::move(code), std::move(message), rule.span, std::move(other), rule.origin});
  }

  void ExpiresSoon(uint32_t i, const Rule& rule) {
    const auto left = std::chrono::ceil<std::chrono::days>(*rule.until - now_).count();
    Add(Finding::Severity::kNote, "expires-soon", i,
        fmt::format("{} expires within {} day{}", Text(i), left, left == 1 ? "" : "s"));
  }

  void Host(uint32_t i, const Rule& rule) {
    const Breadth breadth = BreadthOf(rule.host);
    if (breadth.breadth == HostBreadth::kEverything) {
      Add(Finding::Severity::kWarning, "everything", i,
          fmt::format("{} names no host: it holds for every name and address", Text(i)));
    } else if (breadth.breadth == HostBreadth::kSuffix) {
      Add(Finding::Severity::kWarning, "broad-host", i,
          fmt::format("{} holds for names of many owners: anyone can get one below `{}`", Text(i), breadth.suffix));
    }
  }

  // Where another rule of the same host, or nearly all rules, say which program they are for.
  void MissingBy(uint32_t i, const Rule& rule) {
    if (const auto it = named_by_.find(rule.host.text); it != named_by_.end()) {
      const Rule& named = compiled_.rules[it->second];
      Add(Finding::Severity::kNote, "missing-by", i,
          fmt::format("{} is for every program, while the rule at {} for the same host names its own", Text(i),
                      PlaceText(named.span, named.origin)),
          named.span);
    } else if (allows_ >= 4 && with_by_ + 1 == allows_) {
      Add(Finding::Severity::kNote, "missing-by", i, fmt::format("{} is the one allow that is for every program", Text(i)));
    }
  }

  const Snapshot::Compiled& compiled_;
  const WallTime now_;
  size_t allows_ = 0;
  size_t with_by_ = 0;
  std::unordered_map<std::string, uint32_t> named_by_;  ///< host to an allow that has `by`
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> LintBreadth(const Snapshot& snapshot, WallTime now) { return BreadthLinter(snapshot, now).Run(); }

}  // namespace sluice::policy
