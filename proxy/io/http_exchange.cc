// The upstream side of HttpSession: obtain a connection, stream the request up and the response down, finish.

#include <fmt/format.h>

#include <algorithm>

#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
bool HttpSession::MayRetry() const {
  return upstream_ != nullptr && upstream_->reused && !response_bytes_seen_ && judge_.may_repeat() && !flow_.waiter.cancelled();
}

Task<HttpSession::After> HttpSession::Forward() {
  for (bool fresh = false;; fresh = true) {
    // A pooled connection that turns out dead is replaced by a new one, once.
    if (fresh) flow_.worker().pool().Drop(judge_.pool_key());
    judge_.upstream_address.reset();
    std::optional<DialFailure> failure = co_await Obtain();
    if (failure) {
      if (flow_.waiter.cancelled()) {
        judge_.RecordExchange("closed meanwhile", 0);
        co_return After::kClosed;
      }
      co_return co_await RefuseUpstream(std::move(*failure));
    }
    if (leg_ != nullptr && (judge_.uses_credentials() || judge_.upgrade != policy::Upgrade::kNone)) {
      leg_.reset();
      DialFailure refused;
      refused.detail = "the upstream speaks HTTP/2 alone, over which credentials and WebSockets are not carried";
      co_return co_await RefuseUpstream(std::move(refused));
    }
    if (leg_ != nullptr) co_return co_await ForwardOverLeg();
    flow_.dialled = judge_.upstream_address = upstream_->known_address();
    request_out_ = judge_.framing;
    if (judge_.uses_credentials()) {
      const std::optional<After> ended = co_await UseCredential();
      if (ended) co_return *ended;
    }
    BeginExchange();
    const After after = co_await Carry();
    if (failure_.empty() && switched_) co_return co_await CarryWebSocket();
    if (failure_.empty()) co_return FinishExchange();
    if (astray_ && !response_started_) co_return co_await RefuseCredential(judge_.DenialFor(std::move(*astray_)));
    if (after == After::kNextRequest && !fresh && MayRetry()) {
      upstream_.reset();
      continue;
    }
    if (after != After::kNextRequest || response_started_) {
      judge_.RecordExchange(failure_, response_started_ ? response_.status : 0);
      flow_.down.Close(Stream::How::kReset);
      co_return After::kClosed;
    }
    DialFailure lost;
    lost.status = exchange_fault_.status != 0 ? exchange_fault_.status : uint16_t{502};
    const bool by_client = exchange_fault_.status >= 400 && exchange_fault_.status < 500;
    lost.proxy_error = by_client                       ? "http_request_error"
                       : exchange_fault_.status == 504 ? "http_response_timeout"
                       : exchange_fault_               ? "http_protocol_error"
                                                       : "connection_terminated";
    const DialTarget& dial = judge_.dial();
    const std::string answerer = IsForwarded(dial) ? fmt::format("the upstream proxy {}", dial.via->name) : judge_.host_field();
    lost.detail = by_client ? std::string(failure_) : fmt::format("{} answered with {}", answerer, failure_);
    judge_.request.close = true;
    co_return co_await RefuseUpstream(std::move(lost));
  }
}

Task<std::optional<DialFailure>> HttpSession::Obtain() {
  UpstreamPool& pool = flow_.worker().pool();
  if (judge_.scheme() == policy::Scheme::kHttps && flow_.worker().h2_pool().Known(judge_.pool_key()) == H2Pool::Speaks::kH2Only)
    co_return co_await ObtainLeg();
  const auto usable = [this](const Upstream& upstream) { return judge_.Usable(upstream.known_address()); };
  if (UpstreamPtr own = std::move(own_); own != nullptr && own_key_ == judge_.pool_key() && IsIdle(*own) && usable(*own)) {
    upstream_ = std::move(own);
    upstream_->reused = true;
    co_return std::nullopt;
  }
  // It was made before it was known which way this request takes.
  if (prepared_ != nullptr && (!Fits(*prepared_, judge_.dial()) || !usable(*prepared_))) prepared_.reset();
  if (prepared_ == nullptr) {
    const Upstream* idle = pool.Peek(judge_.pool_key());
    if (idle != nullptr && usable(*idle)) {
      upstream_ = pool.Take(judge_.pool_key());
      co_return std::nullopt;
    }
  }
  upstream_ = std::move(prepared_);
  if (upstream_ == nullptr) {
    AddressJudge judge = judge_.ForDialling();
    DialTarget target = judge_.dial();
    auto dialled = co_await Dial(flow_.worker(), flow_.waiter, std::move(target), std::move(judge));
    if (!dialled) co_return std::move(dialled.error());
    upstream_ = std::move(*dialled);
  }
  if (judge_.scheme() == policy::Scheme::kHttp || upstream_->secured) co_return std::nullopt;
  DialTarget target = judge_.dial();
  auto failure = co_await SecureUpstream(flow_.worker(), flow_.waiter, *upstream_, std::move(target));
  if (!failure) co_return failure;
  upstream_.reset();
  if (!failure->wants_h2) co_return failure;
  flow_.worker().h2_pool().Remember(judge_.pool_key(), H2Pool::Speaks::kH2Only);
  co_return co_await ObtainLeg();
}

void HttpSession::BeginExchange() {
  const std::string target = judge_.ForUpstream();
  up_out_.Clear();
  if (judge_.upgrade == policy::Upgrade::kWebSocket) {
    AskForWebSocket(target);
  } else if (IsForwarded(judge_.dial())) {
    // To a proxy that reads requests: in absolute form, and with what only the proxy is shown.
    HeadEdits edits = judge_.edits;
    if (!upstream_->proxy_authorization.empty()) edits.added.emplace_back("proxy-authorization", upstream_->proxy_authorization);
    AppendRequestHead(&up_out_, judge_.request,
                      {fmt::format("http://{}{}", judge_.host_field(), target), judge_.host_field(), request_out_, &edits});
  } else {
    AppendRequestHead(&up_out_, judge_.request, {target, judge_.host_field(), request_out_, &judge_.edits});
  }
  upstream_->bound |= BindsConnection(judge_.request, "authorization");
  ResetExchange();
}

void HttpSession::ResetExchange() {
  response_chunks_.Reset();
  response_trailer_.clear();
  judge_.bytes_up = judge_.bytes_down = 0;
  response_left_ = 0;
  response_resume_ = 0;
  interims_ = 0;
  if (collected_) {
    up_out_.Append(*collected_);
    judge_.bytes_up = collected_->size();
  }
  request_sent_ = upload_broken_ = response_bytes_seen_ = response_started_ = response_read_ = false;
  upstream_reusable_ = keep_ = switched_ = false;
  exchange_fault_ = {};
  failure_ = {};
}

// Which deadline it was; a whole exchange that is over counts before what it waited for.
Fault HttpSession::TimedOut(const Waits& waits, bool waiting_for_client, bool in_head) const {
  const SteadyTime now = flow_.worker().reactor().now();
  if (now >= judge_.started + flow_.worker().shared().options().deadlines.exchange)
    return {504, "an exchange that took longer than any may"};
  if ((waits.up & kWritable) != 0) return {504, "a request of which it took nothing for too long"};
  if ((waits.down & kWritable) != 0) return {504, "a response of which the client took nothing for too long"};
  if (waiting_for_client) return {408, "a request body of which nothing arrived in time"};
  if (in_head) return {504, "a response head that did not arrive in time"};
  return {504, "no answer in time"};
}

// kNextRequest with failure_ set means that a response can still be sent in place of the one that failed.
Task<HttpSession::After> HttpSession::Carry() {
  Reactor& reactor = flow_.worker().reactor();
  Channel& down = flow_.down.channel;
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  for (;;) {
    Waits waits;
    const Pump up = PumpRequest(&waits);
    if (up == Pump::kFailed) co_return exchange_fault_ ? After::kNextRequest : After::kClosed;
    const Pump answer = PumpResponse(&waits);
    if (answer == Pump::kDone) co_return After::kNextRequest;
    if (answer == Pump::kFailed || (down.ready & kBroken) != 0) {
      const bool client_left = (down.ready & kBroken) != 0;
      if (client_left) failure_ = "the client went away";
      co_return client_left ? After::kClosed : After::kNextRequest;
    }
    const SteadyTime now = reactor.now();
    const bool half_closed = (down.ready & kPeerDone) != 0;
    const bool waiting_for_client = !body_read_ && (waits.down & kReadable) != 0 && !response_started_;
    const bool stuck = ((waits.down | waits.up) & kWritable) != 0;
    const auto idle = stuck                ? deadlines.write_stuck
                      : waiting_for_client ? deadlines.request_body_idle
                      : half_closed        ? std::chrono::milliseconds(kHalfClosedIdle)
                                           : std::chrono::milliseconds(kResponseIdle);
    const bool in_head = !response_started_ && !upstream_->in.empty();
    if (!in_head) response_head_since_.reset();
    if (in_head && !response_head_since_) response_head_since_ = now;
    SteadyTime deadline = std::min<SteadyTime>(now + idle, judge_.started + deadlines.exchange);
    if (in_head) deadline = std::min(deadline, *response_head_since_ + deadlines.head);
    Wake wake = Wake::kReady;
    if (up == Pump::kMore || answer == Pump::kMore) {
      wake = co_await flow_.waiter.Yield(deadline);
    } else {
      if (!half_closed) waits.down |= kPeerDone;
      wake = co_await flow_.waiter.Wait({&down, waits.down}, {&upstream_->stream.channel, waits.up}, deadline);
    }
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kCancelled) {
      failure_ = "closed by a change of policy";
      co_return After::kClosed;
    }
    exchange_fault_ = TimedOut(waits, waiting_for_client, in_head);
    failure_ = exchange_fault_.why;
    co_return After::kNextRequest;
  }
}

Fault HttpSession::MoveRequestBody() {
  if (const auto* credential = judge_.credential(); credential != nullptr && credential->has_body_work())
    return MoveChangedBody();
  if (held_pending_) MoveHeld();
  if (held_pending_) return {};
  while (!body_read_ && !in_.empty() && up_out_.size() < kHighWater) {
    if (judge_.framing.kind == BodyKind::kLength) {
      const size_t n = std::min<uint64_t>(request_left_, in_.size());
      // What fits beside the head rides with it; the rest is written from where it lies.
      if (up_out_.empty() || up_out_.size() + n > kReadPiece) return {};
      up_out_.Append(in_.view().substr(0, n));
      in_.Consume(n);
      request_left_ -= n;
      judge_.bytes_up += n;
      body_read_ = request_left_ == 0;
      continue;
    }
    const auto step = request_chunks_.Next(in_.view());
    if (!step) return step.error();
    AppendChunk(&up_out_, step->data);
    judge_.bytes_up += step->data.size();
    if (judge_.bytes_up > flow_.worker().shared().options().max_body_bytes) return {413, "a request body that is too large"};
    in_.Consume(step->consumed);
    if (!request_chunks_.done()) continue;
    AppendLastChunk(&up_out_, request_chunks_.trailers(), judge_.request.trailer);
    body_read_ = true;
  }
  return {};
}

HttpSession::Pump HttpSession::PumpRequest(Waits* waits) {
  if (request_sent_) return Pump::kDone;
  Stream& up = upstream_->stream;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (exchange_fault_ = MoveRequestBody(); exchange_fault_) {
      failure_ = exchange_fault_.why;
      return Pump::kFailed;
    }
    const bool direct = up_out_.empty() && !body_read_ && !in_.empty();
    if (direct || !up_out_.empty()) {
      const std::string_view bytes =
          direct ? in_.view().substr(0, std::min<uint64_t>(request_left_, in_.size())) : up_out_.view();
      const Io io = up.Write(bytes);
      if (io.status == IoStatus::kWouldBlock) {
        waits->up |= up.write_needs;
        return Pump::kBlocked;
      }
      if (io.status != IoStatus::kOk) {
        // The upstream takes no more, but may have answered before it stopped.
        request_sent_ = upload_broken_ = true;
        return Pump::kDone;
      }
      if (!direct) {
        up_out_.Consume(io.n);
        continue;
      }
      in_.Consume(io.n);
      request_left_ -= io.n;
      judge_.bytes_up += io.n;
      body_read_ = request_left_ == 0;
      continue;
    }
    if (body_read_) {
      request_sent_ = true;
      return Pump::kDone;
    }
    const Io io = flow_.down.Read(in_.Prepare(kReadPiece));
    if (io.status == IoStatus::kWouldBlock) {
      waits->down |= flow_.down.read_needs;
      return Pump::kBlocked;
    }
    if (io.status != IoStatus::kOk) {
      failure_ = "the client went away in the middle of its request";
      return Pump::kFailed;
    }
    in_.Commit(io.n);
  }
  return Pump::kMore;
}

Fault HttpSession::TakeResponseHead(size_t size) {
  Buffer& in = upstream_->in;
  response_bytes_seen_ = true;
  if (const Fault fault = ParseResponseHead(in.span().first(size), &response_)) return fault;
  const auto framing = ResponseFraming(response_, judge_.request.method);
  if (!framing) return framing.error();
  if (framing->length > flow_.worker().shared().options().max_body_bytes) return {502, "a response body that is too large"};
  if (auto* credential = judge_.credential(); credential != nullptr) credential->Redact(&response_);
  if (response_.status < 200) {
    if (response_.status == 101) return TakeSwitch(size);
    if (++interims_ > kMaxInterimResponses) return {502, "too many interim responses"};
    const bool wanted = response_.status != 100 || judge_.request.expect_continue;
    if (judge_.request.version == Version::k11 && wanted) AppendInterimHead(&out_, response_);
    in.Consume(size);
    return {};
  }
  if (response_.status == 407 && IsForwarded(judge_.dial())) {
    // What is idle has been given the same login.
    flow_.worker().pool().Drop(judge_.pool_key());
    return {502, "407: it was shown no login, or does not take the one it was shown"};
  }
  upstream_->bound |= BindsConnection(response_, "www-authenticate");
  response_framing_ = *framing;
  const bool measured = framing->kind == BodyKind::kNone || framing->kind == BodyKind::kLength;
  response_out_ = measured ? framing->kind : judge_.request.version == Version::k11 ? BodyKind::kChunked : BodyKind::kUntilClose;
  upstream_reusable_ = response_.persistent() && framing->kind != BodyKind::kUntilClose;
  keep_ = judge_.request.persistent() && response_out_ != BodyKind::kUntilClose && !upload_broken_;
  if (framing->kind == BodyKind::kChunked) response_trailer_ = response_.trailer;
  AppendResponseHead(&out_, response_,
                     {{response_out_, framing->length}, judge_.request.version, keep_ ? Keep::kKeepAlive : Keep::kClose});
  in.Consume(size);
  response_started_ = true;
  response_left_ = framing->length;
  if (framing->kind == BodyKind::kNone || (framing->kind == BodyKind::kLength && framing->length == 0)) response_read_ = true;
  return {};
}

void HttpSession::FinishResponseBody() {
  if (auto* credential = judge_.credential(); credential != nullptr) credential->RedactLines(&response_chunks_.trailers());
  if (response_out_ == BodyKind::kChunked) AppendLastChunk(&out_, response_chunks_.trailers(), response_trailer_);
  response_read_ = true;
}

Fault HttpSession::MoveResponse() {
  Buffer& in = upstream_->in;
  while (!response_started_) {
    const auto end = FindHeadEnd(in.view(), &response_resume_);
    if (!end) return {502, end.error().why};
    if (*end == 0) return {};
    response_resume_ = 0;
    if (const Fault fault = TakeResponseHead(*end)) return fault;
  }
  while (!response_read_ && !in.empty() && out_.size() < kHighWater) {
    std::string_view data = in.view();
    size_t consumed = data.size();
    if (response_framing_.kind == BodyKind::kLength) {
      data = data.substr(0, std::min<uint64_t>(response_left_, data.size()));
      if (out_.empty() || out_.size() + data.size() > kReadPiece) return {};
      consumed = data.size();
      response_left_ -= consumed;
      response_read_ = response_left_ == 0;
    } else if (response_framing_.kind == BodyKind::kChunked) {
      const auto step = response_chunks_.Next(data);
      if (!step) return {502, step.error().why};
      data = step->data;
      consumed = step->consumed;
    }
    judge_.bytes_down += data.size();
    if (judge_.bytes_down > flow_.worker().shared().options().max_body_bytes) return {502, "a response body that is too large"};
    if (response_out_ == BodyKind::kChunked) {
      AppendChunk(&out_, data);
    } else {
      out_.Append(data);
    }
    in.Consume(consumed);
    if (response_framing_.kind == BodyKind::kChunked && response_chunks_.done()) FinishResponseBody();
  }
  return {};
}

HttpSession::Pump HttpSession::ResponseEnded(IoStatus status) {
  if (response_started_ && response_framing_.kind == BodyKind::kUntilClose && status == IoStatus::kEof) {
    FinishResponseBody();
    return Pump::kMore;
  }
  if (response_started_) {
    failure_ = "a response that was cut short";
  } else {
    failure_ = upstream_->in.empty() ? "nothing: it closed the connection" : "a response head that was cut short";
  }
  return Pump::kFailed;
}

HttpSession::Pump HttpSession::PumpResponse(Waits* waits) {
  Stream& up = upstream_->stream;
  Buffer& in = upstream_->in;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (exchange_fault_ = MoveResponse(); exchange_fault_) {
      failure_ = exchange_fault_.why;
      return Pump::kFailed;
    }
    const bool direct = out_.empty() && response_started_ && !response_read_ && !in.empty();
    if (direct || !out_.empty()) {
      const std::string_view bytes = direct ? in.view().substr(0, std::min<uint64_t>(response_left_, in.size())) : out_.view();
      const Io io = flow_.down.Write(bytes);
      if (io.status == IoStatus::kWouldBlock) {
        waits->down |= flow_.down.write_needs;
        return Pump::kBlocked;
      }
      if (io.status != IoStatus::kOk) {
        failure_ = "the client went away";
        flow_.down.channel.ready |= kBroken;
        return Pump::kFailed;
      }
      if (!direct) {
        out_.Consume(io.n);
        continue;
      }
      in.Consume(io.n);
      response_left_ -= io.n;
      judge_.bytes_down += io.n;
      response_read_ = response_left_ == 0;
      continue;
    }
    if (response_read_) return Pump::kDone;
    const Io io = up.Read(in.Prepare(kReadPiece));
    if (io.status == IoStatus::kOk) {
      in.Commit(io.n);
      response_bytes_seen_ = true;
      continue;
    }
    if (io.status == IoStatus::kWouldBlock) {
      waits->up |= up.read_needs;
      return Pump::kBlocked;
    }
    if (const Pump ended = ResponseEnded(io.status); ended == Pump::kFailed) return ended;
  }
  return Pump::kMore;
}

HttpSession::After HttpSession::FinishExchange() {
  judge_.RecordExchange({}, response_.status);
  const bool complete = body_read_ && request_sent_ && !upload_broken_;
  // Bytes after the response belong to nothing: such a connection is not trusted with another request.
  if (upstream_reusable_ && complete && upstream_->in.empty()) {
    if (upstream_->bound) {
      own_ = std::move(upstream_);
      own_key_ = judge_.pool_key();
    } else {
      flow_.worker().pool().Give(judge_.pool_key(), std::move(upstream_), flow_.worker().reactor().now());
    }
  }
  upstream_.reset();
  return keep_ && complete ? After::kNextRequest : After::kLinger;
}

}  // namespace sluice::proxy
