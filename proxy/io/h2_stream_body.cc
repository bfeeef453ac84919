// The request's body in H2Stream: read where it must be judged or signed, and sent on.

#include <algorithm>

#include "proxy/io/h2_connection.h"
#include "proxy/io/h2_stream.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

void H2Stream::TakeCome(size_t n) {
  if (n == 0) return;
  request_.bytes.Consume(n);
  connection_.session().Consume(id_, n);
  if (!connection_.flow().waiter.cancelled()) connection_.Flush();
}

Task<bool> H2Stream::AwaitBody(SteadyTime deadline) {
  Continue();
  const SteadyTime idle = judge_.Deadline(ExchangeJudge::Awaited::kRequestBody);
  carrying_ = true;
  const Wake wake = co_await waiter_.Wait({}, std::min(idle, deadline));
  carrying_ = false;
  if (wake == Wake::kReady) co_return true;
  if (wake == Wake::kCancelled) {
    Leave();
  } else {
    const Fault late{408, "a request body that did not arrive in time"};
    co_await RefuseFault(late);
  }
  co_return false;
}

void H2Stream::Continue() {
  if (!judge_.request.expect_continue) return;
  judge_.request.expect_continue = false;
  output_.Reset(0);
  output_.Add(":status", "100");
  connection_.session().Interim(id_, output_);
  connection_.Flush();
}

Task<std::optional<ExchangeJudge::Verdict>> H2Stream::ReadJudgedBody() {
  const SteadyTime deadline = connection_.flow().worker().reactor().now() + kJudgedBodyDeadline;
  auto verdict = ExchangeJudge::Verdict::kNeedsBody;
  bool begun = false;
  while (verdict == ExchangeJudge::Verdict::kNeedsBody) {
    judge_.ReadBody();
    while (judge_.wants_body()) {
      begun = true;
      if (const Fault fault = judge_.FeedBody(request_.bytes.view())) {
        co_await RefuseFault(fault);
        co_return std::nullopt;
      }
      TakeCome(request_.bytes.size());
      if (request_.ended || !judge_.wants_body()) break;
      const bool come = co_await AwaitBody(deadline);
      if (!come) co_return std::nullopt;
    }
    verdict = judge_.DecideOnBody();
  }
  // What the client expected has happened: its body is on the way.
  if (begun) {
    for (Field& field : judge_.request.fields) field.forward &= field.id != FieldId::kExpect;
    judge_.request.expect_continue = false;
  }
  co_return verdict;
}

Task<bool> H2Stream::UseCredential() {
  const std::optional<IpAddress> address = leg_->address();
  std::optional<Denial> denial = co_await judge_.UseCredential(waiter_, address);
  waiter_.ClearPoke();
  if (waiter_.cancelled()) {
    // A denial has its record.
    if (!denial) Leave();
    if (denial) ResetStream(kH2Cancel);
    co_return false;
  }
  if (!denial && !judge_.credential()->needs_body()) co_return true;
  if (!denial) {
    const bool whole = co_await CollectBody();
    co_return whole;
  }
  co_await Refuse(std::move(*denial));
  co_return false;
}

Task<bool> H2Stream::CollectBody() {
  const SteadyTime deadline = connection_.flow().worker().reactor().now() + kJudgedBodyDeadline;
  // What was judged is its beginning.
  std::optional<Denial> denial = judge_.CollectBody({});
  while (!denial) {
    denial = judge_.CollectBody(request_.bytes.view());
    TakeCome(request_.bytes.size());
    if (denial || request_.ended) break;
    const bool come = co_await AwaitBody(deadline);
    if (!come) co_return false;
  }
  if (!denial) denial = judge_.SignBody();
  if (!denial) co_return true;
  co_await Refuse(std::move(*denial));
  co_return false;
}

Fault H2Stream::FillChanged() {
  while (!changed_.ended && changed_.bytes.size() < kHighWater) {
    const std::string_view held = judge_.held().substr(held_sent_);
    const std::string_view all = held.empty() ? request_.bytes.view() : held;
    const std::string_view piece = all.substr(0, kReadPiece);
    const bool last = request_.ended && piece.size() == all.size() && (held.empty() || request_.bytes.empty());
    if (piece.empty() && !last) return {};
    const auto passed = judge_.PassBody(piece, last ? ExchangeJudge::BodyPart::kLast : ExchangeJudge::BodyPart::kInside);
    if (!passed) return passed.error();
    changed_.bytes.Append(*passed);
    if (last) {
      changed_.trailer_lines = request_.trailer_lines;
      if (const Fault fault = judge_.PassTrailers(&changed_.trailer_lines)) return fault;
      changed_.ended = true;
    }
    if (held.empty()) {
      TakeCome(piece.size());
      continue;
    }
    held_sent_ += piece.size();
    if (held_sent_ < judge_.held().size()) continue;
    held_sent_ = 0;
    judge_.ReleaseHeld();
  }
  return {};
}

Fault H2Stream::SendBody() {
  if (judge_.upgrade != policy::Upgrade::kNone) {
    // The head alone: what a WebSocket's client sends already waits for the answer.
    (void)leg_->Send(&changed_);
    return {};
  }
  if (through_changed_) {
    const Fault fault = FillChanged();
    if (!fault) (void)leg_->Send(&changed_);
    return fault;
  }
  const size_t sent = leg_->Send(&request_);
  if (sent == 0) return {};
  connection_.session().Consume(id_, sent);
  connection_.Flush();
  return judge_.CountUp(sent);
}

bool H2Stream::BodyWaits() const {
  if (!through_changed_ || judge_.upgrade != policy::Upgrade::kNone || changed_.ended || changed_.bytes.size() >= kHighWater)
    return false;
  return request_.ended || !judge_.held().empty() || !request_.bytes.empty();
}

Task<bool> H2Stream::DropRest() {
  dropping_ = true;
  TakeCome(request_.bytes.size());
  carrying_ = true;
  while (!request_.ended) {
    const SteadyTime deadline = judge_.Deadline(ExchangeJudge::Awaited::kRequestBody);
    const Wake wake = co_await waiter_.Wait({}, deadline);
    if (wake != Wake::kReady) {
      carrying_ = false;
      co_return false;
    }
  }
  carrying_ = false;
  dropped_ = 0;
  co_return true;
}

}  // namespace sluice::proxy
