// Credentials in HttpSession: the head is edited once the connection is there, bodies pass through what looks for stand-ins.

#include <algorithm>

#include "proxy/credential/secret.h"
#include "proxy/credential/sigv4.h"
#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

Task<HttpSession::After> HttpSession::RefuseCredential(Denial denial) {
  upstream_.reset();
  // What was read of the body is gone: nothing that follows is known to be a request.
  if (judge_.has_body()) judge_.request.close = true;
  co_return co_await Refuse(std::move(denial));
}

Task<std::optional<HttpSession::After>> HttpSession::UseCredential() {
  astray_.reset();
  std::optional<Denial> denial = co_await judge_.UseCredential(flow_.waiter, upstream_->known_address());
  if (flow_.waiter.cancelled()) {
    if (!denial) judge_.RecordExchange("closed meanwhile", 0);
    co_return After::kClosed;
  }
  if (denial) co_return co_await RefuseCredential(std::move(*denial));
  ExchangeCredential* credential = judge_.credential();
  if (credential->needs_body()) {
    const std::optional<After> ended = co_await CollectBody();
    if (ended) co_return ended;
    if (credential->has_body_work()) {
      std::string looked_at;
      std::optional<CredentialFailure> astray = credential->Body(*collected_, &looked_at);
      if (astray) co_return co_await RefuseCredential(judge_.DenialFor(std::move(*astray)));
    }
    denial = judge_.SignBody(*collected_);
    if (denial) co_return co_await RefuseCredential(std::move(*denial));
    judge_.edits.removed.emplace_back("expect");
    request_out_ = {BodyKind::kLength, collected_->size()};
  }
  if (credential->changes_length() && request_out_.kind == BodyKind::kLength) request_out_ = {BodyKind::kChunked, 0};
  co_return std::nullopt;
}

// A signature over the body stands in the head, so the body is read first. Once: another connection gets the same.
Task<std::optional<HttpSession::After>> HttpSession::CollectBody() {
  const auto too_large = [] {
    return CredentialFailure{413, policy::Reason::kLimit, "a body of more than 4 MiB, over which the signature must be computed"};
  };
  if (collected_) co_return std::nullopt;
  if (judge_.framing.length > kMaxSignedBody) co_return co_await RefuseCredential(judge_.DenialFor(too_large()));
  collected_.emplace(judge_.held());
  held_pending_ = false;
  judge_.ReleaseHeld();
  const bool asked = body_read_ || co_await Continue();
  if (!asked) co_return After::kClosed;
  for (;;) {
    while (!in_.empty() && !body_read_) {
      std::string_view data = in_.view();
      size_t consumed = 0;
      if (judge_.framing.kind == BodyKind::kLength) {
        data = data.substr(0, std::min<uint64_t>(request_left_, data.size()));
        consumed = data.size();
        request_left_ -= consumed;
        body_read_ = request_left_ == 0;
      } else {
        const auto step = request_chunks_.Next(data);
        if (!step) {
          judge_.request.close = true;
          co_return co_await Refuse(judge_.DenialFor(step.error()));
        }
        data = step->data;
        consumed = step->consumed;
        body_read_ = request_chunks_.done();
      }
      if (collected_->size() + data.size() > kMaxSignedBody) co_return co_await RefuseCredential(judge_.DenialFor(too_large()));
      collected_->append(data);
      in_.Consume(consumed);
    }
    if (collected_->size() > kMaxSignedBody) co_return co_await RefuseCredential(judge_.DenialFor(too_large()));
    if (body_read_) co_return std::nullopt;
    const BodyWait more = co_await ReadMore(judge_.started + flow_.worker().shared().options().deadlines.exchange);
    if (more == BodyWait::kGot) continue;
    judge_.RecordExchange("the client went away in the middle of its request", 0);
    co_return After::kClosed;
  }
}

// One piece of the body, through what looks for stand-ins.
Fault HttpSession::ChangePiece(std::string_view data, BodyPart part) {
  ExchangeCredential& credential = *judge_.credential();
  judge_.bytes_up += data.size();
  if (judge_.bytes_up > flow_.worker().shared().options().max_body_bytes) return {413, "a request body that is too large"};
  changed_.clear();
  if (astray_ = credential.Body(data, &changed_); astray_) return {403, "a stand-in in the body"};
  const bool ended = part == BodyPart::kLast;
  if (ended) credential.FinishBody(&changed_);
  if (request_out_.kind == BodyKind::kChunked) {
    AppendChunk(&up_out_, changed_);
    if (ended) AppendLastChunk(&up_out_, request_chunks_.trailers(), judge_.request.trailer);
  } else {
    up_out_.Append(changed_);
  }
  Wipe(&changed_);
  return {};
}

Fault HttpSession::MoveChangedBody() {
  while (held_pending_ && up_out_.size() < kHighWater) {
    const std::string_view rest = judge_.held().substr(held_sent_);
    const std::string_view piece = rest.substr(0, kReadPiece);
    const bool last = piece.size() == rest.size();
    if (const Fault fault = ChangePiece(piece, last && body_read_ ? BodyPart::kLast : BodyPart::kInside)) return fault;
    held_sent_ += piece.size();
    if (!last) continue;
    held_pending_ = false;
    judge_.ReleaseHeld();
  }
  if (held_pending_) return {};
  while (!body_read_ && !in_.empty() && up_out_.size() < kHighWater) {
    std::string_view data = in_.view().substr(0, kReadPiece);
    size_t consumed = data.size();
    bool ended = false;
    if (judge_.framing.kind == BodyKind::kLength) {
      data = data.substr(0, std::min<uint64_t>(request_left_, data.size()));
      consumed = data.size();
      request_left_ -= consumed;
      ended = request_left_ == 0;
    } else {
      const auto step = request_chunks_.Next(data);
      if (!step) return step.error();
      data = step->data;
      consumed = step->consumed;
      ended = request_chunks_.done();
    }
    if (const Fault fault = ChangePiece(data, ended ? BodyPart::kLast : BodyPart::kInside)) return fault;
    in_.Consume(consumed);
    body_read_ = ended;
  }
  return {};
}

}  // namespace sluice::proxy
