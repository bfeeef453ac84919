#pragma once

// What a workload may try under the policies of attack_policies.h.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ip.h"
#include "policy/query.h"
#include "policy/target.h"
#include "tests/prover/attack_policies.h"

namespace sluice::prover {

// One thing that a workload may try.
struct Attempt {
  enum class Kind : uint8_t { kLookup, kTcp, kTls, kUdp, kRequest, kSocket } kind = Kind::kRequest;
  std::optional<policy::Process> process{};
  std::string host{};
  IpAddress address{};
  uint16_t port = 0;
  policy::Scheme scheme = policy::Scheme::kHttps;
  std::string method{};
  std::string raw{};
  policy::CanonicalTarget target{};
  std::vector<std::pair<std::string, std::string>> headers{};
  uint16_t type = 1;
  WallTime now{};

  [[nodiscard]] std::string Text() const;
};

[[nodiscard]] Attempt DrawAttempt(Random& r);

}  // namespace sluice::prover
