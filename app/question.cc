#include "app/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/host_pattern.h"
#include "policy/io/executables.h"
#include "policy/no_proxy.h"
#include "policy/rule_text.h"
#include "policy/target.h"
#include "proxy/body/body_reader.h"

namespace sluice::app {
namespace {

using policy::ConnectVerdict;

struct Place {
  policy::ConnectQuery query;
  std::string host;  ///< what query.host views
};

std::string_view NextWord(std::string_view* text) {
  const size_t space = text->find(' ');
  const std::string_view word = text->substr(0, space);
  text->remove_prefix(space == std::string_view::npos ? text->size() : space + 1);
  return word;
}

// A person may write a name in any script; programs send its A-labels, and that is what is asked.
Result<policy::Authority> ReadAuthority(std::string_view text) {
  if (auto authority = policy::ParseAuthority(text)) return std::move(*authority);
  const size_t colon = text.rfind(':');
  const auto pattern = policy::ParseHostPattern(text.substr(0, colon));
  if (pattern && pattern->kind == policy::HostPattern::Kind::kName) {
    const std::string ascii =
        pattern->text + std::string(colon == std::string_view::npos ? std::string_view{} : text.substr(colon));
    if (auto authority = policy::ParseAuthority(ascii)) return std::move(*authority);
  }
  return Fail(Code::kInvalid, fmt::format("`{}` is not a host or host:port", text));
}

Result<Place> ReadPlace(const Asker& asker, std::string_view text, uint16_t default_port) {
  auto authority = ReadAuthority(text);
  if (!authority) return std::unexpected(authority.error());
  const uint16_t port = authority->port.value_or(default_port);
  if (port == 0) return Fail(Code::kInvalid, fmt::format("`{0}` needs a port, as in `connect {0}:443`", text));
  if (port == 53)
    return Fail(Code::kInvalid, "port 53 always belongs to the policy's resolver, whatever the address; ask `dns NAME`");
  Place place;
  place.host = std::move(authority->name);
  place.query.process = asker.who();
  place.query.address = authority->address ? authority->address : asker.address;
  place.query.port = port;
  place.query.now = asker.now;
  return place;
}

std::string PlaceText(const Place& place) {
  const std::string host = !place.host.empty() ? place.host : place.query.address ? place.query.address->ToString() : "";
  return host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
}

// The proxy that the decision leads through; null: directly.
const policy::UpstreamProxy* ProxyOf(const Asker& asker, const Place& place, const policy::Decision& decision) {
  const auto& proxies = asker.snapshot->proxies();
  if (decision.via >= proxies.size()) return nullptr;
  const policy::UpstreamProxy& proxy = proxies[decision.via];
  const IpAddress literal = place.query.address.value_or(IpAddress());
  return policy::IsExcepted(proxy, place.query.host, literal, place.query.port) ? nullptr : &proxy;
}

// A name that goes through a proxy is looked up there: its address is known to nobody here, whatever the question says of it.
constexpr std::string_view kLookedUpThere =
    "the upstream proxy looks the name up: rules with `ip` are judged as for an address that nobody knows";

void SetTravel(const Asker& asker, const Place& place, Answer* answer) {
  const policy::Decision& decision = answer->decision;
  if (!decision.allowed) return;
  Travel travel;
  travel.via = ProxyOf(asker, place, decision);
  if (decision.credential < asker.snapshot->credentials().size())
    travel.credential = &asker.snapshot->credentials()[decision.credential];
  travel.pinned_by = decision.pinned_by;
  answer->travel = travel;
}

// Without a lookup there is no connection by name, whatever a rule by address would say.
void RefuseUnknownName(const Asker& asker, const Place& place, Answer* answer) {
  if (!answer->decision.allowed || answer->decision.audit_only || place.query.host.empty()) return;
  policy::NameQuery name{asker.who(), place.query.host, policy::kDnsAaaa, asker.now};
  if (asker.snapshot->DecideName(name).verdict == policy::NameVerdict::kAllow) return;
  name.type = policy::kDnsA;
  const auto verdict = asker.snapshot->DecideName(name);
  if (verdict.verdict == policy::NameVerdict::kAllow) return;
  answer->decision = verdict.decision;
  answer->carried.clear();
  answer->travel.reset();
  answer->advice = asker.snapshot->AdviseName(name, verdict);
}

// What an answer hangs on that the question left open.
void NoteAddress(const Asker& asker, const Place& place, Answer* answer) {
  if (!answer->decision.allowed || place.query.address || answer->decision.rule == policy::RuleRef::kNone) return;
  const policy::Rule& rule = asker.snapshot->compiled().rules[static_cast<size_t>(answer->decision.rule)];
  if (!rule.ip.empty() || rule.host.kind == policy::HostPattern::Kind::kAddress)
    answer->note = "that rule holds where the name leads to its addresses only; --ip ADDRESS asks about one";
}

// What an answer hangs on where the body was not said.
std::string OpenBody(policy::BodyKinds kinds) {
  std::string ways;
  const auto add = [&](policy::BodyKind kind, std::string_view way) {
    if ((kinds & kind) != 0) ways += fmt::format("{}{}", ways.empty() ? "" : ", or ", way);
  };
  add(policy::kBodyGraphql, "`graphql KIND HOST/PATH` with --field");
  add(policy::kBodyRpc, "`mcp METHOD HOST/PATH` or `jsonrpc METHOD HOST/PATH`");
  add(policy::kBodyPush, "this with --ref");
  add(policy::kBodyJson, "this with --json /POINTER=VALUE");
  if (ways.empty()) return "the answer hangs on the body of the LFS batch";
  return fmt::format("the answer hangs on the body; ask {}", ways);
}

Result<Answer> AskConnect(const Asker& asker, std::string_view text, policy::Transport transport, uint16_t default_port = 0) {
  auto place = ReadPlace(asker, text, default_port);
  if (!place) return std::unexpected(place.error());
  place->query.host = place->host;
  place->query.transport = transport;
  auto verdict = asker.snapshot->DecideConnect(place->query);
  const bool opaque = verdict.allowed() && verdict.verdict != ConnectVerdict::kInspect;
  const bool remote = opaque && !place->host.empty() && ProxyOf(asker, *place, verdict.decision) != nullptr;
  if (remote) {
    place->query.address.reset();
    place->query.remote = true;
    verdict = asker.snapshot->DecideConnect(place->query);
  }
  Answer answer{
      fmt::format("{} {}:{}", transport == policy::Transport::kUdp ? "udp" : "connect", PlaceText(*place), place->query.port),
      verdict.decision,
      "",
      {}};
  if (verdict.allowed()) answer.carried = verdict.verdict == ConnectVerdict::kInspect ? "inspected" : "opaque";
  if (!verdict.allowed() || verdict.decision.audit_only) answer.advice = asker.snapshot->AdviseConnect(place->query, verdict);
  if (opaque) SetTravel(asker, *place, &answer);
  if (remote && !verdict.allowed()) answer.note = kLookedUpThere;
  if (!remote) NoteAddress(asker, *place, &answer);
  RefuseUnknownName(asker, *place, &answer);
  return answer;
}

// What a request has beside method and URL.
struct Parts {
  std::span<const policy::HeaderView> headers{};
  policy::Upgrade upgrade = policy::Upgrade::kNone;
  const policy::RequestBody* body = nullptr;
};

// What the question says of a field stands for what it brings along.
std::vector<policy::HeaderView> HeadersOf(const Asker& asker, const Parts& parts) {
  std::vector<policy::HeaderView> headers;
  for (const policy::HeaderView& header : parts.headers)
    if (std::ranges::find(asker.headers, header.first, [](const auto& said) { return std::string_view(said.first); }) ==
        asker.headers.end())
      headers.push_back(header);
  headers.insert(headers.end(), asker.headers.begin(), asker.headers.end());
  return headers;
}

Answer AskRequest(const Asker& asker, Place place, policy::Scheme scheme, std::string_view method,
                  const policy::CanonicalTarget& target, const Parts& parts) {
  place.query.host = place.host;
  const bool cleartext = scheme == policy::Scheme::kHttp;
  const std::string port = place.query.port == (cleartext ? 80 : 443) ? "" : fmt::format(":{}", place.query.port);
  Answer answer;
  answer.asked =
      fmt::format("{} {}://{}{}{}", method, cleartext ? "http" : "https", PlaceText(place), port, target.ForUpstream());
  const std::vector<policy::HeaderView> headers = HeadersOf(asker, parts);
  policy::RequestQuery request{place.query, scheme, method, &target, headers, parts.upgrade, parts.body};
  policy::RequestBody read;
  const auto decide = [&] {
    request.body = parts.body;
    policy::Decision decision = asker.snapshot->DecideRequest(request);
    if (decision.body_needed == 0 || !asker.sent_body) return decision;
    read =
        proxy::ReadBody(decision.body_needed, {method, request.headers, target.query, asker.sent_body->size()}, *asker.sent_body);
    request.body = &read;
    return asker.snapshot->DecideRequest(request);
  };
  // Which proxy it is, each allow that may cover the request says, whatever the address.
  bool remote = false;
  if (!asker.snapshot->proxies().empty() && !place.host.empty()) {
    request.connection.address.reset();
    const policy::Decision way = decide();
    remote = way.allowed && ProxyOf(asker, place, way) != nullptr;
    if (!remote) request.connection.address = place.query.address;
  }
  if (remote) {
    place.query.address.reset();
    place.query.remote = request.connection.remote = true;
  }
  answer.decision = decide();
  if (answer.decision.body_needed != 0) answer.note = OpenBody(answer.decision.body_needed);
  const auto connect = asker.snapshot->DecideConnect(place.query);
  if (answer.decision.allowed && connect.allowed()) {
    answer.carried = connect.verdict == ConnectVerdict::kInspect ? "inspected" : "opaque";
  }
  if (!answer.decision.allowed || answer.decision.audit_only)
    answer.advice = asker.snapshot->AdviseRequest(request, answer.decision);
  if (remote && answer.decision.allowed && !connect.allowed()) answer.decision = connect.decision;
  SetTravel(asker, place, &answer);
  if (remote && !answer.decision.allowed) answer.note = kLookedUpThere;
  if (!remote) NoteAddress(asker, place, &answer);
  RefuseUnknownName(asker, place, &answer);
  return answer;
}

Result<Answer> AskUrl(const Asker& asker, std::string_view method, std::string_view url, const Parts& parts) {
  if (auto known = policy::CheckMethod(method); !known) return std::unexpected(known.error());
  policy::Scheme scheme = policy::Scheme::kHttps;
  if (const size_t mark = url.find("://"); mark != std::string_view::npos) {
    const std::string_view word = url.substr(0, mark);
    if (word != "https" && word != "http") return Fail(Code::kInvalid, fmt::format("unknown scheme `{}`", word));
    if (word == "http") scheme = policy::Scheme::kHttp;
    url.remove_prefix(mark + 3);
  }
  const size_t slash = std::min(url.find_first_of("/?#"), url.size());
  auto place = ReadPlace(asker, url.substr(0, slash), scheme == policy::Scheme::kHttp ? 80 : 443);
  if (!place) return std::unexpected(place.error());
  std::string raw(url.substr(slash));
  if (!raw.starts_with('/')) raw.insert(0, 1, '/');
  const auto target = policy::CanonicalizeTarget(raw);
  if (!target) return std::unexpected(target.error());
  Answer answer = AskRequest(asker, std::move(*place), scheme, method, *target, parts);
  if (!policy::IsCommonMethod(method))
    answer.note = fmt::format("{} is not a usual method; methods are matched to the letter", method);
  return answer;
}

// What is said of a body that the question has none of would be left out of account.
Result<void> CheckAskedOf(const AskedBody& body, std::string_view verb, std::string_view second) {
  static constexpr std::string_view kWithoutJson[] = {"connect", "dns", "git", "grpc", "tcp", "tls", "udp", "unix", "ws"};
  const bool is_push = verb == "git" && second == "receive-pack";
  if (!is_push && (!body.refs.empty() || !body.ref_change.empty()))
    return Fail(Code::kInvalid, "a ref is that of `git receive-pack HOST/REPO`, and this question is not about one");
  if (!body.ref_change.empty() && body.refs.empty()) return Fail(Code::kInvalid, "which ref changes so? Name it");
  if (verb != "graphql" && (!body.fields.empty() || !body.operation.empty()))
    return Fail(Code::kInvalid, "a root field and an operation's name are those of `graphql KIND HOST/PATH`");
  if (verb != "mcp" && verb != "jsonrpc" && !body.tool.empty()) return Fail(Code::kInvalid, "a tool is that of `mcp tools/call`");
  if (!body.json.empty() && std::ranges::find(kWithoutJson, verb) != std::end(kWithoutJson))
    return Fail(Code::kInvalid,
                fmt::format("`{}` has no JSON body: values go with `METHOD URL`, `graphql`, `jsonrpc` or `mcp`", verb));
  return {};
}

// The request that an operation makes, in the operation's own words.
Result<Answer> AskOperation(const Asker& asker, std::string_view verb, std::string_view rest) {
  if (asker.sent_body)
    return Fail(Code::kInvalid, "a body goes with `METHOD URL` or `git receive-pack`, not with what it is for");
  const auto operation = ReadOperation(verb, rest, asker.body);
  if (!operation) return std::unexpected(operation.error());
  const policy::RequestBody* body = operation->body ? &*operation->body : nullptr;
  auto answer = AskUrl(asker, operation->method, operation->url, {operation->headers, operation->upgrade, body});
  if (!answer) return answer;
  answer->asked = fmt::format("{}{}", operation->asked, answer->asked.substr(answer->asked.find(' ')));
  if (answer->note.empty()) answer->note = operation->note;
  return answer;
}

// A fetch or push is two requests; what either is refused, the whole is.
Result<Answer> AskGit(const Asker& asker, std::string_view verb, std::string_view where) {
  if (verb == "upload-pack") verb = "fetch-pack";
  if (verb != "fetch-pack" && verb != "receive-pack") {
    // In the words of the language: `push` is receive-pack.
    const auto cut = policy::CutCompact(fmt::format("git {} {}", verb, where));
    return Fail(Code::kInvalid, cut ? fmt::format("`git {}` is not understood", verb) : cut.error().message);
  }
  const std::string service = verb == "fetch-pack" ? "git-upload-pack" : "git-receive-pack";
  if (where.starts_with("https://")) where.remove_prefix(8);
  const size_t slash = where.find('/');
  if (slash == std::string_view::npos || slash + 1 == where.size())
    return Fail(Code::kInvalid, fmt::format("`{}` names no repository", where));
  const auto place = ReadPlace(asker, where.substr(0, slash), 443);
  if (!place) return std::unexpected(place.error());
  const auto refs = policy::CanonicalizeTarget(fmt::format("{}/info/refs?service={}", where.substr(slash), service));
  if (!refs) return std::unexpected(refs.error());
  const auto pack = policy::CanonicalizeTarget(fmt::format("{}/{}", where.substr(slash), service));
  if (!pack) return std::unexpected(pack.error());
  const std::string type = fmt::format("application/x-{}-request", service);
  const std::vector<policy::HeaderView> headers{{"content-type", type}};
  Answer answer = AskRequest(asker, *place, policy::Scheme::kHttps, "GET", *refs, {});
  const auto body = PushBody(asker.body);
  if (!body) return std::unexpected(body.error());
  if (answer.decision.allowed)
    answer =
        AskRequest(asker, *place, policy::Scheme::kHttps, "POST", *pack, {.headers = headers, .body = *body ? &**body : nullptr});
  answer.asked = fmt::format("git {} {}", verb, where);
  return answer;
}

Result<Answer> AskName(const Asker& asker, std::string_view text) {
  const std::string_view word = NextWord(&text);
  const auto authority = ReadAuthority(word);
  if (!authority || authority->name.empty() || authority->port)
    return Fail(Code::kInvalid, fmt::format("`{}` is not a name", word));
  const uint16_t type = text.empty() ? policy::kDnsA : policy::DnsTypeNumber(text);
  if (type == 0) return Fail(Code::kInvalid, fmt::format("unknown record type `{}`", text));
  const policy::NameQuery query{asker.who(), authority->name, type, asker.now};
  const auto verdict = asker.snapshot->DecideName(query);
  Answer answer{fmt::format("dns {} {}", authority->name, policy::DnsTypeText(type)), verdict.decision, "", {}};
  if (!answer.decision.allowed || answer.decision.audit_only) answer.advice = asker.snapshot->AdviseName(query, verdict);
  return answer;
}

Result<Answer> AskSocket(const Asker& asker, std::string_view path) {
  if (!path.starts_with('/')) return Fail(Code::kInvalid, "a socket is an absolute path");
  Answer answer{fmt::format("unix {}", path), asker.snapshot->DecideUnix({asker.who(), path, asker.now}), "", {}};
  if (!answer.decision.allowed) {
    answer.advice.explanation = fmt::format("no rule allows the socket {}", path);
    const std::string rule = fmt::format("unix {}", path);
    if (answer.decision.reason != policy::Reason::kDenyRule && policy::ParseCompact(policy::Effect::kAllow, rule))
      answer.advice.suggest = rule;
  }
  return answer;
}

}  // namespace

Result<Answer> Ask(const Asker& asker, std::string_view question) {
  static constexpr std::string_view kNotAVerb[] = {
      "connect"};  // in a question alone; a rule's verbs are looked for by CheckMethod
  if (question.empty())
    return Fail(
        Code::kInvalid,
        "an empty question; ask `METHOD URL`, `git fetch-pack HOST/REPO`, `connect HOST:PORT`, `dns NAME` or `unix PATH`; "
        "`sluice explain --help` has the others");
  std::string_view rest = question;
  const std::string_view first = NextWord(&rest);
  if (rest.empty() && !first.empty() && first.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string_view::npos)
    return Fail(Code::kInvalid, fmt::format("`{}` of what? A question is `METHOD URL`", first));
  static constexpr std::string_view kVerbs[] = {"connect", "dns", "git", "http", "tcp", "tls", "udp", "unix"};
  if (rest.empty() && std::ranges::find(kVerbs, first) != std::end(kVerbs))
    return Fail(Code::kInvalid, fmt::format("`{0}` of what? A host of that name is asked about by `GET {0}`", first));
  if (auto fits = CheckAskedOf(asker.body, first, rest.substr(0, rest.find(' '))); !fits) return std::unexpected(fits.error());
  if (rest.empty() && !IsOperationVerb(first)) return AskUrl(asker, "GET", first, {});
  if (IsOperationVerb(first)) return AskOperation(asker, first, rest);
  if (first == "connect" || first == "tcp") return AskConnect(asker, rest, policy::Transport::kTcp);
  if (first == "tls") return AskConnect(asker, rest, policy::Transport::kTcp, 443);
  if (first == "http") return Fail(Code::kInvalid, "`http` is every method; ask about one of them, as in `GET URL`");
  if (first == "udp") return AskConnect(asker, rest, policy::Transport::kUdp);
  if (first == "dns") return AskName(asker, rest);
  if (first == "unix") return AskSocket(asker, rest);
  if (first == "git") {
    const std::string_view verb = NextWord(&rest);
    return AskGit(asker, verb, rest);
  }
  if (const std::string_view near = policy::Nearest(first, kNotAVerb); !near.empty())
    return Fail(Code::kInvalid, fmt::format("unknown verb `{}`; did you mean `{}`?", first, near));
  const auto body = JsonBody(asker.body);
  if (body && asker.sent_body) return Fail(Code::kInvalid, "either the body or what is in it");
  const std::string type = asker.content_type.empty() ? "application/json" : asker.content_type;
  const policy::HeaderView headers[] = {{"content-type", type}};
  if (asker.sent_body) return AskUrl(asker, first, rest, {.headers = headers});
  return body ? AskUrl(asker, first, rest, {.headers = headers, .body = &*body}) : AskUrl(asker, first, rest, {});
}

Result<policy::Process> ProcessNamed(const std::string& path, const policy::Snapshot& snapshot) {
  if (!path.starts_with('/')) return Fail(Code::kInvalid, fmt::format("`{}` is not an absolute path", path));
  policy::Process process;
  process.exe.path = path;
  process.exe.trusted = true;
  if (snapshot.NeedsDigests()) {
    if (auto digest = policy::FileDigest(path)) process.exe.sha256 = *digest;
  }
  return process;
}

Result<std::pair<std::string, std::string>> ParseHeader(std::string_view text) {
  const size_t colon = text.find(':');
  std::string name(text.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  if (colon == std::string_view::npos || !policy::IsToken(name))
    return Fail(Code::kInvalid, fmt::format("`{}` is not NAME: VALUE, as in `x-team: a`", text));
  std::string_view value = text.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  while (value.ends_with(' ')) value.remove_suffix(1);
  return std::pair(std::move(name), std::string(value));
}

// A bare date means its first instant here; `until` counts it to its end.
Result<WallTime> ParseInstant(std::string_view text) {
  const auto at = policy::ParseUntil(text);
  if (!at) return at;
  return text.size() == 10 ? *at - std::chrono::days{1} : *at;
}

}  // namespace sluice::app
