#pragma once

// A program that was started, what it printed, and how it ended.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

/// Of what a started program prints, so much is kept.
inline constexpr size_t kMaxStartedOutput = 256 * 1024;

struct StartOptions {
  std::vector<std::string> argv{};
  std::vector<std::pair<std::string, std::string>> environment{};  ///< beside this process's own
  std::string folder{};                                            ///< its work directory
  unsigned uid = 0;                                                ///< with `as_user`
  bool as_user = false;      ///< gives up this process's identity for `uid`, and all its groups
  bool keep_rights = false;  ///< passes its capabilities on, though it be no root (ambient)
};

class Started {
 public:
  /// Forks; the child dies with this thread.
  static Result<Started> Start(const StartOptions& options);
  Started(Started&& other) noexcept;
  Started& operator=(Started&&) = delete;
  ~Started();  ///< kills what still runs

  /// Until it has ended and closed its output; kTimeout: it was killed.
  [[nodiscard]] Result<void> AwaitEnd(std::chrono::milliseconds patience);
  /// Until a datagram READY=1 comes at `notify`; an error with what it printed where it ends before.
  [[nodiscard]] Result<void> AwaitReady(int notify, std::chrono::milliseconds patience);
  [[nodiscard]] const std::string& output() const { return output_; }
  [[nodiscard]] const std::string& errors() const { return errors_; }
  /// The exit code, or 128 + the signal; after AwaitEnd.
  [[nodiscard]] int code() const { return code_; }
  /// The last thing it said on standard error, or "exit N".
  [[nodiscard]] std::string LastWords() const;

 private:
  Started(pid_t pid, UniqueFd out, UniqueFd err) : pid_(pid), out_(std::move(out)), err_(std::move(err)) {}
  bool Pump(int more, std::chrono::steady_clock::time_point deadline, bool* more_ready);
  void Reap();

  pid_t pid_;
  UniqueFd out_;
  UniqueFd err_;
  std::string output_;
  std::string errors_;
  int code_ = -1;
};

}  // namespace sluice::app
