// What the values of a preset's parameters may be (exact point 18). They end up inside rules, so that each type is a closed set
// of characters, none of which means anything there.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "policy/host_pattern.h"
#include "policy/preset.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

std::unexpected<Error> ValueError(std::string message, std::string_view text, size_t at = 0) {
  const auto length = static_cast<uint32_t>(std::max<size_t>(text.size() - std::min(at, text.size()), 1));
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0, SourceSpan{"", 1, static_cast<uint32_t>(at + 1), length}});
}

bool IsAlphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool IsPort(std::string_view digits) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return !digits.empty() && digits[0] != '0' && error == std::errc{} && end == digits.data() + digits.size() && value <= 65535;
}

Result<std::string> CheckHost(std::string_view text) {
  if (const size_t mark = text.find("://"); mark != std::string_view::npos)
    return ValueError("write the host alone, without a scheme", text);
  if (const size_t slash = text.find('/'); slash != std::string_view::npos)
    return ValueError("a host is `NAME`, `NAME:PORT` or an address, without a path", text, slash);
  std::string_view host = text;
  std::string_view port;
  const bool bracketed = text.starts_with('[');
  if (!bracketed && std::count(text.begin(), text.end(), ':') > 1)
    return ValueError("write an IPv6 address in brackets: `[fd00::1]:443`", text);
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos && (!bracketed || text[colon - 1] == ']')) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (!IsPort(port)) return ValueError(fmt::format("`{}` is not a port; ports are 1 to 65535", port), text, colon + 1);
  }
  if (bracketed && !host.ends_with(']')) return ValueError("a bracket is not closed", text);
  if (bracketed) host = host.substr(1, host.size() - 2);
  auto pattern = ParseHostPattern(host);
  if (!pattern) return std::unexpected(std::move(pattern.error()));
  const bool address = pattern->kind == HostPattern::Kind::kAddress && pattern->cidr->length128() == 128;
  if (!address && pattern->kind != HostPattern::Kind::kName)
    return ValueError("a parameter is one host, without wildcards", text);
  const bool v6 = address && !pattern->cidr->base().is_v4();
  if (bracketed && !v6) return ValueError("brackets are for IPv6 addresses", text);
  return fmt::format("{}{}{}{}{}", v6 ? "[" : "", pattern->text, v6 ? "]" : "", port.empty() ? "" : ":", port);
}

// Unreserved characters and the three that packages and groups have in their names; no escape, nothing that is syntax.
Result<std::string> CheckSegments(std::string_view text, size_t from, ParameterType type) {
  const std::string_view form = type == ParameterType::kName       ? "one name, such as `hello`"
                                : type == ParameterType::kSegments ? "a name, or names with slashes between: `group/team`"
                                                                   : "a path such as `/a/b`, or `/`";
  size_t at = from;
  while (at <= text.size()) {
    const size_t end = std::min(text.find('/', at), text.size());
    const std::string_view segment = text.substr(at, end - at);
    if (segment.empty() || segment == "." || segment == "..")
      return ValueError(fmt::format("this is {}, without `//`, `.`, `..` and a final slash", form), text,
                        std::min(at, text.size()));
    for (size_t i = at; i < end; ++i)
      if (!IsAlphanumeric(text[i]) && std::string_view("._~-@+:").find(text[i]) == std::string_view::npos)
        return ValueError(fmt::format("`{}` cannot stand in {}", text[i], form), text, i);
    if (end < text.size() && type == ParameterType::kName) return ValueError(fmt::format("this is {}", form), text, end);
    at = end + 1;
  }
  return std::string(text);
}

Result<std::string> CheckLabel(std::string_view text) {
  const bool good =
      !text.empty() && text.size() <= 63 && !text.starts_with('-') && !text.ends_with('-') &&
      std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (good) return std::string(text);
  return ValueError("this is one label of a host: lower-case letters, digits and `-`", text);
}

}  // namespace

std::string_view ParameterTypeText(ParameterType type) {
  switch (type) {
    case ParameterType::kHost:
      return "host";
    case ParameterType::kPath:
      return "path";
    case ParameterType::kSegments:
      return "segments";
    case ParameterType::kName:
      return "name";
    case ParameterType::kLabel:
      return "label";
    case ParameterType::kScheme:
      return "scheme";
    case ParameterType::kPrefixes:
      return "prefixes";
    case ParameterType::kExecutables:
      return "executables";
  }
  return "";
}

Result<std::string> CheckParameter(ParameterType type, std::string_view text) {
  if (text.empty()) return ValueError("an empty value", text);
  if (const size_t star = text.find('*'); star != std::string_view::npos)
    return ValueError("a preset's parameter takes no wildcard; write a rule of your own for more than one", text, star);
  switch (type) {
    case ParameterType::kHost:
      return CheckHost(text);
    case ParameterType::kPath:
      if (text == "/") return std::string();
      if (!text.starts_with('/')) return ValueError("a path begins with `/`", text);
      return CheckSegments(text, 1, type);
    case ParameterType::kSegments:
    case ParameterType::kName:
      return CheckSegments(text, 0, type);
    case ParameterType::kLabel:
      return CheckLabel(text);
    case ParameterType::kScheme:
      if (text == "https" || text == "http") return std::string(text);
      return ValueError("a scheme is `https` or `http`", text);
    case ParameterType::kPrefixes:
      if (Cidr::Parse(text)) return std::string(text);
      return ValueError(
          fmt::format("`{}` is not an address or a prefix without bits after its length (10.1.0.0/16, fd00::/8)", text), text);
    case ParameterType::kExecutables:
      if (const auto executable = ParseExecutable(text); !executable) return std::unexpected(executable.error());
      return std::string(text);
  }
  return ValueError("a value of no type", text);
}

}  // namespace sluice::policy
