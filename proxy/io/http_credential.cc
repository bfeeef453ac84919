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
  if (judge_.request.expect_continue) {
    out_.Append("HTTP/1.1 100 Continue\r\n\r\n");
    const bool flushed = co_await Flush(flow_.worker().reactor().now() + kWriteStuck);
    if (!flushed) co_return After::kClosed;
  }
  collected_.emplace();
  ChunkedDecoder chunks;
  uint64_t left = judge_.framing.length;
  for (bool whole = false; !whole;) {
    while (!in_.empty() && !whole) {
      std::string_view data = in_.view();
      size_t consumed = 0;
      if (judge_.framing.kind == BodyKind::kLength) {
        data = data.substr(0, std::min<uint64_t>(left, data.size()));
        consumed = data.size();
        left -= consumed;
        whole = left == 0;
      } else {
        const auto step = chunks.Next(data);
        if (!step) {
          judge_.request.close = true;
          co_return co_await Refuse(judge_.DenialFor(step.error()));
        }
        data = step->data;
        consumed = step->consumed;
        whole = chunks.done();
      }
      if (collected_->size() + data.size() > kMaxSignedBody) co_return co_await RefuseCredential(judge_.DenialFor(too_large()));
      collected_->append(data);
      in_.Consume(consumed);
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
    judge_.bytes_up += data.size();
    changed_.clear();
    if (astray_ = credential.Body(data, &changed_); astray_) return {403, "a stand-in in the body"};
    if (ended) credential.FinishBody(&changed_);
    in_.Consume(consumed);
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
