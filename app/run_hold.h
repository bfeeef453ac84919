#pragma once

// Who holds a run: the one connection of GET /v1/hold. It is told how the run stands, and when it drops the run is lost to
// whoever started it: what becomes of it then is the holder of this object's to decide.
//
//   RunHold hold([&](RunHold::Change change) { if (change == RunHold::Change::kLost) control.Stop(0ms); });

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "app/line_reader.h"

namespace sluice::app {

inline constexpr std::chrono::seconds kFirstHoldDeadline{60};  ///< of --await-hold

class RunHold {
 public:
  enum class Change : uint8_t { kHeld, kLost };
  /// `changed` runs on the administration's thread, kHeld and kLost in turn, never after End; it must not block.
  explicit RunHold(std::function<void(Change)> changed);
  RunHold(const RunHold&) = delete;
  RunHold& operator=(const RunHold&) = delete;

  /// Null: somebody holds it already. The reader begins with the line told last. `wake` is called when something waits where
  /// nothing did; it must not block.
  [[nodiscard]] std::unique_ptr<LineReader> Open(std::function<void()> wake);
  /// Waits for the first that holds it. False: nobody came in time, or nobody can any more.
  [[nodiscard]] bool AwaitHeld(std::chrono::milliseconds longest);
  /// Nobody will come any more: every way that callers come by is closed, and none of those who came can ask for it.
  void GiveUp();

  /// A line, its feed included. Any thread.
  void Tell(std::string line);
  /// Nothing is told any more, and who lets go now loses nothing.
  void End();

 private:
  class Reader;
  void Leave();

  const std::function<void(Change)> changed_;
  std::mutex mutex_;
  std::condition_variable came_;
  Reader* reader_ = nullptr;
  std::string last_;
  bool was_held_ = false;
  bool hopeless_ = false;
  bool ended_ = false;
};

}  // namespace sluice::app
