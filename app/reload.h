#pragma once

// Watches the policy file, its includes and SIGHUP, and swaps the policy in force. An invalid file is reported and ignored.

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/event.h"
#include "policy/io/load.h"

namespace sluice::app {

/// Whether the service manager is told of a reload (sd_notify(3)): by a process that is the service itself.
enum class ReloadNotice : uint8_t { kNone, kService };

class PolicyWatcher {
 public:
  /// `load` reads the policy anew; `changed` runs on the watcher's thread after each swap, and fails where it had to swap back.
  /// SIGHUP must be blocked in every thread. `policy` outlives the watcher.
  static Result<std::unique_ptr<PolicyWatcher>> Start(policy::CurrentPolicy& policy,
                                                      std::function<Result<policy::SnapshotPtr>()> load,
                                                      std::function<Result<void>()> changed, ReloadNotice notice);
  ~PolicyWatcher();
  PolicyWatcher(const PolicyWatcher&) = delete;
  PolicyWatcher& operator=(const PolicyWatcher&) = delete;

 private:
  PolicyWatcher(policy::CurrentPolicy& policy, std::function<Result<policy::SnapshotPtr>()> load,
                std::function<Result<void>()> changed, ReloadNotice notice)
      : policy_(policy), load_(std::move(load)), changed_(std::move(changed)), notice_(notice) {}
  void Loop();
  void WatchFolders();
  bool DrainInotify();
  void Reload(const char* cause);
  [[nodiscard]] Result<policy::SnapshotPtr> Swap();

  policy::CurrentPolicy& policy_;
  std::function<Result<policy::SnapshotPtr>()> load_;
  std::function<Result<void>()> changed_;
  const ReloadNotice notice_;
  UniqueFd inotify_;
  UniqueFd signal_;
  UniqueFd stop_;
  std::vector<std::string> file_names_;
  std::thread thread_;
};

}  // namespace sluice::app
