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

class PolicyWatcher {
 public:
  /// `load` reads the policy anew; `changed` runs on the watcher's thread after each swap. SIGHUP must be blocked in every
  /// thread. `policy` outlives the watcher.
  static Result<std::unique_ptr<PolicyWatcher>> Start(policy::CurrentPolicy& policy,
                                                      std::function<Result<policy::SnapshotPtr>()> load,
                                                      std::function<void()> changed);
  ~PolicyWatcher();
  PolicyWatcher(const PolicyWatcher&) = delete;
  PolicyWatcher& operator=(const PolicyWatcher&) = delete;

 private:
  PolicyWatcher(policy::CurrentPolicy& policy, std::function<Result<policy::SnapshotPtr>()> load, std::function<void()> changed)
      : policy_(policy), load_(std::move(load)), changed_(std::move(changed)) {}
  void Loop();
  void WatchFolders();
  bool DrainInotify();
  void Reload(const char* cause);

  policy::CurrentPolicy& policy_;
  std::function<Result<policy::SnapshotPtr>()> load_;
  std::function<void()> changed_;
  UniqueFd inotify_;
  UniqueFd signal_;
  UniqueFd stop_;
  std::vector<std::string> file_names_;
  std::thread thread_;
};

}  // namespace sluice::app
