#include "supervisor/io/watched_call.h"

#include <sys/uio.h>

#include <cerrno>
#include <utility>

#include "base/fault.h"

namespace sluice::supervisor {
namespace {

using Why = NotTaken::Why;

struct Pinned {
  CallerThreadPtr thread;
  int fd = -ESRCH;
};

// A cached thread may be dead and its number another's: ESRCH says so, and one fresh look settles it.
Pinned Pin(ProcessTable& processes, pid_t tid, int fd) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    CallerThreadPtr thread = processes.Find(tid);
    if (!thread) return {};
    const int taken = thread->TakeFd(fd);
    if (taken != -ESRCH) return {std::move(thread), taken};
    processes.Forget(thread);
  }
  return {};
}

NotTaken Failure(int error) {
  switch (error) {
    case EBADF:
      return {Why::kNative, EBADF, {}};
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {Why::kExhausted, ENOBUFS, {}};
    default:
      return {Why::kUnreadable, EACCES, {}};
  }
}

// 0 or an errno: EFAULT is the caller's own fault, anything else is not.
int CopyIn(pid_t tid, uint64_t pointer, std::span<uint8_t> out) {
  if (out.empty()) return 0;
  const iovec local{out.data(), out.size()};
  const iovec remote{reinterpret_cast<void*>(static_cast<uintptr_t>(pointer)), out.size()};  // NOLINT: the caller's address
  const ssize_t read = Faulty("caller.memory", [&] { return process_vm_readv(tid, &local, 1, &remote, 1, 0); });
  if (read < 0) return errno;
  return read == static_cast<ssize_t>(out.size()) ? 0 : EFAULT;
}

}  // namespace

std::expected<WatchedCall, NotTaken> TakeCall(PendingCall caller, pid_t tid, ProcessTable& processes,
                                              const AddressArguments& arguments) {
  if (tid == 0) return std::unexpected(NotTaken{Why::kUnreadable, EACCES, {}});  // outside our pid namespace
  WatchedCall call;
  call.caller = std::move(caller);
  auto [thread, taken] = Pin(processes, tid, arguments.fd);
  if (taken < 0) {
    if (!call.caller.IsWaiting()) return std::unexpected(NotTaken{});
    return std::unexpected(Failure(thread ? -taken : EMFILE));
  }
  call.thread = std::move(thread);
  call.pinned.Reset(taken);
  // The order of the kernel's own checks: descriptor, length, memory, socket.
  if (arguments.length < 0 || static_cast<size_t>(arguments.length) > kMaxSockaddr) {
    return std::unexpected(NotTaken{Why::kNative, EINVAL, std::move(call.pinned)});
  }
  call.length = static_cast<size_t>(arguments.length);
  if (const int error = CopyIn(tid, arguments.pointer, std::span(call.bytes).first(call.length)); error != 0) {
    if (!call.caller.IsWaiting()) return std::unexpected(NotTaken{Why::kGone, 0, std::move(call.pinned)});
    if (error == EFAULT) return std::unexpected(NotTaken{Why::kNative, EFAULT, std::move(call.pinned)});
    return std::unexpected(NotTaken{Why::kUnreadable, EACCES, std::move(call.pinned)});
  }
  if (!call.caller.IsWaiting()) return std::unexpected(NotTaken{Why::kGone, 0, std::move(call.pinned)});
  const auto facts = ReadSocketFacts(call.pinned.get());
  if (!facts) {
    const bool native = errno == ENOTSOCK;
    return std::unexpected(
        NotTaken{native ? Why::kNative : Why::kUnreadable, native ? ENOTSOCK : EACCES, std::move(call.pinned)});
  }
  call.facts = *facts;
  call.address = ReadCalledAddress(std::span(call.bytes).first(call.length));
  return call;
}

}  // namespace sluice::supervisor
