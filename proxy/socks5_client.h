#pragma once

// The client's side of SOCKS5 (RFC 1928, RFC 1929) as values: what is sent, and replies read strictly. CONNECT only; a name is
// sent as a name and never looked up here. A proxy is as little trusted as an upstream: what it may send is bounded by the
// format, and what breaks the format ends the connection.
//
//   SocksHello(use) → ParseSocksMethod → [SocksLogin → ParseSocksLoginAnswer] → SocksConnect → ParseSocksConnectAnswer

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ip.h"

namespace sluice::proxy {

inline constexpr size_t kMaxSocksAnswer = 262;  ///< the longest reply: a bound name of 255 octets
inline constexpr size_t kMaxSocksText = 255;    ///< of a user name, a password, a host name

enum class SocksLoginUse : uint8_t { kNever, kOffered };

struct SocksAnswer {
  enum class Status : uint8_t { kNeedMore, kDone, kRefused, kMalformed };
  Status status = Status::kNeedMore;
  size_t consumed = 0;       ///< kDone: octets of the reply; what follows is the tunnel's
  bool wants_login = false;  ///< of ParseSocksMethod
  int error = 0;             ///< kRefused: the errno that a connect would have given
  std::string_view why{};    ///< kRefused and kMalformed: static, a clause for a person
};

[[nodiscard]] std::string SocksHello(SocksLoginUse login);
[[nodiscard]] SocksAnswer ParseSocksMethod(std::string_view bytes, SocksLoginUse login);

/// Nothing where one of the two is empty or over kMaxSocksText.
[[nodiscard]] std::optional<std::string> SocksLogin(std::string_view user, std::string_view password);
[[nodiscard]] SocksAnswer ParseSocksLoginAnswer(std::string_view bytes);

/// `name` empty: to the literal. Nothing for a name over kMaxSocksText.
[[nodiscard]] std::optional<std::string> SocksConnect(std::string_view name, const IpAddress& literal, uint16_t port);
/// The bound address of a reply says nothing that is used; its form is checked all the same.
[[nodiscard]] SocksAnswer ParseSocksConnectAnswer(std::string_view bytes);

}  // namespace sluice::proxy
