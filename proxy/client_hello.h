#pragma once

// The first flight of a TLS client (RFC 8446 section 4.1.2), read without answering it: which name it asks for, which
// protocols it offers, whether it carries ECH or ESNI. Records may be fragmented; anything malformed is refused.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::proxy {

inline constexpr size_t kMaxClientHelloBytes = 16 * 1024;  ///< all records of it together
inline constexpr size_t kMaxAlpnProtocols = 32;

struct ClientHello {
  std::optional<std::string> sni;  ///< as sent, not canonical; only host_name entries
  std::vector<std::string> alpn;
  bool ech = false;   ///< encrypted_client_hello, which GREASE cannot be told from
  bool esni = false;  ///< encrypted_server_name of ECH's drafts: sent only by who means it
};

enum class HelloStatus : uint8_t { kNeedMore, kComplete, kMalformed };

struct HelloResult {
  HelloStatus status = HelloStatus::kNeedMore;
  ClientHello hello;
  std::string_view why;  ///< for kMalformed
};

/// `bytes` is everything received so far, from the first byte.
[[nodiscard]] HelloResult ParseClientHello(std::string_view bytes);

}  // namespace sluice::proxy
