#pragma once

// What to run, and what of this machine it may see.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::supervisor {

/// kProvided: it is not known yet, and comes through Workload::Provide while the sandbox is being built.
enum class OverlayContent : uint8_t { kHere, kProvided };

struct FileOverlay {
  std::string
      path;  ///< absolute path in the workload's view; its file must exist on the host, or its folder be writable to the launcher
  std::string content;  ///< mounted read-only over it
  OverlayContent source = OverlayContent::kHere;
  bool optional = false;  ///< need not exist: put where the view has room for it, and left out where it has none
};

/// Whether the command starts only after a connect from its place was refused. A notifier must be answering by then.
enum class StartProbe : uint8_t { kNone, kCanary };

/// What a run may use at most. Nothing: no bound of its own.
struct Limits {
  std::optional<uint64_t> memory;      ///< octets
  std::optional<uint32_t> processes;   ///< threads count, as the kernel counts them; the sandbox's own first process does too
  std::optional<uint32_t> open_files;  ///< of each process
  std::optional<uint64_t> output;      ///< octets to standard output and error together
};

/// What holds a limit.
enum class LimitBy : uint8_t {
  kCgroup2,      ///< the whole run
  kCgroup1,      ///< the whole run
  kEachProcess,  ///< a resource limit (setrlimit(2)) of each process
  kUser,         ///< a resource limit of the workload's user inside its user namespace: the whole run
  kSupervisor,   ///< counted or timed by the supervisor: the whole run
};

struct LimitInForce {
  uint64_t value = 0;
  LimitBy by = LimitBy::kSupervisor;
};

/// Limits as they are enforced, which depends on the machine.
struct LimitsInForce {
  std::optional<LimitInForce> memory;
  std::optional<LimitInForce> processes;
  std::optional<LimitInForce> open_files;
  std::optional<LimitInForce> output;
  std::string no_cgroup;  ///< why no control group holds what one was wanted for; empty where one does
};

/// What a command that stops itself does to its supervisor.
enum class JobControl : uint8_t {
  kJob,   ///< it stops too, as one job of the shell that started it
  kNone,  ///< nothing: it is no shell's, and whoever started it stops and continues it for reasons of their own
};
/// What becomes of a run whose launcher is gone.
enum class OnDisconnect : uint8_t { kKill, kFreeze };

/// Whether the workload may make user, process and network namespaces. kMapped: it may map its own id into them, for which its
/// own processes' files in /proc can be written. Never for one whose user is root in the capture's user namespace: that user
/// owns files in /proc which no capability guards.
/// kContainers: all of it, and further namespaces but those of time, joined again if it likes, with mounts of its own in them:
/// what a container runtime does. The kernel lets nobody mount whose files Landlock holds, so that the view's mounts hold them
/// alone.
enum class OwnNamespaces : uint8_t { kRefused, kAllowed, kMapped, kContainers };

struct LaunchSpec {
  std::vector<std::string> argv;        ///< not empty
  std::string work_directory;           ///< absolute; readable and writable to the workload
  std::vector<std::string> read_write;  ///< more trees, absolute
  std::vector<std::string> read_only;   ///< more trees, absolute
  std::vector<std::string> protect;     ///< files the workload must not write wherever they lie (policy, includes, audit, binary)
  std::vector<std::string> hide;        ///< files that must not be seen wherever they lie, canonical: what secrets were read from
  std::vector<std::string> unix_sockets;                         ///< sockets a `unix` rule names, bound into the view
  std::vector<std::pair<std::string, std::string>> environment;  ///< complete: nothing else is passed
  std::vector<FileOverlay> overlays;                             ///< trust bundles, resolv.conf
  std::string hostname = "sluice";  ///< also in the view's /etc/hosts, which Launch writes unless an overlay does
  std::optional<std::chrono::milliseconds> timeout;
  StartProbe probe = StartProbe::kNone;
  Limits limits{};
  int transcript = -1;  ///< borrowed until the run has ended: gets what the command writes to its standard output and error
  int lifeline = -1;    ///< borrowed: when nobody holds its other end any more, `on_disconnect` is done
  OnDisconnect on_disconnect = OnDisconnect::kKill;
  OwnNamespaces own_namespaces = OwnNamespaces::kRefused;
  JobControl job_control = JobControl::kJob;
};

/// What ended a run: the command itself, or the supervisor for a reason.
enum class EndedBy : uint8_t { kCommand, kTimeout, kOutput, kMemory, kPolicy, kDisconnect, kStopped };

/// How the workload ended.
struct ExitStatus {
  int code = 0;    ///< exit code, or 128 + signal
  int signal = 0;  ///< 0 when it exited
  bool timed_out = false;
  EndedBy ended_by = EndedBy::kCommand;
  uint64_t output = 0;  ///< octets written to standard output and error; 0 where nobody counted (no transcript, no limit)
  bool transcript_complete = true;  ///< false once the transcript could not be written
};

}  // namespace sluice::supervisor
