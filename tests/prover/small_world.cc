#include "tests/prover/small_world.h"

#include <map>

#include "policy/credential.h"
#include "policy/no_proxy.h"
#include "policy/routes.h"
#include "policy/rule_text.h"
#include "policy/target.h"
#include "prover/process_domain.h"
#include "prover/request_bodies.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::Rule;

constexpr std::chrono::hours kDay{24};

// "k=a*|b".
policy::ValueMatcher Matcher(const std::string& text) {
  const size_t equals = text.find('=');
  policy::ValueMatcher matcher{text.substr(0, equals), {}};
  std::string rest = text.substr(equals + 1);
  while (true) {
    const size_t bar = rest.find('|');
    matcher.values.push_back(Value(Glob::Text(rest.substr(0, bar))));
    if (bar == std::string::npos) return matcher;
    rest = rest.substr(bar + 1);
  }
}

policy::Pin PinOf(uint8_t byte) {
  policy::Pin pin{};
  pin.fill(byte);
  return pin;
}

// What no loader lets through (CheckRoute) is not drawn.
void DrawWay(Rule* rule, const Draw& draw) {
  using policy::Verb;
  if (!rule->allow) return;
  const bool inner = policy::IsInner(rule->verb);
  const bool secured = inner && rule->scheme != policy::Scheme::kHttp;
  const bool routed = inner || rule->verb == Verb::kTls || (rule->verb == Verb::kTcp && !rule->host.cidr);
  if (secured && draw(3) == 0) rule->with = draw(3) == 0 ? "d" : "c";
  if (draw(4) == 0 && rule->ip.empty() && routed) rule->via = draw(3) == 0 ? "pd" : "pc";
  if (secured && draw(5) == 0) rule->pins = {PinOf(1)};
  if (secured && draw(8) == 0) rule->pins = {PinOf(1), PinOf(2)};
}

std::vector<Glob> Globs(const std::string& text) { return Matcher("k=" + text).values; }

void DrawOperation(const World& world, Rule* rule, const Draw& draw) {
  using policy::Verb;
  const std::string& fields = Pick(world.fields, draw);
  const std::string& operation = Pick(world.operation, draw);
  if (rule->verb == Verb::kGraphql && !fields.empty()) rule->fields = Globs(fields);
  if (rule->verb == Verb::kGraphql && !operation.empty()) rule->operation = Globs(operation);
  if (const std::string& tool = Pick(world.tool, draw);
      !tool.empty() && rule->verb == Verb::kMcp && rule->rpc.text() == "tools/call")
    rule->tool = Globs(tool);
  const bool reads = rule->verb == Verb::kHttp || rule->verb == Verb::kMcp || rule->verb == Verb::kJsonRpc;
  if (const std::string& json = Pick(world.json, draw); !json.empty() && reads) rule->json = {Matcher(json)};
  const bool push = rule->verb == Verb::kGitReceivePack;
  if (const std::string& refs = Pick(world.refs, draw); push && !refs.empty()) rule->refs = Globs(refs);
  if (world.lfs && policy::IsGit(rule->verb)) rule->lfs = draw(3) != 0;
  if (const unsigned changes = world.changes[draw(world.changes.size())]; push && changes != 0)
    rule->ref_changes = static_cast<policy::RefChanges>(changes);
}

std::string CompactOf(const World& world, bool allow, const Draw& draw) {
  std::string verb = Pick(world.verbs, draw);
  if (verb == "unix") return "unix " + (world.sockets.empty() ? "/r" : Pick(world.paths, draw));
  std::string scheme;
  if (const size_t mark = verb.find("://"); mark != std::string::npos) {
    scheme = verb.substr(0, mark + 3);
    verb = verb.substr(mark + 3);
  }
  const bool opaque = verb == "tcp" || verb == "udp";
  std::string host = Pick(world.hosts, draw);
  const bool prefix = host.find('/') != std::string::npos;
  const bool address = IpAddress::Parse(host).has_value();
  if ((prefix && !opaque) || (address && verb == "dns")) host = "a.t";
  std::string port = Pick(world.ports, draw);
  if (verb == "dns") port.clear();
  if (opaque && allow && port.empty()) port = "443";
  if (verb == "grpc") {
    const std::string& call = Pick(world.paths, draw);
    return "grpc " + scheme + host + (port.empty() ? "" : ":" + port) + " " +
           (call == "/p.S/m" ? "p.S/m"
            : call == "/o/*" ? "p.S/*"
                             : "**");
  }
  std::string path = opaque || verb == "tls" || verb == "dns" || !world.sockets.empty() ? "" : Pick(world.paths, draw);
  return verb + " " + scheme + host + (port.empty() ? "" : ":" + port) + path;
}

}  // namespace

Rule DrawRule(const World& world, const Draw& draw) {
  const bool allow = draw(10) < 7;
  const std::string text = CompactOf(world, allow, draw);
  Rule rule = Value(policy::ParseCompact(allow ? policy::Effect::kAllow : policy::Effect::kDeny, text));
  const bool inner = policy::IsInner(rule.verb);
  if (const std::string& by = Pick(world.by, draw); !by.empty()) rule.by = {Value(policy::ParseExecutable(by))};
  if (const std::string& under = Pick(world.under, draw); allow && !under.empty())
    rule.under = {Value(policy::ParseExecutable(under))};
  if (const std::string& ip = Pick(world.ip, draw);
      !ip.empty() && rule.verb != policy::Verb::kDns && rule.verb != policy::Verb::kUnix)
    rule.ip = {*Cidr::Parse(ip)};
  const bool keyed = inner && !policy::IsGit(rule.verb) && rule.verb != policy::Verb::kGrpc;
  if (const std::string& query = Pick(world.query, draw); keyed && !query.empty()) rule.query = {Matcher(query)};
  if (const std::string& header = Pick(world.headers, draw); !header.empty() && inner) rule.headers = {Matcher(header)};
  if (const std::string& keys = Pick(world.query_keys, draw); allow && !keys.empty() && keyed) {
    rule.query_keys = {keys.substr(0, keys.find(','))};
    if (keys.find(',') != std::string::npos) rule.query_keys->push_back(keys.substr(keys.find(',') + 1));
  }
  if (const int until = world.until[draw(world.until.size())]; allow && until != 0) rule.until = kNow + until * kDay;
  if (world.types && rule.verb == policy::Verb::kDns && draw(2) == 0)
    rule.types = draw(2) == 0 ? std::vector<uint16_t>{1} : std::vector<uint16_t>{16, 28};
  if (world.opening_paths && allow && inner) {
    rule.encoded_slash = draw(3) == 0;
    rule.path_params = draw(3) == 0;
  }
  DrawOperation(world, &rule, draw);
  if (world.remote && rule.allow && draw(4) != 0) rule.ip.clear();
  if (world.ways) DrawWay(&rule, draw);
  if (world.ways && !world.remote && !rule.allow) rule.ip.clear();
  if (world.opening_methods && allow && inner) rule.method_override = draw(2) == 0;
  return rule;
}

SmallPolicy DrawPolicy(const World& world, const Draw& draw) {
  SmallPolicy policy;
  policy.ways = world.ways;
  if (world.ways && draw(3) == 0) policy.via = draw(2) == 0 ? "pc" : "pd";
  if (world.ways) policy.definitions = DrawDefinitions(world.scopes, draw);
  if (world.audit_in != 0 && draw(world.audit_in) == 0) policy.mode = policy::Mode::kAudit;
  const size_t count = 1 + draw(4);
  for (size_t i = 0; i < count; ++i) {
    policy.rules.push_back(DrawRule(world, draw));
    if (policy.Compiled() == nullptr) policy.rules.pop_back();
  }
  return policy;
}

namespace {

SmallPolicy Edited(const World& world, SmallPolicy policy, const Draw& draw) {
  if (world.ways && draw(5) == 0) {
    EditDefinitions(world.scopes, draw, &policy.definitions);
    return policy;
  }
  if (world.ways && draw(8) == 0) policy.via = policy.via.empty() ? "pc" : "";
  if (world.audit_in != 0 && draw(world.audit_in) == 0)
    policy.mode = policy.mode == policy::Mode::kAudit ? policy::Mode::kEnforce : policy::Mode::kAudit;
  const size_t edits = 1 + draw(2);
  for (size_t i = 0; i < edits; ++i) {
    const size_t what = draw(4);
    if (what == 0 || policy.rules.empty()) {
      policy.rules.push_back(DrawRule(world, draw));
    } else if (what == 1) {
      policy.rules.erase(policy.rules.begin() + static_cast<std::ptrdiff_t>(draw(policy.rules.size())));
    } else {
      policy.rules[draw(policy.rules.size())] = DrawRule(world, draw);
    }
  }
  return policy;
}

}  // namespace

SmallPolicy DrawEdit(const World& world, const SmallPolicy& from, const Draw& draw) {
  // Draws that have run out of bytes give the same edit for ever.
  constexpr int kAttempts = 64;
  for (int attempt = 0; attempt < kAttempts; ++attempt)
    if (SmallPolicy policy = Edited(world, from, draw); policy.Compiled() != nullptr) return policy;
  return from;
}

policy::SnapshotPtr SmallPolicy::Compiled() const {
  policy::PolicySource source = ways ? SourceOf(definitions) : policy::PolicySource{};
  source.rules = rules;
  source.mode = mode;
  source.settings.via = via;
  if (ways && !policy::ResolveRoutes(&source)) return nullptr;
  return policy::Compile(std::move(source));
}

namespace {

using policy::ConnectDecision;
using policy::ConnectVerdict;
using policy::Decision;
using policy::Snapshot;

const policy::CanonicalTarget& TargetOf(const Witness& tuple) {
  static std::map<std::string, policy::CanonicalTarget> targets;
  const std::string text = tuple.has_query ? tuple.path + '?' + tuple.query : tuple.path;
  auto at = targets.find(text);
  if (at == targets.end()) at = targets.emplace(text, Value(policy::CanonicalizeTarget(text))).first;
  return at->second;
}

// One tuple asked of one policy, as proxy/io asks: what goes by name through an upstream proxy is judged for an address that
// nobody knows, and whether it does is asked before there is one.
class Asking {
 public:
  Asking(const Snapshot& snapshot, const Witness& tuple)
      : snapshot_(snapshot),
        tuple_(tuple),
        process_(AsProcess(tuple.process)),
        headers_(tuple.headers.begin(), tuple.headers.end()) {}

  [[nodiscard]] ConnectDecision Connect() const {
    if (MayGoByProxy()) {
      policy::ConnectQuery open = Connection();
      open.address.reset();
      const ConnectDecision way = snapshot_.DecideConnect(open);
      open.remote = true;
      if (way.verdict != ConnectVerdict::kInspect && way.allowed() && GoesByProxy(way.decision))
        return snapshot_.DecideConnect(open);
    }
    return snapshot_.DecideConnect(Connection());
  }

  /// `shown` are the readings of the body that it is shown unasked.
  struct Answer {
    Decision decision;
    bool connected;  ///< whether its connection is allowed
  };
  [[nodiscard]] Answer Request(policy::BodyKinds shown = 0) const {
    policy::RequestQuery query;
    query.connection = Connection();
    query.scheme = tuple_.scheme;
    query.method = tuple_.method;
    query.target = &TargetOf(tuple_);
    query.headers = headers_;
    query.upgrade = tuple_.upgrade;
    if (MayGoByProxy()) {
      policy::RequestQuery open = query;
      open.connection.address.reset();
      if (GoesByProxy(WithBody(open, shown))) {
        open.connection.remote = true;
        return {WithBody(open, shown), snapshot_.DecideConnect(open.connection).allowed()};
      }
    }
    // Without proxies the connection says nothing more of a request.
    return {WithBody(query, shown), snapshot_.proxies().empty() || snapshot_.DecideConnect(query.connection).allowed()};
  }

  [[nodiscard]] policy::NameDecision Name() const {
    return snapshot_.DecideName({process(), tuple_.host, tuple_.dns_type, tuple_.time});
  }
  [[nodiscard]] Decision Socket() const { return snapshot_.DecideUnix({process(), tuple_.path, tuple_.time}); }

 private:
  [[nodiscard]] const policy::Process* process() const { return process_ ? &*process_ : nullptr; }
  [[nodiscard]] policy::ConnectQuery Connection() const {
    return {.process = process(),
            .host = tuple_.host,
            .address = tuple_.address ? *tuple_.address : IpAddress::FromV4(0x01010101),
            .port = tuple_.port,
            .transport = tuple_.layer == Layer::kUdp ? policy::Transport::kUdp : policy::Transport::kTcp,
            .now = tuple_.time};
  }
  // No proxy carries datagrams.
  [[nodiscard]] bool MayGoByProxy() const {
    return tuple_.layer != Layer::kUdp && !tuple_.host.empty() && !snapshot_.proxies().empty();
  }
  [[nodiscard]] bool GoesByProxy(const Decision& decision) const {
    return decision.allowed && decision.via != policy::kNoIndex16 &&
           !policy::IsExcepted(snapshot_.proxies()[decision.via], tuple_.host, {}, tuple_.port);
  }
  [[nodiscard]] Decision WithBody(policy::RequestQuery query, policy::BodyKinds shown) const {
    const Decision decision = snapshot_.DecideRequest(query);
    const auto needed = static_cast<policy::BodyKinds>(decision.body_needed | shown);
    if (needed == 0) return decision;
    const policy::RequestBody body = AsRequestBody(tuple_.body, needed);
    query.body = &body;
    return snapshot_.DecideRequest(query);
  }

  const Snapshot& snapshot_;
  const Witness& tuple_;
  std::optional<policy::Process> process_;
  std::vector<policy::HeaderView> headers_;
};

struct Outcome {
  bool reached = false;
  Decision decision{};
};

Outcome OutcomeOf(const Snapshot& snapshot, const Witness& tuple) {
  const Asking asking(snapshot, tuple);
  if (tuple.layer == Layer::kDns) return {asking.Name().verdict == policy::NameVerdict::kAllow};
  if (tuple.layer == Layer::kUnix) return {asking.Socket().allowed};
  if (tuple.layer == Layer::kHttp && snapshot.proxies().empty()) {
    const Decision decision = asking.Request().decision;
    return {decision.allowed, decision};
  }
  const ConnectDecision connect = asking.Connect();
  const bool tcp = connect.verdict == ConnectVerdict::kOpaqueTcp;
  const bool tls = tcp || connect.verdict == ConnectVerdict::kOpaqueTls;
  switch (tuple.layer) {
    case Layer::kUdp:
      return {connect.allowed(), connect.decision};
    case Layer::kTcp:
      return {tcp, connect.decision};
    case Layer::kTls:
      return {tls, connect.decision};
    default:
      break;
  }
  if (tuple.scheme == policy::Scheme::kHttps ? tls : tcp) return {true, connect.decision};
  // Cleartext where only TLS may pass is looked into.
  const auto [decision, connected] = asking.Request();
  return {decision.allowed && connected, decision};
}

}  // namespace

bool IsReached(const Snapshot& snapshot, const Witness& witness) { return OutcomeOf(snapshot, witness).reached; }

bool IsGivenUp(const World& world, const Proof& proof) {
  return world.remote && proof.verdict == Verdict::kUnknown && proof.why_unknown.find("upstream proxy") != std::string::npos &&
         !proof.replay_failed;
}

bool IsDenied(const Snapshot& deny, const Witness& witness) {
  constexpr policy::BodyKinds kEvery = 0xff;
  Witness asked = witness;
  if (witness.layer == Layer::kTls) asked.method = "GET";
  if (witness.layer == Layer::kTls) asked.path = "/";
  const Asking asking(deny, asked);
  const policy::Verb verb = deny.compiled().rules.front().verb;
  constexpr auto kDenied = policy::Reason::kDenyRule;
  switch (witness.layer) {
    case Layer::kDns:
      return asking.Name().decision.reason == kDenied;
    case Layer::kUnix:
      return asking.Socket().reason == kDenied;
    case Layer::kTls:
      return !policy::IsInner(verb) && asking.Request(kEvery).decision.reason == kDenied;
    case Layer::kHttp:
      return asking.Request(kEvery).decision.reason == kDenied;
    case Layer::kUdp:
    case Layer::kTcp:
      break;
  }
  return asking.Connect().decision.reason == kDenied;
}

Bits ReachOf(const World& world, const Snapshot& snapshot) {
  Bits bits;
  bits.reserve(world.tuples.size());
  for (const Witness& tuple : world.tuples) bits.push_back(OutcomeOf(snapshot, tuple).reached);
  return bits;
}

std::vector<WayTexts> WaysOf(const World& world, const Snapshot& snapshot) {
  std::vector<WayTexts> ways;
  for (const Witness& tuple : world.tuples) {
    WayTexts& way = ways.emplace_back();
    if (tuple.layer != Layer::kHttp && tuple.layer != Layer::kTcp && tuple.layer != Layer::kTls) continue;
    const Outcome outcome = OutcomeOf(snapshot, tuple);
    way.reached = outcome.reached;
    if (!way.reached) continue;
    if (const uint16_t credential = outcome.decision.credential; credential != policy::kNoIndex16) {
      way.credential = Spelled(snapshot.credentials()[credential]);
      way.replaced = Taken(snapshot.credentials()[credential].send);
    }
    if (outcome.decision.via != policy::kNoIndex16) way.proxy = Spelled(snapshot.proxies()[outcome.decision.via]);
    const auto pins = snapshot.pins(outcome.decision.pinned_by);
    way.pins.assign(pins.begin(), pins.end());
  }
  return ways;
}

std::string Shown(const SmallPolicy& policy) {
  std::string text = policy.mode == policy::Mode::kAudit ? "  mode: audit\n" : "";
  if (!policy.via.empty()) text += "  settings: { via: " + policy.via + " }\n";
  if (policy.ways) {
    const policy::PolicySource source = SourceOf(policy.definitions);
    for (const policy::Credential& credential : source.credentials) {
      text += "  " + Spelled(credential) + " to";
      for (const policy::CredentialScope& scope : credential.to) text += " " + scope.text;
      text += "\n";
    }
    for (const policy::UpstreamProxy& proxy : source.proxies) text += "  " + Spelled(proxy) + "\n";
  }
  for (const Rule& rule : policy.rules) text += "  " + policy::CanonicalText(rule) + "\n";
  return text;
}

}  // namespace sluice::prover
