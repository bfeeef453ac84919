// HttpSession where a body must be read before it is forwarded: held, judged, and sent on in front of the rest.

#include <algorithm>

#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

void HttpSession::BeginBody() {
  request_chunks_.Reset();
  request_left_ = judge_.framing.length;
  body_read_ = !judge_.has_body();
  held_pending_ = false;
  held_sent_ = 0;
}

Task<std::expected<ExchangeJudge::Verdict, Fault>> HttpSession::ReadJudgedBody() {
  const SteadyTime deadline = flow_.worker().reactor().now() + kJudgedBodyDeadline;
  auto verdict = ExchangeJudge::Verdict::kNeedsBody;
  bool begun = false;
  while (verdict == ExchangeJudge::Verdict::kNeedsBody) {
    judge_.ReadBody();
    while (judge_.wants_body() && !body_read_) {
      begun = true;
      while (!in_.empty() && judge_.wants_body() && !body_read_) {
        const auto piece = NextPiece();
        if (!piece) co_return std::unexpected(piece.error());
        if (const Fault fault = judge_.FeedBody(piece->data)) co_return std::unexpected(fault);
        Took(*piece);
      }
      if (!judge_.wants_body() || body_read_) break;
      if (!co_await Continue()) co_return std::unexpected(Fault{});
      const BodyWait more = co_await ReadMore(deadline);
      if (more == BodyWait::kLate) co_return std::unexpected(Fault{408, "a request body that did not arrive in time"});
      if (more == BodyWait::kLeft) co_return std::unexpected(Fault{});
    }
    verdict = judge_.DecideOnBody();
  }
  // What the client expected has happened: its body is on the way.
  if (begun) {
    for (Field& field : judge_.request.fields) field.forward &= field.id != FieldId::kExpect;
    judge_.request.expect_continue = false;
  }
  held_pending_ = judge_.has_body();
  co_return verdict;
}

std::expected<HttpSession::Piece, Fault> HttpSession::NextPiece() {
  if (held_pending_) {
    const std::string_view rest = judge_.held().substr(held_sent_);
    const std::string_view data = rest.substr(0, kReadPiece);
    return Piece{data, data.size(), body_read_ && data.size() == rest.size()};
  }
  const std::string_view come = in_.view().substr(0, kReadPiece);
  if (judge_.framing.kind == BodyKind::kLength) {
    const std::string_view data = come.substr(0, request_left_);
    return Piece{data, data.size(), data.size() == request_left_};
  }
  const auto step = request_chunks_.Next(come);
  if (!step) return std::unexpected(step.error());
  return Piece{step->data, step->consumed, request_chunks_.done()};
}

void HttpSession::Took(const Piece& piece) {
  if (held_pending_) {
    held_sent_ += piece.consumed;
    if (held_sent_ < judge_.held().size()) return;
    held_pending_ = false;
    judge_.ReleaseHeld();
    return;
  }
  in_.Consume(piece.consumed);
  if (judge_.framing.kind == BodyKind::kLength) request_left_ -= piece.data.size();
  body_read_ = piece.last;
}

// A client that waits to be asked for its body is asked, once.
Task<bool> HttpSession::Continue() {
  if (!judge_.request.expect_continue) co_return true;
  judge_.request.expect_continue = false;
  if (judge_.request.version != Version::k11) co_return true;
  out_.Append("HTTP/1.1 100 Continue\r\n\r\n");
  const SteadyTime deadline = flow_.worker().reactor().now() + flow_.worker().shared().options().deadlines.write_stuck;
  co_return co_await Flush(deadline);
}

Task<HttpSession::BodyWait> HttpSession::ReadMore(SteadyTime deadline) {
  Worker& worker = flow_.worker();
  for (;;) {
    const Io io = flow_.down.Read(in_.Prepare(kReadPiece));
    if (io.status == IoStatus::kOk) {
      in_.Commit(io.n);
      co_return BodyWait::kGot;
    }
    if (io.status != IoStatus::kWouldBlock) co_return BodyWait::kLeft;
    const SteadyTime idle = worker.reactor().now() + worker.shared().options().deadlines.request_body_idle;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, flow_.down.read_needs}, std::min(idle, deadline));
    if (wake == Wake::kCancelled) co_return BodyWait::kLeft;
    if (wake != Wake::kReady) co_return BodyWait::kLate;
  }
}

// Reads the rest of the body and drops it. False: the client left, or stopped.
Task<bool> HttpSession::DrainBody() {
  const SteadyTime deadline = judge_.started + flow_.worker().shared().options().deadlines.exchange;
  held_pending_ = false;
  for (size_t dropped = 0; !body_read_;) {
    while (!in_.empty() && !body_read_) {
      const auto piece = NextPiece();
      if (!piece) co_return false;
      Took(*piece);
      dropped += piece->consumed;
    }
    if (body_read_) break;
    if (dropped > kLingerBytes / 64) {
      dropped = 0;
      const Wake turn = co_await flow_.waiter.Yield(deadline);
      if (turn != Wake::kReady) co_return false;
    }
    const auto more = co_await ReadMore(deadline);
    if (more != BodyWait::kGot) co_return false;
  }
  co_return true;
}

}  // namespace sluice::proxy
