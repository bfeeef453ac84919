#pragma once

// `--via` and its kin: an upstream proxy from the command line, in the words that a policy uses for one.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/credential.h"

namespace sluice::app {

struct ViaFlags {
  std::string url;   ///< "http://host:port", "https://…", "socks5://…"; empty: none
  std::string auth;  ///< "basic env NAME", "bearer file /path"; empty: none
  std::string ca;    ///< PEM file; empty: the system's roots
  std::vector<std::string> except;

  bool operator==(const ViaFlags&) const = default;
};

/// An error never repeats what stands where a secret's source should: it may be the secret.
[[nodiscard]] Result<std::optional<policy::UpstreamProxy>> ReadVia(const ViaFlags& flags);

}  // namespace sluice::app
