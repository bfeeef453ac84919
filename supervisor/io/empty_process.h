#pragma once

// Process 1 of a sandbox is a fork of the supervisor: it begins with a copy of all the supervisor knew, its environment and the
// private key of its certificate authority among it, and lives as long as the workload does. So it empties its memory before
// the command goes on. What is left is program text, constants and a page or two of its own.

#include <sys/types.h>

namespace sluice::supervisor {

struct Reaping {
  pid_t command = 0;
  int status_pipe = -1;  ///< gets a CommandStatus: kInitSealed, then each stop of `command`, and its end
};

/// In a process with one thread and every signal blocked: empties its memory, then reaps until `command` has ended, and exits.
/// Builds with a sanitizer keep their memory, since the sanitizer's own is part of it.
[[noreturn]] void ReapWithEmptyMemory(const Reaping& reaping);

}  // namespace sluice::supervisor
