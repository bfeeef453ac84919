#pragma once

// Starts a short-lived process for work that needs another process's credentials or namespaces. Where it can, the process borrows
// this one's memory while the calling thread waits for it (as vfork does), which spares copying page tables.

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace sluice::supervisor {

enum class Memory : uint8_t {
  kBorrowed,  ///< shared; the calling thread stands still until the process has ended
  kCopied,    ///< as fork; both go on
};

/// Whether memory may be borrowed: a process must be dumpable for another user namespace to be set up from outside, and making
/// one that borrows memory dumpable would make its lender so. Nor while this process has other threads: a copy made of borrowed
/// memory could hold a lock of theirs for ever, which fork(3) takes care of.
[[nodiscard]] Memory AffordableMemory();

/// Runs `body(argument)`, which must end in _exit, in a child of this process. It may allocate, and must not change what the
/// lender relies on. With kBorrowed it has kLightStack bytes of stack.
[[nodiscard]] Result<pid_t> StartProcess(Memory memory, void (*body)(void*), void* argument);

inline constexpr size_t kLightStack = 256 * 1024;

}  // namespace sluice::supervisor
