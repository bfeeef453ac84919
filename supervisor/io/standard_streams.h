#pragma once

// What the workload gets as descriptors 0 to 2. Files, pipes and the harmless devices are passed on as they are. A terminal is
// replaced by one of the workload's own. A socket of the host would be a way out (a datagram socket sends anywhere; a
// UNIX socket can be handed others), and a device or kernel file is more than its bytes: those are replaced by a pipe, and the
// supervisor moves the bytes. What is none of these (a folder, an io_uring, a namespace) is refused.

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

enum class StandardKind : uint8_t { kPassed, kTerminal, kPumped, kAbsent };

/// kInvalid: a descriptor that cannot be given to a workload in any form.
[[nodiscard]] Result<StandardKind> ClassifyStandard(int fd);

/// Opens /dev/null on those of 0 to 2 that are closed, so that no descriptor of the supervisor's own takes their place and is
/// then given to the workload. Before anything else is opened.
void ReserveStandardDescriptors();

/// Bytes on their way from one descriptor to another. `from` or `to` is borrowed where it is the supervisor's own 0 to 2.
struct Pump {
  int from = -1;
  int to = -1;
  UniqueFd owned;  ///< the pipe's end that is ours
};

struct StandardStreams {
  std::array<StandardKind, 3> kinds{};
  std::array<UniqueFd, 3> replacement;  ///< the workload's end where it is not the supervisor's own descriptor
  std::vector<Pump> pumps;
  /// Descriptors for SandboxPlan::standard.
  [[nodiscard]] std::array<int, 3> ForChild() const;
  [[nodiscard]] bool has_terminal() const;
};

/// Whether output that could be passed on as it is goes through the supervisor, so that it can be counted and copied.
enum class OutputWay : uint8_t { kDirect, kRelayed };

[[nodiscard]] Result<StandardStreams> PrepareStandardStreams(OutputWay way = OutputWay::kDirect);

}  // namespace sluice::supervisor
