// Policies, decisions and proofs of the C interface: values in, values out.

#include <cstddef>
#include <nlohmann/json.hpp>

#include "app/explain.h"
#include "app/proof_json.h"
#include "app/question.h"
#include "base/clock.h"
#include "library/handles.h"
#include "policy/io/load.h"
#include "prover/prove.h"

namespace {

using sluice::Code;
using sluice::Fail;
using sluice::Result;
using sluice::library::Guard;

constexpr uint64_t kProofSteps = 4'000'000;

// A policy with what is asked of it often made once.
std::unique_ptr<sluice_policy> Hold(sluice::policy::SnapshotPtr snapshot) {
  auto policy = std::make_unique<sluice_policy>();
  policy->digest = snapshot->digest();
  policy->snapshot = std::move(snapshot);
  return policy;
}

Result<sluice::app::Asker> AskerOf(const sluice_policy& policy, const sluice_question& question) {
  sluice::app::Asker asker;
  asker.snapshot = policy.snapshot;
  asker.now = sluice::SystemClock().Wall();
  if (question.ip != nullptr && !(asker.address = sluice::IpAddress::Parse(question.ip)))
    return Fail(Code::kInvalid, std::string("`ip` is no address: ") + question.ip);
  if (question.by != nullptr) {
    auto process = sluice::app::ProcessNamed(question.by, *policy.snapshot);
    if (!process) return std::unexpected(process.error());
    asker.process = *std::move(process);
  }
  if (question.at != nullptr) {
    const auto at = sluice::app::ParseInstant(question.at);
    if (!at) return std::unexpected(at.error());
    asker.now = *at;
  }
  return asker;
}

int32_t VerdictOf(sluice::prover::Verdict verdict) {
  switch (verdict) {
    case sluice::prover::Verdict::kEqual:
      return SLUICE_EQUAL;
    case sluice::prover::Verdict::kNarrowed:
      return SLUICE_NARROWED;
    case sluice::prover::Verdict::kWidened:
      return SLUICE_WIDENED;
    case sluice::prover::Verdict::kIncomparable:
      return SLUICE_INCOMPARABLE;
    case sluice::prover::Verdict::kUnknown:
      break;
  }
  return SLUICE_UNKNOWN;
}

}  // namespace

sluice_code sluice_policy_from_file(const char* path, sluice_policy** policy, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (path == nullptr || policy == nullptr) return Fail(Code::kInvalid, "sluice_policy_from_file: an argument is NULL");
    auto snapshot = sluice::policy::LoadFile(path);
    if (!snapshot) return std::unexpected(snapshot.error());
    auto made = Hold(*std::move(snapshot));
    made->file = path;
    *policy = made.release();
    return {};
  });
}

sluice_code sluice_policy_from_text(const char* text, size_t size, const char* name, sluice_policy** policy,
                                    sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if ((text == nullptr && size != 0) || policy == nullptr)
      return Fail(Code::kInvalid, "sluice_policy_from_text: an argument is NULL");
    std::string given(text == nullptr ? "" : text, size);
    auto snapshot = sluice::policy::LoadText(given, name == nullptr ? "policy" : name);
    if (!snapshot) return std::unexpected(snapshot.error());
    auto made = Hold(*std::move(snapshot));
    made->text = std::move(given);
    *policy = made.release();
    return {};
  });
}

const char* sluice_policy_digest(const sluice_policy* policy) noexcept { return policy == nullptr ? "" : policy->digest.c_str(); }
size_t sluice_policy_rules(const sluice_policy* policy) noexcept {
  return policy == nullptr ? 0 : policy->snapshot->rules().size();
}
void sluice_policy_free(sluice_policy* policy) noexcept { delete policy; }

sluice_code sluice_decide(const sluice_policy* policy, const sluice_question* question, sluice_decision** decision,
                          sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    const auto asked = sluice::library::TakeStruct(question, offsetof(sluice_question, at) + sizeof(char*));
    if (!asked) return std::unexpected(asked.error());
    if (policy == nullptr || decision == nullptr || asked->question == nullptr)
      return Fail(Code::kInvalid, "sluice_decide: an argument is NULL");
    const auto asker = AskerOf(*policy, *asked);
    if (!asker) return std::unexpected(asker.error());
    const auto answer = sluice::app::Ask(*asker, asked->question);
    // Its place is in the question, which is no file.
    if (!answer) return Fail(answer.error().code, answer.error().message);
    auto made = std::make_unique<sluice_decision>();
    made->allowed = answer->decision.allowed;
    if (const auto* rule = policy->snapshot->rule(answer->decision.rule)) made->rule = rule->id;
    made->json = sluice::app::AnswerJson(*asker, *answer).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    *decision = made.release();
    return {};
  });
}

int32_t sluice_decision_allowed(const sluice_decision* decision) noexcept {
  return decision != nullptr && decision->allowed ? 1 : 0;
}
const char* sluice_decision_rule(const sluice_decision* decision) noexcept {
  return decision == nullptr ? "" : decision->rule.c_str();
}
const char* sluice_decision_json(const sluice_decision* decision) noexcept {
  return decision == nullptr ? "" : decision->json.c_str();
}
void sluice_decision_free(sluice_decision* decision) noexcept { delete decision; }

sluice_code sluice_prove(const sluice_policy* base, const sluice_policy* head, uint64_t steps, int32_t* verdict,
                         sluice_text** proof, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (base == nullptr || head == nullptr || verdict == nullptr)
      return Fail(Code::kInvalid, "sluice_prove: an argument is NULL");
    sluice::prover::Verdict proved = sluice::prover::Verdict::kUnknown;
    const auto json = sluice::app::ProofJson("policy", base->snapshot, head->snapshot, steps == 0 ? kProofSteps : steps, &proved);
    if (proof != nullptr) {
      auto text = std::make_unique<sluice_text>();
      text->text = json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
      *proof = text.release();
    }
    *verdict = VerdictOf(proved);
    return {};
  });
}
