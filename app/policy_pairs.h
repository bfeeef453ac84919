#pragma once

// Which policies `prove` compares: two files, two folders by relative path, or files against their own past in git.

#include <string>
#include <vector>

#include "base/result.h"
#include "policy/snapshot.h"

namespace sluice::app {

struct PolicyPair {
  std::string name;          ///< for people: the head's path, or the base's where the head is gone
  policy::SnapshotPtr base;  ///< null: the file is new
  policy::SnapshotPtr head;  ///< null: the file is gone
};

/// Base and head, both files or both folders.
[[nodiscard]] Result<std::vector<PolicyPair>> PairPaths(const std::string& base, const std::string& head);
/// Each path, file or folder, and each policy that includes one of these (includers.h), against what it was in `revision` of the
/// repository around the work directory. Runs `git`.
[[nodiscard]] Result<std::vector<PolicyPair>> PairWithGit(const std::string& revision, const std::vector<std::string>& heads);
/// Heads alone, for assertions: each pair has base and head the same.
[[nodiscard]] Result<std::vector<PolicyPair>> HeadsAlone(const std::vector<std::string>& heads);

}  // namespace sluice::app
