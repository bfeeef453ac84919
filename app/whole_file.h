#pragma once

// Whether a file that has come to a name is all there.

#include <cstdint>
#include <string>

namespace sluice::app {

enum class Wholeness : uint8_t {
  kWhole,    ///< nobody has it open to write; also what is no regular file: whoever reads it says so
  kBegun,    ///< somebody has
  kUnknown,  ///< the kernel does not tell: of somebody else's file, or on a file system without leases
  kGone,
};

/// fcntl(2), F_SETLEASE: a lease to read is given where nobody has the file open to write, and given back at once.
[[nodiscard]] Wholeness WholenessOf(const std::string& path);

}  // namespace sluice::app
