#pragma once

// What a run came to, for its launcher: one JSON object, written once, after everything the run started is gone. docs/launch.md
// lists the members.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/audit.h"
#include "audit/tap.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/launch_spec.h"
#include "supervisor/published_port.h"

namespace sluice::app {

/// Denials that a result quotes in full, octets of one and of all: what does not fit is counted. A pipe that is read only at the
/// end holds them.
inline constexpr size_t kMaxResultDenials = 100;
inline constexpr size_t kMaxResultDenial = size_t{16} << 10;
inline constexpr size_t kMaxResultDenialOctets = size_t{192} << 10;
/// Without a reader who takes some of it, the result is given up.
inline constexpr std::chrono::seconds kResultWait{10};

/// Adds up what is recorded. Asked from the writer's thread, and read once the writer is gone.
class RunTally final : public audit::Tap {
 public:
  /// `on_denial` is called with the first refusal and never again; any thread, must not block. `next` sees everything too, or is
  /// null.
  RunTally(bool keep_denials, std::function<void()> on_denial, audit::Tap* next = nullptr)
      : keep_denials_(keep_denials), on_denial_(std::move(on_denial)), next_(next) {}

  void Saw(const policy::DecisionEvent& event, uint64_t times) noexcept override;
  void Saw(const policy::ExchangeEvent& event) noexcept override;
  [[nodiscard]] bool wants_lines() const noexcept override { return keep_denials_ || (next_ != nullptr && next_->wants_lines()); }
  void Line(std::string_view line) noexcept override;

  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t exchanges = 0;
  std::vector<std::string> denials;  ///< as audit records, the first ones

 private:
  bool keep_denials_;
  std::function<void()> on_denial_;
  audit::Tap* next_;
  bool is_denial_ = false;  // what was seen last
  size_t quoted_ = 0;       // octets of `denials`
};

struct RunResult {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<std::string> command;
  WallTime started{};
  std::chrono::milliseconds duration{};
  std::optional<supervisor::ExitStatus> status;  ///< nothing: the command was not started
  int exit_code = 0;                             ///< sluice's own
  std::string error;                             ///< why it did not start, or what failed in the supervisor
  std::string policy_digest;
  audit::Totals totals;
  bool audit_complete = true;
  supervisor::LimitsInForce limits;
  std::optional<std::chrono::milliseconds> wall_time;
  std::vector<supervisor::PublishedPort> published;
  std::string transcript;
};

/// `tally` may be null where nothing was started.
[[nodiscard]] std::string RunResultJson(const RunResult& result, const RunTally* tally);

/// "memory 512 MiB (cgroup 2)", one for each limit, for people.
[[nodiscard]] std::vector<std::string> DescribeLimits(const supervisor::LimitsInForce& limits,
                                                      std::optional<std::chrono::milliseconds> wall_time);

/// A file that is opened before the run and written after it, so that nobody can put another in its place meanwhile: a path, not
/// through a link, 0600, emptied; or "fd:N", a descriptor that this process was given.
class ResultFile {
 public:
  [[nodiscard]] static Result<ResultFile> Open(const std::string& where);
  /// The path; empty for a descriptor.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return file_.get(); }
  /// `before_waiting`: called, once at most, before it waits for a reader.
  [[nodiscard]] Result<void> Write(std::string_view text, std::function<void()> before_waiting) const;

 private:
  ResultFile(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  UniqueFd file_;
};

}  // namespace sluice::app
