#include "policy/rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace sluice::policy {
namespace {

constexpr std::pair<std::string_view, uint16_t> kTypes[] = {
    {"A", 1},       {"NS", 2},    {"CNAME", 5}, {"SOA", 6},    {"PTR", 12},  {"MX", 15},
    {"TXT", 16},    {"AAAA", 28}, {"SRV", 33},  {"NAPTR", 35}, {"DS", 43},   {"SSHFP", 44},
    {"DNSKEY", 48}, {"TLSA", 52}, {"SVCB", 64}, {"HTTPS", 65}, {"CAA", 257},
};

std::string PortsText(const std::vector<PortRange>& ports) {
  std::vector<std::string> parts;
  parts.reserve(ports.size());
  for (const PortRange& range : ports)
    parts.push_back(range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last));
  return fmt::format("{}", fmt::join(parts, ","));
}

uint16_t DefaultPort(const Rule& rule) { return rule.scheme == Scheme::kHttp ? 80 : 443; }

bool HasDefaultPorts(const Rule& rule) {
  if (rule.ports.empty()) return true;
  if (rule.verb == Verb::kTcp || rule.verb == Verb::kUdp) return false;
  return rule.allow && rule.ports.size() == 1 && rule.ports[0] == PortRange{DefaultPort(rule), DefaultPort(rule)};
}

std::string HostText(const Rule& rule) {
  if (rule.host.kind != HostPattern::Kind::kAddress) return rule.host.text;
  const bool bare = rule.host.cidr->length128() == 128;
  const std::string text = bare ? rule.host.cidr->base().ToString() : rule.host.cidr->ToString();
  return rule.host.cidr->base().is_v4() ? text : fmt::format("[{}]", text);
}

// The verb with the kind, method or methods after it.
std::string VerbWords(const Rule& rule) {
  if (!rule.methods.empty()) return fmt::format("{}", fmt::join(rule.methods, ","));
  if (rule.verb == Verb::kGraphql) return fmt::format("graphql {}", GraphqlKindText(rule.graphql));
  if (rule.verb == Verb::kJsonRpc || rule.verb == Verb::kMcp) return fmt::format("{} {}", VerbText(rule.verb), rule.rpc.text());
  return std::string(VerbText(rule.verb));
}

// "http://" where it is that; "https://" where a deny names it.
std::string_view SchemeText(const Rule& rule) {
  if (!IsInner(rule.verb) || !rule.scheme) return "";
  const bool ws = rule.verb == Verb::kWs;
  if (rule.scheme == Scheme::kHttp) return ws ? "ws://" : "http://";
  return rule.allow ? "" : ws ? "wss://" : "https://";
}

void AppendList(std::string* out, std::string_view key, std::vector<std::string> values) {
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  for (const std::string& value : values) *out += fmt::format(" {}={}:{}", key, value.size(), value);
}

template <class T, class F>
std::vector<std::string> Texts(const std::vector<T>& items, F text) {
  std::vector<std::string> out;
  out.reserve(items.size());
  for (const T& item : items) out.push_back(text(item));
  return out;
}

std::vector<std::string> MatcherTexts(const std::vector<ValueMatcher>& matchers) {
  std::vector<std::string> out;
  for (const ValueMatcher& matcher : matchers) {
    auto values = Texts(matcher.values, [](const Glob& g) { return fmt::format("{}:{}", g.text().size(), g.text()); });
    std::sort(values.begin(), values.end());
    out.push_back(fmt::format("{}:{}={}", matcher.key.size(), matcher.key, fmt::join(values, ",")));
  }
  return out;
}

void AppendOperation(std::string* out, const Rule& rule) {
  const auto text = [](const Glob& g) { return g.text(); };
  if (rule.verb == Verb::kJsonRpc || rule.verb == Verb::kMcp) AppendList(out, "rpc", {rule.rpc.text()});
  AppendList(out, "operation", Texts(rule.operation, text));
  AppendList(out, "field", Texts(rule.fields, text));
  AppendList(out, "tool", Texts(rule.tool, text));
  AppendList(out, "json", MatcherTexts(rule.json));
  AppendList(out, "ref", Texts(rule.refs, text));
  if (ReadsPush(rule)) *out += fmt::format(" ref-changes={}", RefChangesOf(rule));
  if (rule.lfs) *out += " lfs";
  if (!rule.with.empty()) AppendList(out, "with", {rule.with});
  if (!rule.via.empty()) AppendList(out, "via", {rule.via});
  AppendList(out, "pin", Texts(rule.pins, [](const Pin& pin) { return fmt::format("{:02x}", fmt::join(pin, "")); }));
}

}  // namespace

std::string_view VerbText(Verb verb) {
  switch (verb) {
    case Verb::kHttp:
      return "http";
    case Verb::kGitFetchPack:
      return "git fetch-pack";
    case Verb::kGitReceivePack:
      return "git receive-pack";
    case Verb::kWs:
      return "ws";
    case Verb::kGrpc:
      return "grpc";
    case Verb::kGraphql:
      return "graphql";
    case Verb::kJsonRpc:
      return "jsonrpc";
    case Verb::kMcp:
      return "mcp";
    case Verb::kTls:
      return "tls";
    case Verb::kTcp:
      return "tcp";
    case Verb::kUdp:
      return "udp";
    case Verb::kDns:
      return "dns";
    case Verb::kUnix:
      return "unix";
  }
  return "";
}

std::string_view GraphqlKindText(GraphqlKind kind) {
  switch (kind) {
    case GraphqlKind::kQuery:
      return "query";
    case GraphqlKind::kMutation:
      return "mutation";
    case GraphqlKind::kSubscription:
      break;
  }
  return "subscription";
}

uint16_t DnsTypeNumber(std::string_view text) {
  for (const auto& [name, number] : kTypes)
    if (name == text) return number;
  return 0;
}

std::string DnsTypeText(uint16_t type) {
  for (const auto& [name, number] : kTypes)
    if (number == type) return std::string(name);
  return "";
}

bool LabelMatches(const Glob& label, std::string_view subject, bool allow) {
  if (subject.empty()) return false;
  if (allow && subject.starts_with("xn--") && !label.is_literal() && label.text() != "*") return false;
  return label.Matches(subject);
}

bool HostMatchesName(const HostPattern& host, std::string_view name, bool allow) {
  if (host.kind == HostPattern::Kind::kAny) return true;
  if (host.kind == HostPattern::Kind::kName) return host.text == name;
  if (host.kind == HostPattern::Kind::kAddress) return false;
  for (size_t i = host.labels.size(); i-- > 0;) {
    const size_t dot = name.rfind('.');
    const std::string_view label = dot == std::string_view::npos ? name : name.substr(dot + 1);
    if (!LabelMatches(host.labels[i], label, allow)) return false;
    name = dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
    if (name.empty() && i > 0) return false;
  }
  return host.deep ? !name.empty() : name.empty();
}

std::string CompactText(const Rule& rule) {
  const std::string ports = HasDefaultPorts(rule) ? "" : ":" + PortsText(rule.ports);
  std::vector<std::string> paths = Texts(rule.paths, [](const Glob& g) { return g.text(); });
  if (rule.verb == Verb::kUnix)
    return fmt::format("unix {}", paths.size() == 1 ? paths[0] : fmt::format("[{}]", fmt::join(paths, ", ")));
  if (rule.verb == Verb::kDns) return fmt::format("dns {}", rule.host.text);
  if (rule.verb == Verb::kGrpc)
    for (std::string& path : paths) path.replace(0, 1, paths.size() == 1 ? " " : "");
  std::string text = fmt::format("{} {}{}{}", VerbWords(rule), SchemeText(rule), HostText(rule), ports);
  if (paths.size() > 1 && rule.verb == Verb::kGrpc) text += ' ';
  if (paths.size() == 1) text += paths[0];
  if (paths.size() > 1) text += fmt::format("[{}]", fmt::join(paths, ", "));
  return text;
}

std::string CanonicalText(const Rule& rule) {
  std::string out = rule.allow ? "allow" : "deny";
  out += fmt::format(" {}", VerbText(rule.verb));
  if (rule.verb == Verb::kGraphql) out += fmt::format(" {}", GraphqlKindText(rule.graphql));
  AppendList(&out, "method", rule.methods);
  if (rule.scheme) out += *rule.scheme == Scheme::kHttps ? " https" : " http";
  if (rule.verb != Verb::kUnix) out += fmt::format(" host={}", HostText(rule));
  if (!rule.ports.empty()) out += fmt::format(" ports={}", PortsText(rule.ports));
  AppendList(&out, "path", Texts(rule.paths, [](const Glob& g) { return g.text(); }));
  AppendList(&out, "by", Texts(rule.by, [](const ExecutablePattern& e) { return e.text; }));
  AppendList(&out, "under", Texts(rule.under, [](const ExecutablePattern& e) { return e.text; }));
  AppendList(&out, "ip", Texts(rule.ip, [](const Cidr& c) { return c.ToString(); }));
  AppendList(&out, "query", MatcherTexts(rule.query));
  AppendList(&out, "header", MatcherTexts(rule.headers));
  if (rule.query_keys) {
    out += " query-keys";
    AppendList(&out, "key", *rule.query_keys);
  }
  AppendList(&out, "type", Texts(rule.types, DnsTypeText));
  if (rule.until) out += fmt::format(" until={}", rule.until->time_since_epoch().count());
  AppendOperation(&out, rule);
  if (rule.encoded_slash) out += " encoded-slash";
  if (rule.path_params) out += " path-params";
  if (rule.method_override) out += " method-override";
  return out;
}

}  // namespace sluice::policy
