#pragma once

// The policy's files where the workload may write: locked in its view for as long as they are the same files. One that is
// replaced from outside, as editors save, loses its lock, and the workload may have written what is there now.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/launch_spec.h"

namespace sluice::app {

class HeldFiles {
 public:
  /// Of `files`, canonical, those that lie where a workload of `spec` may write. Before it starts.
  HeldFiles(std::span<const std::string> files, const supervisor::LaunchSpec& spec);

  /// After `files` were read anew: kPermission names one that the workload may have written.
  [[nodiscard]] Result<void> Check(std::span<const std::string> files) const;

 private:
  struct Held {
    std::string path;
    UniqueFd file;  ///< keeps its inode number from being used again
  };
  [[nodiscard]] bool Writable(const std::string& path) const;
  [[nodiscard]] bool IsHeld(const std::string& path) const;

  std::vector<std::string> read_write_;
  std::vector<std::string> read_only_;
  std::vector<Held> held_;
};

}  // namespace sluice::app
