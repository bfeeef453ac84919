#include "supervisor/io/seccomp_channel.h"

#include <poll.h>
#include <sys/ioctl.h>

#include <csignal>
#include <cstring>

#include "base/fault.h"
#include "base/log.h"
#include "base/patient_poll.h"
#include "supervisor/io/kernel.h"

namespace sluice::supervisor {
namespace {

constexpr int kTries = 16;

}  // namespace

Result<SeccompChannel> SeccompChannel::Open(UniqueFd fd, NotifyWakeUp wake_up, int workload_pid) {
  seccomp_notif_sizes sizes{};
  if (Faulty("notify.sizes", [&] { return ::syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes); }) != 0)
    return FailErrno("no seccomp notifications", errno);
  if (sizes.seccomp_notif != sizeof(seccomp_notif) || sizes.seccomp_notif_resp != sizeof(seccomp_notif_resp)) {
    return Fail(Code::kUnsupported, "this kernel's seccomp notifications have another size than this build knows");
  }
  // Only latency under load depends on it, so an older kernel is no failure.
  if (wake_up == NotifyWakeUp::kSynchronous) (void)::ioctl(fd.get(), kernel::kIoctlNotifSetFlags, kernel::kNotifFdSyncWakeUp);
  return SeccompChannel(std::move(fd), UniqueFd(workload_pid > 0 ? kernel::PidfdOpen(workload_pid, 0) : -1));
}

void SeccompChannel::GiveUp(const char* what, int error) const {
  if (broken_->exchange(true)) return;
  LogError("cannot {} seccomp notifications: {}; the workload is stopped", what, std::strerror(error));
  if (workload_) ::syscall(SYS_pidfd_send_signal, workload_.get(), SIGKILL, nullptr, 0);
}

SeccompChannel::Received SeccompChannel::Receive(seccomp_notif* out) const {
  for (int attempt = 1;; ++attempt) {
    std::memset(out, 0, sizeof *out);  // the kernel refuses anything else
    if (Faulty("notify.receive", [&] { return ::ioctl(fd_.get(), SECCOMP_IOCTL_NOTIF_RECV, out); }) == 0) return Received::kCall;
    if (errno == EINTR) return Received::kNothing;
    if (errno == ENOENT) break;
    if (attempt < kTries) continue;
    GiveUp("receive", errno);
    return Received::kEnd;
  }
  // ENOENT: this caller died, or (6.11 and later) every one did.
  pollfd state{fd_.get(), POLLIN, 0};
  if (PatientPoll({&state, 1}, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0) return Received::kEnd;
  return Received::kNothing;
}

void SeccompChannel::Send(seccomp_notif_resp response) const {
  int refused = 0;
  while (Faulty("notify.reply", [&] { return ::ioctl(fd_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response); }) != 0) {
    // EINPROGRESS: it has had its answer.
    if (errno == ENOENT || errno == EINPROGRESS) return;
    if (errno != EINTR && ++refused == kTries) return GiveUp("answer", errno);
  }
}

void SeccompChannel::Reply(uint64_t id, int error) const { Send({id, 0, -error, 0}); }
void SeccompChannel::Continue(uint64_t id) const { Send({id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE}); }
void SeccompChannel::Restart(uint64_t id) const { Send({id, 0, -kernel::kRestartSyscall, 0}); }

bool SeccompChannel::IsWaiting(uint64_t id) const {
  int r = 0;
  do {
    r = Faulty("notify.id-valid", [&] { return ::ioctl(fd_.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &id); });
  } while (r != 0 && errno == EINTR);
  if (r != 0 && errno != ENOENT) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) LogError("cannot tell whether a caller still waits: {}; its call is refused", std::strerror(errno));
    Reply(id, EACCES);
  }
  return r == 0;
}

}  // namespace sluice::supervisor
