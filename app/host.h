#pragma once

// What `run` asks of this machine.

#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"

namespace sluice::app {

/// Every address of this network namespace's interfaces: special to the address guard.
[[nodiscard]] Result<std::vector<IpAddress>> HostAddresses();

/// "1.1.1.1", "1.1.1.1:5353", "::1", "[::1]:53"; port 53 where none is written.
[[nodiscard]] Result<Endpoint> ParseResolver(const std::string& text);

/// Raises the soft limit on descriptors to the hard one; each connection takes up to four.
void RaiseDescriptorLimit();

}  // namespace sluice::app
