#include "tests/prover/small_world.h"

#include <map>

#include "policy/credential.h"
#include "policy/routes.h"
#include "policy/rule_text.h"
#include "policy/target.h"
#include "prover/process_domain.h"
#include "prover/replay.h"
#include "prover/request_bodies.h"
#include "prover/ways.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::Rule;

constexpr std::chrono::hours kDay{24};

const std::string& Pick(const std::vector<std::string>& list, const Draw& draw) { return list[draw(list.size())]; }

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

policy::PolicySource WithWays() {
  policy::PolicySource source;
  for (const char* name : {"c", "d"}) {
    policy::Credential credential;
    credential.name = name;
    credential.from.text = std::string("VARIABLE_") + name;
    if (credential.name == "d") credential.send = {.kind = policy::CredentialUse::Kind::kHeader, .text = "X_D"};
    policy::CredentialScope scope;
    scope.host = Value(policy::ParseCompact(policy::Effect::kAllow, "http *.t")).host;
    scope.ports = {{443, 443}};
    credential.to = {scope};
    source.credentials.push_back(std::move(credential));
    policy::UpstreamProxy proxy;
    proxy.name = std::string("p") + name;
    proxy.host = proxy.name + ".t";
    proxy.port = 3128;
    source.proxies.push_back(std::move(proxy));
  }
  return source;
}

policy::Pin PinOf(uint8_t byte) {
  policy::Pin pin{};
  pin.fill(byte);
  return pin;
}

void DrawWay(Rule* rule, const Draw& draw) {
  if (!rule->allow) return;
  const bool inner = policy::IsInner(rule->verb);
  if (inner && draw(3) == 0) rule->with = draw(3) == 0 ? "d" : "c";
  if (draw(4) == 0 && rule->ip.empty() && (inner || rule->verb == policy::Verb::kTls)) rule->via = draw(3) == 0 ? "pd" : "pc";
  if (inner && draw(5) == 0) rule->pins = {PinOf(1)};
  if (inner && draw(8) == 0) rule->pins = {PinOf(1), PinOf(2)};
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
    return "grpc " + host + " " + (call == "/p.S/m" ? "p.S/m" : call == "/o/*" ? "p.S/*" : "**");
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
  const bool keyed = rule.verb == policy::Verb::kHttp || rule.verb == policy::Verb::kGraphql;
  if (const std::string& query = Pick(world.query, draw); !query.empty() && rule.verb == policy::Verb::kHttp)
    rule.query = {Matcher(query)};
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
  if (world.ways) DrawWay(&rule, draw);
  if (world.opening_methods && allow && inner) rule.method_override = draw(2) == 0;
  return rule;
}

SmallPolicy DrawPolicy(const World& world, const Draw& draw) {
  SmallPolicy policy;
  policy.ways = world.ways;
  if (world.ways && draw(3) == 0) policy.via = draw(2) == 0 ? "pc" : "pd";
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
  policy::PolicySource source = ways ? WithWays() : policy::PolicySource{};
  source.rules = rules;
  source.mode = mode;
  source.settings.via = via;
  if (ways && !policy::ResolveRoutes(&source)) return nullptr;
  return policy::Compile(std::move(source));
}

namespace {

// As Replay does, with what never changes made once.
policy::Decision DecideTuple(const policy::Snapshot& snapshot, const Witness& tuple) {
  static std::map<std::string, policy::CanonicalTarget> targets;
  const std::string text = tuple.has_query ? tuple.path + '?' + tuple.query : tuple.path;
  auto at = targets.find(text);
  if (at == targets.end()) at = targets.emplace(text, Value(policy::CanonicalizeTarget(text))).first;
  const auto process = AsProcess(tuple.process);
  std::vector<policy::HeaderView> headers(tuple.headers.begin(), tuple.headers.end());
  policy::RequestQuery query;
  query.connection = {.process = process ? &*process : nullptr,
                      .host = tuple.host,
                      .address = tuple.address,
                      .port = tuple.port,
                      .transport = policy::Transport::kTcp,
                      .now = tuple.time};
  query.scheme = tuple.scheme;
  query.method = tuple.method;
  query.target = &at->second;
  query.headers = headers;
  query.upgrade = tuple.upgrade;
  const policy::Decision decision = snapshot.DecideRequest(query);
  if (decision.body_needed == 0) return decision;
  const policy::RequestBody body = AsRequestBody(tuple.body, decision.body_needed);
  query.body = &body;
  return snapshot.DecideRequest(query);
}

}  // namespace

Bits ReachOf(const World& world, const policy::Snapshot& snapshot) {
  Bits bits;
  bits.reserve(world.tuples.size());
  for (const Witness& tuple : world.tuples)
    bits.push_back(tuple.layer != Layer::kHttp ? Replay(snapshot, tuple).reached : DecideTuple(snapshot, tuple).allowed);
  return bits;
}

std::vector<WayTexts> WaysOf(const World& world, const policy::Snapshot& snapshot) {
  std::vector<WayTexts> ways;
  for (const Witness& tuple : world.tuples) {
    WayTexts& way = ways.emplace_back();
    if (tuple.layer != Layer::kHttp) continue;
    const policy::ConnectQuery connection{.host = tuple.host,
                                          .address = tuple.address,
                                          .port = tuple.port,
                                          .transport = policy::Transport::kTcp,
                                          .now = tuple.time};
    const policy::ConnectDecision connect = snapshot.DecideConnect(connection);
    if (!connect.allowed()) continue;
    // Cleartext where only TLS may pass is looked into.
    const bool inspected = connect.verdict == policy::ConnectVerdict::kInspect ||
                           (connect.verdict == policy::ConnectVerdict::kOpaqueTls && tuple.scheme == policy::Scheme::kHttp);
    const policy::Decision decision = inspected ? DecideTuple(snapshot, tuple) : connect.decision;
    way.reached = decision.allowed;
    if (!way.reached) continue;
    way.credential = CredentialText(snapshot, decision.credential);
    if (!way.credential.empty()) way.replaced = snapshot.credentials()[decision.credential].name == "d" ? "x-d" : "authorization";
    way.proxy = ProxyText(snapshot, decision.via);
    const auto pins = snapshot.pins(decision.pinned_by);
    way.pins.assign(pins.begin(), pins.end());
  }
  return ways;
}

std::string Shown(const SmallPolicy& policy) {
  std::string text = policy.mode == policy::Mode::kAudit ? "  mode: audit\n" : "";
  if (!policy.via.empty()) text += "  settings: { via: " + policy.via + " }\n";
  for (const Rule& rule : policy.rules) text += "  " + policy::CanonicalText(rule) + "\n";
  return text;
}

}  // namespace sluice::prover
