#pragma once

// Which of the host's sockets, that `unix` rules opened, a file is: by its name in the view, or as the same file under another,
// where mounts of the workload's show it. A service may have put another socket in the place of its first: what is found under
// none of them is compared with what stands there now, and never with something older than the question.
//
// Looking at all places takes time, and whoever connects to sockets of its own asks for it with each. Up to kFewHostSockets are
// looked at for each question. Of more, only so often that the looking takes a tenth of the time: questions that come meanwhile
// wait, for kWakeInterval at most, and are answered by one look together.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "supervisor/io/caller_path.h"

namespace sluice::supervisor {

inline constexpr size_t kFewHostSockets = 16;
inline constexpr int kHostSocketsRest = 9;  ///< times as long as a look took, before the next

class HostSocketTable {
 public:
  using Identity = std::pair<dev_t, ino_t>;
  /// What it asks of the rest of the world.
  struct World {
    std::function<std::optional<Identity>(const std::string& there)> look;
    std::function<SteadyTime()> now;
    std::function<void(SteadyTime until)> rest;
  };

  /// `sockets`: from places in the view to the policy's names. `view`: its root, borrowed; -1: names alone tell.
  HostSocketTable(std::map<std::string, std::string> sockets, int view);
  HostSocketTable(std::map<std::string, std::string> sockets, World world);

  /// The policy's name for it; null: it is none of them. Of what FindPlace has found just now. Any thread.
  [[nodiscard]] const std::string* Find(const CalledPlace& place);
  [[nodiscard]] const std::string* Find(const std::string& path, const std::optional<Identity>& identity);

 private:
  using Known = std::map<Identity, const std::string*>;
  [[nodiscard]] Known Look() const;
  static const std::string* In(const Known& known, const Identity& identity);

  const std::map<std::string, std::string> sockets_;
  const World world_;
  const Known first_;  // as the view had them at the start
  std::mutex mutex_;
  Known last_;           // as of the last look
  SteadyTime looked_{};  // when that began
  SteadyTime next_{};    // when the next one may
};

}  // namespace sluice::supervisor
