#include "app/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/accept.h"
#include "app/assertions.h"
#include "app/exit_code.h"
#include "app/policy_pairs.h"
#include "app/prove_report.h"
#include "app/question.h"
#include "app/standard_output.h"
#include "base/log.h"
#include "policy/io/load.h"
#include "policy/rule_text.h"

namespace sluice::app {
namespace {

using prover::Verdict;

constexpr int kExitWidened = 1;
constexpr int kExitUnknown = 3;

// What one run of the command works with.
struct Inputs {
  prover::Options prover;
  std::vector<Acceptance> acceptances;        ///< beside prover.accepted, entry by entry
  std::vector<Remark> remarks;                ///< about the inputs themselves
  std::vector<policy::Assertion> assertions;  ///< of the command line
};

Result<void> ReadAssertions(const std::vector<std::string>& texts, policy::Assertion::Kind kind,
                            std::vector<policy::Assertion>* list) {
  const bool never = kind == policy::Assertion::Kind::kNever;
  for (const std::string& text : texts) {
    auto rule = policy::ParseCompact(never ? policy::Effect::kDeny : policy::Effect::kAllow, text);
    if (!rule) return Fail(Code::kInvalid, fmt::format("--{} '{}': {}", never ? "never" : "always", text, rule.error().message));
    policy::Assertion assertion{kind, *std::move(rule), {}};
    assertion.info.text = policy::CompactText(assertion.rule);
    list->push_back(std::move(assertion));
  }
  return {};
}

Result<void> UseAcceptances(const std::string& file, Inputs* inputs) {
  auto entries = ReadAcceptances(file);
  if (!entries) return std::unexpected(entries.error());
  for (Acceptance& entry : *entries) {
    if (entry.expires <= inputs->prover.at) {
      Remark remark;
      remark.code = "acceptance-expired";
      remark.message = fmt::format("`{}` has expired and counts no longer; {} answered for it: {}",
                                   policy::CompactText(entry.region), entry.owner, entry.reason);
      remark.span = entry.region.span;
      remark.identity = policy::CompactText(entry.region);
      inputs->remarks.push_back(std::move(remark));
      continue;
    }
    inputs->prover.accepted.push_back(entry.region);
    inputs->acceptances.push_back(std::move(entry));
  }
  return {};
}

Result<Inputs> ReadInputs(const ProveOptions& options) {
  Inputs inputs;
  inputs.prover.at = SystemClock().Wall();
  if (!options.at.empty()) {
    const auto at = ParseInstant(options.at);
    if (!at) return Fail(Code::kInvalid, fmt::format("--at: {}", at.error().message));
    inputs.prover.at = *at;
  }
  if (options.limit != 0) inputs.prover.limit = options.limit;
  if (!options.accept.empty()) {
    if (auto used = UseAcceptances(options.accept, &inputs); !used) return std::unexpected(used.error());
  }
  if (!options.manifest.empty()) {
    auto manifest = ReadManifest(options.manifest);
    if (!manifest) return std::unexpected(manifest.error());
    inputs.prover.executables = *std::move(manifest);
  }
  using Kind = policy::Assertion::Kind;
  for (const auto& [kind, texts] : {std::pair(Kind::kNever, &options.never), std::pair(Kind::kAlways, &options.always)}) {
    if (auto read = ReadAssertions(*texts, kind, &inputs.assertions); !read) return std::unexpected(read.error());
  }
  return inputs;
}

// One path has no base. Two are base and head, whatever else is asked.
bool AsksForAssertionsAlone(const ProveOptions& options) {
  const bool asserts = !options.never.empty() || !options.always.empty();
  return options.base_git.empty() && (options.paths.size() == 1 || (asserts && options.paths.size() > 2));
}

Result<PolicyPairs> ReadPairs(const ProveOptions& options) {
  if (!options.base_git.empty()) return PairWithGit(options.base_git, options.paths);
  if (AsksForAssertionsAlone(options)) return HeadsAlone(options.paths);
  if (options.paths.size() != 2)
    return Fail(Code::kInvalid, "compare two: sluice prove BASE HEAD, or sluice prove --base-git REV FILE...");
  return PairPaths(options.paths[0], options.paths[1]);
}

policy::SnapshotPtr Nothing(const std::string& name) { return *policy::LoadText("version: 1\n", name); }

PairResult ProvePair(PolicyPair pair, const Inputs& inputs) {
  const bool gone = pair.head == nullptr;
  if (pair.base == nullptr) pair.base = Nothing(pair.name);
  if (gone) pair.head = Nothing(pair.name);
  PairResult result{std::move(pair), {}};
  const policy::Snapshot& head = *result.pair.head;
  result.proof = prover::Compare(*result.pair.base, head, inputs.prover);
  if (gone) return result;
  for (const auto* list : {&head.assertions(), &inputs.assertions})
    for (const policy::Assertion& assertion : *list)
      result.assertions.push_back(CheckAssertion(head, assertion, result.pair.name, inputs.prover));
  return result;
}

// An acceptance is unused when no pair needed it.
std::vector<Remark> UnusedAcceptances(const Inputs& inputs, const std::vector<PairResult>& results) {
  std::vector<Remark> remarks;
  for (size_t i = 0; i < inputs.acceptances.size(); ++i) {
    const bool unused = std::ranges::all_of(results, [i](const PairResult& result) {
      return result.proof.verdict != Verdict::kUnknown &&
             std::ranges::find(result.proof.unused_accepted, i) != result.proof.unused_accepted.end();
    });
    if (!unused) continue;
    const Acceptance& entry = inputs.acceptances[i];
    Remark remark;
    remark.code = "acceptance-unused";
    remark.message =
        fmt::format("nothing that is gained lies in `{}`, accepted by {}", policy::CompactText(entry.region), entry.owner);
    remark.span = entry.region.span;
    remark.identity = policy::CompactText(entry.region);
    remarks.push_back(std::move(remark));
  }
  return remarks;
}

int ExitCodeOf(const Outcome& outcome) {
  if (outcome.unknown) return kExitUnknown;
  return outcome.gains != 0 || outcome.broken != 0 ? kExitWidened : kExitOk;
}

// People get it on standard error whatever the format; a report that tools read is never empty.
int Report(const std::vector<UnloadedPolicy>& unloaded, const ProveOptions& options) {
  for (const UnloadedPolicy& each : unloaded) PrintError(policy::RenderError(each.error, StderrHasColor()) + "\n");
  fmt::print("{}", RenderFailure(options.format, unloaded));
  return kExitBadInput;
}
int Report(const Error& error, const ProveOptions& options) {
  return Report(std::vector<UnloadedPolicy>{{options.paths.empty() ? "" : options.paths.back(), error}}, options);
}

}  // namespace

int RunProve(const ProveOptions& options) {
  auto inputs = ReadInputs(options);
  if (!inputs) return Report(inputs.error(), options);
  auto pairs = ReadPairs(options);
  if (!pairs) return Report(pairs.error(), options);
  if (!pairs->unloaded.empty()) return Report(pairs->unloaded, options);
  ProveReport report;
  if (AsksForAssertionsAlone(options)) report.question = Question::kAssertionsAlone;
  for (PolicyPair& pair : pairs->pairs) report.pairs.push_back(ProvePair(std::move(pair), *inputs));
  const Outcome outcome = OutcomeOf(report.pairs);
  // A forgotten base must not look like a proof.
  if (report.question == Question::kAssertionsAlone && outcome.assertions == 0)
    return Report({Code::kInvalid,
                   "nothing to prove: name a base (sluice prove BASE HEAD, or --base-git REV), or an assertion (--never, "
                   "--always, or `assert:` in the policy)"},
                  options);
  std::vector<Remark> unused = UnusedAcceptances(*inputs, report.pairs);
  report.accepted = outcome.unknown ? 0 : inputs->acceptances.size() - unused.size();
  report.others = std::move(inputs->remarks);
  std::ranges::move(unused, std::back_inserter(report.others));
  fmt::print("{}", RenderReport(options.format, report, StdoutHasColor()));
  return ExitCodeOf(outcome);
}

}  // namespace sluice::app
