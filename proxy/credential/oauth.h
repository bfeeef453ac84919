#pragma once

// OAuth 2.0 client credentials (RFC 6749 section 4.4), the part without a socket: what is sent to the token endpoint, what its
// answer means, and when the next token is due.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/ip.h"
#include "base/result.h"

namespace sluice::proxy {

inline constexpr size_t kMaxTokenAnswer = 64 * 1024;           ///< a token endpoint's answer, head and body
inline constexpr std::chrono::seconds kTokenLifeUnknown{300};  ///< of a token whose answer names no expires_in
inline constexpr std::chrono::seconds kMaxTokenLife{24 * 3600};
inline constexpr std::chrono::seconds kMaxTokenBackoff{60};

/// An https URL, taken apart.
struct TokenEndpoint {
  std::string host;  ///< canonical name; empty for a literal
  IpAddress literal;
  std::string authority;  ///< as Host says it
  uint16_t port = 443;
  std::string target;  ///< path and query, "/" at least
};
/// kInvalid: no https URL, or one with a user, a fragment or a malformed host.
[[nodiscard]] Result<TokenEndpoint> ParseTokenEndpoint(std::string_view url);

/// The whole request; the client authenticates by Basic (section 2.3.1).
[[nodiscard]] std::string TokenRequest(const TokenEndpoint& endpoint, std::string_view client_id, std::string_view client_secret,
                                       std::string_view scope);

struct TokenAnswer {
  std::string token;
  std::chrono::seconds life{};
};
/// `status` and the body of the answer. kProtocol with a sentence that names the endpoint's own error code (section 5.2), cut to
/// what may be printed, and never quotes the body.
[[nodiscard]] Result<TokenAnswer> ReadTokenAnswer(int status, std::string_view body);

/// When a token that came at `got` and lives `life` is to be replaced: 80 % into its life, at least 60 s before its end where it
/// lives that long twice.
[[nodiscard]] SteadyTime RefreshDue(SteadyTime got, std::chrono::seconds life);
/// Pause after `failures` in a row: 1, 2, 4 … s, kMaxTokenBackoff at most.
[[nodiscard]] std::chrono::seconds TokenBackoff(unsigned failures);

}  // namespace sluice::proxy
