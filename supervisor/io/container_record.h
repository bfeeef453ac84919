#pragma once

// What is kept on disk of each container that is supervised, so that an agent that starts again knows which containers have lost
// their supervisor. Their listeners died with it, so the kernel answers their notified calls with ENOSYS and nothing leaves; what
// is still to do is to kill or to freeze them. Nothing is done to a process that is not proven to be the one on record: the
// number, its start time and this boot must be the same. Its cgroup is touched while all that is in it is in the container's pid
// namespace.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

struct ContainerRecord {
  std::string id;  ///< the runtime's
  pid_t pid = 0;
  uint64_t start_time = 0;
  std::string cgroup;  ///< cgroup 2 path that held this container alone; empty: none
  bool operator==(const ContainerRecord&) const = default;
};

/// A folder of its own, 0700, held by one agent at a time.
class ContainerRecords {
 public:
  /// Makes the folder where it is missing. kInvalid: another agent holds it, or others may write it.
  [[nodiscard]] static Result<ContainerRecords> Open(const std::string& folder);

  /// On disk when this returns, whole or not at all.
  [[nodiscard]] Result<void> Put(const ContainerRecord& record);
  void Remove(const ContainerRecord& record);
  /// Of this boot. What cannot be read is removed and told in the log.
  [[nodiscard]] Result<std::vector<ContainerRecord>> Read();

 private:
  ContainerRecords(std::string folder, std::string boot, UniqueFd directory)
      : folder_(std::move(folder)), boot_(std::move(boot)), directory_(std::move(directory)) {}

  std::string folder_;
  std::string boot_;
  UniqueFd directory_;  // locked
};

/// What becomes of a container that cannot be supervised.
enum class Unsupervised : uint8_t { kKill, kFreeze };

enum class Ended : uint8_t {
  kGone,    ///< it had ended already, or the number is another process's now: nothing was done
  kKilled,  ///< its first process, and so its pid namespace, or its cgroup where it shares that namespace
  kFrozen,
};

/// Whether it is the process of the record that has its number now.
[[nodiscard]] bool IsRunning(const ContainerRecord& record);

/// Blocks for a second at most while a cgroup freezes; what cannot be frozen is killed. An error: nothing was done, or only the
/// first process of a container that shares its process namespace could be killed.
[[nodiscard]] Result<Ended> EndContainer(const ContainerRecord& record, Unsupervised fate);

}  // namespace sluice::supervisor
