#pragma once

// How a workload comes to trust its sandbox's authority: the system's bundle kept and extended, Java's store extended, and
// the variables that Node, requests, curl, git, pip, cargo, AWS and gRPC read.

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "supervisor/launch_spec.h"

namespace sluice::app {

struct Trust {
  std::vector<supervisor::FileOverlay> overlays;
  std::vector<std::pair<std::string, std::string>> environment;
};

/// Reads this machine's bundle and Java store; either may be missing, which is not an error.
[[nodiscard]] Result<Trust> PrepareTrust(const std::string& authority_pem);

}  // namespace sluice::app
