// HttpSession where the upstream speaks HTTP/2 alone: the same exchange through a leg, bodies without their coding between.

#include <fmt/format.h>

#include <algorithm>

#include "proxy/io/h2_upstream.h"
#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

Task<std::optional<DialFailure>> HttpSession::ObtainLeg() {
  Worker& worker = flow_.worker();
  std::string key = judge_.pool_key();
  DialTarget target = judge_.dial();
  AddressJudge judge = judge_.ForDialling();
  std::function<bool(std::optional<IpAddress>)> usable = [this](std::optional<IpAddress> address) {
    return judge_.Usable(address);
  };
  auto obtained = co_await proxy::Obtain(worker, flow_.waiter, std::move(key), judge_.scheme(), std::move(target), nullptr,
                                         std::move(judge), std::move(usable));
  if (!obtained) co_return std::move(obtained.error());
  if (obtained->shared != nullptr) {
    leg_ = std::make_unique<H2Leg>(std::move(obtained->shared), flow_.waiter);
  } else {
    upstream_ = std::move(obtained->own);
  }
  co_return std::nullopt;
}

Task<HttpSession::After> HttpSession::ForwardOverLeg() {
  flow_.dialled = judge_.upstream_address = leg_->address();
  ResetExchange();
  request_pipe_.Reset();
  request_pipe_.ended = body_read_ && !held_pending_;
  response_pipe_.Reset();
  const std::string target = judge_.ForUpstream();
  leg_->Begin(judge_.request, {target, judge_.host_field(), judge_.framing, &judge_.edits});
  const After after = co_await CarryOverLeg();
  const bool sent = leg_->sent();
  leg_.reset();
  flow_.waiter.ClearPoke();
  if (failure_.empty()) {
    judge_.RecordExchange({}, response_.status);
    co_return keep_&& body_read_&& sent ? After::kNextRequest : After::kLinger;
  }
  if (after != After::kNextRequest || response_started_) {
    judge_.RecordExchange(failure_, response_started_ ? response_.status : 0);
    flow_.down.Close(Stream::How::kReset);
    co_return After::kClosed;
  }
  DialFailure lost;
  lost.status = exchange_fault_.status != 0 ? exchange_fault_.status : uint16_t{502};
  lost.proxy_error = lost.status == 400   ? "http_request_error"
                     : lost.status == 504 ? "http_response_timeout"
                                          : "http_protocol_error";
  lost.detail = lost.status == 400 ? std::string(failure_) : fmt::format("{} answered with {}", judge_.host_field(), failure_);
  judge_.request.close = true;
  co_return co_await RefuseUpstream(std::move(lost));
}

// From the client's bytes into the pipe, its coding taken off.
Fault HttpSession::FillRequestPipe() {
  if (held_pending_) {
    request_pipe_.bytes.Append(judge_.held());
    judge_.ReleaseHeld();
    held_pending_ = false;
    if (body_read_ && judge_.framing.kind == BodyKind::kChunked)
      request_pipe_.trailer_lines = std::move(request_chunks_.trailers());
    request_pipe_.ended = body_read_;
  }
  while (!body_read_ && !in_.empty() && request_pipe_.bytes.size() < kHighWater) {
    if (judge_.framing.kind == BodyKind::kLength) {
      const size_t n = std::min<uint64_t>(request_left_, in_.size());
      request_pipe_.bytes.Append(in_.view().substr(0, n));
      in_.Consume(n);
      request_left_ -= n;
      body_read_ = request_left_ == 0;
    } else {
      const auto step = request_chunks_.Next(in_.view());
      if (!step) return step.error();
      request_pipe_.bytes.Append(step->data);
      in_.Consume(step->consumed);
      body_read_ = request_chunks_.done();
      if (body_read_) request_pipe_.trailer_lines = std::move(request_chunks_.trailers());
    }
    request_pipe_.ended = body_read_;
  }
  return {};
}

HttpSession::Pump HttpSession::PumpRequestOverLeg(Waits* waits) {
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (exchange_fault_ = FillRequestPipe(); exchange_fault_) {
      failure_ = exchange_fault_.why;
      return Pump::kFailed;
    }
    judge_.bytes_up += leg_->Send(&request_pipe_);
    if (body_read_ || request_pipe_.bytes.size() >= kHighWater) return body_read_ ? Pump::kDone : Pump::kBlocked;
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

void HttpSession::DeliverHead(const Framing& framing) {
  const Version client = judge_.request.version;
  if (response_.status < 200) {
    if (client == Version::k11 && (response_.status != 100 || judge_.request.expect_continue))
      AppendInterimHead(&out_, response_);
    return;
  }
  const bool measured = framing.kind == BodyKind::kNone || framing.kind == BodyKind::kLength;
  response_out_ = measured ? framing.kind : client == Version::k11 ? BodyKind::kChunked : BodyKind::kUntilClose;
  keep_ = judge_.request.persistent() && response_out_ != BodyKind::kUntilClose;
  response_trailer_ = response_.trailer;
  AppendResponseHead(&out_, response_, {{response_out_, framing.length}, client, keep_ ? Keep::kKeepAlive : Keep::kClose});
  response_started_ = true;
}

HttpSession::Pump HttpSession::PumpResponseOverLeg(Waits* waits) {
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (out_.size() < kHighWater && !response_read_) {
      Framing framing;
      const auto got = leg_->Receive(&response_, &framing, &response_pipe_);
      if (got == UpstreamLeg::Got::kFailed) {
        exchange_fault_ = leg_->failure().fault;
        failure_ = exchange_fault_.why;
        return Pump::kFailed;
      }
      if (got == UpstreamLeg::Got::kInterim || got == UpstreamLeg::Got::kHead) DeliverHead(framing);
      judge_.bytes_down += response_pipe_.bytes.size();
      if (response_out_ == BodyKind::kChunked) {
        AppendChunk(&out_, response_pipe_.bytes.view());
      } else {
        out_.Append(response_pipe_.bytes.view());
      }
      response_pipe_.bytes.Clear();
      if (got == UpstreamLeg::Got::kEnd) {
        if (response_out_ == BodyKind::kChunked) AppendLastChunk(&out_, response_pipe_.trailer_lines, response_trailer_);
        response_read_ = true;
      }
      if (got == UpstreamLeg::Got::kNothing && out_.empty()) return Pump::kBlocked;
    }
    if (out_.empty()) {
      if (response_read_) return Pump::kDone;
      continue;
    }
    const Io io = flow_.down.Write(out_.view());
    if (io.status == IoStatus::kWouldBlock) {
      waits->down |= flow_.down.write_needs;
      return Pump::kBlocked;
    }
    if (io.status != IoStatus::kOk) {
      failure_ = "the client went away";
      flow_.down.channel.ready |= kBroken;
      return Pump::kFailed;
    }
    out_.Consume(io.n);
  }
  return Pump::kMore;
}

// As Carry.
Task<HttpSession::After> HttpSession::CarryOverLeg() {
  Reactor& reactor = flow_.worker().reactor();
  Channel& down = flow_.down.channel;
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  for (;;) {
    Waits waits;
    const Pump up = PumpRequestOverLeg(&waits);
    if (up == Pump::kFailed) co_return exchange_fault_ ? After::kNextRequest : After::kClosed;
    const Pump answer = PumpResponseOverLeg(&waits);
    if (answer == Pump::kDone) co_return After::kNextRequest;
    if (answer == Pump::kFailed || (down.ready & kBroken) != 0) {
      const bool client_left = (down.ready & kBroken) != 0;
      if (client_left) failure_ = "the client went away";
      co_return client_left ? After::kClosed : After::kNextRequest;
    }
    const bool half_closed = (down.ready & kPeerDone) != 0;
    const bool waiting_for_client = !body_read_ && (waits.down & kReadable) != 0 && !response_started_;
    const auto idle = (waits.down & kWritable) != 0 ? std::chrono::milliseconds(kWriteStuck)
                      : waiting_for_client          ? deadlines.request_body_idle
                      : half_closed                 ? std::chrono::milliseconds(kHalfClosedIdle)
                                                    : std::chrono::milliseconds(kResponseIdle);
    const SteadyTime deadline = std::min<SteadyTime>(reactor.now() + idle, judge_.started + deadlines.exchange);
    Wake wake = Wake::kReady;
    if (up == Pump::kMore || answer == Pump::kMore) {
      wake = co_await flow_.waiter.Yield(deadline);
    } else {
      if (!half_closed) waits.down |= kPeerDone;
      wake = co_await flow_.waiter.Wait({&down, waits.down}, leg_->Wants(), deadline);
    }
    if (wake == Wake::kReady) continue;
    failure_ = wake == Wake::kCancelled ? "closed by a change of policy" : "no answer in time";
    exchange_fault_ = {504, failure_};
    co_return wake == Wake::kCancelled ? After::kClosed : After::kNextRequest;
  }
}

}  // namespace sluice::proxy
