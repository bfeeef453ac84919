#pragma once

// Watches the policy file, its includes and SIGHUP, and has what they say put in force. An invalid file is reported and ignored.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "app/watched_names.h"
#include "base/clock.h"
#include "base/complaint.h"
#include "base/result.h"
#include "base/stop_event.h"
#include "base/unique_fd.h"
#include "policy/io/load.h"

namespace sluice::app {

/// Whether the service manager is told of a reload (sd_notify(3)): by a process that is the service itself.
enum class ReloadNotice : uint8_t { kNone, kService };

class PolicyWatcher {
 public:
  using Load = std::function<Result<policy::SnapshotPtr>()>;
  /// Gives the revision that the policy became, or says why the one before stays.
  using Put = std::function<Result<uint64_t>(policy::SnapshotPtr)>;
  /// `own`: as it was loaded first. `load` reads it anew, `put` puts that in force; both on the watcher's thread. SIGHUP must be
  /// blocked in every thread. Files are watched once `unwatched` is over, and what changed by then is found: the end of a watch
  /// takes the kernel some 15 ms (inotify(7); its marks are freed after a grace period), which what is short can do without.
  static Result<std::unique_ptr<PolicyWatcher>> Start(policy::SnapshotPtr own, Load load, Put put, ReloadNotice notice,
                                                      std::chrono::milliseconds unwatched = {});
  ~PolicyWatcher();
  PolicyWatcher(const PolicyWatcher&) = delete;
  PolicyWatcher& operator=(const PolicyWatcher&) = delete;

 private:
  PolicyWatcher(policy::SnapshotPtr own, Load load, Put put, ReloadNotice notice)
      : own_(std::move(own)), load_(std::move(load)), put_(std::move(put)), notice_(notice) {}
  void Loop();
  void BeginWatching();
  bool WatchFolders();  // whether some name is watched that was not before
  void Watch(const WatchedName& watched);
  [[nodiscard]] bool MissedAChange();
  bool DrainInotify();
  [[nodiscard]] bool IsWhole(const WatchedName& watched, uint32_t event);
  [[nodiscard]] int UntilLook() const;  // for poll(2)
  [[nodiscard]] bool LookAtBegun();
  void LookLaterAt(const std::string& path);
  [[nodiscard]] bool BeingWritten();
  [[nodiscard]] bool DrainHangups();
  void Reload(const char* cause);
  [[nodiscard]] Result<uint64_t> PutAnew();

  policy::SnapshotPtr own_;  // as it was loaded last, whatever is in force; the watcher's thread
  Load load_;
  Put put_;
  const ReloadNotice notice_;
  UniqueFd inotify_;
  std::optional<SteadyTime> watch_from_;  // set: not watched before; the watcher's thread, once started
  UniqueFd signal_;
  StopEvent stop_;
  Complaint complaint_;  // the watcher's thread
  // By a watched folder's number and a name in it, and the numbers; the watcher's thread, once started.
  std::map<std::pair<int, std::string>, WatchedName> names_;
  std::set<int> folders_;
  // Files that came to a watched name or are being written, and are not known to be whole yet; when they are looked at next, and
  // how long after that.
  std::set<std::string> begun_;
  SteadyTime look_at_{};
  std::chrono::milliseconds look_pause_{0};
  Notice begun_notice_;
  std::thread thread_;
};

}  // namespace sluice::app
