#include "app/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/accept.h"
#include "app/exit_code.h"
#include "app/policy_pairs.h"
#include "app/question.h"
#include "base/log.h"
#include "policy/io/load.h"
#include "policy/rule_text.h"
#include "prover/prove.h"

namespace sluice::app {
namespace {

using prover::Verdict;

constexpr int kExitWidened = 1;
constexpr int kExitUnknown = 3;

constexpr std::array<CodeInfo, 8> kCodes = {{
    {"widened", "The policy lets out more",
     "The rule allows something that the base policy refuses. The witness is one such thing; narrow the rule, or accept the "
     "region with --accept."},
    {"narrowed", "The policy lets out less",
     "The base policy allows something that the head refuses. The witness is one such thing."},
    {"never-broken", "A `never` assertion is broken",
     "The policy reaches what must never be reached. The witness is one such thing."},
    {"always-broken", "An `always` assertion is broken",
     "The policy refuses what must always be reachable. The witness is one such thing."},
    {"unknown", "The question was too large",
     "The prover reached a bound before it had an answer, so the change counts as not proved. Raise --limit, or split the "
     "policy."},
    {"prover-fault", "A witness did not replay",
     "The prover and the enforcer disagree about a witness, so nothing is proved. This is a defect of Sluice: please report it "
     "with both policies."},
    {"acceptance-unused", "An accepted region is not needed",
     "Nothing that the head gains lies in this accepted region. Remove the entry."},
    {"acceptance-expired", "An acceptance has expired", "The entry counts no longer. Renew it with a new date, or remove it."},
}};

struct Assertion {
  bool never = true;
  policy::Rule rule;
  std::string text;
};

// What one run of the command works with.
struct Inputs {
  prover::Options prover;
  std::vector<Acceptance> acceptances;  ///< beside prover.accepted, entry by entry
  std::vector<Remark> remarks;          ///< about the inputs themselves
  std::vector<Assertion> assertions;    ///< of the command line
};

struct PairResult {
  PolicyPair pair;
  prover::Proof proof;
  std::vector<Remark> remarks;
  nlohmann::json assertions = nlohmann::json::array();
  bool broken = false;   ///< an assertion does not hold
  bool unknown = false;  ///< of an assertion
};

// "its method was not allowed": what the other policy says of the witness.
std::string_view Why(policy::Reason reason) {
  switch (reason) {
    case policy::Reason::kMethod:
      return "refused: method";
    case policy::Reason::kPath:
      return "refused: path";
    case policy::Reason::kQuery:
      return "refused: query";
    case policy::Reason::kHeader:
      return "refused: header";
    case policy::Reason::kBinary:
      return "refused: executable";
    case policy::Reason::kPort:
      return "refused: port";
    case policy::Reason::kPrivateAddress:
      return "refused: address";
    case policy::Reason::kExpired:
      return "refused: expired by then";
    case policy::Reason::kDenyRule:
      return "refused by a deny";
    case policy::Reason::kDns:
      return "refused: the name is not in the policy";
    default:
      return "refused: no rule";
  }
}

std::string QuotedRule(const policy::RuleInfo& info) { return fmt::format("`{}: {}`", info.allow ? "allow" : "deny", info.text); }

// Where a difference stands: its rule, or the file for `mode: audit`.
SourceSpan PlaceOf(const policy::Snapshot& policy, policy::RuleRef ref) {
  if (const auto* info = policy.rule(ref)) return info->span;
  SourceSpan span;
  if (!policy.files().empty()) span.file = policy.files().front();
  return span;
}

Remark DifferenceRemark(const prover::Difference& difference, const policy::Snapshot& here, const policy::Snapshot& there,
                        const std::string& name, bool gain) {
  Remark remark;
  remark.severity = gain ? Severity::kError : Severity::kNote;
  remark.code = gain ? "widened" : "narrowed";
  remark.span = PlaceOf(here, difference.rule);
  if (here.rule(difference.rule) == nullptr) remark.span = {name, 0, 0, 0};
  const auto* rule = here.rule(difference.rule);
  const std::string what = rule != nullptr ? QuotedRule(*rule) : "`mode: audit`";
  remark.message = gain ? fmt::format("widened: {} lets out {}", what, difference.region.Text())
                        : fmt::format("narrowed: no longer let out by {}: {}", what, difference.region.Text());
  const std::string witness = difference.witness.Text();
  remark.details.emplace_back("witness", witness);
  std::string other(Why(difference.refused_because));
  if (const auto* deny = there.rule(difference.refused_by))
    other = fmt::format("refused by {} at {}", QuotedRule(*deny), PlaceText(deny->span));
  remark.details.emplace_back(gain ? "before" : "now", other);
  remark.identity = fmt::format("{}\n{}", rule != nullptr ? rule->text : "audit", witness);
  return remark;
}

std::string Hex(const std::array<uint8_t, 32>& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

nlohmann::json ProcessJson(const prover::WitnessProcess& process) {
  switch (process.kind) {
    case prover::WitnessProcess::Kind::kAny:
      return nullptr;
    case prover::WitnessProcess::Kind::kUnknown:
      return "(unknown)";
    case prover::WitnessProcess::Kind::kUntrusted:
      return "(deleted)";
    case prover::WitnessProcess::Kind::kNamed:
      break;
  }
  return process.exe;
}

nlohmann::json WitnessJson(const prover::Witness& witness) {
  nlohmann::json out{
      {"layer", prover::LayerText(witness.layer)}, {"process", ProcessJson(witness.process)}, {"text", witness.Text()}};
  if (witness.process.sha256) out["process_sha256"] = Hex(*witness.process.sha256);
  if (!witness.process.ancestor.empty()) out["ancestor"] = witness.process.ancestor;
  if (witness.layer == prover::Layer::kUnix) {
    out["path"] = witness.path;
    return out;
  }
  out["host"] = witness.host.empty() && witness.address ? witness.address->ToString() : witness.host;
  out["ip"] = witness.address ? nlohmann::json(witness.address->ToString()) : nlohmann::json(nullptr);
  if (witness.layer == prover::Layer::kDns) {
    out["dns_type"] = policy::DnsTypeText(witness.dns_type);
    return out;
  }
  out["port"] = witness.port;
  if (witness.layer != prover::Layer::kHttp) return out;
  out["scheme"] = witness.scheme == policy::Scheme::kHttps ? "https" : "http";
  out["method"] = witness.method;
  out["path"] = witness.path;
  out["query"] = witness.query;
  out["headers"] = nlohmann::json::array();
  for (const auto& [name, value] : witness.headers) out["headers"].push_back({{"name", name}, {"value", value}});
  if (witness.operation) out["operation"] = policy::VerbText(*witness.operation);
  return out;
}

nlohmann::json RegionJson(const prover::Region& region) {
  nlohmann::json out{{"text", region.Text()}};
  for (const prover::RegionField& field : region.fields) {
    out[field.name] = field.values;
    if (!field.except.empty()) out["except"][field.name] = field.except;
  }
  return out;
}

nlohmann::json RuleJson(const policy::Snapshot& policy, policy::RuleRef ref, const std::string& name) {
  nlohmann::json out{{"rule", nullptr}, {"file", name}, {"line", 0}};
  if (const auto* info = policy.rule(ref))
    out = {{"rule", fmt::format("{}: {}", info->allow ? "allow" : "deny", info->text)},
           {"id", info->id},
           {"file", info->span.file},
           {"line", info->span.line},
           {"column", info->span.column}};
  return out;
}

nlohmann::json DifferencesJson(const std::vector<prover::Difference>& differences, const policy::Snapshot& here,
                               const policy::Snapshot& there, const std::string& name) {
  nlohmann::json list = nlohmann::json::array();
  for (const prover::Difference& difference : differences) {
    nlohmann::json out = RuleJson(here, difference.rule, name);
    out["region"] = RegionJson(difference.region);
    out["witness"] = WitnessJson(difference.witness);
    out["refused_because"] = policy::ReasonText(difference.refused_because);
    if (there.rule(difference.refused_by) != nullptr) out["refused_by"] = RuleJson(there, difference.refused_by, name);
    list.push_back(std::move(out));
  }
  return list;
}

Result<std::vector<Assertion>> ReadAssertions(const std::vector<std::string>& texts, bool never) {
  std::vector<Assertion> list;
  for (const std::string& text : texts) {
    auto rule = policy::ParseCompact(never ? policy::Effect::kDeny : policy::Effect::kAllow, text);
    if (!rule) return Fail(Code::kInvalid, fmt::format("--{} '{}': {}", never ? "never" : "always", text, rule.error().message));
    rule->span = {never ? "--never" : "--always", 0, 0, 0};
    list.push_back({never, *std::move(rule), text});
  }
  return list;
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
  for (const bool never : {true, false}) {
    auto assertions = ReadAssertions(never ? options.never : options.always, never);
    if (!assertions) return std::unexpected(assertions.error());
    std::ranges::move(*assertions, std::back_inserter(inputs.assertions));
  }
  return inputs;
}

Result<std::vector<PolicyPair>> ReadPairs(const ProveOptions& options) {
  const bool asserts = !options.never.empty() || !options.always.empty();
  if (options.paths.empty()) return Fail(Code::kInvalid, "name the policies: sluice prove BASE HEAD");
  if (!options.base_git.empty()) return PairWithGit(options.base_git, options.paths);
  if (options.paths.size() == 1 || (asserts && options.paths.size() > 2)) return HeadsAlone(options.paths);
  if (options.paths.size() != 2)
    return Fail(Code::kInvalid, "compare two: sluice prove BASE HEAD, or sluice prove --base-git REV FILE...");
  return PairPaths(options.paths[0], options.paths[1]);
}

Remark UnknownRemark(const prover::Proof& proof, const std::string& name, std::string_view question) {
  Remark remark;
  remark.severity = Severity::kError;
  remark.code = proof.replay_failed ? "prover-fault" : "unknown";
  remark.message = fmt::format("unknown: {}: {}", question, proof.why_unknown);
  remark.span = {name, 0, 0, 0};
  remark.identity = question;
  return remark;
}

// One `never` or `always` of the head.
void CheckAssertion(const Assertion& assertion, const Inputs& inputs, PairResult* result) {
  prover::Options options = inputs.prover;
  options.accepted.clear();
  const policy::Snapshot& head = *result->pair.head;
  const prover::Proof proof =
      assertion.never ? prover::CheckNever(head, assertion.rule, options) : prover::CheckAlways(head, assertion.rule, options);
  const std::string text = fmt::format("{}: {}", assertion.never ? "never" : "always", assertion.text);
  nlohmann::json out{{"assert", text}, {"holds", proof.verdict == Verdict::kEqual}};
  if (assertion.rule.span.line != 0) out.update({{"file", assertion.rule.span.file}, {"line", assertion.rule.span.line}});
  if (proof.verdict == Verdict::kUnknown) {
    result->unknown = true;
    out["holds"] = nullptr;
    result->remarks.push_back(UnknownRemark(proof, result->pair.name, fmt::format("`{}`", text)));
  }
  const auto& broken = assertion.never ? proof.gains : proof.losses;
  for (const prover::Difference& difference : broken) {
    Remark remark;
    remark.severity = Severity::kError;
    remark.code = assertion.never ? "never-broken" : "always-broken";
    remark.span = assertion.rule.span.line != 0 ? assertion.rule.span : SourceSpan{result->pair.name, 0, 0, 0};
    const std::string witness = difference.witness.Text();
    remark.details.emplace_back("witness", witness);
    remark.identity = fmt::format("{}\n{}", text, witness);
    if (const auto* rule = head.rule(assertion.never ? difference.rule : difference.refused_by)) {
      remark.message =
          fmt::format("`{}` does not hold: {} {}", text, QuotedRule(*rule), assertion.never ? "lets it out" : "refuses it");
      remark.related.emplace_back("rule at", rule->span);
    } else {
      remark.message = fmt::format("`{}` does not hold: {}", text,
                                   assertion.never ? "`mode: audit` lets it out" : Why(difference.refused_because));
    }
    out["witnesses"].push_back(WitnessJson(difference.witness));
    result->remarks.push_back(std::move(remark));
    result->broken = true;
  }
  result->assertions.push_back(std::move(out));
}

policy::SnapshotPtr Nothing(const std::string& name) { return *policy::LoadText("version: 1\n", name); }

PairResult ProvePair(PolicyPair pair, const Inputs& inputs) {
  PairResult result;
  if (pair.base == nullptr) pair.base = Nothing(pair.name);
  const bool gone = pair.head == nullptr;
  if (gone) pair.head = Nothing(pair.name);
  result.pair = std::move(pair);
  const policy::Snapshot& base = *result.pair.base;
  const policy::Snapshot& head = *result.pair.head;
  result.proof = prover::Compare(base, head, inputs.prover);
  for (const auto& gain : result.proof.gains)
    result.remarks.push_back(DifferenceRemark(gain, head, base, result.pair.name, true));
  for (const auto& loss : result.proof.losses)
    result.remarks.push_back(DifferenceRemark(loss, base, head, result.pair.name, false));
  if (result.proof.verdict == Verdict::kUnknown)
    result.remarks.push_back(UnknownRemark(result.proof, result.pair.name, "whether the policy widens"));
  if (gone) return result;
  for (const policy::Assertion& own : head.assertions())
    CheckAssertion({own.kind == policy::Assertion::Kind::kNever, own.rule, own.info.text}, inputs, &result);
  for (const Assertion& assertion : inputs.assertions) CheckAssertion(assertion, inputs, &result);
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

struct Outcome {
  Verdict verdict = Verdict::kEqual;
  size_t gains = 0;
  size_t losses = 0;
  size_t broken = 0;
  bool unknown = false;

  [[nodiscard]] int exit_code() const {
    if (unknown) return kExitUnknown;
    return gains != 0 || broken != 0 ? kExitWidened : kExitOk;
  }
};

Outcome Sum(const std::vector<PairResult>& results) {
  Outcome outcome;
  for (const PairResult& result : results) {
    outcome.gains += result.proof.gains.size();
    outcome.losses += result.proof.losses.size();
    outcome.broken += result.broken ? 1 : 0;
    outcome.unknown |= result.unknown || result.proof.verdict == Verdict::kUnknown;
  }
  if (outcome.unknown) {
    outcome.verdict = Verdict::kUnknown;
  } else if (outcome.gains != 0) {
    outcome.verdict = outcome.losses != 0 ? Verdict::kIncomparable : Verdict::kWidened;
  } else if (outcome.losses != 0) {
    outcome.verdict = Verdict::kNarrowed;
  }
  return outcome;
}

std::string Count(size_t number, std::string_view noun, std::string_view plural) {
  return fmt::format("{} {}", number, number == 1 ? noun : plural);
}

std::string Summary(const Outcome& outcome) {
  std::string text = fmt::format("{}, {}: {}", Count(outcome.gains, "gain", "gains"), Count(outcome.losses, "loss", "losses"),
                                 prover::VerdictText(outcome.verdict));
  if (outcome.broken != 0) text += "; an assertion does not hold";
  return text;
}

std::string JsonReport(const std::vector<PairResult>& results, const Outcome& outcome, const std::vector<Remark>& others) {
  nlohmann::json out{{"verdict", prover::VerdictText(outcome.verdict)},
                     {"gains", nlohmann::json::array()},
                     {"losses", nlohmann::json::array()},
                     {"assertions", nlohmann::json::array()},
                     {"policies", nlohmann::json::array()},
                     {"remarks", nlohmann::json::array()}};
  for (const PairResult& result : results) {
    const auto& [name, base, head] = result.pair;
    for (auto& gain : DifferencesJson(result.proof.gains, *head, *base, name)) out["gains"].push_back(gain);
    for (auto& loss : DifferencesJson(result.proof.losses, *base, *head, name)) out["losses"].push_back(loss);
    for (const auto& assertion : result.assertions) out["assertions"].push_back(assertion);
    nlohmann::json policy{{"file", name},
                          {"verdict", prover::VerdictText(result.proof.verdict)},
                          {"base_digest", base->digest()},
                          {"head_digest", head->digest()}};
    if (!result.proof.why_unknown.empty()) policy["unknown"] = result.proof.why_unknown;
    out["policies"].push_back(std::move(policy));
  }
  for (const Remark& remark : others)
    out["remarks"].push_back({{"severity", SeverityText(remark.severity)},
                              {"code", remark.code},
                              {"message", remark.message},
                              {"file", remark.span.file},
                              {"line", remark.span.line}});
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void PrintReport(ReportFormat format, const std::vector<PairResult>& results, const Outcome& outcome,
                 const std::vector<Remark>& others) {
  std::vector<Remark> all;
  for (const PairResult& result : results) std::ranges::copy(result.remarks, std::back_inserter(all));
  std::ranges::copy(others, std::back_inserter(all));
  // A reviewer of a change is asked about what it opens; what it closes is only told where people read the whole.
  std::vector<Remark> open;
  std::ranges::copy_if(all, std::back_inserter(open), [](const Remark& remark) { return remark.code != "narrowed"; });
  std::string text;
  switch (format) {
    case ReportFormat::kText:
      for (const Remark& remark : all) text += RemarkText(remark, StdoutHasColor());
      text += Summary(outcome) + "\n";
      break;
    case ReportFormat::kJson:
      text = JsonReport(results, outcome, others);
      break;
    case ReportFormat::kSarif:
      text = SarifLog(open, kCodes);
      break;
    case ReportFormat::kGithub:
      text = GithubCommands(open, kCodes) + Summary(outcome) + "\n";
      break;
    case ReportFormat::kMarkdown:
      text = Markdown("Policy reach: " + std::string(prover::VerdictText(outcome.verdict)), Summary(outcome), all);
      break;
  }
  fmt::print("{}", text);
  std::fflush(stdout);
}

int Report(const Error& error) {
  fmt::print(stderr, "{}\n", policy::RenderError(error, StderrHasColor()));
  return kExitBadInput;
}

}  // namespace

int RunProve(const ProveOptions& options) {
  auto inputs = ReadInputs(options);
  if (!inputs) return Report(inputs.error());
  auto pairs = ReadPairs(options);
  if (!pairs) return Report(pairs.error());
  std::vector<PairResult> results;
  for (PolicyPair& pair : *pairs) results.push_back(ProvePair(std::move(pair), *inputs));
  const Outcome outcome = Sum(results);
  std::vector<Remark> others = std::move(inputs->remarks);
  std::ranges::move(UnusedAcceptances(*inputs, results), std::back_inserter(others));
  PrintReport(options.format, results, outcome, others);
  return outcome.exit_code();
}

}  // namespace sluice::app
