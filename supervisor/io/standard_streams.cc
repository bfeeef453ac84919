#include "supervisor/io/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "supervisor/io/launch_child.h"

namespace sluice::supervisor {
namespace {

constexpr long kPidFsMagic = 0x50494446;                              // linux/magic.h from 6.13 on
constexpr unsigned kMemoryMajor = 1;                                  // Documentation/admin-guide/devices.txt
constexpr std::array<unsigned, 5> kHarmlessMinors = {3, 5, 7, 8, 9};  // null zero full random urandom

Result<StandardKind> Refuse(int fd, const char* what) {
  return Fail(Code::kInvalid, fmt::format("descriptor {} is {}, which cannot be given to a workload: redirect it", fd, what));
}

Result<StandardKind> ClassifyFile(int fd) {
  struct statfs about{};
  if (::fstatfs(fd, &about) != 0) return FailErrno(fmt::format("cannot look at descriptor {}", fd), errno);
  switch (about.f_type) {
    case NSFS_MAGIC:
    case kPidFsMagic:
    case BPF_FS_MAGIC:
      return Refuse(fd, "a kernel object");
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
      return StandardKind::kPumped;
    default:
      return StandardKind::kPassed;
  }
}

StandardKind ClassifyDevice(int fd, dev_t device) {
  if (::isatty(fd) == 1) return StandardKind::kTerminal;
  const bool harmless =
      major(device) == kMemoryMajor && std::ranges::find(kHarmlessMinors, minor(device)) != kHarmlessMinors.end();
  return harmless ? StandardKind::kPassed : StandardKind::kPumped;
}

bool SameFile(int one, int other) {
  struct stat a{};
  struct stat b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
         a.st_rdev == b.st_rdev;
}

Result<void> MakePump(int fd, StandardStreams& streams) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("cannot create a pipe", errno);
  const bool input = fd == 0;
  streams.replacement[static_cast<size_t>(fd)] = UniqueFd(ends[input ? 0 : 1]);
  Pump pump;
  pump.owned = UniqueFd(ends[input ? 1 : 0]);
  pump.from = input ? fd : pump.owned.get();
  pump.to = input ? pump.owned.get() : fd;
  if (::fcntl(pump.owned.get(), F_SETFL, O_NONBLOCK) != 0) return FailErrno("cannot set up a pipe", errno);
  streams.pumps.push_back(std::move(pump));
  return {};
}

}  // namespace

Result<StandardKind> ClassifyStandard(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return StandardKind::kAbsent;
  if ((flags & O_PATH) != 0) return Refuse(fd, "a path");
  struct stat about{};
  if (::fstat(fd, &about) != 0) return FailErrno(fmt::format("cannot look at descriptor {}", fd), errno);
  switch (about.st_mode & S_IFMT) {
    case S_IFIFO:
      return StandardKind::kPassed;
    case S_IFREG:
      return ClassifyFile(fd);
    case S_IFCHR:
      return ClassifyDevice(fd, about.st_rdev);
    case S_IFSOCK:
    case S_IFBLK:
      return StandardKind::kPumped;
    case S_IFDIR:
      return Refuse(fd, "a folder");
    default:
      return Refuse(fd, "a kernel object");
  }
}

void ReserveStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) {
      // The lowest free number, which is `fd`.
      [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
    }
}

std::array<int, 3> StandardStreams::ForChild() const {
  std::array<int, 3> fds{};
  for (size_t i = 0; i < fds.size(); ++i) {
    fds[i] = replacement[i].valid() ? replacement[i].get() : static_cast<int>(i);
    if (kinds[i] == StandardKind::kTerminal) fds[i] = SandboxPlan::kTerminal;
  }
  return fds;
}

bool StandardStreams::has_terminal() const { return std::ranges::find(kinds, StandardKind::kTerminal) != kinds.end(); }

Result<StandardStreams> PrepareStandardStreams(OutputWay way) {
  StandardStreams streams;
  for (int fd = 0; fd <= 2; ++fd) {
    const auto index = static_cast<size_t>(fd);
    auto kind = ClassifyStandard(fd);
    if (!kind) return std::unexpected(kind.error());
    if (way == OutputWay::kRelayed && fd != 0 && *kind == StandardKind::kPassed) *kind = StandardKind::kPumped;
    streams.kinds[index] = *kind;
    // One pipe for what is one file, so that lines of output and error keep their order.
    if (way == OutputWay::kRelayed && fd == 2 && streams.replacement[1].valid() && *kind == StandardKind::kPumped &&
        SameFile(1, 2)) {
      streams.replacement[2] = UniqueFd(::fcntl(streams.replacement[1].get(), F_DUPFD_CLOEXEC, 3));
      if (!streams.replacement[2]) return FailErrno("cannot share a pipe", errno);
      continue;
    }
    if (*kind == StandardKind::kPumped)
      if (auto made = MakePump(fd, streams); !made) return std::unexpected(made.error());
    if (*kind == StandardKind::kAbsent) {
      streams.replacement[index] = UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
      if (!streams.replacement[index]) return FailErrno("cannot open /dev/null", errno);
    }
  }
  return streams;
}

}  // namespace sluice::supervisor
