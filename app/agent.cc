#include "app/agent.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "app/agent_policy.h"
#include "app/agent_server.h"
#include "app/exit_code.h"
#include "app/file.h"
#include "app/host.h"
#include "app/own_authority.h"
#include "app/sd_notify.h"
#include "app/service.h"
#include "audit/io/audit_file.h"
#include "base/log.h"
#include "base/path_error.h"
#include "base/unix_listener.h"
#include "supervisor/io/container_record.h"

namespace sluice::app {
namespace {

constexpr std::string_view kCommand = "sluice agent";

// Everything by absolute names: a container's process reads it when it starts.
Result<AgentOptions> Resolve(AgentOptions options) {
  if (options.listen.empty()) return Fail(Code::kInvalid, "no socket; give --listen /run/sluice/agent.sock, or another path");
  options.listen = Absolute(options.listen);
  if (options.policy_dir.empty()) {
    if (auto named = CheckPolicyNamed(options); !named) return std::unexpected(named.error());
  } else {
    options.policy_dir = Absolute(options.policy_dir);
    if (!std::filesystem::is_directory(options.policy_dir))
      return Fail(Code::kInvalid, fmt::format("--policy-dir {}: there is no such folder", options.policy_dir));
    if (options.policy.empty() && (!options.allows.empty() || !options.presets.empty()))
      return Fail(Code::kInvalid, "--allow and --preset add to --policy; with --policy-dir alone they would have no effect");
  }
  for (std::string* path : {&options.policy, &options.audit})
    if (!path->empty()) *path = Absolute(*path);
  if (options.state_dir.empty()) {
    const char* runtime = ::geteuid() == 0 ? "/run" : std::getenv("XDG_RUNTIME_DIR");
    if (runtime == nullptr) return Fail(Code::kInvalid, "no place for state: give --state-dir, or set XDG_RUNTIME_DIR");
    options.state_dir = std::string(runtime) + "/sluice-agent";
  }
  options.state_dir = Absolute(options.state_dir);
  return options;
}

Result<void> LoadAndTell(const AgentOptions& options) {
  const auto loaded = LoadPolicy(options, kCommand, ServedIn::kContainer);
  if (!loaded) return std::unexpected(loaded.error());
  TellPolicy(**loaded, options);
  return {};
}

// A mistake is better told now than when a container is to start.
Result<void> CheckPolicies(const AgentOptions& options) {
  if (!options.policy.empty() || options.policy_dir.empty())
    if (auto told = LoadAndTell(options); !told) return told;
  if (options.policy_dir.empty()) return {};
  // Reads every line of `select`.
  if (auto chosen = ChoosePolicy(options.policy_dir, "-", {}); !chosen) return std::unexpected(chosen.error());
  AgentOptions one = options;
  one.allows.clear();
  one.presets.clear();
  std::error_code error;
  for (std::filesystem::directory_iterator it(options.policy_dir, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension();
    std::error_code ignored;
    // A link that leads nowhere is read, which says so.
    if (it->is_directory(ignored) || (extension != ".yaml" && extension != ".yml")) continue;
    one.policy = it->path();
    if (auto told = LoadAndTell(one); !told) return told;
  }
  if (error) return FailPath(fmt::format("cannot read the folder {}", options.policy_dir), error.value());
  return {};
}

void Announce(const AgentOptions& options) {
  if (options.quiet) return;
  const std::string policy = options.policy.empty() ? "the command line" : options.policy;
  LogInfo("ready  agent {}  policies {}  containers without a supervisor are {}", options.listen,
          options.policy_dir.empty() ? policy : options.policy_dir, options.on_restart == "freeze" ? "frozen" : "killed");
}

}  // namespace

int RunAgent(const AgentOptions& given) {
  auto options = Resolve(given);
  if (!options) return Report(options.error());
  ChooseLogLevel(*options);
  BlockServiceSignals();
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &children, nullptr);
  if (auto checked = CheckPolicies(*options); !checked) return Report(checked.error());
  if (auto engine = MakeEngineOptions(*options); !engine) return Report(engine.error());
  if (auto labels = ParseLabels(options->labels); !labels) return Report(labels.error());
  if (!options->audit.empty())
    if (auto file = audit::AuditFile::Open(options->audit); !file) return Report(file.error());
  const auto room = RaiseDescriptorLimit();
  if (!room) return Report(room.error());
  auto authority = MakeAuthority(options->ca_cert, options->ca_key, {});
  if (!authority) return Report(authority.error());
  const std::shared_ptr<proxy::TlsAuthority> shared = *std::move(authority);
  if (auto written = WriteAuthority(options->ca_out, options->bundle_out, shared->pem()); !written)
    return Report(written.error());
  auto records = supervisor::ContainerRecords::Open(options->state_dir);
  if (!records) return Report(records.error());
  // Whoever is not to be served is told so by credentials, which a mode cannot.
  auto listener = ListenUnix(options->listen, {.mode = static_cast<mode_t>(options->peers.empty() ? 0600 : 0666),
                                               .descriptors = SentDescriptors::kWanted});
  if (!listener) return Report(listener.error());
  AgentServer server(*options, std::move(listener->socket), *std::move(records), shared);
  // Before any runtime is heard.
  if (auto ended = server.EndOrphans(); !ended) return Report(ended.error());
  Announce(*options);
  NotifyService("READY=1");
  const std::optional<int> of_container = server.Serve();
  if (of_container) {
    listener->name.Leave();  // the agent's, which goes on
    return *of_container;
  }
  NotifyService("STOPPING=1");
  listener->name.Remove();
  if (!options->quiet) LogInfo("the agent has ended");
  return server.broken() ? kExitFault : kExitOk;
}

}  // namespace sluice::app
