#pragma once

// The policy's files where the workload may write: locked in its view for as long as they are the same files. One that is
// replaced from outside, as editors save, loses its lock, and the workload may have written what is there now. Nor may it
// choose which files are read, by a link that an include goes through.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/launch_spec.h"

namespace sluice::app {

class HeldFiles {
 public:
  /// `files`, canonical, are the policy's as it was loaded for `spec`. Before the workload starts.
  HeldFiles(std::span<const std::string> files, const supervisor::LaunchSpec& spec);

  /// Before they are read anew, so that nothing of the workload's is read, nor quoted in an error: kPermission names one that was
  /// replaced.
  [[nodiscard]] Result<void> CheckHeld() const;
  /// After `files` were read anew: kPermission names what the workload may have written or changed.
  [[nodiscard]] Result<void> Check(std::span<const std::string> files) const;

 private:
  struct Held {
    std::string path;
    UniqueFd file;  ///< keeps its inode number from being used again
  };
  [[nodiscard]] bool Writable(const std::string& path) const;
  [[nodiscard]] bool NearWritable() const;
  [[nodiscard]] bool IsHeld(const std::string& path) const;

  std::vector<std::string> files_;  ///< sorted
  std::vector<std::string> read_write_;
  std::vector<std::string> read_only_;
  std::vector<Held> held_;
};

}  // namespace sluice::app
