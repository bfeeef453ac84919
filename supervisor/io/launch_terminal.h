#pragma once

// The workload's own terminal: a pseudo-terminal of its devpts, whose master the supervisor holds. The user's terminal is
// never given to the workload, which could read what the user types later.

#include <array>

#include "base/result.h"

namespace sluice::supervisor {

/// In init, a session leader inside the view: where `standard` asks for a terminal, opens one, makes it the session's, sends
/// the master over `handshake`, and fills the places in `standard` with the slave.
[[nodiscard]] Result<void> OpenTerminal(int handshake, std::array<int, 3>& standard);

/// In the command: makes its process group the terminal's foreground, where it has a terminal.
void TakeForeground();

}  // namespace sluice::supervisor
