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
  std::optional<Denial> denial = co_await judge_.UseCredential(flow_.waiter, upstream_->address);
  if (flow_.waiter.cancelled()) {
    if (!denial) judge_.RecordExchange("closed meanwhile", 0);
    co_return After::kClosed;
  }
  if (denial) co_return co_await RefuseCredential(std::move(*denial));
  ExchangeCredential* credential = judge_.credential();
  if (credential->needs_body()) {
    const std::optional<After> ended = co_await CollectBody();
    if (ended) co_return ended;
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
  if (judge_.request.expect_continue) {
    out_.Append("HTTP/1.1 100 Continue\r\n\r\n");
    const bool flushed = co_await Flush(flow_.worker().reactor().now() + kWriteStuck);
    if (!flushed) co_return After::kClosed;
  }
  collected_.emplace();
  for (bool whole = false; !whole;) {
    while (has_piece() && !whole) {
      const auto piece = NextPiece();
      if (!piece) {
        judge_.request.close = true;
        co_return co_await Refuse(judge_.DenialFor(piece.error()));
      }
      if (collected_->size() + piece->data.size() > kMaxSignedBody)
        co_return co_await RefuseCredential(judge_.DenialFor(too_large()));
      collected_->append(piece->data);
      whole = piece->ended;
      Took(*piece);
    }
    if (whole) break;
    const SteadyTime deadline = flow_.worker().reactor().now() + flow_.worker().shared().options().deadlines.request_body_idle;
    const Io io = flow_.down.Read(in_.Prepare(kReadPiece));
    if (io.status == IoStatus::kOk) {
      in_.Commit(io.n);
      continue;
    }
    Wake wake = Wake::kCancelled;
    if (io.status == IoStatus::kWouldBlock)
      wake = co_await flow_.waiter.Wait({&flow_.down.channel, flow_.down.read_needs}, deadline);
    if (wake == Wake::kReady) continue;
    judge_.RecordExchange("the client went away in the middle of its request", 0);
    co_return After::kClosed;
  }
  co_return std::nullopt;
}

Fault HttpSession::MoveChangedBody() {
  ExchangeCredential& credential = *judge_.credential();
  while (!body_read_ && has_piece() && up_out_.size() < kHighWater) {
    const auto piece = NextPiece();
    if (!piece) return piece.error();
    judge_.bytes_up += piece->data.size();
    changed_.clear();
    if (astray_ = credential.Body(piece->data, &changed_); astray_) return {403, "a stand-in in the body"};
    const bool ended = piece->ended;
    if (ended) credential.FinishBody(&changed_);
    Took(*piece);
    if (request_out_.kind == BodyKind::kChunked) {
      AppendChunk(&up_out_, changed_);
      if (ended) AppendLastChunk(&up_out_, request_chunks_.trailers(), judge_.request.trailer);
    } else {
      up_out_.Append(changed_);
    }
    Wipe(&changed_);
    body_read_ = ended;
  }
  return {};
}

}  // namespace sluice::proxy
