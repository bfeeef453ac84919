#pragma once

// Pins of public keys: SHA-256 over a certificate's SubjectPublicKeyInfo (RFC 7469 section 2.4), so that a renewed certificate
// with the same key still fits. A handshake fits a set of pins where any certificate of the chain that was verified, from the
// server's own to the root, has one of them; the set is checked in addition to everything else, never instead.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::proxy {

using SpkiPin = std::array<uint8_t, 32>;

/// "sha256//" and 44 characters of base64, as policies and curl write it.
[[nodiscard]] std::string SpkiPinText(const SpkiPin& pin);

/// Whether one of `keys` is pinned.
[[nodiscard]] bool AnyPinned(std::span<const SpkiPin> pins, std::span<const SpkiPin> keys);

/// One text for one set of pins, whatever its order; empty for none. For keys of pools and sessions.
[[nodiscard]] std::string PinSetKey(std::vector<SpkiPin> pins);

}  // namespace sluice::proxy
