#pragma once

// A pipe with an owner for each end; both are closed on exec. pipe(2).

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

[[nodiscard]] inline Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("cannot make a pipe", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace sluice
