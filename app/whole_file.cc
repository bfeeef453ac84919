#include "app/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/unique_fd.h"

namespace sluice::app {

Wholeness WholenessOf(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file && errno == ENOENT) return Wholeness::kGone;
  if (!file) return errno == ELOOP ? Wholeness::kWhole : Wholeness::kUnknown;
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return Wholeness::kUnknown;
  if (!S_ISREG(about.st_mode)) return Wholeness::kWhole;
  // Who opens it to write meanwhile waits until it is given back, and this thread is told: by SIGIO it would end the process.
  const f_owner_ex told{F_OWNER_TID, ::gettid()};
  if (::fcntl(file.get(), F_SETOWN_EX, &told) != 0 || ::fcntl(file.get(), F_SETSIG, SIGURG) != 0) return Wholeness::kUnknown;
  if (::fcntl(file.get(), F_SETLEASE, F_RDLCK) == 0) {
    (void)::fcntl(file.get(), F_SETLEASE, F_UNLCK);
    return Wholeness::kWhole;
  }
  return errno == EAGAIN ? Wholeness::kBegun : Wholeness::kUnknown;
}

}  // namespace sluice::app
