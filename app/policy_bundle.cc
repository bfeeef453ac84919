#include "app/policy_bundle.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <charconv>
#include <memory>

namespace sluice::app {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

constexpr std::string_view kBundleLine = "# sluice-bundle";

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

Result<BundleKeys> ReadBundleKeys(std::string_view pem, const std::string& file) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  BundleKeys keys;
  while (bio) {
    const Key key(PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    if (!key) break;
    std::array<uint8_t, 32> raw{};
    size_t size = raw.size();
    if (EVP_PKEY_base_id(key.get()) != EVP_PKEY_ED25519 || EVP_PKEY_get_raw_public_key(key.get(), raw.data(), &size) != 1)
      return Fail(Code::kInvalid, fmt::format("{}: a key that is not Ed25519", file));
    if (keys.size() >= kMaxBundleKeys) return Fail(Code::kExhausted, fmt::format("{}: more than {} keys", file, kMaxBundleKeys));
    keys.push_back(raw);
  }
  if (keys.empty())
    return Fail(
        Code::kInvalid,
        fmt::format("{}: no public key in PEM; make one with `openssl genpkey -algorithm ed25519 -out key.pem` and `openssl pkey "
                    "-in key.pem -pubout`",
                    file));
  return keys;
}

Result<std::array<uint8_t, 64>> ReadSignature(std::string_view bytes) {
  std::array<uint8_t, 64> out{};
  if (bytes.size() == out.size()) {
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
  }
  if (bytes.ends_with('\n')) bytes.remove_suffix(1);
  if (bytes.ends_with('\r')) bytes.remove_suffix(1);
  const auto malformed = [] { return Fail(Code::kInvalid, "a signature is 64 octets, as they are or in base64"); };
  // 64 octets are 86 digits and two signs of padding; the last digit's low four bits are zero.
  if (bytes.size() != 88 || !bytes.ends_with("==")) return malformed();
  uint32_t bits = 0;
  unsigned held = 0;
  size_t at = 0;
  for (const char c : bytes.substr(0, 86)) {
    const int value = Base64Value(c);
    if (value < 0) return malformed();
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xfffff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out[at++] = static_cast<uint8_t>(bits >> held);
  }
  if (at != out.size() || (bits & 0xf) != 0) return malformed();
  return out;
}

std::string SignatureText(const std::array<uint8_t, 64>& signature) {
  std::array<unsigned char, 89> text{};  // and a NUL
  const int size = EVP_EncodeBlock(text.data(), signature.data(), static_cast<int>(signature.size()));
  return {text.begin(), text.begin() + size};
}

Result<uint64_t> BundleSerial(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with(kBundleLine)) return 0;
  constexpr std::string_view kWord = " serial=";
  const std::string_view rest = line.substr(kBundleLine.size());
  uint64_t serial = 0;
  const char* from = rest.data() + std::min(kWord.size(), rest.size());
  const char* end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(from, end, serial);
  if (!rest.starts_with(kWord) || error != std::errc{} || stop != end || stop == from)
    return Fail(Code::kInvalid, "the bundle's first line is `# sluice-bundle serial=N` with a number");
  return serial;
}

Result<uint64_t> VerifyBundle(const BundleKeys& keys, std::string_view text, std::string_view signature) {
  if (text.size() > kMaxBundleBytes) return Fail(Code::kExhausted, "the bundle is longer than 1 MiB");
  const auto raw = ReadSignature(signature);
  if (!raw) return std::unexpected(raw.error());
  const bool signed_by_one = std::ranges::any_of(keys, [&](const std::array<uint8_t, 32>& public_key) {
    const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, public_key.data(), public_key.size()), EVP_PKEY_free);
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    return key && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
           EVP_DigestVerify(context.get(), raw->data(), raw->size(), reinterpret_cast<const unsigned char*>(text.data()),
                            text.size()) == 1;
  });
  if (!signed_by_one) return Fail(Code::kPermission, "no key of --policy-key has signed it");
  return BundleSerial(text);
}

}  // namespace sluice::app
