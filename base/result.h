#pragma once

// Failures as values. A function that can fail returns Result<T>; what it refuses is in its own comment.
// A policy's "no" is never an Error: it is a policy::Decision.
//
//   Result<int> port = ParsePort(text);
//   if (!port) return std::unexpected(port.error());

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

/// The closed set of things that go wrong. Each maps to one exit code in app/.
enum class Code : uint8_t {
  kInvalid,      ///< input that breaks its own rules: a policy, a flag, a message
  kNotFound,     ///< a file, command or name that is not there
  kPermission,   ///< the kernel said no
  kUnsupported,  ///< this kernel or build lacks a needed feature, named in the message
  kExhausted,    ///< a bound of docs/limits.md was reached
  kTimeout,      ///< a deadline passed
  kIo,           ///< a system call failed otherwise; see sys_errno
  kProtocol,     ///< the peer broke the protocol
  kInternal,     ///< a fault of Sluice's own
};

/// Where in a policy file something stands. Lines and columns count from 1; 0 means unknown.
struct SourceSpan {
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  uint32_t length = 0;  ///< bytes on that line, for the caret line; 0 where not known

  bool operator==(const SourceSpan&) const = default;
};

/// A failure for a person: the message says what happened and what to do, in one sentence without a final stop.
struct [[nodiscard]] Error {
  Code code = Code::kInternal;
  std::string message;
  int sys_errno = 0;                 ///< 0 where no system call was involved
  std::optional<SourceSpan> span{};  ///< set for faults of a policy file
};

template <class T>
using Result = std::expected<T, Error>;

/// An Error whose message ends in the errno's own text: "cannot open /x: No such file or directory".
[[nodiscard]] Error SystemError(std::string_view what, int sys_errno);

/// std::unexpected of an Error, for one-line returns.
[[nodiscard]] inline std::unexpected<Error> Fail(Code code, std::string message) {
  return std::unexpected(Error{code, std::move(message), 0, std::nullopt});
}
[[nodiscard]] inline std::unexpected<Error> FailErrno(std::string_view what, int sys_errno) {
  return std::unexpected(SystemError(what, sys_errno));
}

}  // namespace sluice
