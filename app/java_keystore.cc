#include "app/java_keystore.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>
#include <cstdint>
#include <memory>
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

std::vector<std::string> DerOf(std::string_view pem) {
  std::vector<std::string> all;
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  // The bytes as they stand: parsing what a system trusts already would take longer than all else here.
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* der = nullptr;
  long length = 0;
  while (PEM_read_bio(bio.get(), &name, &header, &der, &length) == 1) {
    if (std::string_view(name) == PEM_STRING_X509) all.emplace_back(reinterpret_cast<char*>(der), static_cast<size_t>(length));
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(der);
  }
  ERR_clear_error();
  return all;
}

Result<std::string> Digest(std::string_view content) {
  std::string input;
  for (const char c : kPassword) {
    input.push_back('\0');
    input.push_back(c);
  }
  input.append(kSalt).append(content);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_Digest(input.data(), input.size(), digest.data(), &length, EVP_sha1(), nullptr) != 1 || length != kDigestSize)
    return Fail(Code::kInternal, "cannot compute the Java key store's digest");
  return std::string(reinterpret_cast<char*>(digest.data()), length);
}

bool IsJks(std::string_view store) {
  return store.size() >= kHeaderSize + kDigestSize && GetU32(store, 0) == kMagic && GetU32(store, 4) == kVersion;
}

}  // namespace

Result<std::string> ExtendJavaKeystore(std::string_view store, std::string_view bundle_pem, std::string_view authority_pem) {
  std::string entries;
  uint32_t count = 0;
  if (IsJks(store)) {
    count = GetU32(store, 8);
    entries = store.substr(kHeaderSize, store.size() - kHeaderSize - kDigestSize);
  } else {
    for (const std::string& der : DerOf(bundle_pem)) PutEntry(&entries, fmt::format("root-{}", count++), der);
  }
  for (const std::string& der : DerOf(authority_pem))
    PutEntry(&entries, fmt::format("sluice-sandbox-authority-{}", count++), der);
  std::string out;
  PutU32(&out, kMagic);
  PutU32(&out, kVersion);
  PutU32(&out, count);
  out += entries;
  auto digest = Digest(out);
  if (!digest) return std::unexpected(digest.error());
  return out + *digest;
}

}  // namespace sluice::app
