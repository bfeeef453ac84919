#include "tests/prover/small_ways.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "policy/credential.h"
#include "policy/rule_text.h"

namespace sluice::prover {
namespace {

using policy::Credential;
using policy::CredentialUse;
using policy::SecretSource;
using policy::UpstreamProxy;
using From = SecretSource::Kind;
using Send = CredentialUse::Kind;

SecretSource Variable(std::string name) { return {.kind = From::kEnvironment, .text = std::move(name)}; }

SecretSource Oauth(std::string url, std::string client, std::string scope, std::string secret) {
  return {.kind = From::kOauth,
          .text = std::move(url),
          .client_id = std::move(client),
          .scope = std::move(scope),
          .secret = {Variable(std::move(secret))}};
}

struct Meaning {
  SecretSource from;
  CredentialUse send;
};

// Each kind of use and each source, and of each what it is made of.
const std::vector<Meaning>& Credentials() {
  static const CredentialUse kBearer{.kind = Send::kBearer};
  static const SecretSource kA = Variable("A");
  static const std::vector<Meaning> kList{
      {kA, kBearer},
      {kA, {.kind = Send::kHeader, .text = "x_d"}},
      {kA, {.kind = Send::kHeader, .text = "x-d"}},
      {kA, {.kind = Send::kHeader, .text = "x-d", .prefix = "token "}},
      {kA, {.kind = Send::kHeader, .text = "authorization", .prefix = "token "}},
      {kA, {.kind = Send::kBasic}},
      {kA, {.kind = Send::kBasic, .text = "u"}},
      {kA, {.kind = Send::kBasic, .text = "v"}},
      {kA, {.kind = Send::kQuery, .text = "key"}},
      {kA, {.kind = Send::kQuery, .text = "Key"}},
      {kA, {.kind = Send::kQuery, .text = "k2"}},
      {kA, {.kind = Send::kPlaceholder, .text = "T"}},
      {kA, {.kind = Send::kPlaceholder, .text = "U"}},
      {kA, {.kind = Send::kSigV4}},
      {kA, {.kind = Send::kSigV4, .region = "r"}},
      {kA, {.kind = Send::kSigV4, .region = "r", .service = "s"}},
      {{.kind = From::kEnvironment, .text = "A", .secret = {Variable("B")}},
       {.kind = Send::kSigV4, .region = "r", .service = "s"}},
      {{.kind = From::kEnvironment, .text = "A", .secret = {Variable("C")}},
       {.kind = Send::kSigV4, .region = "r", .service = "s"}},
      {{.kind = From::kFile, .text = "/a"}, {.kind = Send::kClientCertificate}},
      {{.kind = From::kFile, .text = "/b"}, {.kind = Send::kClientCertificate}},
      {{.kind = From::kFile, .text = "/b"}, kBearer},
      {{.kind = From::kSystemd, .text = "/b"}, kBearer},
      {{.kind = From::kCommand, .text = "", .command = {"b"}}, kBearer},
      {{.kind = From::kCommand, .text = "", .command = {"b", "c"}}, kBearer},
      {{.kind = From::kCommand, .text = "", .command = {"b c"}}, kBearer},
      {Oauth("https://i.t/k", "b", "", "B"), kBearer},
      {Oauth("https://i.t/l", "b", "", "B"), kBearer},
      {Oauth("https://i.t/l", "c", "", "B"), kBearer},
      {Oauth("https://i.t/l", "c", "s", "B"), kBearer},
      {Oauth("https://i.t/l", "c", "s", "C"), kBearer},
      {Oauth("https://i.t/l", "c", "s", "C"), {.kind = Send::kHeader, .text = "x-d"}},
      {{.kind = From::kOauth,
        .text = "https://i.t/l",
        .client_id = "c",
        .scope = "s",
        .secret = {{.kind = From::kFile, .text = "C"}}},
       {.kind = Send::kHeader, .text = "x-d"}},
  };
  return kList;
}

const std::vector<std::vector<std::string>>& Scopes() {
  static const std::vector<std::vector<std::string>> kList{
      {"*.t"},
      {"a.t", "b.t/v/**"},
      {"*.t:443,8443"},
      {"*.t:443,8443/o/**"},
      {"*.t:443,8443/O/**"},
      {"*.t:443/o/**", "*.t:8443/O/**"},
      {"*.t:443,8443/o/**", "a.t:443/O/**"},
      {"*.t:443,8443/o/**", "b.t:443,8443/O/**"},
  };
  return kList;
}

UpstreamProxy Proxy(UpstreamProxy::Kind kind, std::string host, uint16_t port) {
  UpstreamProxy proxy;
  proxy.kind = kind;
  proxy.host = std::move(host);
  proxy.port = port;
  return proxy;
}

std::vector<UpstreamProxy> MakeProxies() {
  using Kind = UpstreamProxy::Kind;
  std::vector<UpstreamProxy> list{Proxy(Kind::kHttp, "p.t", 3128), Proxy(Kind::kHttp, "q.t", 3128),
                                  Proxy(Kind::kHttp, "q.t", 3129), Proxy(Kind::kSocks5, "q.t", 3129),
                                  Proxy(Kind::kHttps, "q.t", 3129)};
  const auto add = [&](auto change) {
    list.push_back(list.back());
    change(&list.back());
  };
  add([](UpstreamProxy* p) { p->ca_file = "/ca"; });
  add([](UpstreamProxy* p) { p->basic = Variable("A"); });
  add([](UpstreamProxy* p) { p->basic = Variable("B"); });
  add([](UpstreamProxy* p) {
    p->basic.reset();
    p->bearer = Variable("B");
  });
  const auto except = [](const std::string& text) {
    const policy::Rule rule = Value(policy::ParseCompact(policy::Effect::kDeny, "tcp " + text));
    return UpstreamProxy::Except{rule.host, rule.ports};
  };
  add([&](UpstreamProxy* p) { p->except = {except("z.t")}; });
  add([&](UpstreamProxy* p) { p->except = {except("b.t")}; });
  add([&](UpstreamProxy* p) { p->except = {except("b.t:8443")}; });
  add([&](UpstreamProxy* p) { p->except = {except("a.t"), except("*.t:443")}; });
  add([](UpstreamProxy* p) {
    p->host.clear();
    p->address = IpAddress::Parse("9.9.9.9");
  });
  add([](UpstreamProxy* p) { p->address = IpAddress::Parse("9.9.9.8"); });
  return list;
}

const std::vector<UpstreamProxy>& Proxies() {
  static const std::vector<UpstreamProxy> kList = MakeProxies();
  return kList;
}

policy::CredentialScope ScopeOf(const std::string& text) {
  const policy::Rule rule = Value(policy::ParseCompact(policy::Effect::kAllow, "http " + text));
  return {rule.host, rule.ports, rule.paths, text};
}

// A neighbour as often as any: the two then differ in one thing.
size_t Another(size_t from, size_t count, const Draw& draw) {
  if (draw(2) == 0) return draw(count);
  return (from + (draw(2) == 0 ? 1 : count - 1)) % count;
}

std::string Spelled(const SecretSource& source) {
  std::vector<std::string> secrets;
  for (const SecretSource& secret : source.secret) secrets.push_back(Spelled(secret));
  return fmt::format("{} '{}' '{}' '{}' '{}' ({})", static_cast<int>(source.kind), source.text, fmt::join(source.command, "' '"),
                     source.client_id, source.scope, fmt::join(secrets, ","));
}

}  // namespace

size_t CredentialEntries() { return Credentials().size(); }
size_t ProxyEntries() { return Proxies().size(); }

Definitions DrawDefinitions(const std::vector<size_t>& scopes, const Draw& draw) {
  Definitions definitions;
  for (size_t i = draw(3); i > 0; --i) EditDefinitions(scopes, draw, &definitions);
  return definitions;
}

void EditDefinitions(const std::vector<size_t>& scopes, const Draw& draw, Definitions* definitions) {
  const size_t which = draw(2);
  switch (draw(3)) {
    case 0:
      definitions->credentials[which] = Another(definitions->credentials[which], Credentials().size(), draw);
      break;
    case 1:
      definitions->proxies[which] = Another(definitions->proxies[which], Proxies().size(), draw);
      break;
    default:
      definitions->scopes[which] = scopes[draw(scopes.size())];
  }
}

policy::PolicySource SourceOf(const Definitions& definitions) {
  policy::PolicySource source;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Meaning& meaning = Credentials()[definitions.credentials[i]];
    Credential credential{.name = i == 0 ? "c" : "d", .from = meaning.from, .send = meaning.send};
    for (const std::string& text : Scopes()[definitions.scopes[i]]) credential.to.push_back(ScopeOf(text));
    source.credentials.push_back(std::move(credential));
    source.proxies.push_back(Proxies()[definitions.proxies[i]]);
    source.proxies.back().name = i == 0 ? "pc" : "pd";
  }
  return source;
}

std::string Spelled(const Credential& credential) {
  const CredentialUse& use = credential.send;
  return fmt::format("{} from {} send {} '{}' '{}' '{}' '{}'", credential.name, Spelled(credential.from),
                     static_cast<int>(use.kind), use.text, use.prefix, use.region, use.service);
}

std::string Spelled(const UpstreamProxy& proxy) {
  std::string text = fmt::format("{} {} {} {} {} ca '{}'", proxy.name, static_cast<int>(proxy.kind), proxy.host,
                                 proxy.address ? proxy.address->ToString() : "", proxy.port, proxy.ca_file);
  if (proxy.basic) text += " basic " + Spelled(*proxy.basic);
  if (proxy.bearer) text += " bearer " + Spelled(*proxy.bearer);
  for (const UpstreamProxy::Except& except : proxy.except) {
    text += " but " + (except.host ? except.host->text : "");
    for (const policy::PortRange& range : except.ports) text += fmt::format(":{}-{}", range.first, range.last);
  }
  return text;
}

std::string Taken(const CredentialUse& use) {
  switch (use.kind) {
    case Send::kBearer:
    case Send::kBasic:
    case Send::kSigV4:
      return "authorization";
    case Send::kHeader:
    case Send::kQuery: {
      std::string name = use.text;
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (use.kind == Send::kQuery) return "?" + name;
      std::replace(name.begin(), name.end(), '_', '-');
      return name;
    }
    case Send::kPlaceholder:
    case Send::kClientCertificate:
      break;
  }
  return "";
}

}  // namespace sluice::prover
