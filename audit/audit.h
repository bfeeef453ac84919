#pragma once

// One record per decision and per finished exchange, as JSON Lines, and one line per denial for people.
// docs/audit.md lists the fields.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "policy/event.h"

namespace sluice::audit {

struct Options {
  std::string file;     ///< JSON Lines, appended; empty: none
  bool console = true;  ///< one stderr line per denial, repeats collapsed
  std::string sandbox;  ///< --name
  std::map<std::string, std::string> labels{};
  size_t queue = 8192;  ///< records; a full queue makes Record false
};

struct Totals {
  uint64_t allowed = 0;
  uint64_t denied = 0;
};

class Writer : public policy::EventSink {
 public:
  /// Opens the file (0600, O_APPEND, O_NOFOLLOW) and starts the writer thread.
  static Result<std::unique_ptr<Writer>> Start(const Options& options);
  /// Writes what is queued, flushes, joins.
  ~Writer() override = default;
  /// Decisions so far; requests count once.
  [[nodiscard]] virtual Totals totals() const = 0;
  /// False once a write failed (a full disk): every later Record is false too.
  [[nodiscard]] virtual bool healthy() const = 0;
};

}  // namespace sluice::audit
