#include "supervisor/io/carried_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "base/unique_fd.h"
#include "supervisor/io/kernel.h"
#include "supervisor/io/small_file.h"
#include "supervisor/io/socket_facts.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

// Documentation/admin-guide/devices.txt: by whatever name. Those that are known to lead nowhere are few, those that lead out many
// and some numbered as they are loaded (macvtap and ipvtap, vfio, RDMA).
struct Device {
  unsigned major = 0;
  unsigned minor = 0;
  std::string_view what;
};
constexpr Device kKnownDevices[] = {
    {10, 200, "a tunnel device"}, {10, 238, "a vhost-net device"}, {10, 241, "a vhost-vsock device"}};
constexpr unsigned kMemoryMajor = 1;
constexpr unsigned kHarmlessMinors[] = {3, 5, 7, 8, 9};  // null zero full random urandom

class CarriedFiles {
 public:
  CarriedFiles(pid_t process, uint64_t netns_cookie)
      : folder_(fmt::format("/proc/{}", process)), netns_cookie_(netns_cookie), process_(Open(process)) {}

  Result<void> Check() const {
    if (!process_) return Unseen(-process_.get());
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir((folder_ + "/fd").c_str()), ::closedir);
    if (!entries) return Unseen(errno);
    size_t seen = 0;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(entries.get());
      if (entry == nullptr && errno != 0) return Unseen(errno);
      if (entry == nullptr) return {};
      const char* name = entry->d_name;
      int number = -1;
      if (std::from_chars(name, name + std::strlen(name), number).ec != std::errc{}) continue;
      if (++seen > kMaxCarried) return Fail(Code::kExhausted, fmt::format("it has more than {} descriptors", kMaxCarried));
      const auto way = WayOut(::dirfd(entries.get()), name, number);
      if (!way) return std::unexpected(way.error());
      if (!way->empty() && !ClosesAtExecve(name))
        return Fail(
            Code::kInvalid,
            fmt::format("its descriptor {} is {}, which leads past the container's network namespace: leave it open in no "
                        "container (--preserve-fds, LISTEN_FDS), and redirect a standard stream",
                        number, *way));
    }
  }

 private:
  static UniqueFd Open(pid_t process) {
    UniqueFd opened(kernel::PidfdOpen(process, kernel::kPidfdThread));
    if (!opened) opened.Reset(kernel::PidfdOpen(process, 0));
    return opened;
  }

  std::unexpected<Error> Unseen(int error) const { return FailErrno("cannot look at the descriptors of its process", error); }

  // Empty: none.
  Result<std::string> WayOut(int folder, const char* name, int number) const {
    std::array<char, 64> text;
    const ssize_t size = Faulty("carried.link", [&] { return ::readlinkat(folder, name, text.data(), text.size()); });
    if (size < 0 && errno == ENOENT) return std::string();  // closed meanwhile
    if (size < 0) return Unseen(errno);
    const std::string_view link(text.data(), static_cast<size_t>(size));
    if (link.starts_with("socket:")) return SocketWayOut(number);
    if (link == "anon_inode:[io_uring]") return "an io_uring";
    struct statx about{};
    // As the kernel has it: a file system that does not answer holds nobody up.
    const auto look = [&] { return ::statx(folder, name, AT_STATX_DONT_SYNC, STATX_TYPE, &about); };
    if (Faulty("carried.kind", look) != 0) return errno == ENOENT ? Result<std::string>(std::string()) : Unseen(errno);
    return S_ISCHR(about.stx_mode) ? DeviceWayOut(number, about.stx_rdev_major, about.stx_rdev_minor) : std::string();
  }

  // Invalid, and errno says why.
  UniqueFd Take(int number) const {
    return UniqueFd(Faulty("carried.take", [&] {
      const int got = kernel::PidfdGetfd(process_.get(), number);
      return got < 0 ? (errno = -got, -1) : got;
    }));
  }

  Result<std::string> DeviceWayOut(int number, unsigned major, unsigned minor) const {
    if (major == kMemoryMajor && std::ranges::find(kHarmlessMinors, minor) != std::end(kHarmlessMinors)) return "";
    for (const Device& known : kKnownDevices)
      if (known.major == major && known.minor == minor) return std::string(known.what);
    const UniqueFd device = Take(number);
    if (!device && errno == EBADF) return std::string();
    if (!device) return Unseen(errno);
    // A path to one (O_PATH), which /proc/self/fd opens, answers nothing.
    return ::isatty(device.get()) == 1 ? std::string() : fmt::format("a device that is no terminal ({}:{})", major, minor);
  }

  Result<std::string> SocketWayOut(int number) const {
    const UniqueFd socket = Take(number);
    if (!socket && errno == EBADF) return std::string();
    if (!socket) return Unseen(errno);
    const auto facts = ReadSocketFacts(socket.get());
    if (!facts) return "a socket that tells nothing of itself";
    const bool inside = facts->netns_cookie == netns_cookie_;
    switch (facts->domain) {
      case AF_INET:
      case AF_INET6:
      case AF_NETLINK:
        return inside ? "" : "a network socket from outside";
      case AF_UNIX:
        // Connected for good, and to whoever started the container.
        if (inside || (number <= STDERR_FILENO && facts->type != SOCK_DGRAM && HasPeer(socket.get()))) return "";
        return "a UNIX socket from outside";
      default:  // some heed no namespace
        return fmt::format("a socket of family {}", facts->domain);
    }
  }

  [[nodiscard]] bool ClosesAtExecve(const char* name) const {
    const auto text = ReadSmallFile(fmt::format("{}/fdinfo/{}", folder_, name));
    const auto flags = text ? ParseOpenFlags(*text) : std::nullopt;
    return flags && (*flags & O_CLOEXEC) != 0;
  }

  const std::string folder_;
  const uint64_t netns_cookie_;
  const UniqueFd process_;
};

}  // namespace

Result<void> CheckCarried(pid_t process, uint64_t netns_cookie) { return CarriedFiles(process, netns_cookie).Check(); }

}  // namespace sluice::supervisor
