#pragma once

// `sluice run` in a sandbox. The kernel lets one supervisor be asked about a process, so that the inner one cannot supervise: it
// asks the outer one, over a socket in its view, which starts another sandbox beside the first. That gets the outer's grants,
// limits and labels, and the inner's policy, which must be proved to let out nothing that the outer one does not: it can only
// narrow. It is killed when its asker goes, when the outer run ends or is frozen, and when a change of the outer policy leaves it
// wider. Its proof anew takes longer than a policy may take to be in force: meanwhile its supervisor, through which all that it
// has of the network goes, is stopped.
//
// What comes over the socket is the workload's: a launch file and a policy's text, both bounded. It chooses no file, no
// credential and no upstream of the host's.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/launch_file.h"
#include "app/nested_names.h"
#include "app/nested_records.h"
#include "app/run.h"
#include "base/complaint.h"
#include "base/pinned_closer.h"
#include "base/result.h"
#include "base/spawner.h"
#include "base/unique_fd.h"
#include "base/unix_listener.h"
#include "policy/event.h"
#include "supervisor/launch_spec.h"

namespace sluice::app {

/// Sandboxes beside the first at a time; and octets of an inner policy.
inline constexpr size_t kMaxNestedRuns = 8;
inline constexpr size_t kMaxNestedPolicy = size_t{1} << 20;
/// Where the workload finds the socket.
inline constexpr const char* kNestedVariable = "SLUICE_NESTED";

class NestedRuns {
 public:
  /// Makes the socket, before the launch binds it into the view: in a folder of this user's alone.
  [[nodiscard]] static Result<std::unique_ptr<NestedRuns>> Prepare();
  /// Kills what still runs, and takes the folder away.
  ~NestedRuns();
  NestedRuns(const NestedRuns&) = delete;
  NestedRuns& operator=(const NestedRuns&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// What the outer run's resolver counts in as well.
  [[nodiscard]] const std::shared_ptr<dns::SharedRations>& rations() const { return names_.rations; }
  /// Answers from now on, on a thread of its own. `options` and `spec` are the outer run's; `policy` outlives this, as does
  /// `stream`, which gets the records of all runs in the sandbox; null: nobody reads there. kInvalid: a grant lies in another
  /// that is writable, so that its place could be given to something else.
  [[nodiscard]] Result<void> Serve(const RunOptions& options, const supervisor::LaunchSpec& spec,
                                   const policy::CurrentPolicy& policy, DecisionStream* stream);
  /// After CurrentPolicy::Set; any thread, does not block. The runs in the sandbox are stopped when it returns, until they are
  /// proved to be within the policy in force again. One that says the same as before stops none.
  void PolicyChanged();
  /// The outer run is frozen: what cannot stand still with it is killed, and none starts before Thaw; who asks meanwhile waits.
  /// Any thread, does not block.
  void Freeze();
  void Thaw();

 private:
  struct Session;
  // What any thread does to a run, under mutex_.
  struct Reins {
    pid_t child = 0;     // not reaped
    UniqueFd lifeline;   // what keeps it alive
    std::string digest;  // of the outer policy that it was proved by
    bool stopped = false;
  };
  NestedRuns() = default;
  void Loop();
  void Accept();
  void Serve(Session& session);
  void Judge();
  void Wake();
  [[nodiscard]] int LookAgain() const;
  [[nodiscard]] bool Stopping();
  [[nodiscard]] bool MayGoOn(const Session& session, const policy::Snapshot& in_force, bool widened);
  void GoOn(Session& session, const policy::Snapshot& in_force, uint64_t generation);
  static void Stop(Reins& reins);
  static void Cut(Reins& reins);
  void Cut(const Session& session);
  void Kill(const Session& session);
  void GiveUp(Session& session);
  struct End {
    int code = 0;  // as a shell's
    bool killed = false;
  };
  [[nodiscard]] static std::optional<End> EndOf(const Session& session);
  [[nodiscard]] static bool Swept(Session& session);
  void Reap(Session& session);
  void TakeReins(const Session& session, UniqueFd lifeline, const std::string& digest);
  [[nodiscard]] Result<void> Start(Session& session);
  [[nodiscard]] static Result<void> Narrower(const policy::Snapshot& in_force, const policy::Snapshot& inner);
  [[nodiscard]] std::string LaunchText(const Session& session, const LaunchFile& wanted) const;
  [[nodiscard]] bool Ended(Session& session);
  void Drop(std::vector<UniqueFd> fds);

  std::string folder_;
  std::string path_;
  NameRations names_;
  UnixListener listener_;
  UniqueFd wake_;                                   // an eventfd
  std::vector<std::unique_ptr<Session>> sessions_;  // the thread's
  std::optional<PinnedCloser> closer_;              // of what the workload sent: its last close may wait
  std::unique_ptr<Spawner> spawner_;                // so that no run that starts closes something of the workload's
  RunOptions options_;
  supervisor::LaunchSpec spec_;
  const policy::CurrentPolicy* policy_ = nullptr;
  DecisionStream* stream_ = nullptr;
  uint64_t judged_ = 0;        // the generation that all sessions were last judged by …
  policy::SnapshotPtr judge_;  // … and its policy
  uint64_t count_ = 0;
  std::mutex mutex_;       // of these four
  bool stopping_ = false;  // set before the last wake, read after it
  bool frozen_ = false;    // the outer run is
  bool froze_ = false;     // it was since the thread looked last
  std::vector<Reins> reins_;
  Complaint complaint_;  // the thread's
  std::thread thread_;
};

/// Asks the outer run for one, and gives its exit code. In a sandbox whose outer run serves none it says so (exit 4).
[[nodiscard]] int RunInside(const RunOptions& options);

/// Whether this process is in a sandbox, or in a container in one: a second supervisor is refused to it. Forks where it has a
/// filter.
[[nodiscard]] bool InSandbox();

}  // namespace sluice::app
