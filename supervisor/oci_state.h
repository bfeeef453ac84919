#pragma once

// What a container runtime sends to its seccomp agent: ContainerProcessState as JSON (OCI runtime specification, config-linux.md,
// "The Container Process State"), with descriptors beside it that `fds` names in order. runc sends one message and keeps its
// socket open, so the end of the text is where its braces balance; crun indents it, and for `exec` gives neither pid.
// Pure; strict: whoever sends it is trusted to start containers, and still no byte of it is taken on trust.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxOciMessage = 256 * 1024;  ///< bytes of JSON
inline constexpr size_t kMaxOciFds = 16;
inline constexpr size_t kMaxOciAnnotations = 1024;
inline constexpr size_t kMaxContainerId = 1024;
inline constexpr std::string_view kSeccompFdName = "seccompFd";

struct OciState {
  std::vector<std::string> fds;  ///< names; the i-th belongs to the i-th descriptor
  size_t seccomp_fd = 0;         ///< index of kSeccompFdName, which is there once
  int32_t pid = 0;               ///< of the process that the filter is for, in the runtime's pid namespace; 0: not told
  std::string metadata;          ///< linux.seccomp.listenerMetadata
  std::string id;                ///< of the container: letters, digits, `_+-.`
  std::string status;            ///< "creating" at first, "running" for exec
  std::string bundle;
  std::map<std::string, std::string> annotations;
};

/// Finds where the JSON text ends, and looks at each byte once however many pieces it comes in.
class OciStateEnd {
 public:
  /// `received` is all that has come so far. Nothing while more is to come; kInvalid: it is no object, or longer than
  /// kMaxOciMessage.
  [[nodiscard]] Result<std::optional<size_t>> Find(std::string_view received);

 private:
  size_t at_ = 0;  // looked at up to here
  size_t depth_ = 0;
  bool in_string_ = false;
};
/// The same of a text that is there at once.
[[nodiscard]] Result<std::optional<size_t>> FindOciStateEnd(std::string_view received);

/// kInvalid says which member is missing or wrong. Members that are not known are skipped.
[[nodiscard]] Result<OciState> ParseOciState(std::string_view text);

}  // namespace sluice::supervisor
