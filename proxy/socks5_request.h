#pragma once

// SOCKS5 as a client speaks it (RFC 1928), with names and passwords (RFC 1929). Each parser looks at the front of the bytes that
// have come and says how many of them are its message; nothing is read ahead of it. SOCKS4 and 4a are told by their first byte
// and refused: they carry no password, and SOCKS5 does all that they do.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proxy/connect_request.h"

namespace sluice::proxy {

inline constexpr char kSocks5Version = 5;
inline constexpr char kSocks4Version = 4;

enum class SocksStatus : uint8_t { kComplete, kNeedMore, kMalformed };

/// `consumed`: bytes of the message, where kComplete.
struct SocksGreeting {
  SocksStatus status = SocksStatus::kNeedMore;
  size_t consumed = 0;
  bool none = false;      ///< offers "no authentication required"
  bool password = false;  ///< offers "username/password"
};
[[nodiscard]] SocksGreeting ParseSocksGreeting(std::string_view bytes);

/// Views point into `bytes`.
struct SocksPassword {
  SocksStatus status = SocksStatus::kNeedMore;
  size_t consumed = 0;
  std::string_view name;
  std::string_view password;
};
[[nodiscard]] SocksPassword ParseSocksPassword(std::string_view bytes);

/// Replies of RFC 1928 section 6.
enum class SocksReply : uint8_t {
  kSucceeded = 0,
  kFailure = 1,
  kNotAllowed = 2,
  kNetworkUnreachable = 3,
  kHostUnreachable = 4,
  kRefused = 5,
  kExpired = 6,
  kCommandNotSupported = 7,
  kAddressNotSupported = 8,
};

struct SocksRequest {
  SocksStatus status = SocksStatus::kNeedMore;
  size_t consumed = 0;
  SocksReply refusal = SocksReply::kSucceeded;  ///< of a complete request that cannot be served, whatever the policy says
  std::string_view why;                         ///< of a refusal or kMalformed, static
  ProxyTarget target;
};
[[nodiscard]] SocksRequest ParseSocksRequest(std::string_view bytes);

/// What is sent back: the method chosen (0 none, 2 password, 0xff none acceptable), the outcome of a password, the reply to a
/// request. The bound address is not told: it is nobody's business here.
[[nodiscard]] std::string SocksMethodText(uint8_t method);
[[nodiscard]] std::string SocksPasswordText(bool accepted);
[[nodiscard]] std::string SocksReplyText(SocksReply reply);

/// The reply for an errno of connect(2).
[[nodiscard]] SocksReply SocksReplyFor(int error);

}  // namespace sluice::proxy
