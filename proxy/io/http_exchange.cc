// The upstream side of HttpSession: obtain a connection, stream the request up and the response down, finish.

#include <fmt/format.h>

#include <algorithm>

#include "proxy/io/h2_upstream.h"
#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
bool HttpSession::MayRetry() const {
  if (!judge_.may_repeat() || response_started_ || flow_.waiter.cancelled()) return false;
  if (leg_ != nullptr) return leg_->failure().untouched;
  return upstream_ != nullptr && upstream_->reused && !response_bytes_seen_;
}

Task<HttpSession::After> HttpSession::Forward() {
  for (bool fresh = false;; fresh = true) {
    // A pooled connection that turns out dead is replaced by a new one, once.
    if (fresh) flow_.worker().pool().Drop(judge_.pool_key());
    judge_.upstream_address.reset();
    std::optional<DialFailure> failure;
    if (!TakeIdle()) failure = co_await Obtain(fresh ? UpstreamAsk::Reuse::kFresh : UpstreamAsk::Reuse::kAny);
    if (failure) {
      if (flow_.waiter.cancelled()) {
        judge_.RecordExchange("closed meanwhile", 0);
        co_return After::kClosed;
      }
      co_return co_await RefuseUpstream(std::move(*failure));
    }
    flow_.dialled = judge_.upstream_address = leg_ != nullptr ? leg_->address() : upstream_->known_address();
    request_out_ = judge_.framing;
    if (judge_.uses_credentials()) {
      const std::optional<After> ended = co_await UseCredential();
      if (ended) co_return *ended;
    }
    BeginExchange();
    const After after = co_await Carry();
    if (failure_.empty() && switched_) co_return co_await CarryWebSocket();
    if (failure_.empty()) co_return FinishExchange();
    if (after == After::kNextRequest && !fresh && MayRetry()) {
      DropUpstream();
      continue;
    }
    DropUpstream();
    if (after != After::kNextRequest || response_started_) {
      judge_.RecordCut(failure_, response_started_ ? response_.status : 0);
      flow_.down.Close(Stream::How::kReset);
      co_return After::kClosed;
    }
    judge_.request.close = true;
    Denial denial = judge_.DenialForLost({exchange_fault_.status, failure_});
    co_return co_await Refuse(std::move(denial));
  }
}

void HttpSession::DropUpstream() {
  upstream_.reset();
  if (leg_ == nullptr) return;
  leg_.reset();
  flow_.waiter.ClearPoke();
}

// This client's own connection, or an idle one, where nothing need be waited for.
bool HttpSession::TakeIdle() {
  const UsableJudge usable = [this](std::optional<IpAddress> address) { return judge_.Usable(address); };
  if (UpstreamPtr own = std::move(own_);
      own != nullptr && own_key_ == judge_.pool_key() && IsIdle(*own) && usable(own->known_address())) {
    upstream_ = std::move(own);
    upstream_->reused = true;
    return true;
  }
  if (prepared_ != nullptr) return false;
  upstream_ = flow_.worker().pool().Take(judge_.pool_key(), usable);
  return upstream_ != nullptr;
}

Task<std::optional<DialFailure>> HttpSession::Obtain(UpstreamAsk::Reuse reuse) {
  Worker& worker = flow_.worker();
  UpstreamAsk ask{.key = judge_.pool_key(),
                  .scheme = judge_.scheme(),
                  .target = judge_.dial(),
                  .judge = judge_.ForDialling(),
                  .usable = [this](std::optional<IpAddress> address) { return judge_.Usable(address); },
                  .reuse = reuse};
  // It was made before it was known which way this request takes.
  if (prepared_ != nullptr && Fits(*prepared_, ask.target) && ask.usable(prepared_->known_address()))
    ask.ready = std::move(prepared_);
  prepared_.reset();
  auto obtained = co_await ObtainHttp11(worker, flow_.waiter, std::move(ask));
  if (!obtained) co_return std::move(obtained.error());
  upstream_ = std::move(obtained->own);
  if (obtained->shared == nullptr) co_return std::nullopt;
  if (judge_.upgrade != policy::Upgrade::kNone) {
    auto failure = co_await AwaitWebSockets(worker, flow_.waiter, obtained->shared);
    if (failure) co_return failure;
  }
  leg_ = std::make_unique<H2Leg>(std::move(obtained->shared), flow_.waiter);
  co_return std::nullopt;
}

void HttpSession::BeginExchange() {
  const std::string target = judge_.ForUpstream();
  ResetExchange();
  if (leg_ != nullptr) {
    BeginOverLeg(target);
    return;
  }
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
}

void HttpSession::ResetExchange() {
  response_chunks_.Reset();
  response_trailer_.clear();
  redacted_.clear();
  judge_.bytes_up = judge_.bytes_down = 0;
  response_left_ = 0;
  response_resume_ = 0;
  interims_ = 0;
  request_sent_ = upload_broken_ = response_bytes_seen_ = response_started_ = response_read_ = false;
  upstream_reusable_ = keep_ = switched_ = false;
  exchange_fault_ = {};
  failure_ = {};
}

ExchangeJudge::Awaited HttpSession::WaitsFor(const Waits& waits) const {
  using Awaited = ExchangeJudge::Awaited;
  if ((waits.up & kWritable) != 0) return Awaited::kRequestTaken;
  if ((waits.down & kWritable) != 0) return Awaited::kResponseTaken;
  if (!body_read_ && (waits.down & kReadable) != 0 && !response_started_) return Awaited::kRequestBody;
  return response_head_since_ ? Awaited::kResponseHead : Awaited::kResponse;
}

// kNextRequest with failure_ set means that a response can still be sent in place of the one that failed.
Task<HttpSession::After> HttpSession::Carry() {
  using Awaited = ExchangeJudge::Awaited;
  Reactor& reactor = flow_.worker().reactor();
  Channel& down = flow_.down.channel;
  response_head_since_.reset();
  for (;;) {
    Waits waits;
    const Pump up = leg_ != nullptr ? PumpRequestOverLeg(&waits) : PumpRequest(&waits);
    if (up == Pump::kFailed) co_return exchange_fault_ ? After::kNextRequest : After::kClosed;
    const Pump answer = leg_ != nullptr ? PumpResponseOverLeg(&waits) : PumpResponse(&waits);
    if (answer == Pump::kDone) co_return After::kNextRequest;
    if (answer == Pump::kFailed || (down.ready & kBroken) != 0) {
      const bool client_left = (down.ready & kBroken) != 0;
      if (client_left) failure_ = "the client went away";
      co_return client_left ? After::kClosed : After::kNextRequest;
    }
    // Over HTTP/2 a head is there whole or not at all.
    const bool in_head = leg_ == nullptr && !response_started_ && !upstream_->in.empty();
    if (!in_head) response_head_since_.reset();
    if (in_head && !response_head_since_) response_head_since_ = reactor.now();
    const Awaited awaited = WaitsFor(waits);
    const bool half_closed = (down.ready & kPeerDone) != 0;
    const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
    SteadyTime deadline = judge_.CarryDeadline(awaited);
    if (half_closed && (awaited == Awaited::kResponse || awaited == Awaited::kResponseHead))
      deadline = std::min<SteadyTime>(deadline, reactor.now() + deadlines.half_closed_idle);
    if (in_head) deadline = std::min(deadline, *response_head_since_ + deadlines.head);
    Wake wake = Wake::kReady;
    if (up == Pump::kMore || answer == Pump::kMore) {
      wake = co_await flow_.waiter.Yield(deadline);
    } else {
      if (!half_closed) waits.down |= kPeerDone;
      const Waiter::On upstream = leg_ != nullptr ? leg_->Wants() : Waiter::On{&upstream_->stream.channel, waits.up};
      wake = co_await flow_.waiter.Wait({&down, waits.down}, upstream, deadline);
    }
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kCancelled) {
      failure_ = "closed by a change of policy";
      co_return After::kClosed;
    }
    exchange_fault_ = judge_.TimedOut(awaited);
    failure_ = exchange_fault_.why;
    co_return After::kNextRequest;
  }
}

bool HttpSession::MayPassAsTheyAre() const {
  return leg_ == nullptr && !held_pending_ && judge_.framing.kind == BodyKind::kLength && !judge_.changes_body();
}

// One piece of the body, to wherever the upstream takes it from.
Fault HttpSession::PutPiece(const Piece& piece) {
  const auto passed = judge_.PassBody(piece.data, piece.last ? ExchangeJudge::BodyPart::kLast : ExchangeJudge::BodyPart::kInside);
  if (!passed) return passed.error();
  std::string& trailers = request_chunks_.trailers();
  if (piece.last && judge_.framing.kind == BodyKind::kChunked)
    if (const Fault fault = judge_.PassTrailers(&trailers)) return fault;
  if (leg_ != nullptr) {
    request_pipe_.bytes.Append(*passed);
    request_pipe_.ended = piece.last;
    if (piece.last && judge_.framing.kind == BodyKind::kChunked) {
      DropUnannounced(&trailers, judge_.request.trailer);
      request_pipe_.trailer_lines = std::move(trailers);
    }
  } else if (request_out_.kind == BodyKind::kChunked) {
    AppendChunk(&up_out_, *passed);
    if (piece.last) AppendLastChunk(&up_out_, trailers, judge_.request.trailer);
  } else {
    up_out_.Append(*passed);
  }
  return {};
}

Fault HttpSession::MoveRequestBody() {
  Buffer& out = leg_ != nullptr ? request_pipe_.bytes : up_out_;
  while (BodyIsThere() && out.size() < kHighWater) {
    // What fits beside the head rides with it; the rest is written from where it lies.
    if (MayPassAsTheyAre() && (out.empty() || out.size() + std::min<uint64_t>(request_left_, in_.size()) > kReadPiece)) return {};
    const auto piece = NextPiece();
    if (!piece) return piece.error();
    if (const Fault fault = PutPiece(*piece)) return fault;
    Took(*piece);
  }
  return {};
}

HttpSession::Pump HttpSession::ReadBodyPiece(Waits* waits) {
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
  return Pump::kMore;
}

HttpSession::Pump HttpSession::PumpRequest(Waits* waits) {
  if (request_sent_) return Pump::kDone;
  Stream& up = upstream_->stream;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (exchange_fault_ = MoveRequestBody(); exchange_fault_) {
      failure_ = exchange_fault_.why;
      return Pump::kFailed;
    }
    const bool direct = up_out_.empty() && !body_read_ && !in_.empty() && MayPassAsTheyAre();
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
    if (const Pump read = ReadBodyPiece(waits); read != Pump::kMore) return read;
  }
  return Pump::kMore;
}

Fault HttpSession::TakeResponseHead(size_t size) {
  Buffer& in = upstream_->in;
  response_bytes_seen_ = true;
  if (const Fault fault = ParseResponseHead(in.span().first(size), &response_)) return fault;
  const auto framing = ResponseFraming(response_, judge_.request.method);
  if (!framing) return framing.error();
  if (const Fault fault = judge_.PassResponseHead(&response_, *framing)) return fault;
  if (upstream_->proxy_login != nullptr) RedactHead(*upstream_->proxy_login, &response_, &redacted_);
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
  judge_.RedactTrailers(&response_chunks_.trailers());
  if (upstream_->proxy_login != nullptr) RedactLines(*upstream_->proxy_login, &response_chunks_.trailers());
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
    if (const Fault fault = judge_.CountDown(data.size())) return fault;
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

// A long body goes on by several records at a time, as far as they are here already.
bool HttpSession::Gathers() const {
  const Stream& up = upstream_->stream;
  const bool more = up.HasReadAhead() || (up.channel.ready & kReadable) != 0;
  return more && upstream_->in.size() < std::min<uint64_t>(response_left_, kHighWater);
}

HttpSession::Pump HttpSession::PumpResponse(Waits* waits) {
  Stream& up = upstream_->stream;
  Buffer& in = upstream_->in;
  bool dry = false;  // no more has come than is here
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (exchange_fault_ = MoveResponse(); exchange_fault_) {
      failure_ = exchange_fault_.why;
      return Pump::kFailed;
    }
    const bool direct = out_.empty() && response_started_ && !response_read_ && !in.empty() && (dry || !Gathers());
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
    if (!dry && response_started_ && !in.empty()) {
      dry = true;
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
  if (leg_ != nullptr) {
    const bool whole = body_read_ && leg_->sent();
    leg_->Finish();
    DropUpstream();
    return keep_ && whole ? After::kNextRequest : After::kLinger;
  }
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
