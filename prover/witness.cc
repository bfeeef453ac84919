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

std::string RequestText(const Witness& witness) {
  const bool tls = witness.scheme == policy::Scheme::kHttps;
  const bool usual = witness.port == (tls ? 443 : 80);
  std::string text =
      fmt::format("{} {}://{}{}{}{}", witness.method, tls ? "https" : "http", Authority(witness),
                  usual ? "" : fmt::format(":{}", witness.port), witness.path, witness.has_query ? "?" + witness.query : "");
  for (const auto& [name, value] : witness.headers)
    if (!witness.operation || name != "content-type") text += fmt::format(" with `{}: {}`", name, value);
  if (witness.operation) text += fmt::format(" ({})", policy::VerbText(*witness.operation));
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
  if (!process.ancestor.empty()) text += " under " + process.ancestor;
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
  return text + Who(process);
}

}  // namespace sluice::prover
