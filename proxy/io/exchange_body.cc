// ExchangeJudge where a rule asks for what the body says: the body read under bounds, the policy asked again, and a refused push
// told in git's own words.

#include <fmt/format.h>

#include <utility>

#include "proxy/body/asked.h"
#include "proxy/body/push_report.h"
#include "proxy/io/exchange_judge.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

constexpr size_t kRefsAskedAlone = 256;  // of a refused push; it has a rule for each at most

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

Fault ExchangeJudge::FeedBody(std::string_view bytes) {
  size_t& held = flow_.worker().held_bodies;
  if (held + bytes.size() > kMaxHeldBodies) return {503, "too many bodies wait to be judged"};
  held += bytes.size();
  reader_->Feed(bytes);
  return {};
}

void ExchangeJudge::ReleaseHeld() {
  if (reader_ == nullptr) return;
  flow_.worker().held_bodies -= reader_->held().size();
  reader_.reset();
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
  readings_ = &body_;
  asked_ = AskedOf(body_);
  return Decide(candidate_);
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
