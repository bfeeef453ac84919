#pragma once

// The answer to a refused push in git's own words (gitprotocol-pack, "Report Status"): each ref with its reason, which git prints
// beside it. A bare 403 would read as "the remote end hung up unexpectedly".

#include <span>
#include <string>
#include <string_view>

#include "policy/body.h"

namespace sluice::proxy {

inline constexpr std::string_view kPushReportType = "application/x-git-receive-pack-result";

/// Whether a client with these capabilities (BodyReader::push_capabilities) reads a report.
[[nodiscard]] bool WantsPushReport(std::string_view capabilities);

struct RefusedRef {
  std::string_view ref;
  std::string_view why;  ///< one line of printable text
};

/// The body of the answer. `message` is shown behind "remote: ", line by line, where the client asked for side-band.
[[nodiscard]] std::string PushReport(std::string_view capabilities, std::span<const RefusedRef> refs, std::string_view message);

}  // namespace sluice::proxy
