#pragma once

// A policy fetched by URL: the native text, and beside it at URL.sig a detached Ed25519 signature (RFC 8032) over its bytes. A
// first line
// `# sluice-bundle serial=N` stops an older signed policy from being served again: the serial never goes back. Pure but for
// OpenSSL.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::app {

inline constexpr size_t kMaxBundleBytes = 1024 * 1024;
inline constexpr size_t kMaxSignatureBytes = 4096;
inline constexpr size_t kMaxBundleKeys = 8;  ///< an old one and a new one, while they are changed

/// Public keys, any of which may have signed.
using BundleKeys = std::vector<std::array<uint8_t, 32>>;

/// A PEM file of one or more Ed25519 public keys, as `openssl pkey -pubout` writes them.
[[nodiscard]] Result<BundleKeys> ReadBundleKeys(std::string_view pem, const std::string& file);
/// 64 octets as they are, or in base64 with or without a final newline.
[[nodiscard]] Result<std::array<uint8_t, 64>> ReadSignature(std::string_view bytes);
/// The same in base64.
[[nodiscard]] std::string SignatureText(const std::array<uint8_t, 64>& signature);
/// 0 where the text names none. kInvalid: a bundle line that is malformed.
[[nodiscard]] Result<uint64_t> BundleSerial(std::string_view text);

/// kPermission: no key has signed these bytes. The serial.
[[nodiscard]] Result<uint64_t> VerifyBundle(const BundleKeys& keys, std::string_view text, std::string_view signature);

}  // namespace sluice::app
