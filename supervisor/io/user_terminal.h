#pragma once

// The user's terminal while a workload has one of its own: raw, so that every key reaches the workload, and given back as it
// was whenever the supervisor stops or ends.

#include <termios.h>

#include <array>
#include <optional>

#include "base/unique_fd.h"
#include "supervisor/io/standard_streams.h"

namespace sluice::supervisor {

class UserTerminal {
 public:
  /// `kinds` of descriptors 0 to 2; at least one is a terminal.
  explicit UserTerminal(const std::array<StandardKind, 3>& kinds);
  UserTerminal(const UserTerminal&) = delete;
  UserTerminal& operator=(const UserTerminal&) = delete;
  ~UserTerminal() { Leave(); }

  /// Gives the workload's terminal the settings and size of the user's.
  void CopyTo(int master) const;
  void CopySizeTo(int master) const;
  /// Raw mode, if the user types here and this process is in the foreground. Again after each stop.
  void Enter();
  /// As it was before Enter.
  void Leave();

  /// Descriptor to read keys from; -1 where standard input is no terminal or belongs to another job now.
  [[nodiscard]] int input() const { return raw_ ? 0 : -1; }
  /// Descriptor to show output on.
  [[nodiscard]] int output() const { return output_.valid() ? output_.get() : shown_; }

 private:
  bool types_ = false;
  bool raw_ = false;
  int shown_ = -1;
  UniqueFd output_;
  std::optional<termios> saved_;
};

}  // namespace sluice::supervisor
