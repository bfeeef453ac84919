#pragma once

// Starts programs from a thread with a table of descriptors of its own, which holds the standard streams and what a program is
// given, and nothing else. A child of any other thread has a copy of all that this process holds until its execve closes them. By
// then a copy may be the last, and the last close of a socket that lingers waits for its peer, as long as whoever made it linger
// said: a workload could make a program start an hour late.
//
//   auto spawner = Spawner::Start();  // before anything of a workload's is held
//   auto child = (*spawner)->Spawn({.path = "/bin/true", .argv = {"true"}, .descriptors = {0, 1, 2}});

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice {

/// It leads a session of its own, and its signals are as a program begins with.
struct SpawnedProgram {
  std::string path;  ///< looked up in $PATH where it has no slash
  std::vector<std::string> argv;
  std::vector<std::string> environment{};
  std::vector<int> descriptors{};  ///< borrowed; they become 0, 1, 2 and so on. At least three, at most kMostSpawned
};
inline constexpr size_t kMostSpawned = 8;

class Spawner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Spawner>> Start();
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  /// Gives a child of this process, to be reaped by whoever asked. Any thread, one after the other; blocks until its execve. An
  /// error's sys_errno is posix_spawn's.
  [[nodiscard]] Result<pid_t> Spawn(const SpawnedProgram& program);

 private:
  Spawner() = default;
  struct Request;
  void Loop(int channel);

  UniqueFd channel_;
  std::mutex mutex_;  // one request at a time
  Request* request_ = nullptr;
  std::thread thread_;
};

}  // namespace sluice
