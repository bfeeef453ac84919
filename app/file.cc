#include "app/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/unique_fd.h"

namespace sluice::app {

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return FailErrno(fmt::format("cannot open {}", path), errno);
  std::string content;
  struct stat about{};
  if (::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode))
    content.reserve(std::min(static_cast<size_t>(about.st_size), limit));
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n == 0) return content;
    if (n < 0) {
      if (errno == EINTR) continue;
      return FailErrno(fmt::format("cannot read {}", path), errno);
    }
    if (content.size() + static_cast<size_t>(n) > limit)
      return Fail(Code::kExhausted, fmt::format("{} is larger than {} bytes", path, limit));
    content.append(buffer, static_cast<size_t>(n));
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
