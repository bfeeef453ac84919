#include "app/service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "app/file.h"
#include "app/run.h"
#include "app/trust.h"
#include "base/log.h"

namespace sluice::app {
namespace {

constexpr std::chrono::milliseconds kDrain{10'000};
constexpr std::chrono::milliseconds kDrainLook{50};

// Others may write it at the same time.
Replacement HowOf(const std::string& path) {
  return {.aside = fmt::format("{}.{}", path, getpid()), .mode = 0644, .durability = Durability::kEither};
}

Result<void> WriteOut(const std::string& path, const std::string& text) {
  auto replaced = ReplaceFile(path, text, HowOf(path));
  if (!replaced) return std::unexpected(replaced.error());
  return {};
}

// SIGHUP is the watcher's; these are the main thread's.
sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void BlockServiceSignals() {
  sigset_t blocked = EndSignals();
  sigaddset(&blocked, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

bool WaitForEnd(std::optional<std::chrono::milliseconds> longest) {
  const sigset_t signals = EndSignals();
  if (!longest) {
    int number = 0;
    while (sigwait(&signals, &number) != 0) {
    }
    return true;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*longest);
  const timespec time{seconds.count(), std::chrono::nanoseconds(*longest - seconds).count()};
  return sigtimedwait(&signals, nullptr, &time) > 0;
}

void DrainEngine(proxy::Engine& engine, std::chrono::milliseconds longest, bool quiet) {
  engine.Drain();
  const auto deadline = std::chrono::steady_clock::now() + longest;
  const size_t open = engine.Open();
  if (open != 0 && !quiet) LogInfo("ending: {} connection{} open", open, open == 1 ? "" : "s");
  while (engine.Open() != 0 && std::chrono::steady_clock::now() < deadline) {
    if (WaitForEnd(kDrainLook)) return;
    engine.Drain();
  }
}

Result<std::chrono::milliseconds> ParseDrain(const std::string& text) {
  if (text.empty()) return kDrain;
  const auto drain = ParseDuration(text);
  if (!drain) return Fail(Code::kInvalid, fmt::format("--drain {}: write a duration such as 250ms, 30s, 5m or 1h", text));
  return *drain;
}

Result<void> CheckAuthorityPlaces(const std::string& ca_out, const std::string& bundle_out) {
  for (const std::string& path : {ca_out, bundle_out})
    if (!path.empty())
      if (auto writable = CheckReplace(path, HowOf(path)); !writable) return writable;
  return {};
}

Result<void> WriteAuthority(const std::string& ca_out, const std::string& bundle_out, const std::string& pem) {
  if (!ca_out.empty())
    if (auto written = WriteOut(ca_out, pem); !written) return written;
  if (bundle_out.empty()) return {};
  auto bundle = ExtendedBundle(pem);
  if (!bundle) return std::unexpected(bundle.error());
  return WriteOut(bundle_out, *bundle);
}

std::string AuditModeRemark(const policy::Snapshot& snapshot) {
  return snapshot.mode() == policy::Mode::kAudit ? "  mode audit: nothing is refused but bad addresses and protocol faults" : "";
}

}  // namespace sluice::app
