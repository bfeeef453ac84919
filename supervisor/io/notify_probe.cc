#include "supervisor/io/notify_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "supervisor/io/kernel.h"

namespace sluice::supervisor {
namespace {

// The call that the filter watches: of no consequence where it is let through, and its first argument says which turn it is.
constexpr long kWatched = SYS_getpgid;
constexpr long kAnswer = 4711;
constexpr int kChosenFd = 77;
constexpr uint64_t kSecret = 0x5c1ce0ddba11f00d;

// The turns that parent and child take together.
enum Turn : uint8_t { kReply, kContinue, kAddFd, kAddFdAt, kAddFdSend, kTake, kTurns };

// What the child found, in the order of the turns, and of what it tried alone.
struct ChildSaw {
  std::array<bool, kTurns> turn{};
  bool one_listener = false;
};

// Everything but kWatched is allowed; of that, everything is a notification.
std::array<sock_filter, 6> Filter() {
  return {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kWatched, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
  }};
}

int Install(unsigned flags) {
  auto filter = Filter();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  const long fd = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  return fd < 0 ? -errno : static_cast<int>(fd);
}

// Whether the flags are taken: tried in a child of its own, since a filter stays.
bool Takes(unsigned flags) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && Install(flags) >= 0 ? 0 : 1);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

long Watched(uint8_t turn, long second = 0, const void* third = nullptr) { return ::syscall(kWatched, turn, second, third); }

bool IsOpen(long fd) { return fd >= 0 && ::fcntl(static_cast<int>(fd), F_GETFD) >= 0; }

// The child's side of the turns, in their order.
ChildSaw TakeTurns() {
  ChildSaw saw;
  saw.turn[kReply] = Watched(kReply) == kAnswer;
  // Let through, the kernel answers for process 1.
  errno = 0;
  const long through = Watched(kContinue);
  saw.turn[kContinue] = through >= 0 ? through != kAnswer : errno == ESRCH || errno == EPERM;
  saw.turn[kAddFd] = IsOpen(Watched(kAddFd));
  saw.turn[kAddFdAt] = Watched(kAddFdAt) == kChosenFd && IsOpen(kChosenFd);
  saw.turn[kAddFdSend] = IsOpen(Watched(kAddFdSend));
  // Its own socket is connected by the other side, in place.
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const uint64_t secret = kSecret;
  (void)Watched(kTake, socket.get(), &secret);
  sockaddr_un peer{};
  socklen_t size = sizeof peer;
  saw.turn[kTake] = ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  const int second = Install(SECCOMP_FILTER_FLAG_NEW_LISTENER);
  saw.one_listener = second == -EBUSY;
  return saw;
}

bool WriteAll(int fd, const void* bytes, size_t size) { return ::write(fd, bytes, size) == static_cast<ssize_t>(size); }

[[noreturn]] void RunChild(int channel) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Where this process is not dumpable its child inherits that, and nobody else may take its descriptors.
  ::prctl(PR_SET_DUMPABLE, 1);
  int listener = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ? -errno : Install(SECCOMP_FILTER_FLAG_NEW_LISTENER);
  if (!WriteAll(channel, &listener, sizeof listener) || listener < 0) ::_exit(1);
  char go = 0;
  if (::read(channel, &go, 1) != 1) ::_exit(1);
  const ChildSaw saw = TakeTurns();
  if (!WriteAll(channel, &saw, sizeof saw)) ::_exit(1);
  ::_exit(0);
}

bool Await(int fd, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    const int got = ::poll(&wait, 1, static_cast<int>(left));
    if (got > 0) return (wait.revents & POLLIN) != 0;
    if (got < 0 && errno != EINTR) return false;
  }
}

class Prober {
 public:
  Prober(pid_t child, int listener, NotifyFeatures* features)
      : child_(child), listener_(listener), features_(*features), passed_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

  void Serve(std::chrono::steady_clock::time_point deadline) {
    for (uint8_t turn = 0; turn < kTurns; ++turn) {
      seccomp_notif call{};
      if (!Await(listener_, deadline) || ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;
      Answer(call);
      if (turn == kReply) {
        uint64_t over = call.id;
        features_.id_valid = features_.id_valid && ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_ID_VALID, &over) != 0;
      }
    }
  }

 private:
  void Answer(const seccomp_notif& call) {
    uint64_t id = call.id;
    switch (call.data.args[0]) {
      case kReply:
        features_.id_valid = ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
        return Send({id, kAnswer, 0, 0});
      case kContinue:
        if (Send({id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE}); sent_) return;
        return Send({id, kAnswer, 0, 0});
      case kAddFd:
        return Send({id, AddFd(id, 0, 0), 0, 0});
      case kAddFdAt:
        return Send({id, AddFd(id, SECCOMP_ADDFD_FLAG_SETFD, kChosenFd), 0, 0});
      case kAddFdSend:
        if (AddFd(id, SECCOMP_ADDFD_FLAG_SEND, 0) < 0) Send({id, -1, 0, 0});
        return;
      default:
        Take(static_cast<pid_t>(call.pid), static_cast<int>(call.data.args[1]), call.data.args[2]);
        return Send({id, 0, 0, 0});
    }
  }

  void Send(seccomp_notif_resp response) { sent_ = ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &response) == 0; }

  long AddFd(uint64_t id, unsigned flags, unsigned number) const {
    seccomp_notif_addfd add{};
    add.id = id;
    add.flags = flags;
    add.srcfd = static_cast<unsigned>(passed_.get());
    add.newfd = number;
    return ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
  }

  // As the notifier does with a connect: pin the socket, read the caller's memory, act on the pinned socket.
  void Take(pid_t caller, int fd, uint64_t where) {
    const int thread = kernel::PidfdOpen(caller, kernel::kPidfdThread);
    features_.thread_pidfd = thread >= 0;
    if (thread >= 0) ::close(thread);
    const UniqueFd process(kernel::PidfdOpen(child_, 0));
    const int taken = process ? kernel::PidfdGetfd(process.get(), fd) : -ESRCH;
    if (taken >= 0) {
      const UniqueFd socket(taken);
      uint64_t cookie = 0;
      socklen_t size = sizeof cookie;
      features_.netns_cookie = ::getsockopt(taken, SOL_SOCKET, kernel::kSoNetnsCookie, &cookie, &size) == 0;
      // A name of the kernel's choice, so that no network needs to be up.
      const UniqueFd peer(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      socklen_t length = sizeof name;
      features_.pidfd_getfd = ::bind(peer.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name.sun_family) == 0 &&
                              ::getsockname(peer.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
                              ::connect(taken, reinterpret_cast<const sockaddr*>(&name), length) == 0;
    } else {
      features_.fault = "pidfd_getfd";
      features_.fault_errno = -taken;
    }
    uint64_t read = 0;
    const iovec local{&read, sizeof read};
    const iovec remote{reinterpret_cast<void*>(where), sizeof read};  // NOLINT(performance-no-int-to-ptr): the caller's address
    features_.read_memory = ::process_vm_readv(caller, &local, 1, &remote, 1, 0) == sizeof read && read == kSecret;
  }

  pid_t child_;
  int listener_;
  NotifyFeatures& features_;
  UniqueFd passed_;
  bool sent_ = false;
};

// The child's listener, in this process.
UniqueFd TakeListener(pid_t child, int channel, std::chrono::steady_clock::time_point deadline, NotifyFeatures* features) {
  int listener = -1;
  if (!Await(channel, deadline) || ::read(channel, &listener, sizeof listener) != sizeof listener) {
    features->fault = "the child that was to be watched did not start";
    return {};
  }
  if (listener < 0) {
    features->fault = "SECCOMP_FILTER_FLAG_NEW_LISTENER";
    features->fault_errno = -listener;
    return {};
  }
  features->listener = true;
  const UniqueFd process(kernel::PidfdOpen(child, 0));
  const int taken = process ? kernel::PidfdGetfd(process.get(), listener) : -errno;
  if (taken >= 0) return UniqueFd(taken);
  features->fault = "pidfd_getfd";
  features->fault_errno = -taken;
  return {};
}

void Follow(pid_t child, int channel, NotifyFeatures* features) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kProbeLimitMs);
  const UniqueFd listener = TakeListener(child, channel, deadline, features);
  if (!listener) return;
  // Set on the descriptor for good; nothing below depends on it.
  features->sync_wake_up = ::ioctl(listener.get(), kernel::kIoctlNotifSetFlags, kernel::kNotifFdSyncWakeUp) == 0;
  const char go = 1;
  if (!WriteAll(channel, &go, 1)) return;
  Prober(child, listener.get(), features).Serve(deadline);
  ChildSaw saw;
  if (!Await(channel, deadline) || ::read(channel, &saw, sizeof saw) != sizeof saw) {
    if (features->fault.empty()) features->fault = "the watched child did not come to its end";
    return;
  }
  features->reply = saw.turn[kReply];
  features->carry_on = saw.turn[kContinue];
  features->add_fd = saw.turn[kAddFd];
  features->add_fd_at = saw.turn[kAddFdAt];
  features->add_fd_send = saw.turn[kAddFdSend];
  features->pidfd_getfd = features->pidfd_getfd && saw.turn[kTake];
  features->one_listener = saw.one_listener;
}

}  // namespace

NotifyFeatures ProbeNotifications() {
  NotifyFeatures features;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    features.fault = "socketpair";
    features.fault_errno = errno;
    return features;
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    features.fault = "fork";
    features.fault_errno = errno;
    return features;
  }
  if (child == 0) RunChild(theirs.get());
  theirs.Reset();
  Follow(child, ours.get(), &features);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!features.listener) return features;
  features.wait_killable = Takes(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
  features.tsync_esrch = Takes(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
  return features;
}

}  // namespace sluice::supervisor
