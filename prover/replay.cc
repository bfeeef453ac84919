#include "prover/replay.h"

#include "policy/target.h"
#include "prover/process_domain.h"

namespace sluice::prover {
namespace {

using policy::ConnectVerdict;
using policy::Decision;
using policy::Snapshot;

// Everything that the queries borrow.
class Asked {
 public:
  explicit Asked(const Witness& witness) : witness_(witness), process_(AsProcess(witness.process)) {}

  [[nodiscard]] policy::ConnectQuery Connection() const {
    policy::ConnectQuery query;
    query.process = process_ ? &*process_ : nullptr;
    query.host = witness_.host;
    query.address = witness_.address ? *witness_.address : IpAddress::FromV4(0x01010101);
    query.port = witness_.port;
    query.transport = witness_.layer == Layer::kUdp ? policy::Transport::kUdp : policy::Transport::kTcp;
    query.now = witness_.time;
    return query;
  }

  [[nodiscard]] Decision Request(const Snapshot& snapshot, const std::string& method, const std::string& path) const {
    const auto target = policy::CanonicalizeTarget(witness_.has_query ? path + '?' + witness_.query : path);
    // A witness is in canonical form, or it is none.
    if (!target || target->ForMatching() != path) return {};
    std::vector<policy::HeaderView> headers;
    for (const auto& [name, value] : witness_.headers) headers.emplace_back(name, value);
    policy::RequestQuery query;
    query.connection = Connection();
    query.scheme = witness_.scheme;
    query.method = method;
    query.target = &*target;
    query.headers = headers;
    return snapshot.DecideRequest(query);
  }

  [[nodiscard]] policy::NameDecision Name(const Snapshot& snapshot) const {
    return snapshot.DecideName({process_ ? &*process_ : nullptr, witness_.host, witness_.dns_type, witness_.time});
  }
  [[nodiscard]] Decision Socket(const Snapshot& snapshot) const {
    return snapshot.DecideUnix({process_ ? &*process_ : nullptr, witness_.path, witness_.time});
  }

 private:
  const Witness& witness_;
  std::optional<policy::Process> process_;
};

Answer Of(bool reached, const Decision& decision) {
  // Bytes on a connection that is inspected are no HTTP: the connection is allowed, they are not.
  const bool inspected = !reached && decision.allowed;
  return {reached, inspected ? policy::Reason::kProtocol : decision.reason, inspected ? policy::RuleRef::kNone : decision.rule};
}

}  // namespace

Answer Replay(const Snapshot& snapshot, const Witness& witness) {
  const Asked asked(witness);
  if (witness.layer == Layer::kDns) {
    const auto name = asked.Name(snapshot);
    return Of(name.verdict == policy::NameVerdict::kAllow, name.decision);
  }
  if (witness.layer == Layer::kUnix) {
    const Decision decision = asked.Socket(snapshot);
    return Of(decision.allowed, decision);
  }
  const auto connect = snapshot.DecideConnect(asked.Connection());
  switch (witness.layer) {
    case Layer::kUdp:
      return Of(connect.allowed(), connect.decision);
    case Layer::kTcp:
      return Of(connect.verdict == ConnectVerdict::kOpaqueTcp, connect.decision);
    case Layer::kTls:
      return Of(connect.verdict == ConnectVerdict::kOpaqueTcp || connect.verdict == ConnectVerdict::kOpaqueTls, connect.decision);
    default:
      break;
  }
  const Decision decision = asked.Request(snapshot, witness.method, witness.path);
  return Of(decision.allowed && connect.allowed(), decision);
}

bool Denies(const Snapshot& never, const Witness& witness) {
  const Asked asked(witness);
  constexpr auto kDenied = policy::Reason::kDenyRule;
  switch (witness.layer) {
    case Layer::kDns:
      return asked.Name(never).decision.reason == kDenied;
    case Layer::kUnix:
      return asked.Socket(never).reason == kDenied;
    case Layer::kHttp:
      return asked.Request(never, witness.method, witness.path).reason == kDenied;
    case Layer::kTls:  // a deny of TLS closes every request in it
      return asked.Request(never, "GET", "/").reason == kDenied;
    case Layer::kUdp:
    case Layer::kTcp:
      break;
  }
  return never.DecideConnect(asked.Connection()).decision.reason == kDenied;
}

}  // namespace sluice::prover
