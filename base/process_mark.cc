#include "base/process_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "base/random.h"

namespace sluice {
namespace {

// A page that is empty in each copy of the process, and stays for good.
Result<std::atomic<uint64_t>*> MakePage() {
  const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return FailErrno("cannot mark this process", errno);
  if (::madvise(page, size, MADV_WIPEONFORK) == 0) return new (page) std::atomic<uint64_t>(0);
  const int error = errno;
  ::munmap(page, size);
  return FailErrno("cannot mark this process", error);
}

}  // namespace

Result<uint64_t> ProcessMark() {
  static const Result<std::atomic<uint64_t>*> page = MakePage();
  if (!page) return std::unexpected(page.error());
  uint64_t mark = (*page)->load();
  if (mark != 0) return mark;
  const uint64_t drawn = RandomU64() | 1;
  return (*page)->compare_exchange_strong(mark, drawn) ? drawn : mark;
}

}  // namespace sluice
