#pragma once

// Starts the workload inside a capture namespace: own user, mount, pid, IPC and UTS namespaces, no capabilities,
// no_new_privs, Landlock, the seccomp filter, a private terminal.

#include <linux/filter.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/capture.h"
#include "supervisor/launch_spec.h"

namespace sluice::supervisor {

class Workload {
 public:
  virtual ~Workload() = default;  ///< kills everything it started

  /// The content of the next of the spec's overlays that are kProvided: a file, read from its start. Once for each of them,
  /// before AwaitGate.
  [[nodiscard]] virtual Result<void> Provide(const UniqueFd& content) = 0;
  /// Blocks until the sandbox is built and the command waits in it, for Release. Its error says why it is not.
  [[nodiscard]] virtual Result<void> AwaitGate() = 0;

  // After AwaitGate.

  /// The seccomp notification descriptor (SECCOMP_FILTER_FLAG_NEW_LISTENER, WAIT_KILLABLE_RECV). Taken once.
  [[nodiscard]] virtual UniqueFd TakeNotifyFd() = 0;
  /// The root of its view, where it may mount over that in namespaces of its own (OwnNamespaces::kContainers); else none.
  /// Borrowed.
  [[nodiscard]] virtual int view() const = 0;
  /// The workload's first process (the command) in the supervisor's pid namespace.
  [[nodiscard]] virtual int pid() const = 0;
  /// Trees the workload may write, as it names them: granted ones, its home, /tmp, /run and /dev/shm.
  [[nodiscard]] virtual const std::vector<std::string>& writable_trees() const = 0;
  /// Granted ones that it may only read, which may lie in those.
  [[nodiscard]] virtual const std::vector<std::string>& read_only_trees() const = 0;
  /// Lets the command go on to execve. Before this it waits, so that nothing runs unsupervised.
  [[nodiscard]] virtual Result<void> Release() = 0;
  /// Blocks until the command ends, forwarding signals and terminal bytes; then kills what is left.
  [[nodiscard]] virtual ExitStatus Wait() = 0;
  /// The spec's limits as this machine enforces them.
  [[nodiscard]] virtual const LimitsInForce& limits() const = 0;

  /// Before Release: as RunningTree::OnFreeze. Whatever freezes the run, and lets it go on.
  virtual void OnFreeze(std::function<void(bool frozen)> told) = 0;

  // After Release, from any thread, Wait's included; nothing blocks for more than some milliseconds.

  /// Stops every process of the workload where it stands, by its control group or by SIGSTOP. Again is no error. What cannot be
  /// held (new processes faster than they are stopped) is killed instead, and is an error.
  [[nodiscard]] virtual Result<void> Freeze() = 0;
  /// Lets a frozen workload go on. One that is not frozen goes on as it does.
  [[nodiscard]] virtual Result<void> Thaw() = 0;
  /// Kills everything that was started; Wait then returns with `why`. The first reason counts.
  virtual void Kill(EndedBy why) = 0;
};

/// Call it, and Wait, on a thread that outlives the workload: the sandbox is killed when the thread that started it ends.
/// kNotFound: no such command (exit 127); kPermission: not executable (126).
[[nodiscard]] Result<std::unique_ptr<Workload>> Launch(const LaunchSpec& spec, const Capture& capture);

/// Only starts to build it, which takes as long as much else that a supervisor has to do. Best called while this process has one
/// thread: it then need not be copied.
[[nodiscard]] Result<std::unique_ptr<Workload>> BeginLaunch(const LaunchSpec& spec, const Capture& capture);

/// Launch with a filter of the caller's: the supervisor's own is supervisor/seccomp_filter.h.
[[nodiscard]] Result<std::unique_ptr<Workload>> LaunchFiltered(const LaunchSpec& spec, const Capture& capture,
                                                               std::span<const sock_filter> filter);
[[nodiscard]] Result<std::unique_ptr<Workload>> BeginFilteredLaunch(const LaunchSpec& spec, const Capture& capture,
                                                                    std::span<const sock_filter> filter);

}  // namespace sluice::supervisor
