#include "prover/prove.h"

#include <initializer_list>
#include <map>

#include "policy/compiled.h"
#include "policy/rule_text.h"
#include "prover/modelled.h"
#include "prover/walk.h"

namespace sluice::prover {
namespace {

policy::SnapshotPtr SnapshotOf(std::vector<policy::Rule> rules) {
  policy::PolicySource source;
  source.rules = std::move(rules);
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

// The verdict of what was found, or why there is none.
void Conclude(Proof* proof, const Budget& budget, bool replay_failed) {
  proof->steps = budget.used();
  proof->replay_failed = replay_failed;
  if (replay_failed) {
    proof->why_unknown = "a witness did not hold when it was replayed: a fault of the prover";
  } else if (budget.exhausted()) {
    proof->why_unknown = budget.why();
  } else if (proof->gains.empty()) {
    proof->verdict = proof->losses.empty() ? Verdict::kEqual : Verdict::kNarrowed;
  } else {
    proof->verdict = proof->losses.empty() ? Verdict::kWidened : Verdict::kIncomparable;
  }
}

Proof Unknown(std::string why) {
  Proof proof;
  proof.why_unknown = std::move(why);
  return proof;
}

// The first of them that has no model; empty where each has.
std::string WhyNotCompared(std::initializer_list<const policy::Snapshot*> policies, const std::vector<policy::Rule>& rules) {
  for (const policy::Snapshot* policy : policies)
    if (std::string why = WhyNotModelled(*policy); !why.empty()) return why;
  for (const policy::Rule& rule : rules)
    if (std::string why = WhyNotModelled(rule); !why.empty()) return why;
  return "";
}

// An accepted region is of use where the head reaches something in it that the base does not.
std::vector<size_t> UnusedAccepted(const Side& base, const Side& head, const Options& options, Classes* classes,
                                   Requests* requests, Budget* budget) {
  std::vector<size_t> unused;
  for (size_t i = 0; i < options.accepted.size(); ++i) {
    policy::Rule region = options.accepted[i];
    region.allow = false;
    const policy::SnapshotPtr except = SnapshotOf({std::move(region)});
    const Side all_but = classes->MakeSide(*except, SideKind::kAllBut, &requests->rules());
    Findings inside(*head.snapshot, *except, base.snapshot);
    inside.LoserIsAllBut();
    Walk(all_but, head, &base, options, requests, budget).Run(&inside, nullptr);
    if (inside.empty()) unused.push_back(i);
  }
  return unused;
}

}  // namespace

Proof Compare(const policy::Snapshot& base_as_written, const policy::Snapshot& head_as_written, const Options& options) {
  if (std::string why = WhyNotCompared({&base_as_written, &head_as_written}, options.accepted); !why.empty())
    return Unknown(std::move(why));
  const Meant base(base_as_written, options);
  const Meant head(head_as_written, options);
  Budget budget(options.limit);
  Requests requests(&budget);
  Classes classes;
  const Side base_side = classes.MakeSide(*base, SideKind::kPolicy, &requests.rules());
  const Side head_side = classes.MakeSide(*head, SideKind::kPolicy, &requests.rules());
  const policy::SnapshotPtr accepted = options.accepted.empty() ? nullptr : SnapshotOf(options.accepted);
  std::optional<Side> accepted_side;
  if (accepted) accepted_side = classes.MakeSide(*accepted, SideKind::kPolicy, &requests.rules());
  Findings gains(*head, *base, accepted.get());
  Findings losses(*base, *head, nullptr);
  Walk(base_side, head_side, accepted_side ? &*accepted_side : nullptr, options, &requests, &budget).Run(&gains, &losses);
  Proof proof;
  proof.gains = gains.Take();
  proof.losses = losses.Take();
  proof.unused_accepted = UnusedAccepted(base_side, head_side, options, &classes, &requests, &budget);
  Conclude(&proof, budget, gains.replay_failed() || losses.replay_failed());
  return proof;
}

Proof CheckNever(const policy::Snapshot& as_written, const policy::Rule& never, const Options& options) {
  if (std::string why = WhyNotCompared({&as_written}, {never}); !why.empty()) return Unknown(std::move(why));
  const Meant meant(as_written, options);
  const policy::Snapshot& policy = *meant;
  Budget budget(options.limit);
  Requests requests(&budget);
  Classes classes;
  policy::Rule deny = never;
  deny.allow = false;
  const policy::SnapshotPtr except = SnapshotOf({std::move(deny)});
  const Side all_but = classes.MakeSide(*except, SideKind::kAllBut, &requests.rules());
  const Side side = classes.MakeSide(policy, SideKind::kPolicy, &requests.rules());
  Findings gains(policy, *except, nullptr);
  gains.LoserIsAllBut();
  Walk(all_but, side, nullptr, options, &requests, &budget).Run(&gains, nullptr);
  Proof proof;
  proof.gains = gains.Take();
  Conclude(&proof, budget, gains.replay_failed());
  return proof;
}

Proof CheckAlways(const policy::Snapshot& as_written, const policy::Rule& always, const Options& options) {
  if (std::string why = WhyNotCompared({&as_written}, {always}); !why.empty()) return Unknown(std::move(why));
  const Meant meant(as_written, options);
  const policy::Snapshot& policy = *meant;
  Budget budget(options.limit);
  Requests requests(&budget);
  Classes classes;
  const policy::SnapshotPtr wanted = SnapshotOf({always});
  const Side base = classes.MakeSide(*wanted, SideKind::kPolicy, &requests.rules());
  const Side head = classes.MakeSide(policy, SideKind::kPolicy, &requests.rules());
  Findings losses(*wanted, policy, nullptr);
  Walk(base, head, nullptr, options, &requests, &budget).Run(nullptr, &losses);
  Proof proof;
  proof.losses = losses.Take();
  Conclude(&proof, budget, losses.replay_failed());
  return proof;
}

}  // namespace sluice::prover
