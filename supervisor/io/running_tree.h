#pragma once

// Everything a run has started, as one thing that is stopped, goes on or is killed. Any thread: the relay's loop, a control
// connection, whoever counts denials.

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/workload_group.h"
#include "supervisor/launch_spec.h"

namespace sluice::supervisor {

class RunningTree {
 public:
  /// Before anything is frozen: `told` hears that the run is being frozen, before its first process is, and that it goes on, as
  /// long as the tree lives. It must not block, nor call the tree.
  void OnFreeze(std::function<void(bool frozen)> told) { told_ = std::move(told); }
  /// `group` outlives the tree; null: processes are stopped one by one.
  void Begin(pid_t init, const WorkloadGroup* group);
  /// Before init is reaped and its number another's.
  void End();

  [[nodiscard]] Result<void> Freeze();
  [[nodiscard]] Result<void> Thaw();
  [[nodiscard]] bool frozen() const { return frozen_.load(); }
  /// The first reason counts.
  void Kill(EndedBy why);
  [[nodiscard]] std::optional<EndedBy> killed() const;

 private:
  [[nodiscard]] Result<void> StopEach();
  void ContinueEach();

  std::function<void(bool)> told_;
  std::mutex mutex_;  // init's number stays its own while it is held
  pid_t init_ = 0;
  UniqueFd pidfd_;
  const WorkloadGroup* group_ = nullptr;
  std::set<pid_t> stopped_;  // one by one, by Freeze: not those that stood still already
  std::atomic<bool> frozen_{false};
  std::atomic<int> killed_{-1};
};

/// Every descendant of a process, itself not among them, as /proc/PID/task/TID/children says (Linux 4.2); incomplete while they
/// fork. At most `limit`.
[[nodiscard]] std::vector<pid_t> Descendants(pid_t root, size_t limit);

}  // namespace sluice::supervisor
