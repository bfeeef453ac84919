#include "prover/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "policy/compiled.h"
#include "policy/overlap.h"
#include "prover/prove.h"

namespace sluice::prover {
namespace {

using policy::Finding;
using policy::Rule;
using policy::Verb;

constexpr uint64_t kMaxLintSteps = 10'000'000;     // of the prover, over the whole policy
constexpr size_t kMaxLintComparisons = 4'000'000;  // of two rules' hosts, over the whole policy

class ReachLinter {
 public:
  ReachLinter(const policy::Snapshot& snapshot, WallTime now) : compiled_(snapshot.compiled()), now_(now) {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) {
      all_.push_back(i);
      const policy::HostPattern& host = compiled_.rules[i].host;
      (host.kind == policy::HostPattern::Kind::kName ? named_[host.text] : unnamed_).push_back(i);
    }
  }

  std::vector<Finding> Run() {
    for (uint32_t i = 0; i < compiled_.rules.size() && !spent_; ++i) {
      const Rule& rule = compiled_.rules[i];
      if (rule.until && now_ >= *rule.until) continue;  // that it has expired is said elsewhere
      if (rule.allow) {
        Allow(i);
      } else {
        Deny(i);
      }
    }
    return std::move(findings_);
  }

 private:
  using Rules = std::vector<uint32_t>;

  [[nodiscard]] std::string Text(uint32_t i) const {
    return fmt::format("`{}: {}`", compiled_.rules[i].allow ? "allow" : "deny", compiled_.info[i].text);
  }
  [[nodiscard]] std::string At(uint32_t i) const {
    const Rule& rule = compiled_.rules[i];
    return fmt::format("{} at {}", Text(i), policy::PlaceText(rule.span, rule.origin));
  }

  void Add(Finding::Severity severity, std::string code, uint32_t i, std::string message, std::optional<uint32_t> other = {}) {
    if (findings_.size() >= policy::kMaxFindings) return;
    const Rule& rule = compiled_.rules[i];
    if (rule.origin.line != 0) message += fmt::format(" ({})", policy::PlaceText(rule.span, rule.origin));
    findings_.push_back({severity, std::move(code), std::move(message), rule.span,
                         other ? compiled_.rules[*other].span : SourceSpan{}, rule.origin});
  }

  // The rules that may speak for the same traffic as rule i, which is not among them.
  Rules Meeting(uint32_t i) {
    const Rule& rule = compiled_.rules[i];
    const bool named = rule.host.kind == policy::HostPattern::Kind::kName;
    Rules met;
    if (named) Meet(i, named_.at(rule.host.text), &met);
    Meet(i, named ? unnamed_ : all_, &met);
    std::sort(met.begin(), met.end());
    return met;
  }

  void Meet(uint32_t i, const Rules& candidates, Rules* met) {
    const Rule& rule = compiled_.rules[i];
    for (const uint32_t j : candidates) {
      const Rule& other = compiled_.rules[j];
      if (j == i || (rule.verb == Verb::kUnix) != (other.verb == Verb::kUnix)) continue;
      if (++comparisons_ > kMaxLintComparisons) return Spend(i);
      if (rule.verb == Verb::kUnix || policy::ConnectionsOverlap(rule, other)) met->push_back(j);
    }
  }

  void Spend(uint32_t i) {
    if (std::exchange(spent_, true)) return;
    Add(Finding::Severity::kWarning, "not-compared", i,
        "the policy is too large to compare each rule with the others: from here on they are not");
  }

  [[nodiscard]] policy::SnapshotPtr Policy(const Rules& indexes) const {
    policy::PolicySource source;
    for (const uint32_t i : indexes) source.rules.push_back(compiled_.rules[i]);
    source.settings = compiled_.settings;
    source.credentials = compiled_.credentials;
    source.proxies = compiled_.proxies;
    return policy::Compile(std::move(source));
  }

  // Whether `head` lets out nothing that `base` does not. Lookups alone count only for a rule about lookups. Nothing where the
  // question is too large.
  std::optional<bool> Covered(const Rules& base, const Rules& head, bool lookups_count) {
    if (steps_ >= kMaxLintSteps) return std::nullopt;
    Options options;
    options.at = now_;
    options.limit = kMaxLintSteps - steps_;
    const Proof proof = Compare(*Policy(base), *Policy(head), options);
    steps_ += std::max<uint64_t>(proof.steps, 1);
    if (proof.verdict == Verdict::kUnknown) return std::nullopt;
    return std::ranges::none_of(proof.gains,
                                [&](const Difference& gain) { return lookups_count || gain.witness.layer != Layer::kDns; });
  }

  void Allow(uint32_t i) {
    const Rules met = Meeting(i);
    if (met.empty() || spent_) return;
    Rules denies;
    Rules allows;
    for (const uint32_t j : met) (compiled_.rules[j].allow ? allows : denies).push_back(j);
    const bool lookups = compiled_.rules[i].verb == Verb::kDns;
    Rules own = denies;
    own.push_back(i);
    if (!denies.empty()) {
      const auto dead = Covered({}, own, lookups);
      if (!dead) return Spend(i);
      if (*dead) return Shadowed(i, denies, lookups);
    }
    if (allows.empty()) return;
    Rules all = met;
    all.push_back(i);
    const auto redundant = Covered(met, all, true);
    if (!redundant) return Spend(i);
    if (*redundant) Redundant(i, allows, denies);
  }

  void Shadowed(uint32_t i, const Rules& denies, bool lookups) {
    for (const uint32_t j : denies) {
      const auto alone = Covered({}, {i, j}, lookups);
      if (!alone) return Spend(i);
      if (*alone)
        return Add(Finding::Severity::kWarning, "shadowed", i,
                   fmt::format("{} grants nothing: {} refuses all of it", Text(i), At(j)), j);
    }
    Add(Finding::Severity::kWarning, "shadowed", i,
        fmt::format("{} grants nothing: {} denies together refuse all of it", Text(i), denies.size()), denies.front());
  }

  void Redundant(uint32_t i, const Rules& allows, const Rules& denies) {
    for (const uint32_t j : allows) {
      Rules base = denies;
      base.push_back(j);
      Rules head = denies;
      head.push_back(i);
      const auto alone = Covered(base, head, true);
      if (!alone) return Spend(i);
      if (!*alone) continue;
      // Of two that say the same the later one is said to be too many; `duplicate` has those that are written alike.
      const auto back = Covered(head, base, true);
      if (back && *back && i < j) return;
      if (policy::CanonicalText(compiled_.rules[i]) == policy::CanonicalText(compiled_.rules[j])) return;
      const Verb verb = compiled_.rules[j].verb;
      if (policy::IsInner(compiled_.rules[i].verb) && !policy::IsInner(verb))
        return Add(Finding::Severity::kWarning, "moot", i,
                   fmt::format("{} looks inside what {} lets through whole", Text(i), At(j)), j);
      return Add(Finding::Severity::kNote, "redundant", i, fmt::format("{} adds nothing to {}", Text(i), At(j)), j);
    }
    Add(Finding::Severity::kNote, "redundant", i, fmt::format("{} adds nothing to {} other rules", Text(i), allows.size()),
        allows.front());
  }

  void Deny(uint32_t i) {
    Rules met = Meeting(i);
    if (spent_) return;
    Rules with = met;
    with.push_back(i);
    const auto idle = Covered(with, met, true);
    if (!idle) return Spend(i);
    if (*idle) Add(Finding::Severity::kNote, "idle-deny", i, fmt::format("{} refuses nothing that a rule allows", Text(i)));
  }

  const policy::Snapshot::Compiled& compiled_;
  const WallTime now_;
  Rules all_;
  std::unordered_map<std::string, Rules> named_;  ///< by exact name
  Rules unnamed_;                                 ///< wildcards, addresses and sockets
  std::vector<Finding> findings_;
  uint64_t steps_ = 0;
  size_t comparisons_ = 0;
  bool spent_ = false;
};

}  // namespace

std::vector<Finding> LintReach(const policy::Snapshot& snapshot, WallTime now) { return ReachLinter(snapshot, now).Run(); }

}  // namespace sluice::prover
