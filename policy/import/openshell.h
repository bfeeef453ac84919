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
  const Node* at = nullptr;         ///< the host, or the endpoint where there is none
  const Node* path_node = nullptr;  ///< `path`, where it selects requests
  HostPattern host;
  std::string host_text;
  std::string ports;
  std::vector<PortRange> ranges;
  std::vector<Cidr> ips;
  bool reachable = true;   ///< OpenShell can dial it
  bool inspected = false;  ///< `protocol: rest` that is enforced; else the grant is opaque
  bool audited = false;    ///< `protocol: rest` that only logs
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

}  // namespace sluice::policy
