#include "supervisor/io/small_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/fault.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

Result<std::string> ReadSmallFile(const std::string& path, size_t limit) {
  const UniqueFd file(Faulty("file.open", [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file) return FailErrno(fmt::format("cannot open {}", path), errno);
  std::string content;
  std::array<char, 4096> piece{};  // most are smaller
  while (content.size() <= limit) {
    const ssize_t got = Faulty("file.read", [&] { return ::read(file.get(), piece.data(), piece.size()); });
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FailErrno(fmt::format("cannot read {}", path), errno);
    if (got == 0) return content;
    content.append(piece.data(), static_cast<size_t>(got));
  }
  return Fail(Code::kExhausted, fmt::format("{} is larger than {} bytes", path, limit));
}

Result<void> WriteSmallFile(const std::string& path, std::string_view content) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return FailErrno(fmt::format("cannot open {}", path), errno);
  ssize_t written = 0;
  do {
    written = Faulty("file.write", [&] { return ::write(file.get(), content.data(), content.size()); });
  } while (written < 0 && errno == EINTR);
  if (written < 0) return FailErrno(fmt::format("cannot write {}", path), errno);
  if (static_cast<size_t>(written) != content.size()) return Fail(Code::kIo, fmt::format("short write to {}", path));
  return {};
}

}  // namespace sluice::supervisor
