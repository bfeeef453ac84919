#include "base/unix_listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/fault.h"
#include "base/path_error.h"
#include "base/random.h"

namespace sluice {
namespace {

constexpr int kAttempts = 16;
constexpr std::chrono::milliseconds kTurnPause{20};
constexpr size_t kSuffixBytes = 4;
constexpr int kPassRights = 83;  // SO_PASSRIGHTS, which not every C library's headers know

std::unexpected<Error> CannotListen(const std::string& path, std::string_view why) {
  return Fail(Code::kInvalid, fmt::format("cannot listen on {}: {}", path, why));
}

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return CannotListen(path, fmt::format("a socket's path has at most {} bytes", sizeof address.sun_path - 1));
  path.copy(address.sun_path, path.size());
  return address;
}

// A file in the folder of `path` until it gets that name.
class Draft {
 public:
  // Beside it, and as short as its name where that is long.
  static std::string PathFor(const std::string& path) {
    const std::string suffix = RandomHex(kSuffixBytes);
    if (path.size() + 1 + suffix.size() < sizeof(sockaddr_un::sun_path)) return fmt::format("{}.{}", path, suffix);
    return path.substr(0, path.rfind('/') + 1) + suffix;
  }
  explicit Draft(std::string path) : path_(std::move(path)) {}
  ~Draft() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Draft(Draft&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Draft& operator=(Draft&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void IsNamed() { path_.clear(); }

 private:
  std::string path_;
};

// What stands under the name already.
enum class Found : uint8_t { kNothing, kDead, kChanged };

Result<Found> Look(const std::string& path, const sockaddr_un& address, int type) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return Found::kNothing;
    return FailPath(fmt::format("cannot listen on {}", path), errno);
  }
  if (!S_ISSOCK(about.st_mode)) return CannotListen(path, "there is a file of that name which is no socket");
  const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return FailErrno(fmt::format("cannot listen on {}", path), errno);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return CannotListen(path, "another process listens there");
  if (errno == ECONNREFUSED) return Found::kDead;
  if (errno == ENOENT) return Found::kChanged;
  // Its queue is full, or it is of another type: somebody has it.
  if (errno == EAGAIN || errno == EPROTOTYPE) return CannotListen(path, "another process listens there");
  return FailPath(fmt::format("cannot tell whether another process listens on {}", path), errno);
}

// Of several that start at once under one name one is first, and the others find it. Held as long as this lives, but where the
// folder cannot be locked, or a stranger keeps it.
UniqueFd Turn(const std::string& folder) {
  UniqueFd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int attempt = 0; lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && attempt < kAttempts; ++attempt)
    std::this_thread::sleep_for(kTurnPause);
  return lock;
}

// Gives the draft its name. False: another process was quicker, so that it is to be looked at anew.
Result<bool> Name(Draft& draft, const std::string& path, Found found) {
  if (found == Found::kChanged) return false;
  unsigned flags = found == Found::kNothing ? RENAME_NOREPLACE : 0;
  const auto rename = [&] { return ::renameat2(AT_FDCWD, draft.path().c_str(), AT_FDCWD, path.c_str(), flags) == 0; };
  bool named = rename();
  // Not every file system knows the flag.
  if (!named && errno == EINVAL && std::exchange(flags, 0) != 0) named = rename();
  if (!named && errno == EEXIST) return false;
  if (!named) return FailPath(fmt::format("cannot listen on {}", path), errno);
  draft.IsNamed();
  return true;
}

// A socket that is bound to a draft of `path`, and does not listen.
struct Bound {
  UniqueFd socket;
  Draft draft;
  dev_t device = 0;
  ino_t inode = 0;
};

Result<Bound> BindDraft(const std::string& path, const UnixListenOptions& options) {
  const auto failed = [&path] { return FailErrno(fmt::format("cannot listen on {}", path), errno); };
  UniqueFd socket(::socket(AF_UNIX, options.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return failed();
  if (options.descriptors == SentDescriptors::kRefused) (void)RefuseDescriptors(socket.get());
  // bind(2) gives the file the socket's own mode, without what the umask takes.
  if (::fchmod(socket.get(), options.mode) != 0) return failed();
  const std::string draft_path = Draft::PathFor(path);
  const auto draft_address = AddressOf(draft_path);
  if (!draft_address) return std::unexpected(draft_address.error());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*draft_address), sizeof *draft_address) != 0)
    return FailPath(fmt::format("cannot listen on {}", path), errno);
  Draft draft(draft_path);
  struct stat about{};
  if (::lstat(draft_path.c_str(), &about) != 0) return failed();
  if ((about.st_mode & ALLPERMS) != options.mode && ::chmod(draft_path.c_str(), options.mode) != 0) return failed();
  return Bound{std::move(socket), std::move(draft), about.st_dev, about.st_ino};
}

}  // namespace

SocketName& SocketName::operator=(SocketName&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  path_ = std::exchange(other.path_, {});
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

void SocketName::Remove() {
  const std::string path = std::exchange(path_, {});
  struct stat about{};
  if (!path.empty() && ::lstat(path.c_str(), &about) == 0 && about.st_dev == device_ && about.st_ino == inode_)
    ::unlink(path.c_str());
}

bool RefuseDescriptors(int socket) {
  const int pass = 0;
  return Faulty("unix.refuse-descriptors", [&] { return ::setsockopt(socket, SOL_SOCKET, kPassRights, &pass, sizeof pass); }) ==
         0;
}

Result<UnixListener> ListenUnix(const std::string& path, const UnixListenOptions& options) {
  const auto address = AddressOf(path);
  if (!address) return std::unexpected(address.error());
  const UniqueFd turn = Turn(path.substr(0, path.rfind('/') + 1));
  // First, so that what cannot be had leaves nothing behind.
  auto found = Look(path, *address, options.type);
  if (!found) return std::unexpected(found.error());
  auto bound = BindDraft(path, options);
  if (!bound) return std::unexpected(bound.error());
  if (::listen(bound->socket.get(), options.backlog) != 0) return FailErrno(fmt::format("cannot listen on {}", path), errno);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto named = Name(bound->draft, path, *found);
    if (!named) return std::unexpected(named.error());
    if (*named) return UnixListener{std::move(bound->socket), SocketName(path, bound->device, bound->inode)};
    if (found = Look(path, *address, options.type); !found) return std::unexpected(found.error());
  }
  return CannotListen(path, "others come and go there");
}

Result<void> CheckListenUnix(const std::string& path, const UnixListenOptions& options) {
  const auto address = AddressOf(path);
  if (!address) return std::unexpected(address.error());
  if (auto found = Look(path, *address, options.type); !found) return std::unexpected(found.error());
  if (auto bound = BindDraft(path, options); !bound) return std::unexpected(bound.error());
  return {};
}

}  // namespace sluice
