// The texts of verdicts, layers, witnesses and regions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "prover/prove.h"

namespace sluice::prover {
namespace {

std::string Authority(const Witness& witness) {
  if (!witness.host.empty()) return witness.host;
  if (!witness.address) return "an address";
  const std::string text = witness.address->ToString();
  return witness.address->is_v4() ? text : "[" + text + "]";
}

std::string LeavesText(const policy::JsonLeaves& leaves) {
  std::string text;
  for (const policy::JsonLeaf& leaf : leaves)
    if (leaf.type != policy::JsonLeaf::Type::kArray) text += fmt::format(", {}={}", leaf.pointer, leaf.text);
  return text;
}

std::string_view ChangeText(policy::RefChange change) {
  switch (change) {
    case policy::kRefCreate:
      return "create";
    case policy::kRefUpdate:
      return "update";
    case policy::kRefDelete:
      return "delete";
  }
  return "";
}

// "graphql mutation deleteRepo", "jsonrpc tools/call search", "push: delete refs/heads/main".
std::string BodyText(const Witness& witness) {
  if (!witness.ShowsBody()) return "";
  const WitnessBody& body = witness.body;
  switch (body.kind) {
    case WitnessBody::Kind::kNone:
      return "with a body that no rule reads";
    case WitnessBody::Kind::kJson:
      return body.json->empty() ? "JSON" : "JSON " + LeavesText(*body.json).substr(2);
    case WitnessBody::Kind::kGraphql:
      return fmt::format("graphql {} {}{}", policy::GraphqlKindText(body.graphql.kind), body.graphql.field,
                         body.graphql.operation.empty() ? "" : fmt::format(" in operation {}", body.graphql.operation)) +
             LeavesText(body.json.value_or(policy::JsonLeaves{}));
    case WitnessBody::Kind::kRpc: {
      const std::string list = body.batch ? " in a batch" : "";
      if (body.rpc.method.empty()) return "jsonrpc answer" + list;
      return fmt::format("jsonrpc {}{}{}", body.rpc.method, body.rpc.tool ? " " + *body.rpc.tool : "", list) +
             LeavesText(body.rpc.message);
    }
    case WitnessBody::Kind::kPush:
      if (body.PushesNothing()) return "push: no command";
      return fmt::format("push: {} {}", ChangeText(body.push.change), body.push.ref);
    case WitnessBody::Kind::kLfs:
      return "";
  }
  return "";
}

// The same with what it asks of git LFS, which is one thing beside the other.
std::string WholeBodyText(const Witness& witness) {
  const std::string text = BodyText(witness);
  if (!witness.ShowsBody() || !witness.body.lfs) return text;
  const bool download = *witness.body.lfs == policy::LfsOperation::kDownload;
  policy::JsonLeaves others;
  if (witness.body.kind == WitnessBody::Kind::kLfs) others = witness.body.json.value_or(policy::JsonLeaves{});
  std::erase_if(others, [](const policy::JsonLeaf& leaf) { return leaf.pointer == "/operation"; });
  return fmt::format("{}{}lfs: {}{}", text, text.empty() ? "" : ", ", download ? "download" : "upload", LeavesText(others));
}

std::string WayText(const Witness& witness) {
  switch (witness.way) {
    case Way::kAny:
      return "";
    case Way::kCredential:
      return fmt::format(" with the credential `{}`", witness.way_name);
    case Way::kOwn:
      return fmt::format(" with the workload's own `{}`", witness.way_name);
    case Way::kVia:
      return witness.way_name.empty() ? " directly, through no upstream proxy"
                                      : fmt::format(" through the upstream proxy `{}`", witness.way_name);
    case Way::kUnpinned:
      return " to an upstream with another key";
  }
  return "";
}

std::string RequestText(const Witness& witness) {
  const bool tls = witness.scheme == policy::Scheme::kHttps;
  const bool usual = witness.port == (tls ? 443 : 80);
  std::string text =
      fmt::format("{} {}://{}{}{}{}", witness.method, tls ? "https" : "http", Authority(witness),
                  usual ? "" : fmt::format(":{}", witness.port), witness.path, witness.has_query ? "?" + witness.query : "");
  const bool typed = witness.operation || (witness.body_matters && witness.body.kind != WitnessBody::Kind::kNone);
  for (const auto& [name, value] : witness.headers)
    if (!typed || name != "content-type") text += fmt::format(" with `{}: {}`", name, value);
  if (witness.upgrade == policy::Upgrade::kWebSocket) text += " (WebSocket)";
  if (const std::string body = WholeBodyText(witness); !body.empty()) {
    text += fmt::format(" ({})", body);
  } else if (witness.operation) {
    text += fmt::format(" ({})", policy::VerbText(*witness.operation));
  }
  return text;
}

std::string What(const Witness& witness) {
  switch (witness.layer) {
    case Layer::kDns: {
      const bool address = witness.dns_type == policy::kDnsA || witness.dns_type == policy::kDnsAaaa;
      const std::string named = policy::DnsTypeText(witness.dns_type);
      const std::string type = named.empty() ? fmt::format("TYPE{}", witness.dns_type) : named;
      return fmt::format("lookup of {}{}", witness.host, address ? "" : fmt::format(" (type {})", type));
    }
    case Layer::kUdp:
      return fmt::format("UDP datagrams to {}:{}", Authority(witness), witness.port);
    case Layer::kTcp:
      return fmt::format("TCP bytes to {}:{}", Authority(witness), witness.port);
    case Layer::kTls:
      return fmt::format("TLS bytes to {}:{}", Authority(witness), witness.port);
    case Layer::kHttp:
      return RequestText(witness);
    case Layer::kUnix:
      return fmt::format("connect to {}", witness.path);
  }
  return "";
}

std::string Digest(const std::array<uint8_t, 32>& sha256) { return fmt::format("sha256:{:02x}", fmt::join(sha256, "")); }

std::string Who(const WitnessProcess& process) {
  std::string text;
  switch (process.kind) {
    case WitnessProcess::Kind::kAny:
      break;
    case WitnessProcess::Kind::kNamed:
      text = " by " + process.exe;
      break;
    case WitnessProcess::Kind::kUntrusted:
      text = " by a deleted executable";
      break;
    case WitnessProcess::Kind::kUnknown:
      text = " by a process that cannot be read";
      break;
  }
  if (process.sha256) text += fmt::format(" ({})", Digest(*process.sha256));
  for (const WitnessAncestor& ancestor : process.ancestors)
    text += (&ancestor == &process.ancestors.front() ? " under " : " and ") + ancestor.exe;
  return text;
}

}  // namespace

std::string_view VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return "equal";
    case Verdict::kNarrowed:
      return "narrowed";
    case Verdict::kWidened:
      return "widened";
    case Verdict::kIncomparable:
      return "incomparable";
    case Verdict::kUnknown:
      return "unknown";
  }
  return "";
}

std::string_view LayerText(Layer layer) {
  switch (layer) {
    case Layer::kDns:
      return "dns";
    case Layer::kUdp:
      return "udp";
    case Layer::kTcp:
      return "tcp";
    case Layer::kTls:
      return "tls";
    case Layer::kHttp:
      return "http";
    case Layer::kUnix:
      return "unix";
  }
  return "";
}

std::string Witness::Text() const {
  std::string text = What(*this);
  if (!host.empty() && address) text += " at " + address->ToString();
  return text + Who(process) + WayText(*this);
}

std::string GraphqlText(const policy::GraphqlItem& item) {
  if (item.kind == policy::GraphqlKind::kQuery && item.operation.empty()) return "{" + item.field + "}";
  const std::string name = item.operation.empty() ? "" : " " + item.operation;
  return std::string(policy::GraphqlKindText(item.kind)) + name + "{" + item.field + "}";
}

}  // namespace sluice::prover
