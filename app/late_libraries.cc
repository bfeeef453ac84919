#include "app/late_libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <string_view>

#include "app/exit_code.h"
#include "base/log.h"
#include "base/stderr_lines.h"

// Of late_calls.S, which only the program is linked with.
extern "C" {
[[gnu::weak]] extern const char sluice_late_names[];
[[gnu::weak]] extern void* sluice_late_slots[];
[[gnu::weak]] extern void* sluice_late_slots_end[];
[[gnu::visibility("hidden")]] void sluice_late_resolve(size_t index) noexcept;
}

namespace sluice::app {
namespace {

constexpr size_t kMaxLibraries = 8;

std::mutex loading;
std::array<bool, kMaxLibraries> loaded;

Result<void> Allow(int protection) {
  const auto size = static_cast<size_t>(sluice_late_slots_end - sluice_late_slots) * sizeof(void*);
  if (::mprotect(static_cast<void*>(sluice_late_slots), size, protection) == 0) return {};
  return FailErrno("cannot write down where a library's calls lead", errno);
}

// Fills the slots of a library: the names from `name` on, up to the next library's. `slot` is the first one's.
Result<void> Load(const char* file, const char* name, size_t slot) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Fail(Code::kUnsupported, fmt::format("cannot load {}: {}", file, ::dlerror()));
  if (auto writable = Allow(PROT_READ | PROT_WRITE); !writable) return writable;
  for (; *name != '\0' && *name != ':'; name += std::string_view(name).size() + 1, ++slot) {
    void* call = ::dlsym(library, name);
    if (call == nullptr) return Fail(Code::kUnsupported, fmt::format("{} is too old, it lacks {}", file, name));
    __atomic_store_n(&sluice_late_slots[slot], call, __ATOMIC_RELEASE);
  }
  return Allow(PROT_READ);
}

struct LateLibrary {
  std::string_view file;  ///< ends in a NUL
  size_t first = 0;       ///< its slots: from here
  size_t end = 0;         ///< to before here
};

template <class Wanted>
Result<void> LoadThose(Wanted wanted) {
  if (sluice_late_names == nullptr) return {};
  const std::lock_guard lock(loading);
  size_t slot = 0;
  size_t number = 0;
  for (const char* name = sluice_late_names; *name != '\0'; ++number) {
    LateLibrary library{.file = name + 1, .first = slot};  // after its colon
    const char* calls = name + std::string_view(name).size() + 1;
    for (name = calls; *name != '\0' && *name != ':'; name += std::string_view(name).size() + 1) ++slot;
    library.end = slot;
    if (loaded.at(number) || !wanted(library)) continue;
    if (auto done = Load(library.file.data(), calls, library.first); !done) return done;
    loaded.at(number) = true;
  }
  return {};
}

}  // namespace

Result<void> LoadLateLibraries() {
  return LoadThose([](const LateLibrary&) { return true; });
}

Result<void> LoadLateLibrary(std::string_view name) {
  return LoadThose([name](const LateLibrary& library) { return library.file.starts_with(name); });
}

namespace {

Result<void> LoadFor(size_t slot) {
  return LoadThose([slot](const LateLibrary& library) { return library.first <= slot && slot < library.end; });
}

}  // namespace

}  // namespace sluice::app

// A call that cannot be made has no answer: the process ends, and with it whatever it supervises.
void sluice_late_resolve(size_t index) noexcept {
  const int kept = errno;
  if (auto done = sluice::app::LoadFor(index); !done) {
    sluice::LogError("{}", done.error().message);
    (void)sluice::FlushStderr(sluice::kLastLines);
    ::_exit(sluice::app::ExitCodeFor(done.error()));
  }
  errno = kept;
}
