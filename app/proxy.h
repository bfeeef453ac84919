#pragma once

// `sluice proxy`: an explicit proxy (HTTP CONNECT and absolute form, SOCKS5) under a policy, for programs that are set to use one
// and for hosts where no workload can be supervised. docs/proxy.md says what it keeps of `sluice run`'s promises.

#include <string>
#include <vector>

#include "app/served_policy.h"

namespace sluice::app {

struct ProxyOptions : ServedOptions {
  std::vector<std::string> listen;  ///< "ADDRESS:PORT" or "unix:/PATH"
  std::string ca_out;               ///< where the authority's certificate goes; empty: nowhere
  std::string bundle_out;           ///< the same with the system's roots before it
  bool print_env = false;           ///< shell lines for clients, on standard output
  std::string tokens;               ///< file; empty: clients need none
  std::string tls_certificate;      ///< with tls_key: clients speak TLS to the proxy
  std::string tls_key;
  std::string client_ca;                         ///< and show a certificate of these
  std::string proxy_protocol;                    ///< "" or "required"
  std::vector<std::string> proxy_protocol_from;  ///< CIDRs
  bool allow_open = false;                       ///< listen beyond loopback without asking clients who they are
  std::string drain;                             ///< duration; empty: 10 s
};

/// The process's exit code. Blocks until SIGTERM or SIGINT.
[[nodiscard]] int RunProxy(const ProxyOptions& options);

}  // namespace sluice::app
