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

struct UnloadedPolicy {
  std::string file;
  Error error;
};

/// With any that does not load there is nothing to compare: all of them are told at once.
struct PolicyPairs {
  std::vector<PolicyPair> pairs{};
  std::vector<UnloadedPolicy> unloaded{};  ///< what is said of several is there once
};

/// Base and head, both files or both folders.
[[nodiscard]] Result<PolicyPairs> PairPaths(const std::string& base, const std::string& head);
/// Each path, file or folder, and each policy that includes one of these (includers.h), against what it was in `revision` of the
/// repository around the work directory. Runs `git`.
[[nodiscard]] Result<PolicyPairs> PairWithGit(const std::string& revision, const std::vector<std::string>& heads);
/// Heads alone, for assertions: each pair has base and head the same.
[[nodiscard]] Result<PolicyPairs> HeadsAlone(const std::vector<std::string>& heads);

}  // namespace sluice::app
