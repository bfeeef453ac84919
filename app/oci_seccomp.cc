#include "app/oci_seccomp.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <cstdio>
#include <optional>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/served_policy.h"
#include "base/log.h"
#include "supervisor/oci_profile.h"

namespace sluice::app {

int RunOciSeccomp(const OciSeccompOptions& options) {
  if (!options.agent.starts_with('/') || options.agent.size() >= sizeof(sockaddr_un::sun_path))
    return Report(
        Error{Code::kInvalid, fmt::format("--agent {}: write the absolute path of the agent's socket, of at most {} bytes",
                                          options.agent, sizeof(sockaddr_un::sun_path) - 1)});
  std::optional<std::string> base;
  if (!options.base.empty()) {
    auto text = ReadFile(options.base, supervisor::kMaxProfileBytes);
    if (!text) return Report(text.error());
    base = *std::move(text);
  }
  const auto form = options.form == "docker" ? supervisor::ProfileForm::kDocker : supervisor::ProfileForm::kConfig;
  const auto wake = options.wait_killable ? supervisor::ListenerWake::kKillable : supervisor::ListenerWake::kAnySignal;
  const auto profile = supervisor::MakeOciProfile({form, options.agent, options.metadata, wake}, base);
  if (!profile) return Report(profile.error());
  if (profile->keeps_base_calls)
    LogInfo(
        "setsockopt and ioctl stay as {} has them, whatever their arguments: a profile that lists what is allowed cannot take "
        "single options away",
        options.base);
  std::fputs(profile->text.c_str(), stdout);
  return kExitOk;
}

}  // namespace sluice::app
