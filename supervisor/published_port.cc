#include "supervisor/published_port.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "supervisor/capture_ruleset.h"

namespace sluice::supervisor {
namespace {

std::unexpected<Error> Bad(std::string_view text, std::string_view why) {
  return Fail(Code::kInvalid, fmt::format("--publish {}: {}", text, why));
}

std::optional<uint16_t> Port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return port;
}

}  // namespace

Result<PublishedPort> ParsePublishedPort(std::string_view text) {
  constexpr std::string_view kForm = "write [ADDRESS:]PORT:PORT, as in 127.0.0.1:8080:8080 or [::1]:8080:80";
  std::string_view rest = text;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view protocol = rest.substr(slash + 1);
    if (protocol == "udp")
      return Bad(text, "UDP cannot be published: nothing but TCP leads into a sandbox, and it carries no UDP but its lookups");
    if (protocol != "tcp") return Bad(text, "only TCP can be published");
    rest = rest.substr(0, slash);
  }
  const size_t last = rest.rfind(':');
  const auto inside = last == std::string_view::npos ? std::nullopt : Port(rest.substr(last + 1));
  if (!inside || *inside == 0) return Bad(text, kForm);
  if (*inside == kListenerPort || *inside == kDnsPort)
    return Bad(text, fmt::format("port {} of a sandbox is sluice's own", *inside));
  rest = rest.substr(0, last);
  const size_t colon = rest.rfind(':');
  const auto outside = Port(colon == std::string_view::npos ? rest : rest.substr(colon + 1));
  if (!outside) return Bad(text, kForm);
  std::string_view address = colon == std::string_view::npos ? "127.0.0.1" : rest.substr(0, colon);
  const bool bracketed = address.starts_with('[') && address.ends_with(']');
  if (bracketed) address = address.substr(1, address.size() - 2);
  const auto parsed = IpAddress::Parse(address);
  if (!parsed) return Bad(text, "the address is written in digits, an IPv6 one in brackets; a name could be anybody's");
  if (parsed->is_v4() == bracketed) return Bad(text, kForm);
  return PublishedPort{Endpoint{*parsed, *outside}, *inside};
}

}  // namespace sluice::supervisor
