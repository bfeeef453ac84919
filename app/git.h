#pragma once

// Files of another revision, through the `git` of this machine. Paths are relative to the work directory.

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::app {

/// The commit that `revision` names. kInvalid where there is none, or no repository, or no git; the message says which.
[[nodiscard]] Result<std::string> GitCommit(const std::string& revision);
/// Where the file is once the symbolic links on the way are followed, as a checkout has them. kInvalid where one leads out of the
/// repository, or there are too many; kNotFound where the commit has no such file.
[[nodiscard]] Result<std::string> GitRealPath(const std::string& commit, const std::string& path);
/// kNotFound where the commit has no such file; of a link it is the text. At most 1 MiB, as a policy.
[[nodiscard]] Result<std::string> GitFile(const std::string& commit, const std::string& path);
/// Files at or below `path`, as paths relative to the work directory; empty where the commit has none.
[[nodiscard]] Result<std::vector<std::string>> GitList(const std::string& commit, const std::string& path);

}  // namespace sluice::app
