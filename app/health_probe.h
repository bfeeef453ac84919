#pragma once

// `sluice health ADDRESS`: asks a running sidecar whether it is ready, as a probe in images that have no curl.

#include <string>

namespace sluice::app {

struct HealthOptions {
  std::string address;           ///< "127.0.0.1:9090" or "unix:/run/sluice/admin.sock"
  std::string path = "/readyz";  ///< or /healthz
  std::string timeout = "2s";
};

/// 0: ready. 1: not, or nobody answers; each check that failed is told on standard output.
[[nodiscard]] int RunHealth(const HealthOptions& options);

}  // namespace sluice::app
