// ExchangeJudge and bodies: read under bounds where a rule asks for what they say, the policy asked again, a refused push told in
// git's own words; searched, changed and counted on their way.

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "policy/compiled.h"
#include "proxy/body/asked.h"
#include "proxy/body/push_report.h"
#include "proxy/chunked.h"
#include "proxy/credential/secret.h"
#include "proxy/credential/sigv4.h"
#include "proxy/io/exchange_judge.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

constexpr size_t kRefsAskedAlone = 256;  // of a refused push; it has a rule for each at most
constexpr std::string_view kTooManyHeld = "too many bodies wait to be judged";

}  // namespace

void ExchangeJudge::ReadBody() {
  reading_body_ = true;
  body_kinds_ |= decision_.body_needed;
  std::optional<uint64_t> length;
  if (framing.kind != BodyKind::kChunked) length = framing.length;
  auto reader = std::make_unique<BodyReader>(
      body_kinds_, BodyContext{.method = request.method, .headers = views_, .query = target_.query, .length = length});
  if (reader_ != nullptr) reader->Resume(std::move(*reader_));
  reader_ = std::move(reader);
}

bool ExchangeJudge::Hold(size_t bytes, size_t* counted) {
  size_t& all = flow_.worker().held_bodies;
  if (bytes > kMaxHeldBodies - all) return false;
  all += bytes;
  *counted += bytes;
  return true;
}

void ExchangeJudge::LetGo(size_t* counted) { flow_.worker().held_bodies -= std::exchange(*counted, 0); }

Fault ExchangeJudge::FeedBody(std::string_view bytes) {
  if (!Hold(bytes.size(), &counted_held_)) return {503, kTooManyHeld};
  reader_->Feed(bytes);
  return {};
}

void ExchangeJudge::ReleaseHeld() {
  LetGo(&counted_held_);
  reader_.reset();
  collected_.reset();
}

void ExchangeJudge::ReleaseReadings() {
  LetGo(&counted_readings_);
  if (readings_ == nullptr) return;
  body_ = {};
  readings_ = nullptr;
  // Whether a policy that comes now would allow what the body said is not known any more.
  reading_body_ = true;
}

ExchangeJudge::Verdict ExchangeJudge::DecideOnBody() {
  if (reader_->state() == BodyReader::State::kMore) reader_->Finish();
  // A policy that came meanwhile may read the body in other ways, or not at all.
  if (decided_generation_ != flow_.worker().generation()) {
    const Verdict verdict = Decide(candidate_);
    if (verdict != Verdict::kNeedsBody) {
      reading_body_ = false;
      return verdict;
    }
    if ((decision_.body_needed & ~body_kinds_) != 0) return verdict;
  }
  reading_body_ = false;
  body_too_large_ = reader_->too_large();
  push_capabilities_ = reader_->push_capabilities();
  body_ = reader_->Take();
  if (!Hold(MemoryOf(body_), &counted_readings_)) {
    body_ = {};
    crowded_ = true;
    return Verdict::kDeny;
  }
  readings_ = &body_;
  asked_ = AskedOf(body_);
  return Decide(candidate_);
}

std::optional<Denial> ExchangeJudge::CollectBody(std::string_view bytes) {
  if (!collected_) {
    collected_ = reader_ != nullptr ? reader_->TakeHeld() : std::string();
    reader_.reset();
  }
  if (framing.length > kMaxSignedBody || collected_->size() + bytes.size() > kMaxSignedBody)
    return DenialFor(
        CredentialFailure{413, policy::Reason::kLimit, "a body of more than 4 MiB, over which the signature must be computed"});
  if (!Hold(bytes.size(), &counted_held_))
    return DenialFor(CredentialFailure{503, policy::Reason::kLimit, std::string(kTooManyHeld)});
  *collected_ += bytes;
  return std::nullopt;
}

std::optional<Denial> ExchangeJudge::SignBody() {
  std::optional<CredentialFailure> failure;
  if (credential_->has_body_work()) {
    std::string looked_at;
    failure = credential_->Body(*collected_, &looked_at);
  }
  if (!failure) failure = credential_->Sign(*collected_);
  if (failure) return DenialFor(*std::move(failure));
  TakeEdits();
  // The body is here, and whole.
  edits.removed.emplace_back("expect");
  return std::nullopt;
}

Framing ExchangeJudge::FramingOut() const {
  if (collected_) return {BodyKind::kLength, collected_->size()};
  const bool measured = framing.kind == BodyKind::kLength && framing.length != 0;
  if (measured && credential_ != nullptr && credential_->changes_length()) return {BodyKind::kChunked, 0};
  return framing;
}

Fault ExchangeJudge::CountUp(uint64_t bytes) {
  bytes_up += bytes;
  if (bytes_up > flow_.worker().shared().options().max_body_bytes) return {413, "a request body that is too large"};
  return {};
}

Fault ExchangeJudge::CountDown(uint64_t bytes) {
  bytes_down += bytes;
  if (bytes_down > flow_.worker().shared().options().max_body_bytes) return {502, "a response body that is too large"};
  return {};
}

std::expected<std::string_view, Fault> ExchangeJudge::PassBody(std::string_view piece, BodyPart part) {
  if (const Fault fault = CountUp(piece.size())) return std::unexpected(fault);
  if (!changes_body()) return piece;
  Wipe(&passed_);
  if (astray_ = credential_->Body(piece, &passed_); astray_) return std::unexpected(Fault{403, "a stand-in in the body"});
  if (part == BodyPart::kLast) credential_->FinishBody(&passed_);
  return passed_;
}

void ExchangeJudge::DropJudgedTrailers(std::string* lines) const {
  if (lines->empty()) return;
  std::vector<std::string> judged;
  for (const policy::Rule& rule : flow_.worker().snapshot()->compiled().rules)
    for (const policy::ValueMatcher& matcher : rule.headers) judged.push_back(matcher.key);
  DropNamed(lines, judged);
}

Fault ExchangeJudge::PassTrailers(std::string* lines) {
  DropJudgedTrailers(lines);
  if (credential_ == nullptr) return {};
  if (astray_ = credential_->Trailers(lines); astray_) return {403, "a stand-in in the trailers"};
  return {};
}

Fault ExchangeJudge::PassResponseHead(ResponseHead* head, const Framing& response_framing) {
  if (response_framing.length > flow_.worker().shared().options().max_body_bytes)
    return {502, "a response body that is too large"};
  if (credential_ == nullptr) return {};
  credential_->Answered(head->status, flow_.worker().reactor().now());
  credential_->Redact(head);
  return {};
}

void ExchangeJudge::RedactTrailers(std::string* lines) {
  if (credential_ != nullptr) credential_->RedactTrailers(lines);
}

// A client that waits for a report of its push would show nothing of a 403.
bool ExchangeJudge::RefusesPush(const Denial& denial) const {
  return denial.status == 403 && readings_ != nullptr && body_.push && body_.push->readable() && !body_.push->items.empty() &&
         WantsPushReport(push_capabilities_);
}

void ExchangeJudge::AnswerPush(Denial* denial) const {
  const std::string denied = fmt::format("denied by policy ({})", denial->id);
  const std::string unharmed = fmt::format("not pushed, since another ref is denied ({})", denial->id);
  std::vector<RefusedRef> refs;
  policy::RequestBody alone;
  policy::RequestQuery query = Query(std::nullopt);
  query.body = &alone;
  for (const policy::RefUpdate& item : body_.push->items) {
    bool allowed = false;
    if (body_.push->items.size() > 1 && refs.size() < kRefsAskedAlone) {
      alone.push = {{item}, {}};
      allowed = flow_.worker().snapshot()->DecideRequest(query).allowed;
    }
    refs.push_back({item.ref, allowed ? unharmed : denied});
  }
  denial->answer = PushReport(push_capabilities_, refs, DenialBody(*denial, DenialForm::kText));
  denial->answer_type = kPushReportType;
  denial->status = 200;
}

}  // namespace sluice::proxy
