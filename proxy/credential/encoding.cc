#include "proxy/credential/encoding.h"

#include <algorithm>
#include <array>

#include "base/hex.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUpperHex = "0123456789ABCDEF";

int Sextet(char c) {
  if (c == '-') c = '+';
  if (c == '_') c = '/';
  const size_t at = kAlphabet.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

constexpr bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
constexpr char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr char Fold(char c) { return IsLetterOrDigit(c) ? Lower(c) : '-'; }

}  // namespace

std::string Base64Encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - at);
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < n ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out.push_back(i <= n ? kAlphabet[group >> (18 - 6 * i) & 63] : '=');
  }
  return out;
}

std::optional<std::string> Base64Decode(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = Sextet(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xfffff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out.push_back(static_cast<char>(bits >> held & 0xff));
  }
  return out;
}

std::string PercentEncode(std::string_view bytes, char kept) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) {
    if (IsLetterOrDigit(c) || c == '-' || c == '.' || c == '_' || c == '~' || (kept != '\0' && c == kept)) {
      out.push_back(c);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out.push_back('%');
    out.push_back(kUpperHex[byte >> 4]);
    out.push_back(kUpperHex[byte & 15]);
  }
  return out;
}

std::string PercentDecode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '%' && text.size() - at > 2 && HexValue(text[at + 1]) >= 0 && HexValue(text[at + 2]) >= 0) {
      out.push_back(static_cast<char>(HexValue(text[at + 1]) << 4 | HexValue(text[at + 2])));
      at += 2;
    } else {
      out.push_back(c == '+' && plus == Plus::kSpace ? ' ' : c);
    }
  }
  return out;
}

std::string JsonEscape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out.push_back(kUpperHex[byte >> 4]);
      out.push_back(kUpperHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string FoldFieldName(std::string_view name) {
  std::string out(name);
  std::ranges::transform(out, out.begin(), Fold);
  return out;
}

bool FoldsTo(std::string_view name, std::string_view folded) {
  return name.size() == folded.size() && std::ranges::equal(name, folded, [](char a, char b) { return Fold(a) == b; });
}

std::string LowerCase(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), Lower);
  return out;
}

}  // namespace sluice::proxy
