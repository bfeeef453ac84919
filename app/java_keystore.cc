#include "app/java_keystore.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace sluice::app {
namespace {

constexpr uint32_t kMagic = 0xfeedfeed;
constexpr uint32_t kVersion = 2;
constexpr uint32_t kTrustedCertificate = 2;
constexpr std::string_view kPassword = "changeit";
constexpr std::string_view kSalt = "Mighty Aphrodite";
constexpr size_t kDigestSize = 20;
constexpr size_t kHeaderSize = 12;
constexpr size_t kCountAt = 8;

void PutU32(std::string* out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(v >> shift));
}

uint32_t GetU32(std::string_view in, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = (v << 8) | static_cast<uint8_t>(in[at + i]);
  return v;
}

void PutText(std::string* out, std::string_view text) {
  out->push_back(static_cast<char>(text.size() >> 8));
  out->push_back(static_cast<char>(text.size()));
  out->append(text);
}

void PutEntry(std::string* out, std::string_view alias, std::string_view der) {
  PutU32(out, kTrustedCertificate);
  PutText(out, alias);
  PutU32(out, 0);  // creation time, milliseconds, high and low half
  PutU32(out, 0);
  PutText(out, "X.509");
  PutU32(out, static_cast<uint32_t>(der.size()));
  out->append(der);
}

constexpr std::array<uint8_t, 256> MakeSextets() {
  std::array<uint8_t, 256> sextets{};
  sextets.fill(64);
  uint8_t value = 0;
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
    sextets[static_cast<uint8_t>(c)] = value++;
  return sextets;
}

// RFC 7468 section 3. OpenSSL's own decoder, let alone its parser, would take longer than all else at a start; the system trusts
// these certificates already. Empty: not base64.
std::string DecodeBase64(std::string_view text) {
  static constexpr std::array<uint8_t, 256> kSextets = MakeSextets();
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text.substr(0, text.find('='))) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    const uint8_t sextet = kSextets[static_cast<uint8_t>(c)];
    if (sextet == 64) return {};
    bits = bits << 6 | sextet;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held));
  }
  return bytes;
}

// One SEQUENCE, as long as it says: the store of which one entry is not would be refused as a whole.
bool IsWholeSequence(std::string_view der) {
  if (der.size() < 4 || der[0] != 0x30) return false;
  const auto first = static_cast<uint8_t>(der[1]);
  if (first == 0x82) return der.size() == 4 + (size_t{static_cast<uint8_t>(der[2])} << 8 | static_cast<uint8_t>(der[3]));
  if (first == 0x81) return der.size() == 3 + size_t{static_cast<uint8_t>(der[2])};
  return der.size() == 2 + size_t{first};
}

std::vector<std::string> DerOf(std::string_view pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
  std::vector<std::string> all;
  for (size_t at = pem.find(kBegin); at != std::string_view::npos; at = pem.find(kBegin, at)) {
    at += kBegin.size();
    const size_t end = pem.find(kEnd, at);
    if (end == std::string_view::npos) break;
    std::string der = DecodeBase64(pem.substr(at, end - at));
    if (IsWholeSequence(der)) all.push_back(std::move(der));
    at = end;
  }
  return all;
}

Result<std::string> Digest(std::initializer_list<std::string_view> contents) {
  std::string salted;
  for (const char c : kPassword) {
    salted.push_back('\0');
    salted.push_back(c);
  }
  salted.append(kSalt);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool done = context && EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) == 1 &&
              EVP_DigestUpdate(context.get(), salted.data(), salted.size()) == 1;
  for (const std::string_view content : contents)
    done = done && EVP_DigestUpdate(context.get(), content.data(), content.size()) == 1;
  if (!done || EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1 || length != kDigestSize)
    return Fail(Code::kInternal, "cannot compute the Java key store's digest");
  return std::string(reinterpret_cast<char*>(digest.data()), length);
}

}  // namespace

bool IsJavaKeystore(std::string_view store) {
  return store.size() >= kHeaderSize + kDigestSize && GetU32(store, 0) == kMagic && GetU32(store, 4) == kVersion;
}

Result<JavaKeystore> ExtendJavaKeystore(std::string_view store, std::string_view bundle_pem, std::string_view authority_pem) {
  JavaKeystore out;
  uint32_t count = 0;
  if (IsJavaKeystore(store)) {
    count = GetU32(store, kCountAt);
    out.kept = store.substr(kHeaderSize, store.size() - kHeaderSize - kDigestSize);
  } else {
    out.tail.reserve(bundle_pem.size());
    for (const std::string& der : DerOf(bundle_pem)) PutEntry(&out.tail, fmt::format("root-{}", count++), der);
  }
  for (const std::string& der : DerOf(authority_pem))
    PutEntry(&out.tail, fmt::format("sluice-sandbox-authority-{}", count++), der);
  PutU32(&out.head, kMagic);
  PutU32(&out.head, kVersion);
  PutU32(&out.head, count);
  auto digest = Digest({out.head, out.kept, out.tail});
  if (!digest) return std::unexpected(digest.error());
  out.tail += *digest;
  return out;
}

}  // namespace sluice::app
