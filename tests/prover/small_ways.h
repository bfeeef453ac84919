#pragma once

// What the names of credentials and upstream proxies mean in the worlds that compare ways: entries of short lists, neighbours in
// which differ in one thing.

#include <array>
#include <string>

#include "policy/compiled.h"
#include "tests/prover/small_draw.h"

namespace sluice::prover {

/// By name: the credentials "c" and "d" with where they may go, the proxies "pc" and "pd".
struct Definitions {
  std::array<size_t, 2> credentials{0, 1};
  std::array<size_t, 2> scopes{0, 0};
  std::array<size_t, 2> proxies{0, 1};
};

[[nodiscard]] size_t CredentialEntries();
[[nodiscard]] size_t ProxyEntries();
/// `scopes` are those that a world draws from.
[[nodiscard]] Definitions DrawDefinitions(const std::vector<size_t>& scopes, const Draw& draw);
/// One of them means something else.
void EditDefinitions(const std::vector<size_t>& scopes, const Draw& draw, Definitions* definitions);
/// A policy without rules that has them.
[[nodiscard]] policy::PolicySource SourceOf(const Definitions& definitions);

/// All that a credential is, but where it may go.
[[nodiscard]] std::string Spelled(const policy::Credential& credential);
[[nodiscard]] std::string Spelled(const policy::UpstreamProxy& proxy);
/// What the workload has there no longer goes out: a field, or "?" and a parameter. Empty: nothing of its own is taken.
[[nodiscard]] std::string Taken(const policy::CredentialUse& use);

}  // namespace sluice::prover
