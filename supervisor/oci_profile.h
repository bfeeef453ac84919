#pragma once

// The filter of `sluice run` as a profile for container runtimes (OCI runtime specification, config-linux.md, "Seccomp"), which
// load it themselves and hand the notifications to `sluice agent`. The same tables as seccomp_filter.h, with two differences:
// execve is notified, so that a container's program waits until it is supervised, and a newer kernel's calls are as the runtime
// has them. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxProfileBytes = 4 * 1024 * 1024;

enum class ProfileForm : uint8_t {
  kConfig,  ///< `linux.seccomp` of config.json: runc, crun, containerd's localhost profiles
  kDocker,  ///< Docker's, Podman's and CRI-O's files: archMap, includes and excludes
};

struct OciProfileOptions {
  ProfileForm form = ProfileForm::kConfig;
  std::string agent;     ///< path of the agent's socket
  std::string metadata;  ///< listenerMetadata; empty: none
};

struct OciProfile {
  std::string text;               ///< JSON, indented, with a last line feed
  bool keeps_base_calls = false;  ///< setsockopt and ioctl are as the base has them, whatever their arguments
};

/// `base`: another profile in either form that lists what is allowed; what it refuses stays refused. Nothing: all is allowed that
/// Sluice does not refuse. kInvalid: it is no profile, or has a listener of its own.
[[nodiscard]] Result<OciProfile> MakeOciProfile(const OciProfileOptions& options, const std::optional<std::string>& base);

}  // namespace sluice::supervisor
