#include "dns/local_names.h"

#include <array>
#include <string>

namespace sluice::dns {
namespace {

constexpr std::string_view kV4Suffix = ".in-addr.arpa";
constexpr std::string_view kV6Suffix = ".ip6.arpa";

std::optional<IpAddress> ReverseV4(std::string_view labels) {
  std::string forward;
  while (!labels.empty()) {
    const size_t dot = labels.rfind('.');
    if (!forward.empty()) forward += '.';
    forward += dot == std::string_view::npos ? labels : labels.substr(dot + 1);
    labels = dot == std::string_view::npos ? std::string_view() : labels.substr(0, dot);
  }
  return IpAddress::Parse(forward);
}

std::optional<IpAddress> ReverseV6(std::string_view labels) {
  if (labels.size() != 63) return std::nullopt;
  std::array<uint8_t, 16> bytes{};
  for (size_t i = 0; i < 32; ++i) {
    const char c = labels[62 - 2 * i];
    if (i < 31 && labels[61 - 2 * i] != '.') return std::nullopt;
    const int nibble = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (nibble < 0) return std::nullopt;
    bytes[i / 2] = static_cast<uint8_t>(bytes[i / 2] | nibble << (i % 2 == 0 ? 4 : 0));
  }
  return IpAddress::FromV6(bytes);
}

}  // namespace

bool IsLocalhost(std::string_view canonical_name) {
  return canonical_name == "localhost" || canonical_name.ends_with(".localhost");
}

std::optional<IpAddress> ReverseName(std::string_view canonical_name) {
  if (canonical_name.ends_with(kV4Suffix)) return ReverseV4(canonical_name.substr(0, canonical_name.size() - kV4Suffix.size()));
  if (canonical_name.ends_with(kV6Suffix)) return ReverseV6(canonical_name.substr(0, canonical_name.size() - kV6Suffix.size()));
  return std::nullopt;
}

}  // namespace sluice::dns
