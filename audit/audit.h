#pragma once

// One record per decision and per finished exchange, as JSON Lines, and one line per denial for people.
// docs/audit.md lists the fields.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "audit/tap.h"
#include "base/result.h"
#include "policy/event.h"

namespace sluice::audit {

struct Options {
  std::string file;            ///< JSON Lines, appended; empty: none
  bool console = true;         ///< one stderr line per denial, repeats collapsed
  std::string sandbox;         ///< --name
  std::string console_name{};  ///< whose denials the stderr lines tell, where one log has several sandboxes'; empty: not told
  std::map<std::string, std::string> labels{};
  size_t queue = 16384;  ///< records; without room Record is false
  Tap* tap = nullptr;    ///< looks on; outlives the writer
};

struct Totals {
  uint64_t allowed = 0;
  uint64_t denied = 0;
};

class AuditFile;  // audit/io/audit_file.h

class Writer : public policy::EventSink {
 public:
  /// Opens the file (0600, O_APPEND, O_NOFOLLOW) and starts the writer thread.
  static Result<std::unique_ptr<Writer>> Start(const Options& options);
  /// The same with a file that is open already, so that what was checked is what is written; `options.file` is not looked at.
  static Result<std::unique_ptr<Writer>> Start(const Options& options, std::optional<AuditFile> file);
  /// Writes what is queued to the file, joins. Lines for standard error may still be on their way (stderr_lines.h).
  ~Writer() override = default;
  /// What was let out so far: each request, each connection that was relayed unseen and has ended, each UNIX socket. And each
  /// refusal at whatever layer, of a flood too, but for upstreams that could not be reached.
  [[nodiscard]] virtual Totals totals() const = 0;
  /// False once a write failed (a full disk): every later Record is false too.
  [[nodiscard]] virtual bool healthy() const = 0;
};

}  // namespace sluice::audit
