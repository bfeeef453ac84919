#pragma once

// Who calls: a thread of the workload held by pidfd and by its /proc folder, so that a number used again is never taken for
// the one that had it before; and what policy needs to know of its process. Safe from any thread.
//
// Cost in the steady state: one lookup and one readlink per call, since an exec changes the executable and nothing else tells.
// Ancestors are looked at again after kAncestorAge.

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/query.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxCachedThreads = 256;  ///< two descriptors each
inline constexpr size_t kMaxCachedDigests = 256;
inline constexpr size_t kMaxAncestors = 16;
inline constexpr uint64_t kMaxDigestBytes = uint64_t{512} << 20;  ///< a larger executable has no digest and matches no `sha256:`
inline constexpr std::chrono::milliseconds kAncestorAge{100};

/// Whether executables are hashed (policy::Snapshot::NeedsDigests).
enum class Digests : uint8_t { kNone, kNeeded };

/// How a thread's own descriptor table is reached.
enum class ThreadPinning : uint8_t {
  kPidfdThread,  ///< PIDFD_THREAD, Linux 6.9
  kViaLeader,    ///< through the process's first thread, when kcmp says that both share one table
};

/// One thread of the workload.
class CallerThread {
 public:
  CallerThread(pid_t tid, pid_t thread_group, UniqueFd pidfd, UniqueFd proc, ThreadPinning pinning)
      : tid_(tid), thread_group_(thread_group), pidfd_(std::move(pidfd)), proc_(std::move(proc)), pinning_(pinning) {}

  [[nodiscard]] pid_t tid() const { return tid_; }
  /// Takes a copy of the thread's descriptor. A negative errno: EBADF, ESRCH (gone), EPERM (not readable to us), EMFILE.
  [[nodiscard]] int TakeFd(int fd) const;
  /// Reads /proc/TID/status.
  [[nodiscard]] std::optional<ProcStatus> Status() const;
  /// Target of a link in /proc/TID ("exe", "cwd"); empty when unreadable.
  [[nodiscard]] std::string Link(const char* name) const;
  /// A signal waits for it that it does not block.
  [[nodiscard]] bool SignalPending() const;
  [[nodiscard]] int proc_fd() const { return proc_.get(); }

 private:
  friend class ProcessTable;
  const pid_t tid_;
  const pid_t thread_group_;
  const UniqueFd pidfd_;
  const UniqueFd proc_;
  const ThreadPinning pinning_;

  std::mutex mutex_;  // guards what follows
  policy::ProcessPtr process_;
  SteadyTime ancestors_at_{};
};
using CallerThreadPtr = std::shared_ptr<CallerThread>;

class ProcessTable {
 public:
  struct Options {
    pid_t workload_pid = 0;                     ///< where ancestors end
    uint64_t pid_namespace = 0;                 ///< inode of the one that they must be in; 0: of any
    std::optional<ThreadPinning> pinning = {};  ///< unset: the best this kernel has
    size_t most_threads = kMaxCachedThreads;    ///< remembered
    /// Borrowed: the root of the view that rules name executables in, where the workload may have others; -1: it has that alone.
    int view = -1;
  };
  explicit ProcessTable(Options options);

  /// The thread that has this number now. Null when there is none, or out of descriptors.
  [[nodiscard]] CallerThreadPtr Find(pid_t tid);
  /// Drops a thread found dead, so that the next Find looks again.
  void Forget(const CallerThreadPtr& thread);
  /// Gives back the descriptors of all that are only remembered.
  void ForgetAll();

  /// What everybody may see of a process whose executable cannot be read: number and name. For records only.
  [[nodiscard]] policy::ProcessPtr Glimpse(pid_t tid);
  /// Null when its executable cannot be read: then nothing may be allowed.
  [[nodiscard]] policy::ProcessPtr Identify(CallerThread& thread, Digests digests);

 private:
  [[nodiscard]] CallerThreadPtr Open(pid_t tid) const;
  [[nodiscard]] policy::ProcessPtr Read(const CallerThread& thread, std::string exe, Digests digests);
  [[nodiscard]] std::vector<policy::Executable> Ancestors(pid_t parent, pid_t thread_group, Digests digests);
  [[nodiscard]] policy::Executable ReadExecutable(int proc, std::string link, Digests digests);
  [[nodiscard]] bool IsInView(int proc, const std::string& path) const;
  [[nodiscard]] std::optional<std::array<uint8_t, 32>> Digest(int proc);

  const Options options_;
  const ThreadPinning pinning_;
  std::mutex mutex_;
  std::unordered_map<pid_t, CallerThreadPtr> threads_;
  std::deque<pid_t> order_;  // oldest first

  struct FileKey {
    uint64_t device, inode, size;
    int64_t modified, changed;
    auto operator<=>(const FileKey&) const = default;
  };
  std::mutex digest_mutex_;
  std::map<FileKey, std::array<uint8_t, 32>> digests_;
};

}  // namespace sluice::supervisor
