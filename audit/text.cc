#include "audit/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "base/printable.h"

namespace sluice::audit {
namespace {

constexpr uint32_t kReplacement = 0xfffd;
constexpr size_t kMinHexToken = 32;
constexpr size_t kMinMixedToken = 24;
constexpr size_t kMinPrefixedToken = 16;                        ///< prefix included
constexpr std::string_view kPinSaid = "; its own is sha256//";  ///< as proxy/io/tls_client.cc says it
constexpr size_t kPinDigestSize = 44;

// Issued tokens say what they are.
constexpr std::array<std::string_view, 19> kTokenPrefixes = {"ghp_",  "gho_",  "ghu_",  "ghs_", "ghr_", "github_pat_", "glpat-",
                                                             "xoxb-", "xoxp-", "xoxa-", "sk-",  "sk_",  "rk_",         "npm_",
                                                             "pypi-", "hf_",   "AKIA",  "ASIA", "AIza"};

void AppendEscape(std::string* out, uint32_t value) {
  if (value > 0xffff) {
    value -= 0x10000;
    fmt::format_to(std::back_inserter(*out), "\\u{:04x}\\u{:04x}", 0xd800 + (value >> 10), 0xdc00 + (value & 0x3ff));
  } else {
    fmt::format_to(std::back_inserter(*out), "\\u{:04x}", value);
  }
}

std::string Encoded(std::string_view text, size_t limit, char lowest) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= limit) {
      out.resize(limit);
      return out + "...";
    }
    if (c >= lowest && c < 0x7f) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
// What tokens are made of; anything else ends a word.
bool IsTokenChar(char c) {
  return IsDigit(c) || IsUpper(c) || IsLower(c) || c == '_' || c == '-' || c == '+' || c == '=' || c == '%';
}

bool LooksLikeToken(std::string_view word) {
  if (word.size() >= kMinPrefixedToken) {
    if (word.starts_with("eyJ")) return true;  // a JSON object in base64url: a JWT's first part
    if (std::ranges::any_of(kTokenPrefixes, [&](std::string_view p) { return word.starts_with(p); })) return true;
  }
  if (word.size() >= kMinHexToken && std::ranges::all_of(word, IsHex)) return true;
  return word.size() >= kMinMixedToken && std::ranges::any_of(word, IsDigit) && std::ranges::any_of(word, IsUpper) &&
         std::ranges::any_of(word, IsLower);
}

// The SHA-256 of a key in base64, and no more of the word.
bool IsPinDigest(std::string_view text) {
  if (text.size() < kPinDigestSize || text[kPinDigestSize - 1] != '=') return false;
  if (text.size() > kPinDigestSize && (IsTokenChar(text[kPinDigestSize]) || text[kPinDigestSize] == '/')) return false;
  return std::ranges::all_of(text.substr(0, kPinDigestSize - 1),
                             [](char c) { return IsDigit(c) || IsUpper(c) || IsLower(c) || c == '+' || c == '/'; });
}

}  // namespace

void AppendJsonString(std::string* out, std::string_view text) {
  *out += '"';
  while (!text.empty()) {
    CodePoint point = DecodeUtf8(text);
    if (point.size == 0) point = {kReplacement, 1};
    if (point.value == '"' || point.value == '\\') {
      *out += '\\';
      *out += static_cast<char>(point.value);
    } else if (point.value >= 0x20 && point.value < 0x7f) {
      *out += static_cast<char>(point.value);
    } else {
      AppendEscape(out, point.value);
    }
    text.remove_prefix(point.size);
  }
  *out += '"';
}

std::string Visible(std::string_view text, size_t limit) { return Encoded(text, limit, 0x21); }
std::string VisibleSentence(std::string_view text, size_t limit) { return Encoded(text, limit, 0x20); }

std::string ShellQuote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string Redact(std::string_view text, std::string_view replacement) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = static_cast<size_t>(std::ranges::find_if_not(text, IsTokenChar) - text.begin());
    const std::string_view word = text.substr(0, length);
    out += LooksLikeToken(word) ? replacement : word;
    text.remove_prefix(length);
    if (text.empty()) break;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

std::string RedactSentence(std::string_view sentence) {
  std::string out;
  for (;;) {
    const size_t at = sentence.find(kPinSaid);
    if (at == std::string_view::npos) return out + Redact(sentence);
    const size_t digest = at + kPinSaid.size();
    const bool is_pin = IsPinDigest(sentence.substr(digest));
    const size_t end = is_pin ? digest + kPinDigestSize : digest;
    out += Redact(sentence.substr(0, at));
    out += sentence.substr(at, end - at);
    sentence.remove_prefix(end);
  }
}

std::string RedactSuggestion(std::string_view suggest) {
  size_t host = suggest.rfind(' ');
  host = host == std::string_view::npos ? 0 : host + 1;
  if (suggest.substr(host).starts_with("http://")) host += 7;
  const size_t path = std::min(suggest.find('/', host), suggest.size());
  const std::string_view head = suggest.substr(0, path);
  if (Redact(head, "*") != head) return "";
  return std::string(head) + Redact(suggest.substr(path), "*");
}

std::string QueryKeys(std::string_view query) {
  std::string out;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    const size_t equals = pair.find('=');
    out += pair.substr(0, equals == std::string_view::npos ? pair.size() : equals + 1);
    query.remove_prefix(pair.size());
    if (query.empty()) break;
    out += '&';
    query.remove_prefix(1);
  }
  return out;
}

}  // namespace sluice::audit
