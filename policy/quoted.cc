#include "policy/quoted.h"

#include <algorithm>
#include <charconv>

#include "base/printable.h"

namespace sluice::policy {
namespace {

std::unexpected<Error> QuoteError(std::string message, size_t at, size_t length) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0,
                               SourceSpan{"", 1, static_cast<uint32_t>(at + 1), static_cast<uint32_t>(length)}});
}

}  // namespace

Result<std::string> DecodeSingleQuoted(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == '\'') {
      ++i;
      if (i == raw.size() || raw[i] != '\'')
        return QuoteError("a quote inside quotes is written twice", std::min(i, raw.size() - 1), 1);
    }
    out += raw[i];
  }
  return out;
}

Result<std::string> DecodeDoubleQuoted(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      out += raw[i];
      continue;
    }
    const char kind = i + 1 < raw.size() ? raw[i + 1] : '\0';
    if (kind == '"' || kind == '\\') {
      out += kind;
      ++i;
      continue;
    }
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    const std::string_view hex = raw.substr(i + 1, digits + 1);
    uint32_t value = 0;
    bool good = digits != 0 && hex.size() == digits + 1;
    if (good) {
      const auto [end, error] = std::from_chars(hex.data() + 1, hex.data() + hex.size(), value, 16);
      good = error == std::errc{} && end == hex.data() + hex.size() && value <= 0x10ffff;
    }
    if (!good) return QuoteError("the escapes of a policy are \\\", \\\\, \\x41, \\u00fc and \\U0001f600", i, 2);
    AppendUtf8(&out, value);
    i += digits + 1;
  }
  return out;
}

}  // namespace sluice::policy
