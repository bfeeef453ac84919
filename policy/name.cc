// Host names and authorities as they appear at run time.
#include <algorithm>
#include <charconv>

#include "policy/target.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

std::optional<uint16_t> ParsePort(std::string_view digits) {
  if (digits.empty() || digits.size() > 5 || !std::all_of(digits.begin(), digits.end(), IsDigit)) return std::nullopt;
  unsigned value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (value == 0 || value > 65535) return std::nullopt;
  return static_cast<uint16_t>(value);
}

}  // namespace

bool EndsInNumber(std::string_view name) {
  std::string_view last = name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1);
  if (last.empty()) return false;
  if (std::all_of(last.begin(), last.end(), IsDigit)) return true;
  if (last.size() < 2 || last[0] != '0' || (last[1] | 0x20) != 'x') return false;
  last.remove_prefix(2);
  return std::all_of(last.begin(), last.end(), IsHexDigit);
}

std::optional<std::string> CanonicalName(std::string_view raw) {
  if (!raw.empty() && raw.back() == '.') raw.remove_suffix(1);
  if (raw.empty() || raw.size() > kMaxName) return std::nullopt;
  std::string name;
  name.reserve(raw.size());
  size_t label = 0;
  for (const char c : raw) {
    if (c == '.') {
      if (label == 0) return std::nullopt;
      label = 0;
      name += c;
      continue;
    }
    if (++label > kMaxLabel) return std::nullopt;
    if (c >= 'A' && c <= 'Z') {
      name += static_cast<char>(c | 0x20);
    } else if ((c >= 'a' && c <= 'z') || IsDigit(c) || c == '-' || c == '_') {
      name += c;
    } else {
      return std::nullopt;
    }
  }
  if (label == 0 || EndsInNumber(name)) return std::nullopt;
  return name;
}

std::optional<Authority> ParseAuthority(std::string_view raw) {
  Authority result;
  std::string_view host = raw;
  if (!raw.empty() && raw[0] == '[') {
    const size_t close = raw.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    host = raw.substr(1, close - 1);
    if (host.find(':') == std::string_view::npos) return std::nullopt;
    result.address = IpAddress::Parse(host);
    if (!result.address) return std::nullopt;
    raw.remove_prefix(close + 1);
  } else {
    const size_t colon = raw.find(':');
    host = raw.substr(0, colon);
    raw.remove_prefix(host.size());
    result.address = IpAddress::Parse(host);
    if (!result.address) {
      auto name = CanonicalName(host);
      if (!name) return std::nullopt;
      result.name = std::move(*name);
    }
  }
  if (raw.empty()) return result;
  if (raw[0] != ':') return std::nullopt;
  result.port = ParsePort(raw.substr(1));
  if (!result.port) return std::nullopt;
  return result;
}

}  // namespace sluice::policy
