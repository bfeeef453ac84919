#pragma once

// Git LFS batch requests: one item, what the client is about to do.

#include <string_view>

#include "policy/body.h"

namespace sluice::proxy {

[[nodiscard]] policy::BodyReading<policy::LfsOperation> ReadLfsBatch(std::string_view text);

}  // namespace sluice::proxy
