#include "proxy/io/http_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

std::string_view SchemeText(policy::Scheme scheme) { return scheme == policy::Scheme::kHttps ? "https" : "http"; }

uint16_t DefaultPort(policy::Scheme scheme) { return scheme == policy::Scheme::kHttps ? 443 : 80; }

bool IsWebSocket(std::string_view upgrade) {
  bool found = false;
  ForEachListItem(upgrade, [&](std::string_view item) { found |= EqualsLower(item.substr(0, item.find('/')), "websocket"); });
  return found;
}

policy::Reason ReasonFor(const Fault& fault) {
  switch (fault.status) {
    case 414:
    case 431:
      return policy::Reason::kLimit;
    case 421:
      return policy::Reason::kAuthorityMismatch;
    case 403:
      return policy::Reason::kUnsupported;
    case 407:
      return policy::Reason::kUnattributed;
    default:
      return policy::Reason::kProtocol;
  }
}

}  // namespace

HttpSession::HttpSession(FlowContext& flow, policy::Scheme scheme, UpstreamPtr prepared, RequestGate* gate)
    : flow_(flow),
      scheme_(scheme),
      dial_(flow.dial_target()),
      pool_key_(PoolKey(scheme, dial_)),
      host_field_(HostField(dial_.name, dial_.literal, dial_.port, DefaultPort(scheme))),
      gate_(gate),
      prepared_(std::move(prepared)) {}

Task<> HttpSession::Run() {
  for (;;) {
    const HeadRead read = co_await ReadHead();
    if (read == HeadRead::kClosed) co_return;
    ++number_;
    started_ = flow_.worker().reactor().now();
    After after = After::kLinger;
    if (read == HeadRead::kFault) {
      understood_ = false;
      request_ = RequestHead{};
      after = co_await RefuseFault(head_fault_);
    } else {
      after = co_await HandleRequest();
    }
    running_ = false;
    if (after == After::kNextRequest) continue;
    if (after == After::kLinger) co_await Linger();
    co_return;
  }
}

Task<HttpSession::HeadRead> HttpSession::ReadHead() {
  Worker& worker = flow_.worker();
  const auto head_deadline = worker.shared().options().deadlines.head;
  SteadyTime deadline =
      worker.reactor().now() + (in_.empty() ? (number_ == 0 ? kFirstByteDeadline : kKeepAliveIdle) : head_deadline);
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
      if (!begun) deadline = worker.reactor().now() + head_deadline;
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

Fault HttpSession::CheckAuthority(std::string_view authority, bool* names_this) {
  const auto parsed = policy::ParseAuthority(authority);
  if (!parsed) return {400, "a malformed authority"};
  const bool same_host = parsed->address ? dial_.name.empty() && *parsed->address == dial_.literal
                                         : !dial_.name.empty() && policy::CanonicalName(parsed->name) == dial_.name;
  // A port left out of Host is let pass: the field is rebuilt, and the connection's own port is the one that counts.
  *names_this = same_host && (!parsed->port || *parsed->port == dial_.port);
  return {};
}

Fault HttpSession::UnderstandTarget(std::string_view* path) {
  const std::string_view target = request_.target;
  bool host_agrees = true;
  if (request_.hosts != 0) {
    if (const Fault fault = CheckAuthority(request_.host, &host_agrees)) return fault;
  }
  if (target.front() == '/') {
    *path = target;
    if (!host_agrees) return {421, "a Host that is not the name this connection was made to"};
    return {};
  }
  if (target == "*") return {405, "a request for * is never forwarded"};
  const size_t colon = target.find("://");
  if (colon == std::string_view::npos) return {400, "a request target that is neither a path nor a URI"};
  if (!EqualsLower(target.substr(0, colon), SchemeText(scheme_))) return {400, "an absolute URI of another scheme"};
  const std::string_view rest = target.substr(colon + 3);
  const size_t slash = std::min(rest.find_first_of("/?#\\"), rest.size());
  bool uri_agrees = false;
  if (const Fault fault = CheckAuthority(rest.substr(0, slash), &uri_agrees)) return fault;
  if (!uri_agrees || !host_agrees) return {400, "an absolute URI that disagrees with Host or with the connection"};
  *path = rest.substr(slash);
  return {};
}

Fault HttpSession::PassGate() {
  std::optional<FlowTarget> elsewhere;
  const Fault fault = gate_->Admit(&request_, flow_.target(), &elsewhere);
  if (!elsewhere) return fault;
  flow_.Retarget(*std::move(elsewhere));
  dial_ = flow_.dial_target();
  pool_key_ = PoolKey(scheme_, dial_);
  host_field_ = HostField(dial_.name, dial_.literal, dial_.port, DefaultPort(scheme_));
  // Both are connections to the place before.
  prepared_.reset();
  own_.reset();
  return fault;
}

// Everything that can be wrong with a request before the policy is asked.
Fault HttpSession::Understand() {
  if (const Fault fault = ParseRequestHead({head_bytes_.data(), head_bytes_.size()}, &request_)) return fault;
  const auto framing = RequestFraming(request_);
  if (!framing) return framing.error();
  framing_ = *framing;
  if (gate_ != nullptr)
    if (const Fault fault = PassGate()) return fault;
  if (request_.method == "CONNECT") return {400, "CONNECT inside a connection"};
  if (request_.method == "TRACE") return {405, "TRACE is never forwarded"};
  if (request_.method == "OPTIONS" && !request_.Find(FieldId::kMaxForwards).empty())
    return {405, "Max-Forwards is not answered here"};
  std::string_view path;
  if (const Fault fault = UnderstandTarget(&path)) return fault;
  std::string with_root;
  if (path.empty() || path.front() == '?') {
    with_root = fmt::format("/{}", path);
    path = with_root;
  }
  auto canonical = policy::CanonicalizeTarget(path);
  if (!canonical) return {400, "a path that could be read in more than one way"};
  target_ = std::move(*canonical);
  views_.clear();
  for (const Field& field : request_.fields)
    if (field.forward) views_.emplace_back(field.name, field.value);
  understood_ = true;
  if (IsWebSocket(request_.upgrade)) return {403, "an upgrade to WebSocket, which no rule of this policy can grant"};
  return {};
}

policy::RequestQuery HttpSession::Query(std::optional<IpAddress> address) const {
  policy::RequestQuery query;
  query.connection = flow_.Query(address);
  query.scheme = scheme_;
  query.method = request_.method;
  query.target = &target_;
  query.headers = views_;
  return query;
}

policy::Decision HttpSession::Decide(std::optional<IpAddress> address) {
  return flow_.worker().snapshot()->DecideRequest(Query(address));
}

Task<HttpSession::After> HttpSession::HandleRequest() {
  understood_ = false;
  framing_ = {};
  if (const Fault fault = Understand()) co_return co_await RefuseFault(fault);
  // With the address of the connection that would be used, so that `ip` keys are judged on what is dialled.
  const Upstream* candidate = own_ != nullptr        ? own_.get()
                              : prepared_ != nullptr ? prepared_.get()
                                                     : flow_.worker().pool().Peek(pool_key_);
  decided_for_ = candidate != nullptr ? std::optional(candidate->address) : std::nullopt;
  policy::Decision decision = Decide(decided_for_);
  if (!decision.allowed && candidate != nullptr) {
    decided_for_.reset();
    decision = Decide(std::nullopt);
  }
  decision_ = decision;
  decided_generation_ = flow_.worker().generation();
  if (!decision.allowed) {
    Denial denial;
    denial.decision = decision;
    denial.advice = flow_.worker().snapshot()->AdviseRequest(Query(std::nullopt), decision);
    co_return co_await Refuse(std::move(denial));
  }
  if (!RecordRequest(decision, nullptr, {})) {
    Denial denial;
    denial.status = 503;
    denial.decision = {false, policy::Reason::kLimit, decision.rule, false};
    denial.detail = "audit queue full";
    denial.proxy_error = "proxy_internal_error";
    co_return co_await Refuse(std::move(denial));
  }
  running_ = true;
  co_return co_await Forward(decision);
}

bool HttpSession::RecordRequest(const policy::Decision& decision, const Denial* denial, std::string_view detail) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.connection = flow_.id();
  event.request = number_;
  event.layer = policy::EventLayer::kRequest;
  event.target = flow_.EventTargetFor(std::nullopt);
  event.target.scheme = SchemeText(scheme_);
  event.target.method = request_.method;
  if (understood_) {
    event.target.path = target_.path;
    event.target.query = QueryKeys(target_.query);
  }
  event.process = flow_.target().process;
  event.decision = decision;
  event.snapshot = flow_.worker().snapshot();
  event.detail = detail;
  if (denial != nullptr) {
    event.advice = denial->advice;
    event.denial_id = denial->id;
  } else if (decision.audit_only) {
    event.advice = event.snapshot->AdviseRequest(Query(std::nullopt), decision);
    event.denial_id = flow_.worker().shared().sink().NextDenialId();
  }
  return flow_.worker().shared().sink().Record(std::move(event));
}

void HttpSession::RecordExchange(std::string_view error, int status) {
  policy::ExchangeEvent event;
  event.time = SystemClock().Wall();
  event.connection = flow_.id();
  event.request = number_;
  event.target = flow_.EventTargetFor(upstream_ != nullptr ? std::optional(upstream_->address) : std::nullopt);
  event.target.scheme = SchemeText(scheme_);
  event.target.method = request_.method;
  event.target.path = target_.path;
  event.target.query = QueryKeys(target_.query);
  event.process = flow_.target().process;
  event.rule = decision_.rule;
  event.snapshot = flow_.worker().snapshot();
  event.status = status;
  event.bytes_up = bytes_up_;
  event.bytes_down = bytes_down_;
  event.duration = std::chrono::duration_cast<std::chrono::microseconds>(SystemClock().Steady() - started_);
  event.error = error;
  // A finished exchange cannot be refused any more; the sink counts what it could not keep.
  (void)flow_.worker().shared().sink().Record(std::move(event));
}

Task<HttpSession::After> HttpSession::RefuseFault(Fault fault) {
  Denial denial;
  denial.status = fault.status;
  denial.decision = {false, ReasonFor(fault), policy::RuleRef::kNone, false};
  denial.detail = fault.why;
  denial.proxy_error = fault.status == 403 || fault.status == 421 ? "http_request_denied" : "http_request_error";
  // After a malformed message nothing that follows can be trusted to begin where it seems to.
  request_.close = true;
  co_return co_await Refuse(std::move(denial));
}

Task<HttpSession::After> HttpSession::RefuseUpstream(DialFailure failure) {
  Denial denial;
  denial.status = failure.status;
  const policy::Reason reason = failure.refused ? failure.refused->reason : policy::Reason::kUpstream;
  denial.decision = {false, reason, failure.refused ? failure.refused->rule : decision_.rule, false};
  if (failure.refused && reason != policy::Reason::kLimit)
    denial.advice = flow_.worker().snapshot()->AdviseRequest(Query(failure.address), denial.decision);
  denial.detail = std::move(failure.detail);
  denial.proxy_error = failure.proxy_error;
  RecordExchange(denial.detail, denial.status);
  upstream_.reset();
  co_return co_await Refuse(std::move(denial));
}

Task<HttpSession::After> HttpSession::Refuse(Denial denial) {
  running_ = false;
  denial.target = flow_.EventTargetFor(std::nullopt);
  denial.target.scheme = SchemeText(scheme_);
  denial.target.method = request_.method;
  if (understood_) denial.target.path = target_.path;
  flow_.Fill(&denial);
  (void)RecordRequest(denial.decision, &denial, denial.detail);
  // A body that was not read stands between this response and the next request.
  const bool keep = request_.persistent() && !RequestHasBody() && understood_ && !flow_.waiter.cancelled();
  AppendDenial(&out_, denial, FormFor(request_), keep ? Keep::kKeepAlive : Keep::kClose, request_.method);
  const SteadyTime deadline = flow_.worker().reactor().now() + kWriteStuck;
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
  const SteadyTime deadline = flow_.worker().reactor().now() + kLingerTime;
  size_t dropped = 0;
  while (dropped < kLingerBytes) {
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

bool HttpSession::StillAllowed() {
  const auto connect = flow_.JudgeConnect(upstream_ != nullptr ? std::optional(upstream_->address) : std::nullopt);
  if (!connect.allowed()) return false;
  if (!understood_) return true;
  return Decide(upstream_ != nullptr ? std::optional(upstream_->address) : std::nullopt).allowed;
}

}  // namespace sluice::proxy
