// Credentials in HttpSession: the head is edited once the connection is there, and where a signature needs the body, that is read
// first.

#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

Task<HttpSession::After> HttpSession::RefuseCredential(Denial denial) {
  upstream_.reset();
  leg_.reset();
  // What was read of the body is gone: nothing that follows is known to be a request.
  if (judge_.has_body()) judge_.request.close = true;
  co_return co_await Refuse(std::move(denial));
}

Task<HttpSession::After> HttpSession::RefuseBody(Fault fault) {
  judge_.RecordExchange(fault.why, fault.status);
  Denial denial = judge_.DenialFor(fault);
  co_return co_await RefuseCredential(std::move(denial));
}

Task<std::optional<HttpSession::After>> HttpSession::UseCredential() {
  const std::optional<IpAddress> address = leg_ != nullptr ? leg_->address() : upstream_->known_address();
  std::optional<Denial> denial = co_await judge_.UseCredential(flow_.waiter, address);
  if (flow_.waiter.cancelled()) {
    if (!denial) judge_.RecordExchange("closed meanwhile", 0);
    co_return After::kClosed;
  }
  if (denial) co_return co_await RefuseCredential(std::move(*denial));
  if (judge_.credential()->needs_body()) {
    const std::optional<After> ended = co_await CollectBody();
    if (ended) co_return ended;
    denial = judge_.SignBody();
    if (denial) co_return co_await RefuseCredential(std::move(*denial));
  }
  request_out_ = judge_.FramingOut();
  co_return std::nullopt;
}

// A signature over the body stands in the head, so the body is read first.
Task<std::optional<HttpSession::After>> HttpSession::CollectBody() {
  const SteadyTime deadline = flow_.worker().reactor().now() + kJudgedBodyDeadline;
  // What was judged is its beginning.
  std::optional<Denial> denial = judge_.CollectBody({});
  held_pending_ = false;
  while (!denial && !body_read_) {
    while (!denial && !in_.empty() && !body_read_) {
      const auto piece = NextPiece();
      if (!piece) co_return co_await RefuseBody(piece.error());
      denial = judge_.CollectBody(piece->data);
      Took(*piece);
    }
    if (denial || body_read_) break;
    const bool asked = co_await Continue();
    const BodyWait more = asked ? co_await ReadMore(deadline) : BodyWait::kLeft;
    if (more == BodyWait::kLate) {
      const Fault late{408, "a request body that did not arrive in time"};
      co_return co_await RefuseBody(late);
    }
    if (more == BodyWait::kLeft) {
      judge_.RecordExchange("the client went away in the middle of its request", 0);
      co_return After::kClosed;
    }
  }
  if (denial) co_return co_await RefuseCredential(std::move(*denial));
  held_pending_ = !judge_.held().empty();
  held_sent_ = 0;
  co_return std::nullopt;
}

}  // namespace sluice::proxy
