#include "prover/replay.h"

#include <algorithm>

#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/no_proxy.h"
#include "policy/target.h"
#include "prover/process_domain.h"
#include "prover/request_bodies.h"
#include "prover/ways.h"

namespace sluice::prover {
namespace {

using policy::ConnectVerdict;
using policy::Decision;
using policy::Snapshot;

// Everything that the queries borrow. They are asked as the enforcer asks: what goes by name through an upstream proxy is looked
// up there and judged for an address that nobody knows; whether it does is asked before there is one.
class Asked {
 public:
  explicit Asked(const Witness& witness) : witness_(witness), process_(AsProcess(witness.process)) {}

  [[nodiscard]] policy::ConnectDecision Connect(const Snapshot& snapshot) const {
    if (MayBeRemote(snapshot)) {
      const policy::ConnectDecision way = snapshot.DecideConnect(Connection(Address::kOpen));
      if (way.allowed() && way.verdict != ConnectVerdict::kInspect && IsRemote(snapshot, way.decision))
        return snapshot.DecideConnect(Connection(Address::kRemote));
    }
    return snapshot.DecideConnect(Connection(Address::kKnown));
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
    query.connection = Connection(Address::kKnown);
    query.scheme = witness_.scheme;
    query.method = method;
    query.target = &*target;
    query.headers = headers;
    query.upgrade = witness_.upgrade;
    remote_ = false;
    if (MayBeRemote(snapshot)) {
      policy::RequestQuery open = query;
      open.connection = Connection(Address::kOpen);
      if (IsRemote(snapshot, Judged(snapshot, open, body))) {
        remote_ = true;
        open.connection = Connection(Address::kRemote);
        if (!snapshot.DecideConnect(open.connection).allowed()) return snapshot.DecideConnect(open.connection).decision;
        return Judged(snapshot, open, body);
      }
    }
    return Judged(snapshot, query, body);
  }
  [[nodiscard]] bool asked_body() const { return asked_body_; }
  /// Whether the request last asked about was one for which no address is known; its connection was asked for then.
  [[nodiscard]] bool remote() const { return remote_; }

  [[nodiscard]] policy::NameDecision Name(const Snapshot& snapshot) const {
    return snapshot.DecideName({process_ ? &*process_ : nullptr, witness_.host, witness_.dns_type, witness_.time});
  }
  [[nodiscard]] Decision Socket(const Snapshot& snapshot) const {
    return snapshot.DecideUnix({process_ ? &*process_ : nullptr, witness_.path, witness_.time});
  }

 private:
  enum class Address : uint8_t { kKnown, kOpen, kRemote };
  [[nodiscard]] policy::ConnectQuery Connection(Address address) const {
    policy::ConnectQuery query;
    query.process = process_ ? &*process_ : nullptr;
    query.host = witness_.host;
    if (address == Address::kKnown) query.address = witness_.address ? *witness_.address : IpAddress::FromV4(0x01010101);
    query.remote = address == Address::kRemote;
    query.port = witness_.port;
    query.transport = witness_.layer == Layer::kUdp ? policy::Transport::kUdp : policy::Transport::kTcp;
    query.now = witness_.time;
    return query;
  }
  // No proxy carries datagrams.
  [[nodiscard]] bool MayBeRemote(const Snapshot& snapshot) const {
    return witness_.layer != Layer::kUdp && !witness_.host.empty() && !snapshot.proxies().empty();
  }
  [[nodiscard]] bool IsRemote(const Snapshot& snapshot, const Decision& way) const {
    return way.allowed && way.via != policy::kNoIndex16 &&
           !policy::IsExcepted(snapshot.proxies()[way.via], witness_.host, {}, witness_.port);
  }
  [[nodiscard]] Decision Judged(const Snapshot& snapshot, policy::RequestQuery query, Body body) const {
    Decision decision = snapshot.DecideRequest(query);
    asked_body_ = decision.body_needed != 0;
    if (!asked_body_ && body == Body::kWhereAsked) return decision;
    constexpr policy::BodyKinds kEvery = 0xff;
    const policy::RequestBody read = AsRequestBody(witness_.body, asked_body_ ? decision.body_needed : kEvery);
    query.body = &read;
    return snapshot.DecideRequest(query);
  }

  const Witness& witness_;
  std::optional<policy::Process> process_;
  mutable bool asked_body_ = false;
  mutable bool remote_ = false;
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
  const policy::ConnectDecision connect = asked.Connect(snapshot);
  const bool unread = connect.verdict == ConnectVerdict::kOpaqueTcp ||
                      (connect.verdict == ConnectVerdict::kOpaqueTls && witness.scheme == policy::Scheme::kHttps);
  if (witness.layer != Layer::kHttp || unread) return connect.decision;
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
  const auto connect = asked.Connect(snapshot);
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
  Answer answer = Of(decision.allowed && (asked.remote() || connect.allowed()), decision);
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
  return asked.Connect(never).decision.reason == kDenied;
}

}  // namespace sluice::prover
