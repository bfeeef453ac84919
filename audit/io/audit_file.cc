#include "audit/io/audit_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "base/log.h"
#include "base/path_error.h"

namespace sluice::audit {
namespace {

struct Written {
  size_t octets = 0;
  int error = 0;
};

Written WriteAll(int fd, std::string_view bytes) {
  Written done;
  while (done.octets < bytes.size()) {
    const ssize_t written =
        Faulty("audit.write", [&] { return ::write(fd, bytes.data() + done.octets, bytes.size() - done.octets); });
    if (written >= 0) {
      done.octets += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      done.error = errno;
      break;
    }
  }
  return done;
}

std::unexpected<Error> Refused(const std::string& path, std::string_view why) {
  return Fail(Code::kInvalid, fmt::format("--audit {}: {}", path, why));
}

// Why opening failed, where the errno alone would puzzle.
std::unexpected<Error> OpenFailed(const std::string& path, int error) {
  struct stat status{};
  const bool there = ::lstat(path.c_str(), &status) == 0;
  if (there && S_ISLNK(status.st_mode)) {
    if (path.starts_with("/dev/") || path.starts_with("/proc/"))
      return Refused(path, "the command writes there too and could forge records; name a file of its own");
    return Refused(path, "a symbolic link, which could lead the records elsewhere; name the file itself");
  }
  if (there && S_ISFIFO(status.st_mode)) return Refused(path, "a pipe, whose reader could stop all traffic; name a file");
  if (there && S_ISDIR(status.st_mode)) return Refused(path, "a folder; name a file in it");
  return FailPath("cannot open the audit file " + path, error);
}

// A record that a crash or a full disk has cut short must not become one line with the next.
Result<void> EndLastLine(const std::string& path, int fd) {
  struct stat status{};
  if (Faulty("audit.size", [&] { return ::fstat(fd, &status); }) != 0)
    return FailErrno("cannot look at the audit file " + path, errno);
  if (status.st_size == 0) return {};
  const std::string own = fmt::format("/proc/self/fd/{}", fd);
  const UniqueFd reader(Faulty("audit.reopen", [&] { return ::open(own.c_str(), O_RDONLY | O_CLOEXEC); }));
  // One that this user may only write to is written to as it is.
  if (!reader && errno != EACCES) return FailErrno("cannot read the audit file " + path, errno);
  if (!reader) return {};
  char last = '\n';
  if (Faulty("audit.last", [&] { return ::pread(reader.get(), &last, 1, status.st_size - 1); }) < 0)
    return FailErrno("cannot read the audit file " + path, errno);
  if (last == '\n') return {};
  if (const Written done = WriteAll(fd, "\n"); done.error != 0)
    return FailErrno("cannot write to the audit file " + path, done.error);
  return {};
}

}  // namespace

Result<AuditFile> AuditFile::Open(std::string path) {
  // Not waiting: a pipe would block before it is known to be one.
  UniqueFd file(Faulty("audit.open", [&] {
    return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  }));
  if (!file) return OpenFailed(path, errno);
  struct stat status{};
  if (Faulty("audit.kind", [&] { return ::fstat(file.get(), &status); }) != 0)
    return FailErrno("cannot open the audit file " + path, errno);
  const bool regular = S_ISREG(status.st_mode);
  if (!regular && !S_ISCHR(status.st_mode)) return OpenFailed(path, EINVAL);
  // Only the opening must not wait: a terminal that is slow to take a record is no failed write.
  if (Faulty("audit.flags", [&] { return ::fcntl(file.get(), F_SETFL, O_APPEND); }) != 0)
    return FailErrno("cannot open the audit file " + path, errno);
  if (regular)
    if (auto ended = EndLastLine(path, file.get()); !ended) return std::unexpected(ended.error());
  return AuditFile(std::move(path), std::move(file), regular);
}

Result<void> AuditFile::CheckName() {
  struct stat opened{};
  if (Faulty("audit.look", [&] { return ::fstat(file_.get(), &opened); }) != 0)
    return FailErrno("cannot look at the audit file " + path_, errno);
  if (opened.st_nlink == 0) return Fail(Code::kIo, "the audit file " + path_ + " was deleted");
  if (told_of_move_) return {};
  struct stat named{};
  if (::lstat(path_.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return {};
  told_of_move_ = true;
  LogWarn("the audit file {} was moved; its records go on where it is now (logrotate: use copytruncate)", path_);
  return {};
}

Result<void> AuditFile::Append(std::string_view lines) {
  if (regular_)
    if (auto named = CheckName(); !named) return named;
  struct stat before{};
  if (Faulty("audit.stat", [&] { return ::fstat(file_.get(), &before); }) != 0)
    return FailErrno("cannot look at the audit file " + path_, errno);
  const Written done = WriteAll(file_.get(), lines);
  if (done.error == 0) return {};
  // What got in ends with a whole record, unless somebody else has written meanwhile.
  const std::string_view whole = lines.substr(0, lines.substr(0, done.octets).rfind('\n') + 1);
  struct stat after{};
  if (regular_ && ::fstat(file_.get(), &after) == 0 && after.st_size == before.st_size + static_cast<off_t>(done.octets))
    (void)!::ftruncate(file_.get(), before.st_size + static_cast<off_t>(whole.size()));
  return FailErrno("cannot write audit records to " + path_, done.error);
}

}  // namespace sluice::audit
