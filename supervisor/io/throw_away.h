#pragma once

// Tries things in namespaces that are gone a moment later: in a child of this process, one after the other, each with what came
// of it. For `sluice doctor`, which must change nothing of the machine it looks at.
//
//   const Tried tried = TryThere(ThrowAway::kUser, {{"loopback", [] { return ConfigureLoopback(); }}});
//   if (tried.made && tried.outcomes[0]) …

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::supervisor {

struct Trial {
  std::string name;
  std::function<Result<void>()> run;  ///< in the child; what it leaves behind, the next finds
};

enum class ThrowAway : uint8_t {
  kUser,     ///< user, network, mount, pid, IPC and UTS namespaces of its own, identities mapped as a sandbox's
  kNetwork,  ///< a network namespace alone, with the rights this process has: CAP_SYS_ADMIN is needed
  kHere,     ///< none
};

/// Which of the first steps failed: they mean different things (AppArmor lets a user namespace be made and gives no rights in
/// it).
enum class Making : uint8_t { kUserNamespace, kMaps, kOtherNamespaces, kChild };

struct Tried {
  Result<void> made{};                   ///< the namespaces
  Making step = Making::kChild;          ///< of `made`, where it is an error
  std::vector<Result<void>> outcomes{};  ///< one for each trial; fewer where the child died over the next
};

/// Forks: call it while this process has one thread. Blocks for as long as the trials take, `limit_ms` at most.
[[nodiscard]] Tried TryThere(ThrowAway where, const std::vector<Trial>& trials, int limit_ms = 20'000);

}  // namespace sluice::supervisor
