#pragma once

// The filter of `sluice run` as a profile for container runtimes (OCI runtime specification, config-linux.md, "Seccomp"), which
// load it themselves and hand the notifications to `sluice agent`. The same tables as seccomp_filter.h, with two differences:
// execve and execveat are notified, so that a container's program waits until it is supervised, and a newer kernel's calls are as
// the runtime has them. Pure.

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

/// What ends the wait of a call that the agent has taken. kKillable is a flag (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) that not
/// every runtime takes: handlers then run once the call is answered, so that none is interrupted that would not be natively.
enum class ListenerWake : uint8_t { kAnySignal, kKillable };

struct OciProfileOptions {
  ProfileForm form = ProfileForm::kConfig;
  std::string agent;     ///< path of the agent's socket
  std::string metadata;  ///< listenerMetadata; empty: none
  ListenerWake wake = ListenerWake::kAnySignal;
};

struct OciProfile {
  std::string text;               ///< JSON, indented, with a last line feed
  bool keeps_base_calls = false;  ///< setsockopt and ioctl are as the base has them, whatever their arguments
};

/// `base`: another profile in either form that lists what is allowed; what it refuses stays refused. Nothing: all is allowed that
/// Sluice does not refuse. kInvalid: it is no profile, or has a listener of its own.
[[nodiscard]] Result<OciProfile> MakeOciProfile(const OciProfileOptions& options, const std::optional<std::string>& base);

}  // namespace sluice::supervisor
