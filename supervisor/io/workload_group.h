#pragma once

// A control group for one run, where this machine lets one be made: version 2 below this process's own group or, for root, beside
// it; and the version 1 hierarchies that memory or pids are attached to on a hybrid machine. cgroups(7),
// Documentation/admin-guide/cgroup-v2.rst.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/launch_spec.h"

namespace sluice::supervisor {

class WorkloadGroup {
 public:
  /// Null where none can be made; `limits->no_cgroup` then says why. What a group holds of `wanted` is put into `limits`, as
  /// are reasons where it holds less than was wanted.
  [[nodiscard]] static std::unique_ptr<WorkloadGroup> Make(const Limits& wanted, LimitsInForce* limits);
  /// For a workload that may mount control groups in namespaces of its own: it gets a group below `group`'s, whose files it may
  /// write, and so moves no bound. Null: there is no group, and then it must have no right to the one it is in. Before
  /// entrances().
  [[nodiscard]] static Result<void> Enclose(WorkloadGroup* group);
  /// Takes away what a run of process `pid` made where this process could make the same, and could not take away itself: it was
  /// killed. As long as its number is no other's. False: something lives there still. Blocks on nothing but the file system.
  [[nodiscard]] static bool RemoveOf(pid_t pid);
  WorkloadGroup(const WorkloadGroup&) = delete;
  WorkloadGroup& operator=(const WorkloadGroup&) = delete;
  /// Once nothing of the run lives any more. Gives back what was changed above the group.
  ~WorkloadGroup();

  /// cgroup.procs of each hierarchy, open for writing: who writes "0" joins, and all that it starts (a child that the supervisor
  /// started keeps these across namespaces, since the opener's rights count).
  [[nodiscard]] std::vector<int> entrances() const;
  /// cgroup.freeze of version 2 (Linux 5.2); false where there is none.
  [[nodiscard]] bool can_freeze() const { return !unified_.empty(); }
  [[nodiscard]] Result<void> SetFrozen(bool frozen) const;
  /// Whether the kernel killed somebody here for want of memory.
  [[nodiscard]] bool MemoryRanOut() const;

 private:
  struct Moved {  // this process, out of the way of controllers that were turned on
    std::string from;
    std::string to;
    std::vector<std::string> controllers;
  };
  WorkloadGroup() = default;
  bool MakeUnified(const Limits& wanted, LimitsInForce* limits);
  void MakeOld(const char* controller, const char* file, uint64_t value, std::optional<LimitInForce>* in_force);
  bool TurnOn(const std::string& parent, const std::vector<std::string>& controllers, bool own);
  bool MakeRoom(const std::string& parent, bool own);
  void StepBack();

  Result<void> MakeLeaves();

  std::vector<std::string> folders_;
  std::vector<std::string> leaves_;  // of each folder, once enclosed
  std::vector<UniqueFd> entrances_;
  std::string unified_;        // the version 2 group's folder
  std::string memory_events_;  // file and key that count kills
  std::optional<Moved> moved_;
  std::string reason_;
};

}  // namespace sluice::supervisor
