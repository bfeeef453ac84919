#pragma once

#include <string_view>

#include "base/result.h"

namespace sluice {

/// Why an address and port that somebody named cannot be listened on, and what to do: "cannot listen on 127.0.0.1:80: Address
/// already in use; another program listens there: …".
[[nodiscard]] Error ListenError(std::string_view what, int sys_errno);

}  // namespace sluice
