#include "proxy/io/flow_context.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/fault.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

policy::EventTarget TargetOf(const FlowTarget& flow, std::optional<IpAddress> address) {
  policy::EventTarget target;
  target.host = flow.host;
  target.address = address;
  // A request that names no place went to none.
  if (!address && flow.host.empty() && flow.destination.port != 0) target.address = flow.destination.address;
  target.port = flow.destination.port;
  return target;
}

}  // namespace

FlowContext::FlowContext(Worker& worker, Flow flow, std::unique_ptr<Stream> met)
    : down_(met != nullptr ? std::move(met) : std::make_unique<Stream>()),
      waiter(worker.reactor()),
      down(*down_),
      worker_(worker),
      id_(flow.id),
      target_(std::move(flow.target)) {
  if (down.channel.open()) return;
  const int fd = flow.downstream.get();
  // One that blocks would hold up every other flow of this worker.
  const int flags = Faulty("flow.flags", [&] { return fcntl(fd, F_GETFL); });
  const bool waits = flags < 0 || ((flags & O_NONBLOCK) == 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (waits || !down.channel.Open(worker.reactor(), std::move(flow.downstream), kReadable | kWritable)) waiter.Cancel();
}

std::string FlowContext::name_text() const {
  return target_.host.empty() ? target_.destination.address.ToString() : target_.host;
}

policy::ConnectQuery FlowContext::Query(std::optional<IpAddress> address) const { return QueryFor(worker_, target_, address); }

policy::ConnectDecision FlowContext::JudgeConnect(std::optional<IpAddress> address) {
  return proxy::JudgeConnect(worker_, target_, address);
}

bool FlowContext::AddressApproved(const IpAddress& address) {
  if (approved_ == address && approved_generation_ == worker_.generation()) return true;
  if (!JudgeConnect(address).allowed()) return false;
  approved_ = address;
  approved_generation_ = worker_.generation();
  return true;
}

policy::EventTarget FlowContext::EventTargetFor(std::optional<IpAddress> address) const { return TargetOf(target_, address); }

bool FlowContext::RecordConnect(policy::EventLayer layer, const policy::ConnectDecision& decision,
                                std::optional<IpAddress> address, std::string detail) {
  return RecordConnectDecision(worker_, id_, target_, layer, decision, address, std::move(detail));
}

bool RecordConnectDecision(Worker& worker, uint64_t id, const FlowTarget& flow, policy::EventLayer layer,
                           const policy::ConnectDecision& decision, std::optional<IpAddress> address, std::string detail) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.connection = id;
  event.layer = layer;
  event.target = TargetOf(flow, address);
  event.process = flow.process;
  event.decision = decision.decision;
  event.snapshot = worker.snapshot();
  event.detail = std::move(detail);
  if (!decision.allowed() || decision.decision.audit_only) {
    event.denial_id = worker.shared().sink().NextDenialId();
    event.decision.allowed = decision.allowed();
    // No rule helps against a limit.
    const bool of_policy = decision.decision.reason != policy::Reason::kLimit;
    if (layer == policy::EventLayer::kConnect && of_policy)
      event.advice = event.snapshot->AdviseConnect(QueryFor(worker, flow, address), decision);
  }
  return worker.shared().sink().Record(std::move(event));
}

void FlowContext::Fill(Denial* denial) {
  const auto& snapshot = worker_.snapshot();
  denial->process = target_.process;
  denial->policy_digest = snapshot->digest();
  if (const auto* rule = snapshot->rule(denial->advice.nearest); rule != nullptr) denial->nearest_rule = rule->text;
  if (denial->id.empty()) denial->id = worker_.shared().sink().NextDenialId();
}

std::string QueryKeys(std::string_view query) {
  std::string keys;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const std::string_view key = pair.substr(0, pair.find('='));
    if (!key.empty()) {
      if (!keys.empty()) keys += '&';
      keys += key;
      keys += '=';
    }
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return keys;
}

}  // namespace sluice::proxy
