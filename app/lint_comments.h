#pragma once

// What the comments of a policy file say to lint: remarks that are to be left out, and hosts that a rule is wider than.

#include <string>
#include <vector>

#include "app/report.h"
#include "policy/snapshot.h"

namespace sluice::app {

/// `# sluice:ignore CODE reason`, on a rule or in the lines above it.
struct IgnoreComment {
  std::string file{};
  uint32_t line = 0;   ///< of the rule
  std::string rule{};  ///< its text
  std::string code{};
  std::string reason{};
  bool used = false;
};

struct CommentRemarks {
  std::vector<IgnoreComment> ignores;
  std::vector<Remark> remarks;  ///< "wider-than-comment", "bad-ignore"
};

/// Reads the files that the policy's rules stand in. A file that cannot be read again has no comments.
[[nodiscard]] CommentRemarks ReadComments(const policy::Snapshot& snapshot, std::span<const CodeInfo> codes);

/// Takes out what is ignored; an ignore that ignored nothing becomes a remark.
void ApplyIgnores(std::vector<IgnoreComment> ignores, std::vector<Remark>* remarks);

}  // namespace sluice::app
