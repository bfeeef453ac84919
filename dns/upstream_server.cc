#include "dns/upstream_server.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "dns/resolv_conf.h"
#include "policy/target.h"

namespace sluice::dns {
namespace {

constexpr std::string_view kTlsScheme = "tls://";

std::unexpected<Error> Bad(std::string_view text, std::string_view why) {
  return Fail(Code::kInvalid,
              fmt::format("{}: {} (write 1.1.1.1, 1.1.1.1:5353, [2606::1]:53 or tls://1.1.1.1#one.one.one.one)", text, why));
}

std::optional<uint16_t> ReadPort(std::string_view text) {
  uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || stop != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

// Splits "ADDRESS", "ADDRESS:PORT" or "[ADDRESS]:PORT"; a bare IPv6 address has more colons than one.
struct Parts {
  std::string_view address;
  std::optional<std::string_view> port{};
};
Parts Split(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return {text};
    const std::string_view rest = text.substr(end + 1);
    const std::string_view inside = text.substr(1, end - 1);
    if (rest.empty()) return {inside};
    if (rest.front() != ':') return {text};
    return {inside, rest.substr(1)};
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) return {text};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

std::string UpstreamServer::ToString() const {
  if (kind == Kind::kPlain) return endpoint.ToString();
  return fmt::format("{}{}{}{}", kTlsScheme, endpoint.ToString(), name.empty() ? "" : "#", name);
}

Result<UpstreamServer> ParseUpstreamServer(std::string_view text) {
  UpstreamServer server;
  std::string_view rest = text;
  if (rest.starts_with(kTlsScheme)) {
    server.kind = UpstreamServer::Kind::kTls;
    rest.remove_prefix(kTlsScheme.size());
    if (const size_t hash = rest.find('#'); hash != std::string_view::npos) {
      const auto name = policy::CanonicalName(rest.substr(hash + 1));
      if (!name) return Bad(text, "the text after # is not the name of a certificate");
      server.name = *name;
      rest = rest.substr(0, hash);
    }
  }
  const Parts parts = Split(rest);
  server.endpoint.port = server.kind == UpstreamServer::Kind::kTls ? kTlsPort : kDnsPort;
  if (parts.port) {
    const auto port = ReadPort(*parts.port);
    if (!port) return Bad(text, "the port is not a number from 1 to 65535");
    server.endpoint.port = *port;
  }
  const auto address = IpAddress::Parse(parts.address);
  if (!address) return Bad(text, "not an IP address");
  server.endpoint.address = *address;
  return server;
}

Result<StubDomain> ParseStubDomain(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return Fail(Code::kInvalid, fmt::format("{}: write DOMAIN=SERVER, as in cluster.local=10.96.0.10", text));
  std::string_view domain = text.substr(0, equals);
  if (domain.ends_with('.')) domain.remove_suffix(1);
  const auto canonical = policy::CanonicalName(domain);
  if (!canonical) return Fail(Code::kInvalid, fmt::format("{}: `{}` is not a domain", text, domain));
  StubDomain stub{*canonical, {}};
  for (std::string_view rest = text.substr(equals + 1);;) {
    const size_t comma = rest.find(',');
    auto server = ParseUpstreamServer(rest.substr(0, comma));
    if (!server) return std::unexpected(server.error());
    if (stub.servers.size() == kMaxServers)
      return Fail(Code::kInvalid, fmt::format("{}: more than {} servers for one domain", text, kMaxServers));
    stub.servers.push_back(*std::move(server));
    if (comma == std::string_view::npos) return stub;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace sluice::dns
