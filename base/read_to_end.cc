#include "base/read_to_end.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace sluice {
namespace {

constexpr size_t kUnknownSize = 4096;  // room for what does not say how long it is, as files in /proc

}  // namespace

Result<std::string> ReadToEnd(int fd, size_t limit, const std::string& path) {
  std::string content;
  struct stat about{};
  // One more than it says, so that its end is found without more memory.
  const bool says = ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
  content.reserve(says ? std::min(static_cast<size_t>(about.st_size), limit) + 1 : kUnknownSize);
  for (;;) {
    ssize_t n = 0;
    const size_t held = content.size();
    const size_t room = held < content.capacity() ? content.capacity() - held : held;
    content.resize_and_overwrite(held + room, [&](char* bytes, size_t) {
      n = ::read(fd, bytes + held, room);
      return held + static_cast<size_t>(std::max<ssize_t>(n, 0));
    });
    if (n == 0) return content;
    if (n < 0 && errno != EINTR) return FailErrno(fmt::format("cannot read {}", path), errno);
    if (content.size() > limit) return Fail(Code::kExhausted, fmt::format("{} is larger than {} bytes", path, limit));
  }
}

}  // namespace sluice
