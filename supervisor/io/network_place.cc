#include "supervisor/io/network_place.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace sluice::supervisor {
namespace {

constexpr int kNetnsCookie = 71;                      // SO_NETNS_COOKIE, Linux 5.14
constexpr uint64_t kFirstNetwork = 1;                 // net_gen_cookie(&init_net) is the first that is drawn
constexpr ino_t kFirstDrawn = 0xf0000000;             // PROC_DYNAMIC_FIRST: what is below was never given out
constexpr ino_t kFirstProcessNamespace = 0xeffffffc;  // PROC_PID_INIT_INO of linux/proc_ns.h, part of the interface

std::optional<uint64_t> Cookie() {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (!socket || ::getsockopt(socket.get(), SOL_SOCKET, kNetnsCookie, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

}  // namespace

std::optional<std::string> WhyMachinesNetwork(const NetworkSigns& signs) {
  if (signs.first_number || signs.cookie == kFirstNetwork) return "it is the first of this kernel";
  if (!signs.cookie && signs.with_first_process && signs.first_process_namespace) return "process 1 of this machine has it";
  if (signs.with_first_process && signs.booted) return "the service manager of this system (process 1) has it";
  return std::nullopt;
}

std::optional<std::string> WhyMachinesNetwork() {
  NetworkSigns signs;
  signs.cookie = Cookie();
  struct stat own{};
  struct stat first{};
  // Where process 1 may not be looked at, nothing is known of it.
  const bool known = ::stat("/proc/self/ns/net", &own) == 0;
  signs.first_number = known && own.st_ino < kFirstDrawn;
  signs.with_first_process =
      known && ::stat("/proc/1/ns/net", &first) == 0 && own.st_ino == first.st_ino && own.st_dev == first.st_dev;
  struct stat processes{};
  signs.first_process_namespace = ::stat("/proc/self/ns/pid", &processes) == 0 && processes.st_ino == kFirstProcessNamespace;
  signs.booted = ::access("/run/systemd/system", F_OK) == 0;
  return WhyMachinesNetwork(signs);
}

}  // namespace sluice::supervisor
