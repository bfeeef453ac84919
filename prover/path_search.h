#pragma once

// The shortest canonical path inside some patterns and outside others, found on the fly: no atoms, and of two ways to the same
// place the one that is inside fewer of the others is enough. So forty globs like "/**/x/**" cost no more than they are long.

#include <optional>
#include <string>
#include <vector>

#include "prover/budget.h"
#include "prover/nfa.h"

namespace sluice::prover {

enum class Universe : uint8_t {
  kRequestPath,  ///< policy/target.h's canonical form, as rules compare it
  kSocketPath,   ///< absolute and lexically normal
};

/// How a pattern takes the path.
enum class Reading : uint8_t {
  kNarrow,  ///< as it stands: an allow
  kWide,    ///< also as a server that takes %2F for '/' or drops ";x" may: a deny
};

struct PathPattern {
  Nfa nfa{};
  Reading reading = Reading::kNarrow;
  bool encoded_slash = false;  ///< kNarrow: paths with %2F
  bool path_params = false;    ///< kNarrow: paths with ';'
};

struct PathQuestion {
  Universe universe = Universe::kRequestPath;
  bool encoded_slash = false;  ///< whether paths with %2F are asked about at all
  bool path_params = false;    ///< whether those with ';' are
  std::vector<const PathPattern*> inside{};
  std::vector<const PathPattern*> outside{};
};

/// Nothing: no such path, or the budget is exhausted.
[[nodiscard]] std::optional<std::string> ShortestPath(const PathQuestion& question, Budget* budget);

}  // namespace sluice::prover
