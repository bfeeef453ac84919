#include "proxy/connect_request.h"

#include <algorithm>
#include <optional>

#include "policy/target.h"

namespace sluice::proxy {
namespace {

constexpr uint16_t kHttpPort = 80;

bool FromAuthority(const policy::Authority& authority, ProxyTarget* target) {
  if (authority.address) {
    target->host.clear();
    target->literal = *authority.address;
    return true;
  }
  auto name = policy::CanonicalName(authority.name);
  if (!name) return false;
  target->host = *std::move(name);
  return true;
}

Fault CheckHost(const RequestHead& head) {
  if (head.hosts == 0) return {};
  const auto authority = policy::ParseAuthority(head.host);
  ProxyTarget named;
  if (!authority || !FromAuthority(*authority, &named)) return {400, "a malformed Host"};
  return {};
}

}  // namespace

bool SetPlace(std::string_view text, ProxyTarget* target) {
  if (text.find(':') != std::string_view::npos) {
    const auto literal = IpAddress::Parse(text);
    if (!literal) return false;
    target->host.clear();
    target->literal = *literal;
    return true;
  }
  const auto authority = policy::ParseAuthority(text);
  return authority && FromAuthority(*authority, target);
}

std::expected<ProxyTarget, Fault> ParseConnectRequest(const RequestHead& head) {
  if (head.target.find("://") != std::string_view::npos || head.target.front() == '/')
    return std::unexpected(Fault{400, "a CONNECT to something other than a name and a port"});
  const auto authority = policy::ParseAuthority(head.target);
  ProxyTarget target;
  if (!authority || !FromAuthority(*authority, &target))
    return std::unexpected(Fault{400, "a CONNECT to something other than a name and a port"});
  if (!authority->port || *authority->port == 0) return std::unexpected(Fault{400, "a CONNECT without a port"});
  target.port = *authority->port;
  if (const Fault fault = CheckHost(head)) return std::unexpected(fault);
  const auto framing = RequestFraming(head);
  if (!framing) return std::unexpected(framing.error());
  if (framing->kind == BodyKind::kChunked || framing->length != 0) return std::unexpected(Fault{400, "a CONNECT with a body"});
  return target;
}

std::expected<AbsoluteTarget, Fault> ParseAbsoluteRequest(const RequestHead& head) {
  const std::string_view target = head.target;
  if (target == "*") return std::unexpected(Fault{405, "a request for * is never forwarded"});
  if (target.front() == '/') return std::unexpected(Fault{403, "this is a proxy: it serves nothing itself"});
  const size_t colon = target.find("://");
  if (colon == std::string_view::npos) return std::unexpected(Fault{400, "a request target that is neither a path nor a URI"});
  const std::string_view scheme = target.substr(0, colon);
  if (EqualsLower(scheme, "https")) return std::unexpected(Fault{400, "an https URI in the clear; use CONNECT"});
  if (!EqualsLower(scheme, "http")) return std::unexpected(Fault{400, "an absolute URI of another scheme than http"});
  const std::string_view rest = target.substr(colon + 3);
  const size_t end = std::min(rest.find_first_of("/?#\\"), rest.size());
  const auto authority = policy::ParseAuthority(rest.substr(0, end));
  if (end < rest.size() && (rest[end] == '\\' || rest[end] == '#')) return std::unexpected(Fault{400, "a malformed URI"});
  AbsoluteTarget absolute;
  if (!authority || !FromAuthority(*authority, &absolute.place)) return std::unexpected(Fault{400, "a malformed authority"});
  absolute.place.port = authority->port.value_or(kHttpPort);
  if (absolute.place.port == 0) return std::unexpected(Fault{400, "a malformed authority"});
  if (const Fault fault = CheckHost(head)) return std::unexpected(fault);
  absolute.authority = rest.substr(0, end);
  absolute.path = rest.substr(end);
  return absolute;
}

}  // namespace sluice::proxy
