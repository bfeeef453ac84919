// Who a client of the explicit proxy is, and what it is told when it is refused.

#include <fmt/format.h>

#include "proxy/io/explicit_client.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// Whether the policy has anything to say that could help against this.
bool IsOfPolicy(policy::Reason reason) {
  switch (reason) {
    case policy::Reason::kLimit:
    case policy::Reason::kUpstream:
    case policy::Reason::kProtocol:
    case policy::Reason::kUnattributed:
    case policy::Reason::kUnsupported:
    case policy::Reason::kInternal:
      return false;
    default:
      return true;
  }
}

}  // namespace

policy::ConnectDecision DeniedFor(policy::Reason reason) {
  return {policy::ConnectVerdict::kDeny, {false, reason, policy::RuleRef::kNone, false}};
}

policy::ProcessPtr ExplicitClient::Who(const policy::ProcessPtr& shown) const {
  if (shown != nullptr || process_ != nullptr) return WithToken(process_, shown);
  auto process = std::make_shared<policy::Process>();
  if (source_) process->client = source_->address.ToString();
  return process;
}

FlowTarget ExplicitClient::TargetFor(const ProxyTarget& place) const {
  return {place.host, Endpoint{place.literal, place.port}, who_};
}

Denial ExplicitClient::Deny(const FlowTarget& target, Refusal refusal, std::string_view method) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.connection = id_;
  event.layer = policy::EventLayer::kConnect;
  event.target.host = target.host;
  event.target.address = refusal.address;
  if (target.host.empty() && target.destination.port != 0) event.target.address = target.destination.address;
  event.target.port = target.destination.port;
  event.process = target.process;
  event.decision = refusal.decision.decision;
  event.decision.allowed = false;
  event.snapshot = worker_.snapshot();
  event.detail = refusal.detail;
  event.denial_id = worker_.shared().sink().NextDenialId();
  if (IsOfPolicy(event.decision.reason))
    event.advice = event.snapshot->AdviseConnect(QueryFor(worker_, target, refusal.address), refusal.decision);
  Denial denial;
  denial.status = refusal.status;
  denial.decision = event.decision;
  denial.advice = event.advice;
  if (target.process != nullptr && !target.process->exe.path.empty()) denial.process = target.process;
  denial.target = event.target;
  denial.target.method = method;
  denial.id = event.denial_id;
  denial.detail = std::move(refusal.detail);
  if (const auto* rule = event.snapshot->rule(event.advice.nearest); rule != nullptr) denial.nearest_rule = rule->text;
  denial.policy_digest = event.snapshot->digest();
  denial.proxy_error = refusal.proxy_error;
  (void)worker_.shared().sink().Record(std::move(event));
  return denial;
}

Task<> ExplicitClient::RefuseFault(const RequestHead* head, Fault fault) {
  Refusal refusal;
  refusal.decision = DeniedFor(fault.status == 414 || fault.status == 431 ? policy::Reason::kLimit : policy::Reason::kProtocol);
  refusal.status = fault.status;
  refusal.detail = fault.why;
  refusal.proxy_error = "http_request_error";
  FlowTarget nowhere;
  nowhere.process = who_;
  const Denial denial = Deny(nowhere, std::move(refusal), head != nullptr ? head->method : "");
  AppendDenial(&out_, denial, DenialForm::kJson, Keep::kClose, "");
  co_await FlushAndLinger();
}

// About the client itself: it has not come to ask for anything.
void ExplicitClient::Note(policy::Reason reason, std::string detail) {
  FlowTarget nowhere;
  nowhere.process = who_;
  Refusal refusal;
  refusal.decision = DeniedFor(reason);
  refusal.detail = std::move(detail);
  (void)Deny(nowhere, std::move(refusal), "");
}

void AppendChallenge(Buffer* out, Keep keep) {
  constexpr std::string_view kBody = "sluice: this proxy wants a token: set it as user and password of the proxy's URL\n";
  out->Append(
      fmt::format("HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm=\"sluice\"\r\n"
                  "proxy-authenticate: Bearer\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n{}\r\n{}",
                  kBody.size(), keep == Keep::kClose ? "connection: close\r\n" : "", kBody));
}

}  // namespace sluice::proxy
