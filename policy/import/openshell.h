#pragma once

// An OpenShell policy's network part as read: openshell_read.cc fills it in and refuses what cannot be kept, openshell.cc makes
// rules of it.

#include <string>
#include <vector>

#include "policy/import/builder.h"

namespace sluice::policy {

struct OpenShellRemark {
  RemarkKind kind = RemarkKind::kNote;
  std::string text;
  SourceSpan span;
};

struct OpenShellEndpoint {
  enum class Protocol : uint8_t { kNone, kRest, kWebsocket, kGraphql, kJsonRpc, kMcp };
  const Node* at = nullptr;         ///< the host, or the endpoint where there is none
  const Node* path_node = nullptr;  ///< `path`, where it selects requests
  HostPattern host;
  std::string host_text;
  std::string ports;
  std::vector<PortRange> ranges;
  std::vector<Cidr> ips;
  Protocol protocol = Protocol::kNone;
  bool reachable = true;   ///< OpenShell can dial it
  bool inspected = false;  ///< a protocol whose requests are read, enforced; else the grant is opaque
  bool audited = false;    ///< such a protocol that only logs
  /// Judged by what a request asks for, not by method and path.
  [[nodiscard]] bool by_operation() const { return protocol > Protocol::kRest; }
  bool encoded_slash = false;
  const Node* access = nullptr;
  std::vector<const Node*> rules;  ///< the `allow` maps
  std::vector<const Node*> denies;
  std::vector<OpenShellRemark> remarks;  ///< to be said before its rules
};

struct OpenShellPolicy {
  const Node* key = nullptr;
  std::vector<OpenShellEndpoint> endpoints;
  std::vector<ExecutablePattern> binaries;
};

/// Remarks on whole sections go to `out`, those on endpoints stay with them.
[[nodiscard]] Result<std::vector<OpenShellPolicy>> ReadOpenShell(const Node& root, ImportBuilder* out);

/// The rules of an endpoint that is inspected by_operation(). What has no exact form here is an error.
[[nodiscard]] Result<void> ImportOpenShellOperations(const OpenShellPolicy& policy, const OpenShellEndpoint& endpoint,
                                                     ImportBuilder* out);

}  // namespace sluice::policy
