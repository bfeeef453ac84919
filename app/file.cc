#include "app/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/unique_fd.h"

namespace sluice::app {
namespace {

constexpr size_t kUnknownSize = 4096;  ///< room for what does not say how long it is, as files in /proc

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return FailErrno(fmt::format("cannot open {}", path), errno);
  std::string content;
  struct stat about{};
  // One more than it says, so that its end is found without more memory.
  const bool says = ::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
  content.reserve(says ? std::min(static_cast<size_t>(about.st_size), limit) + 1 : kUnknownSize);
  for (;;) {
    ssize_t n = 0;
    const size_t held = content.size();
    const size_t room = held < content.capacity() ? content.capacity() - held : held;
    content.resize_and_overwrite(held + room, [&](char* bytes, size_t) {
      n = ::read(fd.get(), bytes + held, room);
      return held + static_cast<size_t>(std::max<ssize_t>(n, 0));
    });
    if (n == 0) return content;
    if (n < 0 && errno != EINTR) return FailErrno(fmt::format("cannot read {}", path), errno);
    if (content.size() > limit) return Fail(Code::kExhausted, fmt::format("{} is larger than {} bytes", path, limit));
  }
}

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  std::string absolute = std::filesystem::absolute(path, ignored).lexically_normal().string();
  if (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

std::vector<std::string> SplitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace sluice::app
