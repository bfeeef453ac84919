#include "supervisor/io/light_process.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/fault.h"

namespace sluice::supervisor {
namespace {

struct Call {
  void (*body)(void*);
  void* argument;
};

int Enter(void* data) {
  const Call call = *static_cast<Call*>(data);
  call.body(call.argument);
  ::_exit(1);
}

}  // namespace

Memory AffordableMemory() {
#ifdef SLUICE_SANITIZED
  return Memory::kCopied;  // the sanitizers keep track of stacks, and this one is none of theirs
#else
  // /proc/<pid>/task has two links and one for each thread.
  struct stat tasks{};
  const bool alone = ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
  return alone && ::prctl(PR_GET_DUMPABLE) == 1 ? Memory::kBorrowed : Memory::kCopied;
#endif
}

Result<pid_t> StartProcess(Memory memory, void (*body)(void*), void* argument) {
  if (memory == Memory::kCopied) {
    const pid_t child = Faulty("launch.copy", [] { return ::fork(); });
    if (child < 0) return FailErrno("cannot fork", errno);
    if (child == 0) {
      body(argument);
      ::_exit(1);
    }
    return child;
  }
  void* stack = ::mmap(nullptr, kLightStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return FailErrno("cannot map a stack", errno);
  // A signal handler of this program must not run in the borrower.
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &saved);
  Call call{body, argument};
  const auto clone = [&] {
    return ::clone(Enter, static_cast<char*>(stack) + kLightStack, CLONE_VM | CLONE_VFORK | SIGCHLD, &call);
  };
  const pid_t child = Faulty("launch.borrow", clone);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  ::munmap(stack, kLightStack);
  if (child < 0) return FailErrno("cannot start a process", error);
  return child;
}

}  // namespace sluice::supervisor
