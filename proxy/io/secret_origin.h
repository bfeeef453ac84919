#pragma once

// Where secrets are read: the supervisor's environment, files, commands, what systemd hands over. Blocking; for start and for the
// store's own thread. No message ever quotes what was read.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/spawner.h"
#include "policy/credential.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {

inline constexpr std::chrono::seconds kSecretCommandDeadline{30};
inline constexpr size_t kMaxCommandComplaint = 4096;  ///< of what a command that failed says on its standard error

/// "env GITHUB_TOKEN", "file /etc/token": for messages and as a key; the same text is the same source.
[[nodiscard]] std::string SourceText(const policy::SecretSource& source);

/// Trees of the host that the workload sees. A file that it could read, put in place of a secret, or lead to by a link of its own
/// is no source.
using SeenTrees = std::vector<std::string>;

/// Which file a path leads to now, and what tells it from another or from a changed one.
struct FileStamp {
  std::string real;  ///< without links
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
/// kNotFound, kPermission (a tree of the workload's on the way), kIo.
[[nodiscard]] Result<FileStamp> StampFile(const std::string& path, const SeenTrees& trees);

/// The path of a file or systemd source. kNotFound: no $CREDENTIALS_DIRECTORY.
[[nodiscard]] Result<std::string> SourcePath(const policy::SecretSource& source);

/// The content without its last line end. Warns, through `warning`, of a mode or owner that lets others read or write it.
[[nodiscard]] Result<SecretPtr> ReadSecretFile(const FileStamp& stamp, std::string* warning);

/// The variable's value. It is overwritten where it stands and taken out of the environment, so that no process started later has
/// it.
[[nodiscard]] Result<SecretPtr> TakeSecretVariable(const std::string& name);

/// Standard output without its last line end. The command runs without a shell, in a session of its own, with no input; it and
/// its children are killed at the deadline. `spawner` as RunProgram has it.
[[nodiscard]] Result<SecretPtr> RunSecretCommand(const std::vector<std::string>& command, std::chrono::milliseconds deadline,
                                                 Spawner* spawner = nullptr);

}  // namespace sluice::proxy
