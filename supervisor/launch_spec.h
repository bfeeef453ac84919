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
};

/// How the workload ended.
struct ExitStatus {
  int code = 0;    ///< exit code, or 128 + signal
  int signal = 0;  ///< 0 when it exited
  bool timed_out = false;
};

}  // namespace sluice::supervisor
