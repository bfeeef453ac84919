#include "proxy/io/exchange_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "proxy/credential/secret.h"
#include "proxy/io/route.h"
#include "proxy/io/worker.h"
#include "proxy/websocket_handshake.h"

namespace sluice::proxy {
namespace {

constexpr size_t kMaxUnreadPath = 2048;  // of a path that was not understood, in a record

std::string_view SchemeText(policy::Scheme scheme) { return scheme == policy::Scheme::kHttps ? "https" : "http"; }

uint16_t DefaultPort(policy::Scheme scheme) { return scheme == policy::Scheme::kHttps ? 443 : 80; }

policy::Reason ReasonFor(const Fault& fault) {
  switch (fault.status) {
    case 413:
    case 414:
    case 431:
    case 503:
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

ExchangeJudge::ExchangeJudge(FlowContext& flow, policy::Scheme scheme)
    : flow_(flow),
      scheme_(scheme),
      dial_(flow.dial_target()),
      pool_key_(PoolKey(scheme, dial_)),
      host_field_(HostField(dial_.name, dial_.literal, dial_.port, DefaultPort(scheme))) {}

void ExchangeJudge::Retarget() {
  dial_ = flow_.dial_target();
  pool_key_ = PoolKey(scheme_, dial_);
  host_field_ = HostField(dial_.name, dial_.literal, dial_.port, DefaultPort(scheme_));
}

void ExchangeJudge::Begin(uint64_t number) {
  number_ = number;
  started = flow_.worker().reactor().now();
  Rest();
  understood_ = unrecorded_ = false;
  framing = {};
  body_kinds_ = 0;
  reading_body_ = body_too_large_ = crowded_ = false;
  push_capabilities_.clear();
  asked_.clear();
  upstream_address.reset();
  upgrade = policy::Upgrade::kNone;
  websocket = {};
  close_code = 0;
  bytes_up = bytes_down = 0;
  pace_since_.reset();
  decision_ = {};
  decided_by_.reset();
  ForgetWay();
}

void ExchangeJudge::ForgetWay() {
  if (!IsRouted(dial_)) return;
  dial_ = flow_.dial_target();
  pool_key_ = PoolKey(scheme_, dial_);
}

void ExchangeJudge::Rest() {
  ReleaseHeld();
  ReleaseReadings();
  Wipe(&passed_);
  astray_.reset();
  edits.Clear();
  credential_.reset();
}

Fault ExchangeJudge::CheckAuthority(std::string_view authority, bool* names_this) const {
  const auto parsed = policy::ParseAuthority(authority);
  if (!parsed) return {400, "a malformed authority"};
  const bool same_host = parsed->address ? dial_.name.empty() && *parsed->address == dial_.literal
                                         : !dial_.name.empty() && policy::CanonicalName(parsed->name) == dial_.name;
  // A port left out of Host is let pass: the field is rebuilt, and the connection's own port is the one that counts.
  *names_this = same_host && (!parsed->port || *parsed->port == dial_.port);
  return {};
}

Fault ExchangeJudge::UnderstandTarget(std::string_view* path) const {
  const std::string_view target = request.target;
  bool host_agrees = true;
  if (request.hosts != 0) {
    if (const Fault fault = CheckAuthority(request.host, &host_agrees)) return fault;
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

Fault ExchangeJudge::Understand() {
  if (request.method == "CONNECT") return {400, "CONNECT inside a connection"};
  if (request.method == "TRACE") return {405, "TRACE is never forwarded"};
  if (request.method == "OPTIONS" && !request.Find(FieldId::kMaxForwards).empty())
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
  for (const Field& field : request.fields)
    if (field.forward) views_.emplace_back(field.name, field.value);
  understood_ = true;
  // Any other Upgrade goes no further.
  if (AsksForWebSocket(request)) upgrade = policy::Upgrade::kWebSocket;
  // Denies of what bodies ask for go by the fields that show one. Those of the framing are written anew, and HTTP/2 needs none.
  if (upgrade == policy::Upgrade::kNone && framing.kind == BodyKind::kChunked)
    views_.emplace_back("transfer-encoding", "chunked");
  if (framing.kind == BodyKind::kLength && framing.length != 0) views_.emplace_back("content-length", request.content_length);
  return {};
}

policy::RequestQuery ExchangeJudge::Query(std::optional<IpAddress> address) const {
  policy::RequestQuery query;
  query.connection = flow_.Query(address);
  query.connection.remote = !address && is_remote();
  query.scheme = scheme_;
  query.method = request.method;
  query.target = &target_;
  query.headers = views_;
  query.upgrade = upgrade;
  query.body = readings_;
  return query;
}

policy::Decision ExchangeJudge::Ask(std::optional<IpAddress> address) const { return flow_.worker().Decide(Query(address)); }

// By what is known of the address: nothing, so that each allow that may cover the request has its say.
void ExchangeJudge::ChooseWay() {
  const bool was_routed = IsRouted(dial_);
  RouteRequest(flow_.worker(), scheme_, decision_, &dial_);
  // A proxy that reads requests need not let a connection become another protocol's, and reads HTTP/1.1 alone.
  if (upgrade != policy::Upgrade::kNone || tunnels_) dial_.via_use = ViaUse::kTunnel;
  if (was_routed || IsRouted(dial_)) pool_key_ = PoolKey(scheme_, dial_);
}

bool ExchangeJudge::TakesSameWay(const policy::Decision& decision) const {
  if (!flow_.worker().has_ways()) return !IsRouted(dial_);
  DialTarget other = flow_.dial_target();
  RouteRequest(flow_.worker(), scheme_, decision, &other);
  other.via_use = dial_.via_use;
  // Pins that are asked for beyond what this decision wants do no harm.
  if (other.pins.empty()) other.pins = dial_.pins;
  return IdentityKey(other) == IdentityKey(dial_);
}

void ExchangeJudge::DecideFor(std::optional<IpAddress> candidate) {
  decided_for_ = candidate;
  decision_ = Ask(candidate);
  if (!decision_.allowed && candidate) {
    decided_for_.reset();
    decision_ = Ask(std::nullopt);
  }
}

// With the way: first as if each allow that may cover the request had its say, which names the proxy; then with what holds where
// that proxy looks the name up, or for the address of the connection that would be used.
void ExchangeJudge::DecideWithWay(std::optional<IpAddress> candidate) {
  ForgetWay();
  DecideFor(std::nullopt);
  if (!decision_.allowed) return;
  ChooseWay();
  if (is_remote()) {
    const auto connect = flow_.JudgeRemote();
    DecideFor(std::nullopt);
    if (!connect.allowed()) decision_ = connect.decision;
    decision_.allowed &= connect.allowed();
    if (decision_.allowed) ChooseWay();
    // A decision that names no proxy any more would lead where nobody looked.
    if (decision_.allowed && !is_remote()) decision_ = {.allowed = false, .reason = policy::Reason::kInternal};
    return;
  }
  if (!candidate) return;
  const policy::Decision there = Ask(candidate);
  if (!there.allowed || !TakesSameWay(there)) return;
  decided_for_ = candidate;
  decision_ = there;
}

ExchangeJudge::Verdict ExchangeJudge::Decide(std::optional<IpAddress> candidate) {
  candidate_ = candidate;
  if (flow_.worker().has_ways()) {
    DecideWithWay(candidate);
  } else {
    DecideFor(candidate);
  }
  decided_generation_ = flow_.worker().generation();
  decided_by_ = flow_.worker().snapshot();
  if (!decision_.allowed) return decision_.body_needed != 0 && readings_ == nullptr ? Verdict::kNeedsBody : Verdict::kDeny;
  unrecorded_ = !RecordDecision(decision_, nullptr);
  return unrecorded_ ? Verdict::kDeny : Verdict::kForward;
}

Denial ExchangeJudge::Refusal() {
  Denial denial;
  if (unrecorded_) {
    denial.status = 503;
    denial.decision = {false, policy::Reason::kLimit, decision_.rule, false};
    denial.detail = "audit queue full";
    denial.proxy_error = "proxy_internal_error";
    return denial;
  }
  if (crowded_) {
    denial.status = 503;
    denial.decision = {false, policy::Reason::kLimit, policy::RuleRef::kNone, false};
    denial.detail = "too many bodies wait to be judged";
    denial.proxy_error = "proxy_internal_error";
    return denial;
  }
  denial.status = body_too_large_ ? 413 : 403;
  denial.decision = decision_;
  denial.advice = flow_.worker().snapshot()->AdviseRequest(Query(std::nullopt), decision_);
  return denial;
}

bool ExchangeJudge::Usable(std::optional<IpAddress> address) {
  if (!(address ? flow_.AddressApproved(*address) : flow_.JudgeRemote().allowed())) return false;
  if (decided_for_ == address && decided_generation_ == flow_.worker().generation()) return true;
  const policy::Decision decision = Ask(address);
  return decision.allowed && TakesSameWay(decision);
}

AddressJudge ExchangeJudge::ForDialling() {
  return [this](const IpAddress& address) {
    const auto connect = flow_.JudgeConnect(address);
    if (!connect.allowed()) {
      policy::Decision refused = connect.decision;
      refused.allowed = false;
      return refused;
    }
    policy::Decision decision = Ask(address);
    // It would have to be reached in another way than the one taken.
    if (decision.allowed && !TakesSameWay(decision)) decision = {.allowed = false, .reason = policy::Reason::kUpstream};
    return decision;
  };
}

bool ExchangeJudge::uses_credentials() const { return ExchangeCredential::Concerns(flow_.worker()); }

// The decision for the address that was dialled is the one that counts: a rule with `ip` may name a credential, and another none.
Task<std::optional<Denial>> ExchangeJudge::UseCredential(Waiter& waiter, std::optional<IpAddress> address) {
  const policy::SnapshotPtr snapshot = flow_.worker().snapshot();
  const bool same = decided_for_ == address && decided_generation_ == flow_.worker().generation();
  const policy::Decision decision = same ? decision_ : snapshot->DecideRequest(Query(address));
  if (!decision.allowed) co_return DenialFor(CredentialFailure{403, decision.reason, "the policy changed meanwhile"});
  if (credential_ == nullptr) credential_ = std::make_unique<ExchangeCredential>();
  edits.Clear();
  ExchangeCredential::Request asked;
  asked.snapshot = snapshot;
  asked.credential = decision.credential;
  asked.head = &request;
  asked.framing = framing;
  asked.target = target_.ForUpstream();
  asked.host = host_field_;
  // The connection was chosen by a key that the certificate is part of.
  const auto& known = snapshot->credentials();
  if (dial_.certificate != nullptr && decision.credential < known.size() &&
      known[decision.credential].name == dial_.certificate->name)
    asked.certificate = ExchangeCredential::ClientCertificate::kUsed;
  auto failure = co_await credential_->Apply(flow_.worker(), waiter, std::move(asked));
  if (failure) co_return DenialFor(std::move(*failure));
  if (!credential_->needs_body()) TakeEdits();
  co_return std::nullopt;
}

void ExchangeJudge::PrepareWebSocket(WebSocketOffer* offer) {
  if (credential_ == nullptr) return;
  websocket = {credential_->TextEdit(), credential_->Search()};
  // What is compressed cannot be edited or searched; an extension that is not offered cannot be agreed on.
  if (websocket.edit || websocket.search) offer->deflate.clear();
}

void ExchangeJudge::TakeEdits() {
  if (!credential_->edited()) return;
  const OutgoingHead& head = credential_->head();
  const auto is_same = [](const Field& a, const Field& b) {
    return a.name.data() == b.name.data() && a.value.data() == b.value.data() && a.value.size() == b.value.size();
  };
  // Every field of a name that one was changed of goes, and what is left of them comes back.
  for (const Field& field : request.fields)
    if (field.forward && std::ranges::none_of(head.fields, [&](const Field& kept) { return is_same(field, kept); }))
      edits.removed.emplace_back(field.name);
  for (const Field& field : head.fields) {
    const bool parsed = std::ranges::any_of(request.fields, [&](const Field& sent) { return is_same(field, sent); });
    if (!parsed || edits.Removes(field)) edits.added.emplace_back(field.name, field.value);
  }
  if (head.target != target_.ForUpstream()) edits.target = head.target;
  request.trailer = head.trailer;
}

policy::RuleRef ExchangeJudge::RuleNow() const {
  return decided_generation_ == flow_.worker().generation() ? decision_.rule : policy::RuleRef::kNone;
}

Denial ExchangeJudge::Refused(CredentialFailure failure) const {
  Denial denial;
  denial.status = failure.status;
  denial.decision = {false, failure.reason, RuleNow(), false};
  denial.detail = std::move(failure.detail);
  denial.proxy_error = failure.status == 403 ? "http_request_denied" : "proxy_internal_error";
  return denial;
}

Denial ExchangeJudge::DenialFor(CredentialFailure failure) {
  Denial denial = Refused(std::move(failure));
  RecordExchange(denial.detail, denial.status);
  return denial;
}

bool ExchangeJudge::StillAllowed(std::optional<IpAddress> address) {
  if (!flow_.JudgeConnect(address).allowed()) return false;
  if (!understood_) return true;
  if (!address && is_remote() && !flow_.JudgeRemote().allowed()) return false;
  const policy::Decision decision = Ask(address);
  if (!decision.allowed) return reading_body_ && decision.body_needed != 0;
  return reading_body_ || TakesSameWay(decision);
}

bool ExchangeJudge::may_repeat() const {
  static constexpr std::array<std::string_view, 5> kIdempotent = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
  return !has_body() && std::ranges::find(kIdempotent, request.method) != kIdempotent.end();
}

std::string ExchangeJudge::ForUpstream() const { return edits.target ? *edits.target : target_.ForUpstream(); }

Denial ExchangeJudge::DenialFor(const Fault& fault) const {
  Denial denial;
  denial.status = fault.status;
  denial.decision = {false, ReasonFor(fault), policy::RuleRef::kNone, false};
  denial.detail = fault.why;
  denial.proxy_error = fault.status == 403 || fault.status == 421 ? "http_request_denied" : "http_request_error";
  return denial;
}

Denial ExchangeJudge::DenialFor(DialFailure failure) {
  Denial denial;
  denial.status = failure.status;
  const policy::Reason reason = failure.refused ? failure.refused->reason : policy::Reason::kUpstream;
  denial.decision = {false, reason, failure.refused ? failure.refused->rule : RuleNow(), false};
  if (failure.refused && reason != policy::Reason::kLimit)
    denial.advice = flow_.worker().snapshot()->AdviseRequest(Query(failure.address), denial.decision);
  denial.detail = std::move(failure.detail);
  denial.proxy_error = failure.proxy_error;
  RecordExchange(denial.detail, denial.status);
  return denial;
}

Denial ExchangeJudge::DenialForLost(const Fault& fault) {
  if (astray_) return DenialFor(*std::exchange(astray_, std::nullopt));
  const bool by_client = fault.status >= 400 && fault.status < 500;
  DialFailure lost;
  if (fault) lost.status = fault.status;
  lost.proxy_error = by_client             ? "http_request_error"
                     : fault.status == 504 ? "http_response_timeout"
                     : fault               ? "http_protocol_error"
                                           : "connection_terminated";
  const std::string answerer = IsForwarded(dial_) ? fmt::format("the upstream proxy {}", dial_.via->name) : host_field_;
  lost.detail = by_client ? std::string(fault.why) : fmt::format("{} answered with {}", answerer, fault.why);
  return DenialFor(std::move(lost));
}

SteadyTime ExchangeJudge::Deadline(Awaited awaited) const {
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  const bool stuck = awaited == Awaited::kRequestTaken || awaited == Awaited::kResponseTaken;
  const auto idle = stuck                              ? deadlines.write_stuck
                    : awaited == Awaited::kRequestBody ? deadlines.request_body_idle
                                                       : deadlines.response_idle;
  return std::min<SteadyTime>(flow_.worker().reactor().now() + idle, started + deadlines.exchange);
}

SteadyTime ExchangeJudge::CarryDeadline(Awaited awaited) {
  Worker& worker = flow_.worker();
  const SteadyTime deadline = Deadline(awaited);
  if (awaited != Awaited::kRequestTaken && awaited != Awaited::kRequestBody) {
    pace_since_.reset();
    return deadline;
  }
  if (!pace_since_ || bytes_up - paced_ >= kRequestBodyPaceOctets) {
    pace_since_ = worker.reactor().now();
    paced_ = bytes_up;
  }
  return std::min<SteadyTime>(deadline, *pace_since_ + worker.shared().options().deadlines.request_body_pace);
}

// A whole exchange that is over counts before what it waited for.
Fault ExchangeJudge::TimedOut(Awaited awaited) const {
  const SteadyTime now = flow_.worker().reactor().now();
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  if (now >= started + deadlines.exchange) return {504, "an exchange that took longer than any may"};
  if (pace_since_ && now >= *pace_since_ + deadlines.request_body_pace)
    return awaited == Awaited::kRequestBody ? Fault{408, "a request body that came too slowly"}
                                            : Fault{504, "a request that it took too slowly"};
  switch (awaited) {
    case Awaited::kRequestTaken:
      return {504, "a request of which it took nothing for too long"};
    case Awaited::kResponseTaken:
      return {504, "a response of which the client took nothing for too long"};
    case Awaited::kRequestBody:
      return {408, "a request body of which nothing arrived in time"};
    case Awaited::kResponseHead:
      return {504, "a response head that did not arrive in time"};
    case Awaited::kResponse:
      break;
  }
  return {504, "no answer in time"};
}

policy::EventTarget ExchangeJudge::EventTargetNow() const {
  policy::EventTarget target = flow_.EventTargetFor(std::nullopt);
  target.scheme = SchemeText(scheme_);
  target.method = request.method;
  if (dial_.via != nullptr) target.via = dial_.via->name;
  if (!understood_) {
    // Asked of the proxy as if it were a server: the path is all there is. What is no path may hold a password.
    const std::string_view asked = request.target;
    if (target.port == 0 && asked.starts_with('/')) {
      const size_t mark = std::min(asked.find('?'), asked.size());
      target.path = asked.substr(0, std::min(mark, kMaxUnreadPath));
      target.query = QueryKeys(asked.substr(std::min(mark + 1, asked.size())));
    }
    return target;
  }
  target.path = target_.path;
  target.query = QueryKeys(target_.query);
  target.asked = asked_;
  return target;
}

void ExchangeJudge::RecordDenial(Denial* denial) {
  denial->target = EventTargetNow();
  flow_.Fill(denial);
  if (RefusesPush(*denial)) AnswerPush(denial);
  (void)RecordDecision(denial->decision, denial);
}

bool ExchangeJudge::RecordDecision(const policy::Decision& decision, const Denial* denial) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.connection = flow_.id();
  event.request = number_;
  event.layer = policy::EventLayer::kRequest;
  event.target = denial != nullptr ? denial->target : EventTargetNow();
  event.process = flow_.target().process;
  event.decision = decision;
  event.snapshot = flow_.worker().snapshot();
  if (denial != nullptr) {
    event.detail = denial->detail;
    event.advice = denial->advice;
    event.denial_id = denial->id;
  } else if (decision.audit_only) {
    event.advice = event.snapshot->AdviseRequest(Query(std::nullopt), decision);
    event.denial_id = flow_.worker().shared().sink().NextDenialId();
  }
  return flow_.worker().shared().sink().Record(std::move(event));
}

void ExchangeJudge::RecordCut(std::string_view error, int status) {
  if (astray_) {
    Denial denial = Refused(*std::exchange(astray_, std::nullopt));
    RecordDenial(&denial);
  }
  RecordExchange(error, status);
}

void ExchangeJudge::RecordWebSocket(const WebSocketOutcome& outcome, int status) {
  bytes_up = outcome.bytes_up;
  bytes_down = outcome.bytes_down;
  close_code = outcome.close_code;
  if (credential_ != nullptr) astray_ = credential_->TakeAstray();
  RecordCut(outcome.error, status);
}

void ExchangeJudge::RecordExchange(std::string_view error, int status) {
  policy::ExchangeEvent event;
  event.time = SystemClock().Wall();
  event.connection = flow_.id();
  event.request = number_;
  event.target = EventTargetNow();
  if (upstream_address) event.target.address = upstream_address;
  event.process = flow_.target().process;
  event.rule = decision_.rule;
  event.snapshot = decided_by_ != nullptr ? decided_by_ : flow_.worker().snapshot();
  event.status = status;
  event.bytes_up = bytes_up;
  event.bytes_down = bytes_down;
  event.close_code = close_code;
  event.duration = std::chrono::duration_cast<std::chrono::microseconds>(SystemClock().Steady() - started);
  event.error = error;
  // A finished exchange cannot be refused any more; the sink counts what it could not keep.
  (void)flow_.worker().shared().sink().Record(std::move(event));
}

}  // namespace sluice::proxy
