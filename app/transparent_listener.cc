#include "app/transparent_listener.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "supervisor/canary.h"
#include "supervisor/io/redirect_sockets.h"

namespace sluice::app {
namespace {

void Reset(UniqueFd socket) {
  const linger abort{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
}

}  // namespace

struct TransparentListener::Arrival {
  uint64_t id = 0;
  Endpoint source;
  Endpoint destination;
  bool synthetic = false;
  std::vector<std::string> names{};
  policy::ProcessPtr process{};
  policy::SnapshotPtr snapshot{};

  [[nodiscard]] std::string host() const { return names.empty() ? "" : names.front(); }
};

policy::EventTarget TransparentListener::TargetOf(const Arrival& arrival) {
  policy::EventTarget target;
  target.host = arrival.host();
  if (!arrival.synthetic && arrival.destination.port != 0) target.address = arrival.destination.address;
  target.port = arrival.destination.port;
  return target;
}

Result<std::unique_ptr<TransparentListener>> TransparentListener::Start(TransparentSetup setup, std::vector<UniqueFd> listeners,
                                                                        std::unique_ptr<supervisor::ClientProcesses> processes,
                                                                        std::vector<IpAddress> host_addresses) {
  auto loop = AcceptLoop::Create(std::move(listeners));
  if (!loop) return std::unexpected(loop.error());
  std::unique_ptr<TransparentListener> made(new TransparentListener(setup, std::move(processes), std::move(host_addresses)));
  made->loop_ = *std::move(loop);
  made->loop_->Start([self = made.get()](UniqueFd socket, const sockaddr_storage& from, socklen_t size) {
    self->Take(std::move(socket), from, size);
  });
  return made;
}

void TransparentListener::Take(UniqueFd socket, const sockaddr_storage& from, socklen_t size) {
  const auto source = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&from), size);
  if (!source) return Reset(std::move(socket));
  Arrival arrival{.id = ++next_id_, .source = *source, .destination = {}};
  arrival.snapshot = setup_.policy.Get();
  const auto destination = supervisor::OriginalDestination(socket.get());
  if (!destination) {
    Refuse(arrival, {.allowed = false, .reason = policy::Reason::kUnattributed}, {},
           fmt::format("{} dialled the proxy's own port", source->ToString()));
    return Reset(std::move(socket));
  }
  arrival.destination = *destination;
  if (arrival.destination == supervisor::kCanary || arrival.destination == supervisor::kCanary6) {
    Reset(std::move(socket));
    canaries_.fetch_add(1, std::memory_order_release);
    return;
  }
  if (AnswersCanary(socket.get(), arrival.destination)) return;
  if (processes_ != nullptr)
    arrival.process =
        processes_->OfTcpPeer(*source, arrival.destination,
                              arrival.snapshot->NeedsDigests() ? supervisor::Digests::kNeeded : supervisor::Digests::kNone);
  if (!Judge(arrival)) return Reset(std::move(socket));
  proxy::Flow flow;
  flow.id = arrival.id;
  flow.downstream = std::move(socket);
  flow.source = arrival.source;
  flow.target = {arrival.host(), arrival.destination, std::move(arrival.process), !arrival.synthetic && !arrival.names.empty()};
  if (arrival.names.size() > 1) flow.names = std::move(arrival.names);
  setup_.engine.Accept(std::move(flow));
}

// An ordinary connection's way there and back, without an upstream.
bool TransparentListener::AnswersCanary(int socket, const Endpoint& destination) const {
  const bool reserved = destination.address == supervisor::kCanary.address || destination.address == supervisor::kCanary6.address;
  if (!reserved || destination.port != supervisor::kAnsweredPort || setup_.canary.empty()) return false;
  (void)::send(socket, setup_.canary.data(), setup_.canary.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

std::optional<std::vector<std::string>> TransparentListener::NamesOf(const IpAddress& address) const {
  if (!setup_.pool.InRange(address)) return setup_.history.NamesOf(address, SystemClock().Steady());
  auto name = setup_.pool.NameOf(address);
  if (!name) return std::nullopt;
  return std::vector<std::string>{*std::move(name)};
}

policy::ConnectQuery TransparentListener::QueryFor(const Arrival& arrival, const std::string& host) const {
  policy::ConnectQuery query;
  query.process = arrival.process.get();
  query.host = host;
  if (host.empty() || !arrival.synthetic) query.address = arrival.destination.address;
  query.port = arrival.destination.port;
  query.now = SystemClock().Wall();
  query.host_addresses = host_addresses_;
  return query;
}

// Leaves in the arrival the names that some rule lets out; the others were told before the policy changed.
bool TransparentListener::Judge(Arrival& arrival) {
  arrival.synthetic = setup_.pool.InRange(arrival.destination.address);
  auto names = NamesOf(arrival.destination.address);
  if (!names) {
    Refuse(arrival, {.allowed = false, .reason = policy::Reason::kDns}, {}, "no name stands behind this synthetic address");
    return false;
  }
  std::vector<std::string> allowed;
  for (const std::string& name : *names)
    if (arrival.snapshot->DecideConnect(QueryFor(arrival, name)).allowed()) allowed.push_back(name);
  arrival.names = allowed.empty() ? *std::move(names) : std::move(allowed);
  const std::string host = arrival.host();
  const policy::ConnectQuery query = QueryFor(arrival, host);
  const policy::ConnectDecision decision = arrival.snapshot->DecideConnect(query);
  const bool told = !decision.allowed() || decision.decision.audit_only;
  policy::Advice advice = told ? arrival.snapshot->AdviseConnect(query, decision) : policy::Advice{};
  if (!decision.allowed()) {
    Refuse(arrival, decision.decision, std::move(advice), {});
    return false;
  }
  supervisor::Judged judged{.layer = policy::EventLayer::kConnect,
                            .target = TargetOf(arrival),
                            .process = arrival.process,
                            .decision = decision.decision,
                            .advice = std::move(advice),
                            .snapshot = arrival.snapshot,
                            .detail = {},
                            .connection = arrival.id};
  return journal_.Allowed(std::move(judged));
}

void TransparentListener::Refuse(const Arrival& arrival, policy::Decision decision, policy::Advice advice, std::string detail) {
  supervisor::Judged judged{.layer = policy::EventLayer::kConnect,
                            .target = TargetOf(arrival),
                            .process = arrival.process,
                            .decision = decision,
                            .advice = std::move(advice),
                            .snapshot = arrival.snapshot,
                            .detail = std::move(detail),
                            .connection = arrival.id};
  journal_.Denied(std::move(judged));
}

}  // namespace sluice::app
