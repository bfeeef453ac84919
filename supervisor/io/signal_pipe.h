#pragma once

// Signals as bytes in a pipe, so that one loop sees them. Only signals whose disposition is the default are taken over: what
// the program handles itself (a reload on SIGHUP) or ignores (nohup) stays so. One object at a time in a process.

#include <array>
#include <csignal>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

class SignalPipe {
 public:
  SignalPipe() = default;
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  ~SignalPipe();  ///< puts the dispositions back

  [[nodiscard]] Result<void> Open(std::span<const int> signals);
  /// Readable when a signal has come. -1 before Open.
  [[nodiscard]] int fd() const { return reader_.get(); }
  /// The signals since the last call, in order. Never blocks.
  [[nodiscard]] std::vector<int> Take();

 private:
  UniqueFd reader_;
  UniqueFd writer_;
  std::vector<std::pair<int, struct sigaction>> replaced_;
};

}  // namespace sluice::supervisor
