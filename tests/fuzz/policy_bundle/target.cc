// Bundles, their signatures, and what is kept on disk: what was signed passes with its serial, nothing else does, and what is
// stored comes back whole.
#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "app/policy_bundle.h"
#include "app/policy_state.h"
#include "tests/fuzz/sidecar_shape.h"

using namespace sluice;
using namespace sluice::app;

namespace {

// Keys of a publisher, for this alone.
EVP_PKEY* Publisher() {
  static EVP_PKEY* const key = [] {
    const std::array<uint8_t, 32> secret{7, 7, 7};
    return EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, secret.data(), secret.size());
  }();
  return key;
}

std::string Signed(std::string_view text) {
  std::string signature(64, '\0');
  size_t size = signature.size();
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  if (EVP_DigestSignInit(context, nullptr, nullptr, nullptr, Publisher()) != 1 ||
      EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size()) != 1)
    std::abort();
  EVP_MD_CTX_free(context);
  return signature;
}

std::string Base64(std::string_view bytes) {
  std::string text(bytes.size() * 2, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  return text.substr(0, static_cast<size_t>(size)) + "\n";
}

// `text` was signed; `other` is anything else.
void CheckSigned(std::string_view text, std::string_view other) {
  static const BundleKeys keys = [] {
    BundleKeys made(1);
    size_t size = made[0].size();
    if (EVP_PKEY_get_raw_public_key(Publisher(), made[0].data(), &size) != 1) std::abort();
    return made;
  }();
  const std::string signature = Signed(text);
  const auto serial = BundleSerial(text);
  for (const std::string& form : {signature, Base64(signature)}) {
    const auto verified = VerifyBundle(keys, text, form);
    if (verified.has_value() != serial.has_value() || (verified && *verified != *serial)) std::abort();
    if (other != text && VerifyBundle(keys, other, form)) std::abort();
  }
  std::string damaged = signature;
  damaged[text.size() % damaged.size()] ^= 1;
  if (VerifyBundle(keys, text, damaged)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  // Nobody has the private half of this key (it is no point that was ever generated).
  const BundleKeys keys = {std::array<uint8_t, 32>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
  const size_t half = size / 2;
  if (VerifyBundle(keys, in.substr(half), in.substr(0, half))) std::abort();
  CheckSigned(in, in.substr(0, half));
  if (const auto serial = BundleSerial(in); serial && *serial != 0 && !in.starts_with("# sluice-bundle serial=")) std::abort();
  (void)ReadBundleKeys(in, "keys");
  if (const auto signature = ReadSignature(in); signature && size != 64 && size < 88) std::abort();
  if (const auto stored = ParseStored(in)) {
    const auto again = ParseStored(StoredText(*stored));
    if (!again || !(*again == *stored)) std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return fuzz::Mutate(fuzz::kBundle, data, size, most, seed);
}
