#pragma once

// `sluice oci-seccomp`: prints the seccomp profile by which a container runtime hands its containers to `sluice agent`.

#include <string>

namespace sluice::app {

struct OciSeccompOptions {
  std::string agent = "/run/sluice/agent.sock";
  std::string form = "config";  ///< or docker
  std::string metadata;         ///< listenerMetadata
  std::string base;             ///< file of another profile; empty: none
  bool wait_killable = false;   ///< SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
};

/// The process's exit code.
[[nodiscard]] int RunOciSeccomp(const OciSeccompOptions& options);

}  // namespace sluice::app
