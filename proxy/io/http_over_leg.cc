// HttpSession where the upstream speaks HTTP/2 alone: the same exchange through a leg, bodies without their coding between.

#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

void HttpSession::BeginOverLeg(std::string_view target) {
  request_pipe_.Reset();
  request_pipe_.ended = body_read_ && !held_pending_;
  response_pipe_.Reset();
  if (judge_.upgrade == policy::Upgrade::kNone) {
    leg_->Begin(judge_.request, {target, judge_.host_field(), request_out_, &judge_.edits});
    return;
  }
  judge_.PrepareWebSocket(&offer_);
  leg_->BeginWebSocket(judge_.request, offer_, {target, judge_.host_field(), {}, &judge_.edits});
}

HttpSession::Pump HttpSession::PumpRequestOverLeg(Waits* waits) {
  // What a WebSocket's client sends already waits for the answer.
  if (judge_.upgrade != policy::Upgrade::kNone) return Pump::kDone;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (exchange_fault_ = MoveRequestBody(); exchange_fault_) {
      failure_ = exchange_fault_.why;
      return Pump::kFailed;
    }
    (void)leg_->Send(&request_pipe_);
    if (request_pipe_.bytes.size() >= kHighWater) {
      waits->up |= kWritable;
      return Pump::kBlocked;
    }
    if (BodyIsThere()) continue;
    if (body_read_) return Pump::kDone;
    if (const Pump read = ReadBodyPiece(waits); read != Pump::kMore) return read;
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
      exchange_fault_ = judge_.CountDown(response_pipe_.bytes.size());
      const bool switched = got == UpstreamLeg::Got::kSwitched;
      if (switched || got == UpstreamLeg::Got::kInterim || got == UpstreamLeg::Got::kHead) {
        if (!exchange_fault_) exchange_fault_ = judge_.PassResponseHead(&response_, framing);
        if (!exchange_fault_ && switched) TakeSwitchOverLeg();
        if (!exchange_fault_ && !switched) DeliverHead(framing);
      }
      if (exchange_fault_) {
        failure_ = exchange_fault_.why;
        return Pump::kFailed;
      }
      if (response_out_ == BodyKind::kChunked) {
        AppendChunk(&out_, response_pipe_.bytes.view());
      } else {
        out_.Append(response_pipe_.bytes.view());
      }
      response_pipe_.bytes.Clear();
      if (got == UpstreamLeg::Got::kEnd) {
        judge_.RedactTrailers(&response_pipe_.trailer_lines);
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

}  // namespace sluice::proxy
