#include "prover/replay.h"

#include <algorithm>

#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/target.h"
#include "prover/process_domain.h"
#include "prover/request_bodies.h"
#include "prover/ways.h"

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

  /// When the body is shown to the policy.
  enum class Body : uint8_t { kWhereAsked, kAlways };
  [[nodiscard]] Decision Request(const Snapshot& snapshot, const std::string& method, const std::string& path, Body body) const {
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
    query.upgrade = witness_.upgrade;
    Decision decision = snapshot.DecideRequest(query);
    asked_body_ = decision.body_needed != 0;
    if (!asked_body_ && body == Body::kWhereAsked) return decision;
    constexpr policy::BodyKinds kEvery = 0xff;
    const policy::RequestBody read = AsRequestBody(witness_.body, asked_body_ ? decision.body_needed : kEvery);
    query.body = &read;
    return snapshot.DecideRequest(query);
  }
  [[nodiscard]] bool asked_body() const { return asked_body_; }

  [[nodiscard]] policy::NameDecision Name(const Snapshot& snapshot) const {
    return snapshot.DecideName({process_ ? &*process_ : nullptr, witness_.host, witness_.dns_type, witness_.time});
  }
  [[nodiscard]] Decision Socket(const Snapshot& snapshot) const {
    return snapshot.DecideUnix({process_ ? &*process_ : nullptr, witness_.path, witness_.time});
  }

 private:
  const Witness& witness_;
  std::optional<policy::Process> process_;
  mutable bool asked_body_ = false;
};

Answer Of(bool reached, const Decision& decision) {
  // Bytes on a connection that is inspected are no HTTP: the connection is allowed, they are not.
  const bool inspected = !reached && decision.allowed;
  Answer answer;
  answer.reached = answer.let_out = reached;
  answer.reason = inspected ? policy::Reason::kProtocol : decision.reason;
  answer.rule = inspected ? policy::RuleRef::kNone : decision.rule;
  return answer;
}

// Whether the upstream's keys that one decision accepts are among those of the other.
bool PinsHold(const Snapshot& outer, const Decision& wide, const Snapshot& inner, const Decision& narrow) {
  if (wide.pinned_by == policy::RuleRef::kNone) return true;
  if (narrow.pinned_by == policy::RuleRef::kNone) return false;
  const auto all = outer.pins(wide.pinned_by);
  return std::ranges::all_of(inner.pins(narrow.pinned_by),
                             [&](const auto& pin) { return std::ranges::find(all, pin) != all.end(); });
}

// What becomes of the witness, over all layers: bytes that pass unread go the way of their connection. Cleartext where only TLS
// may pass is looked into.
Decision Whole(const Snapshot& snapshot, const Witness& witness) {
  const Asked asked(witness);
  const policy::ConnectDecision connect = snapshot.DecideConnect(asked.Connection());
  const bool looked_into = connect.verdict == ConnectVerdict::kInspect ||
                           (connect.verdict == ConnectVerdict::kOpaqueTls && witness.scheme == policy::Scheme::kHttp);
  if (witness.layer != Layer::kHttp || !looked_into) return connect.decision;
  return asked.Request(snapshot, witness.method, witness.path, Asked::Body::kWhereAsked);
}

std::string NameOf(const Snapshot& snapshot, const Witness& witness, const Decision& decision) {
  const Way way = witness.way;
  if (way == Way::kOwn && ReplacedField(snapshot, decision.credential) != witness.way_name) return witness.way_name;
  if ((way == Way::kCredential || way == Way::kOwn) && decision.credential != policy::kNoIndex16)
    return snapshot.credentials()[decision.credential].name;
  if (way == Way::kVia && decision.via != policy::kNoIndex16) return snapshot.proxies()[decision.via].name;
  return "";
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
  const Decision decision = asked.Request(snapshot, witness.method, witness.path, Asked::Body::kWhereAsked);
  Answer answer = Of(decision.allowed && connect.allowed(), decision);
  answer.asks_body = asked.asked_body();
  return answer;
}

Answer ReplayWay(const Snapshot& snapshot, const Snapshot& winner, const Witness& witness) {
  Answer answer = Replay(snapshot, witness);
  if (!answer.let_out) return answer;
  const Decision mine = Whole(winner, witness);
  const Decision other = Whole(snapshot, witness);
  answer.way = NameOf(snapshot, witness, other);
  switch (witness.way) {
    case Way::kAny:
      break;
    case Way::kCredential:
      answer.reached = mine.credential != policy::kNoIndex16 &&
                       CredentialText(winner, mine.credential) == CredentialText(snapshot, other.credential);
      break;
    case Way::kOwn:
      answer.reached = ReplacedField(snapshot, other.credential) != witness.way_name;
      break;
    case Way::kVia:
      answer.reached = ProxyText(winner, mine.via) == ProxyText(snapshot, other.via);
      break;
    case Way::kUnpinned:
      answer.reached = PinsHold(snapshot, other, winner, mine);
      break;
  }
  return answer;
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
      return asked.Request(never, witness.method, witness.path, Asked::Body::kAlways).reason == kDenied;
    case Layer::kTls:  // a deny of TLS closes every request in it
      return asked.Request(never, "GET", "/", Asked::Body::kWhereAsked).reason == kDenied;
    case Layer::kUdp:
    case Layer::kTcp:
      break;
  }
  return never.DecideConnect(asked.Connection()).decision.reason == kDenied;
}

}  // namespace sluice::prover
