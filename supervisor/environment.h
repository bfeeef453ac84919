#pragma once

// Which environment variables the workload gets: an allow-list of what programs need to find their way, and what the user adds.
// What looks like a credential is dropped and named, so that the user learns why something no longer logs in.
//
//   auto chosen = ChooseEnvironment(inherited, {.additions = {"CI_JOB", "MODE=test"}, .unsafe = {"GITHUB_TOKEN"}});
//   spec.environment = chosen->variables;   // chosen->credentials: {"AWS_SECRET_ACCESS_KEY"}

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice::supervisor {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What an environment may hold; more is kExhausted. The kernel's own bound is a quarter of the stack limit.
inline constexpr size_t kMaxVariables = 4096;

struct ChosenEnvironment {
  Variables variables;                   ///< sorted by name
  std::vector<std::string> credentials;  ///< inherited, not passed on: they look like credentials or lead to an agent
  std::vector<std::string> proxies;      ///< inherited, not passed on: the workload needs no proxy
};

/// kUsual: what programs need to find their way. kNone: nothing but what is named.
enum class Inherit : uint8_t { kUsual, kNone };

/// What the user asks for. Entries are NAME (passed on as inherited, if it is set) or NAME=VALUE, and win over everything.
struct EnvironmentWishes {
  std::vector<std::string> additions{};
  std::vector<std::string> unsafe{};  ///< additions that may look like credentials: the workload then holds one
  Inherit inherit = Inherit::kUsual;
};

/// `inherited` is the supervisor's own environment; of a name that is there twice the first counts, as with getenv.
/// kInvalid: an addition that is no variable, or one not among the unsafe that looks like a credential.
[[nodiscard]] Result<ChosenEnvironment> ChooseEnvironment(const Variables& inherited, const EnvironmentWishes& wishes);

/// Whether the variable looks like a credential: by its name, or by a value that carries one in a URL.
[[nodiscard]] bool LooksLikeCredential(std::string_view name, std::string_view value);

}  // namespace sluice::supervisor
