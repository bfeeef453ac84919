#pragma once

// What a refused request is told, so that a person or an agent can fix it from what their program shows: a reason phrase
// with the rule that would allow it, text/plain to git (which prints only that), JSON to everyone else.

#include <cstdint>
#include <string>
#include <string_view>

#include "policy/event.h"
#include "proxy/buffer.h"
#include "proxy/forward.h"
#include "proxy/http1.h"

namespace sluice::proxy {

inline constexpr size_t kMaxReasonPhrase = 200;
inline constexpr size_t kMaxDenialText = 2048;  ///< each text of a body; longer ones are cut

/// For `Allow` beside 405.
inline constexpr std::string_view kForwardedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

enum class DenialForm : uint8_t { kJson, kText };

struct Denial {
  uint16_t status = 403;
  policy::Decision decision;
  policy::Advice advice;
  policy::ProcessPtr process;
  policy::EventTarget target;
  std::string id;            ///< "d-7"
  std::string detail;        ///< a sentence; takes the place of the advice's explanation
  std::string nearest_rule;  ///< its text
  std::string policy_digest;
  std::string_view proxy_error = "http_request_denied";  ///< an error type of RFC 9209, static
  /// In place of a body of `form`: what a protocol within HTTP says, such as the report of a refused push, with status 200.
  std::string answer{};
  std::string_view answer_type{};  ///< its Content-Type, static
};

/// git shows the body only when it is text/plain.
[[nodiscard]] DenialForm FormFor(const RequestHead& request);

/// `Egress denied: needs "POST sentry.io/api/*" (d-7)`: visible ASCII and spaces, at most kMaxReasonPhrase.
[[nodiscard]] std::string ReasonPhrase(const Denial& denial);

/// The body alone, and its Content-Type.
[[nodiscard]] std::string DenialBody(const Denial& denial, DenialForm form);
[[nodiscard]] std::string_view DenialType(const Denial& denial, DenialForm form);

/// The whole response. `request_method` HEAD leaves the body out.
void AppendDenial(Buffer* out, const Denial& denial, DenialForm form, Keep keep, std::string_view request_method);

}  // namespace sluice::proxy
