#include "proxy/io/http_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
HttpSession::HttpSession(FlowContext& flow, policy::Scheme scheme, UpstreamPtr prepared, RequestGate* gate)
    : flow_(flow), judge_(flow, scheme), gate_(gate), prepared_(std::move(prepared)) {}

Task<> HttpSession::Run() {
  for (;;) {
    const HeadRead read = co_await ReadHead();
    if (read == HeadRead::kClosed) co_return;
    judge_.Begin(++number_);
    After after = After::kLinger;
    if (read == HeadRead::kFault) {
      judge_.request = RequestHead{};
      after = co_await RefuseFault(head_fault_);
    } else {
      after = co_await HandleRequest();
    }
    judge_.Rest();
    if (after == After::kNextRequest) continue;
    if (after == After::kLinger) co_await Linger();
    co_return;
  }
}

Task<HttpSession::HeadRead> HttpSession::ReadHead() {
  Worker& worker = flow_.worker();
  const Deadlines& deadlines = worker.shared().options().deadlines;
  const auto unbegun = number_ == 0 ? deadlines.first_byte : deadlines.keep_alive_idle;
  SteadyTime deadline = worker.reactor().now() + (in_.empty() ? unbegun : deadlines.head);
  bool begun = !in_.empty();
  size_t resume = 0;
  for (;;) {
    const auto end = FindHeadEnd(in_.view(), &resume);
    if (!end) {
      head_fault_ = end.error();
      co_return HeadRead::kFault;
    }
    if (*end != 0) {
      head_bytes_.assign(in_.view().substr(0, *end));
      in_.Consume(*end);
      co_return HeadRead::kGot;
    }
    // Into scratch first, so that an idle connection holds no buffer worth the name.
    const Io io = flow_.down.Read(worker.scratch());
    if (io.status == IoStatus::kOk) {
      in_.Append({worker.scratch().data(), io.n});
      if (!begun) deadline = worker.reactor().now() + deadlines.head;
      begun = true;
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return HeadRead::kClosed;
    if (!begun) idle_since_ = worker.reactor().now();
    between_ = !begun;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, flow_.down.read_needs}, deadline);
    idle_since_.reset();
    between_ = false;
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kCancelled || !begun) co_return HeadRead::kClosed;
    head_fault_ = {408, "a request head that did not arrive in time"};
    co_return HeadRead::kFault;
  }
}

Fault HttpSession::PassGate() {
  std::optional<FlowTarget> elsewhere;
  const Fault fault = gate_->Admit(&judge_.request, flow_.target(), &elsewhere);
  if (!elsewhere) return fault;
  flow_.Retarget(*std::move(elsewhere));
  judge_.Retarget();
  // Both are connections to the place before.
  prepared_.reset();
  own_.reset();
  return fault;
}

Fault HttpSession::ParseHead() {
  if (const Fault fault = ParseRequestHead({head_bytes_.data(), head_bytes_.size()}, &judge_.request)) return fault;
  const auto framing = RequestFraming(judge_.request);
  if (!framing) return framing.error();
  judge_.framing = *framing;
  BeginBody();
  if (gate_ != nullptr)
    if (const Fault fault = PassGate()) return fault;
  if (framing->length > flow_.worker().shared().options().max_body_bytes) return {413, "a request body that is too large"};
  if (const Fault fault = judge_.Understand()) return fault;
  if (judge_.upgrade == policy::Upgrade::kWebSocket) return ReadWebSocketRequest(&judge_.request, judge_.framing, &offer_);
  return {};
}

Task<HttpSession::After> HttpSession::HandleRequest() {
  body_read_ = false;
  if (const Fault fault = ParseHead()) co_return co_await RefuseFault(fault);
  const Upstream* candidate = own_ != nullptr        ? own_.get()
                              : prepared_ != nullptr ? prepared_.get()
                                                     : flow_.worker().pool().Peek(judge_.pool_key());
  auto verdict = judge_.Decide(candidate != nullptr ? candidate->known_address() : std::nullopt);
  if (verdict == ExchangeJudge::Verdict::kNeedsBody) {
    const auto read = co_await ReadJudgedBody();
    if (!read && !read.error()) co_return After::kClosed;
    if (!read) co_return co_await RefuseFault(read.error());
    verdict = *read;
  }
  if (verdict != ExchangeJudge::Verdict::kForward) co_return co_await Refuse(judge_.Refusal());
  co_return co_await Forward();
}

Task<HttpSession::After> HttpSession::RefuseFault(Fault fault) {
  // After a malformed message nothing that follows can be trusted to begin where it seems to.
  judge_.request.close = true;
  co_return co_await Refuse(judge_.DenialFor(fault));
}

Task<HttpSession::After> HttpSession::RefuseUpstream(DialFailure failure) {
  Denial denial = judge_.DenialFor(std::move(failure));
  DropUpstream();
  co_return co_await Refuse(std::move(denial));
}

Task<HttpSession::After> HttpSession::Refuse(Denial denial) {
  judge_.RecordDenial(&denial);
  judge_.ReleaseHeld();
  // git sends all of a push before it reads what became of it.
  if (!denial.answer.empty() && !co_await DrainBody()) co_return After::kClosed;
  // A body that was not read stands between this response and the next request.
  const RequestHead& request = judge_.request;
  const bool keep = request.persistent() && body_read_ && judge_.understood() && !flow_.waiter.cancelled();
  AppendDenial(&out_, denial, FormFor(request), keep ? Keep::kKeepAlive : Keep::kClose, request.method);
  const SteadyTime deadline = flow_.worker().reactor().now() + flow_.worker().shared().options().deadlines.write_stuck;
  if (!co_await Flush(deadline)) co_return After::kClosed;
  co_return keep ? After::kNextRequest : After::kLinger;
}

Task<bool> HttpSession::Flush(SteadyTime deadline) {
  while (!out_.empty()) {
    const Io io = flow_.down.Write(out_.view());
    if (io.status == IoStatus::kOk) {
      out_.Consume(io.n);
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return false;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, flow_.down.write_needs}, deadline);
    if (wake != Wake::kReady) co_return false;
  }
  co_return true;
}

// The client may still be sending. Closing now would answer its bytes with a reset, which discards the response before it
// is read; so the sending half ends, and what still comes is read and dropped for a while.
Task<> HttpSession::Linger() {
  flow_.down.ShutdownWrite();
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  const SteadyTime deadline = flow_.worker().reactor().now() + deadlines.linger;
  size_t dropped = 0;
  while (dropped < deadlines.linger_bytes) {
    const Io io = flow_.down.RawRead(flow_.worker().scratch());
    if (io.status == IoStatus::kOk) {
      dropped += io.n;
      if (dropped % (1 << 20) < io.n) {
        const Wake turn = co_await flow_.waiter.Yield(deadline);
        if (turn != Wake::kReady) co_return;
      }
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, kReadable}, deadline);
    if (wake != Wake::kReady) co_return;
  }
}

void HttpSession::Trim(SteadyTime now) {
  if (!idle_since_ || now - *idle_since_ < kTrimAfter) return;
  in_.Release();
  out_.Release();
  up_out_.Release();
  flow_.down.Trim();
  idle_since_.reset();
}

void HttpSession::CutOff() {
  if (switched_) return;
  flow_.down.Close(between_ ? Stream::How::kOrderly : Stream::How::kReset);
}

bool HttpSession::StillAllowed() {
  return judge_.StillAllowed(leg_ != nullptr        ? leg_->address()
                             : upstream_ != nullptr ? upstream_->known_address()
                                                    : std::nullopt);
}

}  // namespace sluice::proxy
