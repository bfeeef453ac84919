#pragma once

// `credentials:` and `proxies:` of a policy file. No secret is ever part of one: what looks like it is refused, and the error
// says where a secret may come from.

#include <vector>

#include "policy/credential.h"
#include "policy/node.h"

namespace sluice::policy {

[[nodiscard]] Result<std::vector<Credential>> ReadCredentials(const Node& node);
[[nodiscard]] Result<std::vector<UpstreamProxy>> ReadProxies(const Node& node);

/// "env NAME", "file /PATH", "command \"a b\"", "systemd NAME"; `oauth` is not one of these, since it needs more keys.
[[nodiscard]] Result<SecretSource> ParseSource(std::string_view text);

}  // namespace sluice::policy
