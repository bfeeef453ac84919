#include "supervisor/io/empty_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>

#include "base/unique_fd.h"
#include "supervisor/io/launch_child.h"

namespace sluice::supervisor {
namespace {

constexpr size_t kStack = size_t{64} << 10;
constexpr size_t kLargestPage = size_t{64} << 10;
constexpr size_t kMaxRanges = 16384;

struct Range {
  uintptr_t begin;
  size_t size;
};

// Lives, with the stack, in a mapping that is kept. The ranges are not set before they are found: it would take longer than all
// else.
struct Emptying {
  Reaping reaping;
  size_t count = 0;
  Range ranges[kMaxRanges];
};

// A multiple of any page's size: a page is emptied as a whole.
constexpr size_t kKept = (sizeof(Emptying) + kStack + kLargestPage - 1) / kLargestPage * kLargestPage;

Emptying* g_emptying = nullptr;  // read before it is emptied too

// Without the C library, whose data are gone when this is needed: errno, the stack guard and the table of its functions.
[[gnu::always_inline]] inline long RawCall(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
#if defined(__x86_64__)
  long result = number;
  register long fourth asm("r10") = d;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long call asm("x8") = number;
  register long result asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  asm volatile("svc 0" : "+r"(result) : "r"(call), "r"(second), "r"(third), "r"(fourth) : "memory");
  return result;
#else
#error "written for x86_64 and aarch64"
#endif
}

// Private pages become what they were before they were written: zeros, or the file's bytes. The mappings stay, since the
// kernel writes to one of them (rseq(2)).
[[noreturn]] void EmptyAndReap() {
  const Emptying* const work = g_emptying;
  for (size_t i = 0; i < work->count; ++i) {
    const Range& range = work->ranges[i];
    const auto begin = static_cast<long>(range.begin);
    const auto size = static_cast<long>(range.size);
    if (RawCall(SYS_madvise, begin, size, MADV_DONTNEED) != 0) RawCall(SYS_munmap, begin, size);
  }
  const CommandStatus sealed{.status = kInitSealed};
  RawCall(SYS_write, work->reaping.status_pipe, reinterpret_cast<long>(&sealed), sizeof sealed);
  while (true) {
    int status = 0;
    const long ended = RawCall(SYS_wait4, -1, reinterpret_cast<long>(&status), WUNTRACED);
    if (ended < 0 && ended != -EINTR) break;
    if (ended != work->reaping.command) continue;
    const CommandStatus message{.status = status};
    RawCall(SYS_write, work->reaping.status_pipe, reinterpret_cast<long>(&message), sizeof message);
    if (!WIFSTOPPED(status)) RawCall(SYS_exit_group, 0);
  }
  RawCall(SYS_exit_group, 1);
  __builtin_unreachable();
}

[[maybe_unused]] std::string ReadMaps() {
  std::string text;
  const UniqueFd file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  constexpr size_t kPiece = 16384;
  for (ssize_t got = 1; got > 0;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    got = ::read(file.get(), text.data() + before, kPiece);
    text.resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
  }
  return text;
}

// Every writable mapping but the one at `kept`. False: there is no telling what to empty.
[[maybe_unused]] bool FindRanges(Emptying* work) {
  const std::string maps = ReadMaps();
  const auto kept = reinterpret_cast<uintptr_t>(work);
  for (size_t line = 0; line < maps.size();) {
    const size_t end = maps.find('\n', line);
    unsigned long first = 0;
    unsigned long last = 0;
    char access[5] = {};
    if (std::sscanf(maps.c_str() + line, "%lx-%lx %4s", &first, &last, access) != 3) return false;
    line = end == std::string::npos ? maps.size() : end + 1;
    if (access[1] != 'w') continue;
    // The kernel may have joined the kept mapping with its neighbours.
    const uintptr_t kept_end = kept + kKept;
    const auto add = [work](uintptr_t from, uintptr_t to) {
      if (from >= to) return true;
      if (work->count == kMaxRanges) return false;
      work->ranges[work->count++] = {from, to - from};
      return true;
    };
    const bool holds_kept = first < kept_end && last > kept;
    if (!(holds_kept ? add(first, kept) && add(kept_end, last) : add(first, last))) return false;
  }
  return work->count != 0;
}

}  // namespace

void ReapWithEmptyMemory(const Reaping& reaping) {
  void* const kept = ::mmap(nullptr, kKept, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (kept == MAP_FAILED) ::_exit(1);
  auto* const work = new (kept) Emptying;
  work->reaping = reaping;
#ifndef SLUICE_SANITIZED
  if (!FindRanges(work)) ::_exit(1);  // the command, which waits, goes with it
#endif
  g_emptying = work;
  ucontext_t context;
  if (::getcontext(&context) != 0) ::_exit(1);
  context.uc_stack.ss_sp = work + 1;
  context.uc_stack.ss_size = kKept - sizeof(Emptying);
  context.uc_link = nullptr;
  ::makecontext(&context, EmptyAndReap, 0);
  ::setcontext(&context);
  ::_exit(1);
}

}  // namespace sluice::supervisor
