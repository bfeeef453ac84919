#include "policy/host_pattern.h"

#include <fmt/format.h>
#include <idn2.h>

#include <algorithm>

#include "policy/target.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;

std::unexpected<Error> HostError(std::string message, size_t column, size_t length = 1) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0,
                               SourceSpan{"", 1, static_cast<uint32_t>(column + 1), static_cast<uint32_t>(length)}});
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool IsPlainLabel(std::string_view label) {
  return !label.empty() && label.size() <= kMaxLabel && std::all_of(label.begin(), label.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// libidn2's answer, or empty with its complaint in `why`.
std::string ToALabel(const std::string& label, std::string* why) {
  char* out = nullptr;
  const int rc = idn2_to_ascii_8z(label.c_str(), &out, IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT);
  if (rc != IDN2_OK) {
    *why = idn2_strerror(rc);
    return "";
  }
  std::string result(out);
  idn2_free(out);
  return result;
}

// A character that UTS 46 maps to nothing would make two spellings of one name: none may be lost.
bool LosesCharacter(std::string_view label) {
  for (size_t i = 0; i < label.size();) {
    size_t end = i + 1;
    while (end < label.size() && (static_cast<unsigned char>(label[end]) & 0xc0) == 0x80) ++end;
    std::string why;
    if (end - i > 1 && ToALabel(fmt::format("a{}b", label.substr(i, end - i)), &why) == "ab") return true;
    i = end;
  }
  return false;
}

Result<std::string> NonAsciiLabel(std::string_view label, size_t column) {
  if (label.find('*') != std::string_view::npos)
    return HostError(fmt::format("`*` cannot stand in the non-ASCII label `{}`; write its xn-- form or the whole label", label),
                     column, label.size());
  std::string why = "not a valid label";
  std::string result = ToALabel(std::string(label), &why);
  if (result.empty() || !result.starts_with("xn--") || !IsPlainLabel(result) || LosesCharacter(label))
    return HostError(
        fmt::format("`{}` is not a host label in any script ({})", label, result.empty() ? why : "it maps to other characters"),
        column, label.size());
  return result;
}

Result<std::string> AsciiLabel(std::string_view label, size_t column) {
  std::string lower;
  for (size_t i = 0; i < label.size(); ++i) {
    const char c = label[i];
    if (c >= 'A' && c <= 'Z') {
      lower += static_cast<char>(c | 0x20);
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '*') {
      lower += c;
    } else {
      return HostError(fmt::format("`{}` cannot stand in a host", c), column + i);
    }
  }
  if (lower.find("**") != std::string::npos)
    return HostError("`**` in a host is only the whole first label; inside a label write `*`", column, label.size());
  return lower;
}

Result<Glob> ParseLabel(std::string_view label, size_t column) {
  if (label.empty()) return HostError("an empty label in the host", column);
  const auto text = IsAscii(label) ? AsciiLabel(label, column) : NonAsciiLabel(label, column);
  if (!text) return std::unexpected(text.error());
  if (text->size() > kMaxLabel) return HostError("a label is at most 63 characters", column, label.size());
  auto glob = Glob::Path(*text);
  if (!glob) return HostError(glob.error().message, column, label.size());
  return glob;
}

HostPattern AddressPattern(const Cidr& cidr) {
  HostPattern host;
  host.kind = HostPattern::Kind::kAddress;
  host.cidr = cidr;
  host.text = cidr.length128() == 128 ? cidr.base().ToString() : cidr.ToString();
  return host;
}

}  // namespace

Result<HostPattern> ParseHostPattern(std::string_view text) {
  if (text.empty()) return HostError("no host", 0);
  HostPattern host;
  if (text == "**") {
    host.text = text;
    return host;
  }
  if (const auto cidr = Cidr::Parse(text)) return AddressPattern(*cidr);
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    if (const auto base = IpAddress::Parse(text.substr(0, slash)))
      return HostError(fmt::format("`{}` is not a prefix: bits are set after its length, or the length is out of range", text), 0,
                       text.size());
  }
  const std::string_view whole = text;
  if (text.ends_with('.')) text.remove_suffix(1);
  size_t at = 0;
  if (text.starts_with("**.")) {
    host.deep = true;
    at = 3;
  }
  std::string canonical = host.deep ? "**" : "";
  bool literal = !host.deep;
  while (at <= text.size()) {
    const size_t dot = std::min(text.find('.', at), text.size());
    auto label = ParseLabel(text.substr(at, dot - at), at);
    if (!label) return std::unexpected(label.error());
    literal = literal && label->is_literal();
    canonical += (canonical.empty() ? "" : ".") + label->text();
    host.labels.push_back(std::move(*label));
    at = dot + 1;
  }
  if (canonical.size() > kMaxName) return HostError("a host is at most 253 characters", 0, whole.size());
  if (EndsInNumber(canonical))
    return HostError(fmt::format("`{}` would be read as an address by some program", whole), 0, whole.size());
  host.kind = literal ? HostPattern::Kind::kName : HostPattern::Kind::kGlob;
  host.text = std::move(canonical);
  if (literal) host.labels.clear();
  return host;
}

}  // namespace sluice::policy
