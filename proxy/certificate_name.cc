#include "proxy/certificate_name.h"

#include <algorithm>

namespace sluice::proxy {
namespace {

bool IsHostOctet(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

bool CoversHost(std::string_view dns_name, std::string_view host) {
  const bool wildcard = dns_name.starts_with("*.");
  if (wildcard) {
    dns_name.remove_prefix(1);
    const size_t dot = host.find('.');
    if (dot == 0 || dot == std::string_view::npos) return false;
    host.remove_prefix(dot);
    if (dns_name.find('.', 1) == std::string_view::npos) return false;
  }
  const auto same = [](char a, char b) { return IsHostOctet(a) && Lower(a) == b; };
  return !dns_name.empty() && std::ranges::equal(dns_name, host, same);
}

}  // namespace sluice::proxy
