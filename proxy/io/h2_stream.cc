#include "proxy/io/h2_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/io/h2_connection.h"
#include "proxy/io/h2_upstream.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

std::string_view SchemeText(policy::Scheme scheme) { return scheme == policy::Scheme::kHttps ? "https" : "http"; }

// gRPC's own streams may rest for long in either direction.
bool IsGrpc(const RequestHead& request) { return H2FormFor(request) == H2DenialForm::kGrpc; }

}  // namespace

H2Stream::H2Stream(H2Connection& connection, int32_t id, uint64_t number, H2Section& section, H2End end)
    : connection_(connection),
      id_(id),
      judge_(connection.flow(), connection.scheme()),
      waiter_(connection.flow().worker().reactor()) {
  judge_.TunnelOnly();
  judge_.Begin(number);
  std::swap(store_.section, section);
  fault_ = ReadRequestSection(&store_, end, SchemeText(connection.scheme()), &judge_.request, &judge_.framing);
}

void H2Stream::Poke() {
  if (carrying_) waiter_.Poke();
}

void H2Stream::OnData(std::string_view bytes) {
  if (dropping_) {
    dropped_ += bytes.size();
    connection_.session().Consume(id_, bytes.size());
    if (dropped_ > kLingerBytes) Poke();
    return;
  }
  request_.bytes.Append(bytes);
  Poke();
}

void H2Stream::OnTrailers(const H2Section& section) { request_.trailer_lines = ReadTrailerSection(section); }

void H2Stream::OnEnd() {
  request_.ended = true;
  Poke();
}

void H2Stream::OnClosed() {
  closed_ = true;
  // A client that has its answer may drop what is left of its request.
  if (response_.ended && response_.bytes.empty()) {
    Poke();
  } else {
    waiter_.CancelSoon();
  }
}

H2Listener::Piece H2Stream::ReadBody(std::span<char> room) {
  const size_t n = std::min(room.size(), response_.bytes.size());
  if (n != 0) {
    std::copy_n(response_.bytes.view().data(), n, room.data());
    response_.bytes.Consume(n);
    sent_down_ += n;
    Poke();
  }
  const bool ended = response_.ended && response_.bytes.empty();
  if (ended) Poke();
  return {n, ended, ended && !response_.trailer_lines.empty() ? &response_.trailer_lines : nullptr};
}

bool H2Stream::StillAllowed() { return judge_.StillAllowed(leg_ != nullptr ? leg_->address() : judge_.upstream_address); }

void H2Stream::Revoke(std::string_view why) {
  revoked_ = true;
  failure_ = why;
  waiter_.CancelSoon();
}

Task<> H2Stream::Run() {
  co_await Exchange();
  leg_.reset();
  // What was not handed on will not be: the connection's window opens again.
  connection_.session().Consume(id_, request_.bytes.size());
  request_.bytes.Release();
  dropping_ = true;
}

Task<> H2Stream::Exchange() {
  if (!fault_) fault_ = judge_.Understand();
  if (fault_) {
    Refuse(judge_.DenialFor(fault_));
    co_await Drain();
    co_return;
  }
  // No connection is known to be the one that will serve: each address is judged when it is.
  if (judge_.Decide(std::nullopt) != ExchangeJudge::Verdict::kForward) {
    Refuse(judge_.Refusal());
    co_await Drain();
    co_return;
  }
  if (judge_.uses_credentials()) {
    DialFailure refused;
    refused.detail = "credentials are put into requests of HTTP/1.1 alone; let the client offer http/1.1";
    Refuse(judge_.DenialFor(std::move(refused)));
    co_await Drain();
    co_return;
  }
  co_await Forward();
}

Task<> H2Stream::Forward() {
  for (bool fresh = false;; fresh = true) {
    if (fresh) connection_.flow().worker().pool().Drop(judge_.pool_key());
    judge_.upstream_address.reset();
    waiter_.ClearPoke();
    std::optional<DialFailure> failure = co_await ObtainLeg();
    if (waiter_.cancelled()) {
      Abort(kH2Cancel, revoked_ ? failure_ : "the client went away");
      co_return;
    }
    if (failure) {
      Refuse(judge_.DenialFor(std::move(*failure)));
      co_await Drain();
      co_return;
    }
    judge_.upstream_address = connection_.flow().dialled = leg_->address();
    const std::string target = judge_.ForUpstream();
    leg_->Begin(judge_.request, {target, judge_.host_field(), judge_.framing, &judge_.edits});
    const Carried carried = co_await Carry();
    if (carried == Carried::kAborted) co_return;
    if (carried == Carried::kDone) break;
    const bool started = status_ != 0;
    if (!started && !fresh && lost_.untouched && judge_.may_repeat()) {
      leg_.reset();
      continue;
    }
    // A stream that the upstream reset is reset with the same code: its meaning is the client's to know.
    if (started || lost_.code != 0) {
      Abort(lost_.code != 0 ? lost_.code : uint32_t{kH2InternalError}, lost_.fault.why);
      co_return;
    }
    DialFailure lost;
    lost.status = lost_.fault.status;
    lost.proxy_error = lost.status == 504   ? "http_response_timeout"
                       : lost.status == 400 ? "http_request_error"
                                            : "http_protocol_error";
    lost.detail = lost.status == 400 ? std::string(lost_.fault.why)
                                     : fmt::format("{} answered with {}", judge_.host_field(), lost_.fault.why);
    Refuse(judge_.DenialFor(std::move(lost)));
    co_await Drain();
    co_return;
  }
  leg_->Finish();
  leg_.reset();
  waiter_.ClearPoke();
  const int status = status_;
  co_await Drain();
  judge_.bytes_down = sent_down_;
  judge_.RecordExchange(waiter_.cancelled() ? (revoked_ ? failure_ : "the client went away") : std::string_view(), status);
}

Task<std::optional<DialFailure>> H2Stream::ObtainLeg() {
  Worker& worker = connection_.flow().worker();
  UpstreamPtr ready = std::move(connection_.prepared());
  if (ready != nullptr && (!Fits(*ready, judge_.dial()) || !judge_.Usable(ready->known_address()))) ready.reset();
  std::string key = judge_.pool_key();
  DialTarget target = judge_.dial();
  AddressJudge judge = judge_.ForDialling();
  std::function<bool(std::optional<IpAddress>)> usable = [this](std::optional<IpAddress> address) {
    return judge_.Usable(address);
  };
  auto obtained = co_await Obtain(worker, waiter_, std::move(key), judge_.scheme(), std::move(target), std::move(ready),
                                  std::move(judge), std::move(usable));
  if (!obtained) co_return std::move(obtained.error());
  if (obtained->shared != nullptr) {
    leg_ = std::make_unique<H2Leg>(std::move(obtained->shared), waiter_);
  } else {
    leg_ = std::make_unique<H1Leg>(worker, std::move(obtained->own), judge_.pool_key());
  }
  co_return std::nullopt;
}

H2Stream::Carried H2Stream::Deliver(const ResponseHead& head, const Framing& framing) {
  WriteResponseSection(&output_, head, framing);
  if (head.status < 200) {
    if (head.status != 100 || judge_.request.expect_continue) connection_.session().Interim(id_, output_);
  } else {
    const bool bodiless = framing.kind == BodyKind::kNone || (framing.kind == BodyKind::kLength && framing.length == 0);
    connection_.session().Respond(id_, output_, bodiless ? H2End::kEndStream : H2End::kOpen);
    status_ = head.status;
  }
  connection_.Flush();
  return Carried::kDone;
}

SteadyTime H2Stream::CarryDeadline(bool stuck) const {
  Worker& worker = connection_.flow().worker();
  const Deadlines& deadlines = worker.shared().options().deadlines;
  const bool waiting_for_client = !request_.ended && request_.bytes.empty() && status_ == 0 && !IsGrpc(judge_.request);
  const auto idle = stuck                ? std::chrono::milliseconds(kWriteStuck)
                    : waiting_for_client ? deadlines.request_body_idle
                                         : std::chrono::milliseconds(kResponseIdle);
  return std::min<SteadyTime>(worker.reactor().now() + idle, judge_.started + deadlines.exchange);
}

Task<H2Stream::Carried> H2Stream::Carry() {
  H2Session& session = connection_.session();
  ResponseHead head;
  Framing framing;
  carrying_ = true;
  for (;;) {
    bool more = false;
    for (int round = 0; round < kRoundsPerTurn; ++round) {
      const size_t sent = leg_->Send(&request_);
      if (sent != 0) {
        judge_.bytes_up += sent;
        session.Consume(id_, sent);
        connection_.Flush();
      }
      more = response_.bytes.size() < kHighWater;
      if (!more) break;
      const auto got = leg_->Receive(&head, &framing, &response_);
      if (got == UpstreamLeg::Got::kFailed) {
        lost_ = leg_->failure();
        carrying_ = false;
        co_return Carried::kFailed;
      }
      if (got == UpstreamLeg::Got::kInterim || got == UpstreamLeg::Got::kHead) {
        Deliver(head, framing);
      } else if (got == UpstreamLeg::Got::kBody || got == UpstreamLeg::Got::kEnd) {
        session.Resume(id_);
        connection_.Flush();
      }
      if (got == UpstreamLeg::Got::kEnd) {
        carrying_ = false;
        co_return Carried::kDone;
      }
      more = got != UpstreamLeg::Got::kNothing;
      if (!more) break;
    }
    const bool full = response_.bytes.size() >= kHighWater;
    const Waiter::On on = leg_->Wants();
    const bool stuck = full || (on.interest & kWritable) != 0;
    const SteadyTime deadline = CarryDeadline(stuck);
    Wake wake = Wake::kReady;
    if (more) {
      wake = co_await waiter_.Yield(deadline);
    } else {
      wake = co_await waiter_.Wait(on.interest != 0 ? on : Waiter::On{}, deadline);
    }
    if (wake == Wake::kReady) continue;
    carrying_ = false;
    if (wake == Wake::kCancelled) {
      Abort(kH2Cancel, revoked_ ? failure_ : "the client went away");
      co_return Carried::kAborted;
    }
    lost_ = {{504, "no answer in time"}, false, 0};
    co_return Carried::kFailed;
  }
}

void H2Stream::Refuse(Denial denial) {
  judge_.RecordDenial(&denial);
  const H2DenialForm form = H2FormFor(judge_.request);
  response_.Reset();
  response_.ended = true;
  if (form != H2DenialForm::kGrpc)
    response_.bytes.Append(DenialBody(denial, form == H2DenialForm::kText ? DenialForm::kText : DenialForm::kJson));
  WriteDenialSection(&output_, denial, form, response_.bytes.size());
  if (judge_.request.method == "HEAD") response_.bytes.Clear();
  connection_.session().Respond(id_, output_, response_.bytes.empty() ? H2End::kEndStream : H2End::kOpen);
  status_ = denial.status;
  connection_.Flush();
}

Task<> H2Stream::Drain() {
  H2Session& session = connection_.session();
  // The request's rest is taken and dropped, as HTTP/1.1 does, so that the answer can be read by clients that send first and
  // read later.
  dropping_ = true;
  dropped_ += request_.bytes.size();
  session.Consume(id_, request_.bytes.size());
  request_.bytes.Clear();
  carrying_ = true;
  std::optional<SteadyTime> linger;
  Worker& worker = connection_.flow().worker();
  while (!closed_) {
    const SteadyTime now = worker.reactor().now();
    const bool answered = response_.ended && response_.bytes.empty();
    if (answered && !linger) linger = now + kLingerTime;
    if (answered && dropped_ > kLingerBytes) {
      session.Reset(id_, kH2NoError);
      connection_.Flush();
      break;
    }
    connection_.Flush();
    const SteadyTime deadline = answered ? *linger : now + kWriteStuck;
    const Wake wake = co_await waiter_.Wait({}, deadline);
    if (wake == Wake::kReady) continue;
    if (!closed_) session.Reset(id_, answered ? kH2NoError : kH2Cancel);
    connection_.Flush();
    break;
  }
  carrying_ = false;
}

void H2Stream::Abort(uint32_t code, std::string_view why) {
  judge_.bytes_down = sent_down_;
  judge_.RecordExchange(why, status_);
  if (closed_) return;
  connection_.session().Reset(id_, code);
  connection_.Flush();
}

}  // namespace sluice::proxy
