#include "prover/prove.h"

#include <algorithm>
#include <map>
#include <utility>

#include "policy/compiled.h"
#include "policy/rule_text.h"
#include "prover/walk.h"

namespace sluice::prover {
namespace {

policy::SnapshotPtr SnapshotOf(std::vector<policy::Rule> rules) {
  policy::PolicySource source;
  source.rules = std::move(rules);
  // How things travel is no part of a question.
  for (policy::Rule& rule : source.rules) {
    rule.credential = rule.proxy = policy::kNoIndex16;
    rule.pins.clear();
    rule.routes = false;
  }
  return policy::Compile(std::move(source));
}

// The executables that the literals of a policy mean: a link is written by people, the kernel names the file behind it.
policy::SnapshotPtr WithLinksResolved(const policy::Snapshot& policy, const Options& options) {
  std::map<std::string, std::string> files;
  if (options.executables)
    for (const ManifestEntry& entry : *options.executables)
      for (const std::string& link : entry.links) files.emplace(link, entry.path);
  policy::PolicySource source;
  source.rules = policy.compiled().rules;
  source.mode = policy.mode();
  source.settings = policy.settings();
  source.credentials = policy.credentials();
  source.proxies = policy.proxies();
  for (policy::Rule& rule : source.rules) {
    for (auto* list : {&rule.by, &rule.under}) {
      for (policy::ExecutablePattern& pattern : *list) {
        const auto at = files.find(pattern.text);
        if (pattern.sha256 || at == files.end()) continue;
        if (auto resolved = policy::ParseExecutable(at->second)) pattern = std::move(*resolved);
      }
    }
  }
  return policy::Compile(std::move(source));
}

// A policy as it is compared: itself, or what it means where links are known.
class Meant {
 public:
  Meant(const policy::Snapshot& policy, const Options& options)
      : resolved_(options.executables ? WithLinksResolved(policy, options) : nullptr), policy_(resolved_ ? *resolved_ : policy) {}
  const policy::Snapshot& operator*() const { return policy_; }

 private:
  policy::SnapshotPtr resolved_;
  const policy::Snapshot& policy_;
};

// What every question works with, and how its answer is taken.
class Workbench {
 public:
  explicit Workbench(const Options& options) : options_(options), budget_(options.limit), requests_(&budget_) {}

  [[nodiscard]] Side MakeSide(const policy::Snapshot& policy, SideKind kind) {
    return classes_.MakeSide(policy, kind, &requests_.rules());
  }
  /// Either of the findings may be null: it is not asked for.
  void Run(const Side& base, const Side& head, const Side* accepted, Findings* gains, Findings* losses) {
    Walk(base, head, accepted, options_, &requests_, &budget_).Run(gains, losses);
  }
  /// The same of how things travel too.
  void RunWithWays(const Side& base, const Side& head, const Side* accepted, Findings* gains, Findings* losses) {
    Walk walk(base, head, accepted, options_, &requests_, &budget_);
    walk.CompareWays();
    walk.Run(gains, losses);
  }
  [[nodiscard]] Proof Conclude(Findings* gains, Findings* losses) const;

 private:
  const Options& options_;
  Budget budget_;
  Requests requests_;
  Classes classes_;
};

// The verdict of what was found, or why there is none.
Proof Workbench::Conclude(Findings* gains, Findings* losses) const {
  Proof proof;
  std::string unheld;
  for (const auto& [found, list] : {std::pair(gains, &proof.gains), std::pair(losses, &proof.losses)}) {
    if (found == nullptr) continue;
    proof.replay_failed |= found->replay_failed();
    if (found->replay_failed()) unheld = found->unheld();
    *list = found->Take();
  }
  proof.steps = budget_.used();
  if (proof.replay_failed) {
    proof.why_unknown = "a witness did not hold when it was replayed: a fault of the prover (" + unheld + ")";
  } else if (budget_.exhausted()) {
    proof.why_unknown = budget_.why();
  } else if (proof.gains.empty()) {
    proof.verdict = proof.losses.empty() ? Verdict::kEqual : Verdict::kNarrowed;
  } else {
    proof.verdict = proof.losses.empty() ? Verdict::kWidened : Verdict::kIncomparable;
  }
  return proof;
}

// An accepted region is of use where the head reaches something in it that the base does not.
std::vector<size_t> UnusedAccepted(const Side& base, const Side& head, const Options& options, Workbench* bench) {
  std::vector<size_t> unused;
  for (size_t i = 0; i < options.accepted.size(); ++i) {
    policy::Rule region = options.accepted[i];
    region.allow = false;
    const policy::SnapshotPtr except = SnapshotOf({std::move(region)});
    const Side all_but = bench->MakeSide(*except, SideKind::kAllBut);
    Findings inside(*head.snapshot, *except, base.snapshot);
    inside.LoserIsAllBut();
    bench->Run(all_but, head, &base, &inside, nullptr);
    if (inside.empty()) unused.push_back(i);
  }
  return unused;
}

}  // namespace

Proof Compare(const policy::Snapshot& base_as_written, const policy::Snapshot& head_as_written, const Options& options) {
  const Meant base(base_as_written, options);
  const Meant head(head_as_written, options);
  Workbench bench(options);
  const Side base_side = bench.MakeSide(*base, SideKind::kPolicy);
  const Side head_side = bench.MakeSide(*head, SideKind::kPolicy);
  const policy::SnapshotPtr accepted = options.accepted.empty() ? nullptr : SnapshotOf(options.accepted);
  std::optional<Side> accepted_side;
  if (accepted) accepted_side = bench.MakeSide(*accepted, SideKind::kPolicy);
  Findings gains(*head, *base, accepted.get());
  Findings losses(*base, *head, nullptr);
  bench.RunWithWays(base_side, head_side, accepted_side ? &*accepted_side : nullptr, &gains, &losses);
  std::vector<size_t> unused = UnusedAccepted(base_side, head_side, options, &bench);
  Proof proof = bench.Conclude(&gains, &losses);
  proof.unused_accepted = std::move(unused);
  return proof;
}

Proof CheckNever(const policy::Snapshot& as_written, const policy::Rule& never, const Options& options) {
  const Meant policy(as_written, options);
  Workbench bench(options);
  policy::Rule deny = never;
  deny.allow = false;
  const policy::SnapshotPtr except = SnapshotOf({std::move(deny)});
  const Side all_but = bench.MakeSide(*except, SideKind::kAllBut);
  const Side side = bench.MakeSide(*policy, SideKind::kPolicy);
  Findings gains(*policy, *except, nullptr);
  gains.LoserIsAllBut();
  bench.Run(all_but, side, nullptr, &gains, nullptr);
  return bench.Conclude(&gains, nullptr);
}

Proof CheckAlways(const policy::Snapshot& as_written, const policy::Rule& always, const Options& options) {
  const Meant policy(as_written, options);
  Workbench bench(options);
  const policy::SnapshotPtr wanted = SnapshotOf({always});
  const Side base = bench.MakeSide(*wanted, SideKind::kPolicy);
  const Side head = bench.MakeSide(*policy, SideKind::kPolicy);
  Findings losses(*wanted, *policy, nullptr);
  bench.Run(base, head, nullptr, nullptr, &losses);
  return bench.Conclude(nullptr, &losses);
}

}  // namespace sluice::prover
