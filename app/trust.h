#pragma once

// How a workload comes to trust its sandbox's authority: the system's bundle kept and extended, Java's store extended, a
// setting of Chromium's and Chrome's, and the variables that Node, requests, curl, git, pip, cargo, AWS and gRPC read.

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/launch_spec.h"

namespace sluice::app {

struct Trust {
  std::vector<supervisor::FileOverlay> overlays;  ///< all kProvided
  std::vector<std::pair<std::string, std::string>> environment;
};

/// What of this machine's bundles and Java stores there is. Needs no authority, so that a sandbox can be begun before there is
/// one.
[[nodiscard]] Trust FindTrust();

/// The system's bundle with the authority behind it.
[[nodiscard]] Result<std::string> ExtendedBundle(const std::string& authority_pem);

/// Variables that programs read a bundle's place from.
[[nodiscard]] std::span<const char* const> BundleVariables();

using Provide = std::function<Result<void>(const UniqueFd& content)>;

/// Hands `provide` what each overlay of `trust` is to hold, one after the other, in files of memory.
[[nodiscard]] Result<void> ProvideTrust(const Trust& trust, const std::string& authority_pem, const Provide& provide);

}  // namespace sluice::app
