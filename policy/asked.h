#pragma once

// What a refused request asked for: in words, and as the rule that would have allowed it. For refusals only.

#include <string>

#include "policy/compiled.h"
#include "policy/query.h"

namespace sluice::policy {

/// Where a rule about the request would point: "api.github.com:8443" as a rule writes it, and the path as a glob.
struct AskedTarget {
  std::string authority;
  std::string path;  ///< empty where no rule in the compact form can write it
  bool cleartext = false;
};

struct Asked {
  std::string words{};    ///< "graphql mutation deleteRepo at a.test/graphql"; empty for a plain request
  std::string suggest{};  ///< "graphql mutation a.test/graphql"
  std::string key{};      ///< a key beside it that keeps it as narrow as what was asked: "fields: [deleteRepo]"
  std::string fault{};    ///< why the body could not be read, where a rule would have to read it
};

/// Of an upgrade, a gRPC call, or the first item of the body that no allow covers. `nearest` is the allow that came closest,
/// whose reading of the body is the one that is spoken of.
[[nodiscard]] Asked AskedOf(const Snapshot::Compiled& compiled, const RequestQuery& request, RuleRef nearest,
                            const AskedTarget& target);

}  // namespace sluice::policy
