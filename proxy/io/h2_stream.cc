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
  } else {
    request_.bytes.Append(bytes);
  }
  Poke();
}

void H2Stream::OnTrailers(const H2Section& section) {
  request_.trailer_lines = ReadTrailerSection(section);
  judge_.DropJudgedTrailers(&request_.trailer_lines);
}

void H2Stream::OnEnd() {
  request_.ended = true;
  Poke();
}

void H2Stream::OnClosed() {
  closed_ = true;
  // A client that has its answer may drop what is left of its request.
  if (switched_ || (response_.ended && response_.bytes.empty())) {
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
    taken_at_ = connection_.flow().worker().reactor().now();
    Poke();
  }
  const bool ended = response_.ended && response_.bytes.empty();
  if (ended) Poke();
  return {n, ended, ended && !response_.trailer_lines.empty() ? &response_.trailer_lines : nullptr};
}

bool H2Stream::StillAllowed() {
  const bool has_leg = leg_ != nullptr && !switched_;
  return judge_.StillAllowed(has_leg ? leg_->address() : judge_.upstream_address);
}

void H2Stream::Revoke(std::string_view why) {
  revoked_ = true;
  failure_ = why;
  // The client is told first, of all streams, and what it costs to end them comes after. A WebSocket has a last word of its own.
  if (carrying_ && leg_ != nullptr && !switched_) ResetStream(kH2Cancel);
  waiter_.CancelSoon();
}

Task<> H2Stream::Run() {
  co_await Exchange();
  leg_.reset();
  // What was not handed on will not be: the connection's window opens again.
  TakeCome(request_.bytes.size());
  request_.bytes.Release();
  judge_.Rest();
  dropping_ = true;
}

Task<> H2Stream::Exchange() {
  if (!fault_ && judge_.framing.length > connection_.flow().worker().shared().options().max_body_bytes)
    fault_ = {413, "a request body that is too large"};
  if (!fault_) fault_ = judge_.Understand();
  if (!fault_ && judge_.upgrade == policy::Upgrade::kWebSocket)
    fault_ = ReadWebSocketRequest(&judge_.request, judge_.framing, &offer_);
  if (fault_) {
    co_await RefuseFault(fault_);
    co_return;
  }
  // No connection is known to be the one that will serve: each address is judged when it is.
  auto verdict = judge_.Decide(std::nullopt);
  if (verdict == ExchangeJudge::Verdict::kNeedsBody) {
    const auto read = co_await ReadJudgedBody();
    if (!read) co_return;
    verdict = *read;
  }
  if (verdict != ExchangeJudge::Verdict::kForward) {
    Denial denial = judge_.Refusal();
    co_await Refuse(std::move(denial));
    co_return;
  }
  co_await Forward();
}

Task<> H2Stream::Forward() {
  for (bool fresh = false;; fresh = true) {
    if (fresh) connection_.flow().worker().pool().Drop(judge_.pool_key());
    judge_.upstream_address.reset();
    waiter_.ClearPoke();
    std::optional<DialFailure> failure = co_await ObtainLeg(fresh ? UpstreamAsk::Reuse::kFresh : UpstreamAsk::Reuse::kAny);
    if (waiter_.cancelled()) {
      Leave();
      co_return;
    }
    if (failure) {
      Denial denial = judge_.DenialFor(std::move(*failure));
      co_await Refuse(std::move(denial));
      co_return;
    }
    judge_.upstream_address = connection_.flow().dialled = leg_->address();
    if (judge_.uses_credentials()) {
      const bool ready = co_await UseCredential();
      if (!ready) co_return;
    }
    const std::string target = judge_.ForUpstream();
    if (judge_.upgrade == policy::Upgrade::kNone) {
      leg_->Begin(judge_.request, {target, judge_.host_field(), judge_.FramingOut(), &judge_.edits});
    } else {
      judge_.PrepareWebSocket(&offer_);
      leg_->BeginWebSocket(judge_.request, offer_, {target, judge_.host_field(), {}, &judge_.edits});
    }
    changed_.Reset();
    through_changed_ = judge_.credential() != nullptr || !judge_.held().empty();
    const Carried carried = co_await Carry();
    if (carried == Carried::kSwitched) co_await CarryWebSocket();
    if (carried == Carried::kSwitched || carried == Carried::kAborted) co_return;
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
    Denial denial = judge_.DenialForLost(lost_.fault);
    co_await Refuse(std::move(denial));
    co_return;
  }
  leg_->Finish();
  leg_.reset();
  waiter_.ClearPoke();
  const int status = status_;
  co_await Drain();
  judge_.bytes_down = sent_down_;
  std::string_view error;
  if (!response_.bytes.empty()) error = "a response of which the client took nothing for too long";
  if (waiter_.cancelled()) error = revoked_ ? failure_ : "the client went away";
  judge_.RecordExchange(error, status);
}

Task<std::optional<DialFailure>> H2Stream::ObtainLeg(UpstreamAsk::Reuse reuse) {
  Worker& worker = connection_.flow().worker();
  UpstreamPtr ready = std::move(connection_.prepared());
  if (ready != nullptr && (!Fits(*ready, judge_.dial()) || !judge_.Usable(ready->known_address()))) ready.reset();
  UpstreamAsk ask{.key = judge_.pool_key(),
                  .scheme = judge_.scheme(),
                  .target = judge_.dial(),
                  .ready = std::move(ready),
                  .judge = judge_.ForDialling(),
                  .usable = [this](std::optional<IpAddress> address) { return judge_.Usable(address); },
                  .reuse = reuse};
  // An upstream that announces WebSockets over HTTP/2 has them there; the others may have them over HTTP/1.1 alone.
  const bool websocket = judge_.upgrade != policy::Upgrade::kNone;
  bool http11 = websocket && judge_.scheme() == policy::Scheme::kHttps;
  if (http11)
    if (const auto shared = worker.h2_pool().Find(ask.key); shared != nullptr) http11 = !shared->session().PeerTakesConnect();
  const auto obtain = http11 ? ObtainHttp11 : Obtain;
  auto obtained = co_await obtain(worker, waiter_, std::move(ask));
  if (!obtained) co_return std::move(obtained.error());
  if (obtained->shared != nullptr && websocket) {
    auto failure = co_await AwaitWebSockets(worker, waiter_, obtained->shared);
    if (failure) co_return failure;
  }
  if (obtained->shared != nullptr) {
    leg_ = std::make_unique<H2Leg>(std::move(obtained->shared), waiter_);
  } else {
    leg_ = std::make_unique<H1Leg>(worker, std::move(obtained->own), judge_.pool_key());
  }
  co_return std::nullopt;
}

void H2Stream::Deliver(const ResponseHead& head, const Framing& framing) {
  WriteResponseSection(&output_, head, framing);
  if (head.status < 200) {
    if (head.status != 100 || judge_.request.expect_continue) connection_.session().Interim(id_, output_);
  } else {
    const bool bodiless = framing.kind == BodyKind::kNone || (framing.kind == BodyKind::kLength && framing.length == 0);
    connection_.session().Respond(id_, output_, bodiless ? H2End::kEndStream : H2End::kOpen);
    status_ = head.status;
  }
  connection_.Flush();
}

ExchangeJudge::Awaited H2Stream::WaitsFor(bool writing) const {
  using Awaited = ExchangeJudge::Awaited;
  // An upstream that closes its window may rest, unless what was judged waits in memory for it.
  const bool held_up = !judge_.held().empty() && changed_.bytes.size() >= kHighWater;
  if (writing || held_up) return Awaited::kRequestTaken;
  if (response_.bytes.size() >= kHighWater) return Awaited::kResponseTaken;
  const bool for_client = !request_.ended && request_.bytes.empty() && status_ == 0 && !IsGrpc(judge_.request);
  return for_client ? Awaited::kRequestBody : Awaited::kResponse;
}

SteadyTime H2Stream::StuckAt() const { return taken_at_ + connection_.flow().worker().shared().options().deadlines.write_stuck; }

Task<H2Stream::Carried> H2Stream::Carry() {
  carrying_ = true;
  taken_at_ = connection_.flow().worker().reactor().now();
  const Carried carried = co_await CarryOn();
  carrying_ = false;
  co_return carried;
}

Task<H2Stream::Carried> H2Stream::CarryOn() {
  H2Session& session = connection_.session();
  ResponseHead head;
  Framing framing;
  for (;;) {
    bool more = false;
    for (int round = 0; round < kRoundsPerTurn; ++round) {
      Fault fault = SendBody();
      more = response_.bytes.size() < kHighWater;
      if (!more && !fault) {
        more = BodyWaits();
        break;
      }
      const size_t before = response_.bytes.size();
      const auto got = fault ? UpstreamLeg::Got::kNothing : leg_->Receive(&head, &framing, &response_);
      const bool is_head = got == UpstreamLeg::Got::kInterim || got == UpstreamLeg::Got::kHead;
      const bool switched = got == UpstreamLeg::Got::kSwitched;
      if (!fault) fault = judge_.CountDown(response_.bytes.size() - before);
      if (!fault && (is_head || switched)) fault = judge_.PassResponseHead(&head, framing);
      if (fault || got == UpstreamLeg::Got::kFailed) {
        lost_ = fault ? LegFailure{fault, false, 0} : leg_->failure();
        co_return Carried::kFailed;
      }
      if (switched) {
        DeliverSwitch(head);
        co_return Carried::kSwitched;
      }
      if (is_head) Deliver(head, framing);
      if (got == UpstreamLeg::Got::kEnd) judge_.RedactTrailers(&response_.trailer_lines);
      if (got == UpstreamLeg::Got::kBody || got == UpstreamLeg::Got::kEnd) {
        session.Resume(id_);
        connection_.Flush();
      }
      if (got == UpstreamLeg::Got::kEnd) co_return Carried::kDone;
      more = got != UpstreamLeg::Got::kNothing || BodyWaits();
      if (!more) break;
    }
    const Waiter::On on = leg_->Wants();
    const auto awaited = WaitsFor((on.interest & kWritable) != 0);
    SteadyTime deadline = judge_.CarryDeadline(awaited);
    if (awaited == ExchangeJudge::Awaited::kResponseTaken) {
      deadline = std::min(deadline, StuckAt());
    } else {
      taken_at_ = connection_.flow().worker().reactor().now();
    }
    Wake wake = Wake::kReady;
    if (more) {
      wake = co_await waiter_.Yield(deadline);
    } else {
      wake = co_await waiter_.Wait(on.interest != 0 ? on : Waiter::On{}, deadline);
    }
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kCancelled) {
      Leave();
      co_return Carried::kAborted;
    }
    lost_ = {judge_.TimedOut(awaited), false, 0};
    co_return Carried::kFailed;
  }
}

Task<> H2Stream::RefuseFault(Fault fault) {
  // What was allowed has an end in the record.
  if (judge_.decision().allowed) judge_.RecordExchange(fault.why, fault.status);
  Denial denial = judge_.DenialFor(fault);
  co_await Refuse(std::move(denial));
}

Task<> H2Stream::Refuse(Denial denial) {
  leg_.reset();
  judge_.RecordDenial(&denial);
  judge_.ReleaseHeld();
  // git sends all of a push before it reads what became of it.
  if (!denial.answer.empty()) {
    const bool whole = co_await DropRest();
    if (!whole) {
      ResetStream(kH2Cancel);
      co_return;
    }
  }
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
  co_await Drain();
}

Task<> H2Stream::Drain() {
  H2Session& session = connection_.session();
  // The request's rest is taken and dropped, as HTTP/1.1 does, so that the answer can be read by clients that send first and
  // read later.
  dropping_ = true;
  dropped_ += request_.bytes.size();
  TakeCome(request_.bytes.size());
  judge_.ReleaseHeld();
  carrying_ = true;
  std::optional<SteadyTime> linger;
  Worker& worker = connection_.flow().worker();
  const Deadlines& deadlines = worker.shared().options().deadlines;
  taken_at_ = worker.reactor().now();
  while (!closed_) {
    const SteadyTime now = worker.reactor().now();
    const bool answered = response_.ended && response_.bytes.empty();
    if (answered && !linger) linger = now + deadlines.linger;
    if (answered && dropped_ > deadlines.linger_bytes) {
      session.Reset(id_, kH2NoError);
      connection_.Flush();
      break;
    }
    connection_.Flush();
    const SteadyTime deadline = answered ? *linger : StuckAt();
    const Wake wake = co_await waiter_.Wait({}, deadline);
    if (wake == Wake::kReady) continue;
    ResetStream(answered ? kH2NoError : kH2Cancel);
    break;
  }
  carrying_ = false;
}

void H2Stream::Abort(uint32_t code, std::string_view why) {
  judge_.bytes_down = sent_down_;
  // Of what was never decided nothing was begun.
  if (judge_.decision().allowed) judge_.RecordCut(why, status_);
  ResetStream(code);
}

void H2Stream::ResetStream(uint32_t code) {
  if (closed_ || reset_) return;
  reset_ = true;
  connection_.session().Reset(id_, code);
  connection_.Flush();
}

}  // namespace sluice::proxy
