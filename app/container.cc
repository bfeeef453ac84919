#include "app/container.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "app/agent_policy.h"
#include "app/capture_resolver.h"
#include "app/exit_code.h"
#include "app/host.h"
#include "app/reload.h"
#include "app/sandbox.h"
#include "app/service.h"
#include "audit/audit.h"
#include "audit/io/audit_file.h"
#include "base/fault.h"
#include "base/log.h"
#include "proxy/io/secret_store.h"
#include "supervisor/container_text.h"
#include "supervisor/io/carried_files.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/small_file.h"

namespace sluice::app {
namespace {

constexpr std::string_view kCommand = "sluice agent";
constexpr int kRefusedLifeMs = 1000;

// Who else may have sockets where in the container. Told by the kernel, in the mount namespace of its first process.
Result<supervisor::ContainerTrees> FindTrees(pid_t pid) {
  using supervisor::kMaxMountinfo;
  const auto theirs = supervisor::ReadSmallFile(fmt::format("/proc/{}/mountinfo", pid), kMaxMountinfo);
  if (!theirs) return std::unexpected(theirs.error());
  const auto ours = supervisor::ReadSmallFile("/proc/self/mountinfo", kMaxMountinfo);
  if (!ours) return std::unexpected(ours.error());
  auto host = supervisor::MountedDevices(*ours);
  // A service may have mounts of its own; the host's are those of its first process, which an ordinary user may not see.
  const auto first = supervisor::ReadSmallFile("/proc/1/mountinfo", kMaxMountinfo);
  if (first) host.merge(supervisor::MountedDevices(*first));
  if (!first && first.error().sys_errno != EACCES && first.error().sys_errno != EPERM) return std::unexpected(first.error());
  return supervisor::FindContainerTrees(*theirs, host);
}

// A socket of the host that was bound into the container by itself. A path may change between its judgement and the kernel's look
// at it, so that one which no rule names is not there when the container starts.
Result<void> CheckMountedSockets(const supervisor::ContainerProcess& process, const supervisor::ContainerTrees& trees,
                                 const policy::Snapshot& snapshot) {
  const std::vector<std::string> ruled = snapshot.UnixPaths();
  for (const std::string& path : trees.shared) {
    struct stat about{};
    if (::stat(fmt::format("/proc/{}/root{}", process.pid, path).c_str(), &about) != 0 || !S_ISSOCK(about.st_mode)) continue;
    const bool named =
        std::ranges::any_of(ruled, [&](const std::string& glob) { return ::fnmatch(glob.c_str(), path.c_str(), 0) == 0; });
    if (!named)
      return Fail(Code::kInvalid,
                  fmt::format("the socket {} of the host is mounted in it, and no rule of its policy allows that: add "
                              "`- allow: unix {}`, or take the mount away",
                              path, path));
  }
  return {};
}

// The call that waits, and so the program that it would start, gets EACCES. Later calls of that filter get ENOSYS.
void RefuseCall(supervisor::ListenerHandoff handoff) {
  const auto channel = supervisor::SeccompChannel::Open(std::move(handoff.listener), supervisor::NotifyWakeUp::kFree);
  if (channel) channel->Reply(handoff.first.id, EACCES);
}

class Container {
 public:
  explicit Container(ContainerJob job) : job_(std::move(job)), name_(ContainerName(job_.state)) {}

  Result<void> Begin();
  // Until the container has ended.
  Result<void> Attend();
  void Conclude();
  void Refuse(const Error& why);
  [[nodiscard]] bool recorded() const { return recorded_; }

 private:
  Result<policy::SnapshotPtr> Load();
  Result<void> Prepare();
  Result<void> StartParts();
  [[nodiscard]] Result<void> CheckCarried(const supervisor::ListenerHandoff& handoff) const;
  // A process that is to enter the container.
  void Enter(supervisor::ListenerHandoff handoff);
  Result<void> Watch(supervisor::ListenerHandoff handoff);

  ContainerJob job_;
  const std::string name_;
  supervisor::ContainerTrees trees_;
  supervisor::Capture capture_;
  dns::SyntheticPool pool_;
  std::shared_ptr<proxy::SecretStore> secrets_ = std::make_shared<proxy::SecretStore>(proxy::SecretStoreOptions{});
  proxy::EngineOptions engine_options_;
  std::unique_ptr<policy::CurrentPolicy> policy_;
  std::unique_ptr<audit::Writer> writer_;
  std::unique_ptr<proxy::Engine> engine_;
  std::unique_ptr<FlowBridge> bridge_;
  std::unique_ptr<supervisor::Notifier> notifier_;
  std::unique_ptr<CaptureResolver> resolver_;
  std::unique_ptr<PolicyWatcher> watcher_;
  std::vector<UniqueFd> listeners_;  // of filters that processes are left of
  bool recorded_ = true;
};

Result<policy::SnapshotPtr> Container::Load() {
  auto snapshot = LoadPolicy(job_.options, kCommand, ServedIn::kContainer);
  if (!snapshot) return snapshot;
  if (auto read = secrets_->Load((*snapshot)->credentials(), (*snapshot)->proxies()); !read) return std::unexpected(read.error());
  if (!secrets_->stand_ins().empty())
    return Fail(Code::kUnsupported,
                "`send: placeholder` gives a command a stand-in in its environment, which a container's runtime "
                "makes; let the rule add the credential itself");
  return snapshot;
}

// Up to the first thread.
Result<void> Container::Prepare() {
  auto capture = supervisor::CaptureNamespace(job_.process.network_namespace.get());
  if (!capture) return std::unexpected(capture.error());
  capture_ = *std::move(capture);
  auto trees = FindTrees(job_.process.pid);
  if (!trees) return std::unexpected(trees.error());
  trees_ = *std::move(trees);
  auto snapshot = Load();
  if (!snapshot) return std::unexpected(snapshot.error());
  TellPolicy(**snapshot, job_.options);
  if (auto checked = CheckMountedSockets(job_.process, trees_, **snapshot); !checked) return checked;
  policy_ = std::make_unique<policy::CurrentPolicy>(*std::move(snapshot));
  auto engine = MakeEngineOptions(job_.options);
  if (!engine) return std::unexpected(engine.error());
  engine_options_ = *std::move(engine);
  engine_options_.secrets = secrets_;
  engine_options_.authority = job_.authority;
  const auto room = RaiseDescriptorLimit();
  if (!room) return std::unexpected(room.error());
  engine_options_.descriptors = {room->limit, room->ceiling};
  std::optional<audit::AuditFile> file;
  if (!job_.options.audit.empty()) {
    auto opened = audit::AuditFile::Open(job_.options.audit);
    if (!opened) return std::unexpected(opened.error());
    file.emplace(*std::move(opened));
  }
  if (auto kept = supervisor::KeepReadingOnly(); !kept) return kept;
  if (auto forbidden = supervisor::ForbidDumps(); !forbidden) return forbidden;
  auto labels = ParseLabels(job_.options.labels);
  if (!labels) return std::unexpected(labels.error());
  for (auto& label : ContainerLabels(job_.state, job_.options.annotations)) labels->insert(std::move(label));
  audit::Options audit = MakeAuditOptions(job_.options, *std::move(labels), name_);
  audit.console_name = name_;
  auto writer = audit::Writer::Start(audit, std::move(file));
  if (!writer) return std::unexpected(writer.error());
  writer_ = *std::move(writer);
  return {};
}

Result<void> Container::StartParts() {
  auto engine = proxy::Engine::Start(engine_options_, *policy_, *writer_);
  if (!engine) return std::unexpected(engine.error());
  engine_ = *std::move(engine);
  bridge_ = std::make_unique<FlowBridge>(pool_, *engine_);
  supervisor::NotifierOptions options = NotifierOptionsFor(engine_options_);
  options.workload_pid = job_.process.pid;
  options.pid_namespace = job_.process.pids.inode;
  options.writable_trees = trees_.own;
  options.shared_trees = trees_.shared;
  auto notifier = supervisor::Notifier::Start({}, capture_, std::move(options), *bridge_, *policy_, *writer_);
  if (!notifier) return std::unexpected(notifier.error());
  notifier_ = *std::move(notifier);
  auto resolver =
      CaptureResolver::Start(*engine_, capture_, *notifier_, pool_, engine_options_.host_addresses, *policy_, *writer_);
  if (!resolver) return std::unexpected(resolver.error());
  resolver_ = *std::move(resolver);
  secrets_->Watch();
  auto watcher = PolicyWatcher::Start(
      policy_->Get(), [this] { return Load(); },
      [this](policy::SnapshotPtr next) -> Result<uint64_t> {
        TellPolicy(*next, job_.options);
        policy_->Set(std::move(next));
        engine_->PolicyChanged();
        return policy_->generation();
      },
      ReloadNotice::kNone);
  if (!watcher) return std::unexpected(watcher.error());
  watcher_ = *std::move(watcher);
  return {};
}

// In this process and not in the agent's, since the last close of a stranger's socket may wait.
Result<void> Container::CheckCarried(const supervisor::ListenerHandoff& handoff) const {
  return supervisor::CheckCarried(static_cast<pid_t>(handoff.first.pid), capture_.netns_cookie);
}

void Container::Enter(supervisor::ListenerHandoff handoff) {
  if (auto checked = CheckCarried(handoff); !checked) {
    LogError("container {}: a process does not enter: {}", name_, checked.error().message);
    return RefuseCall(std::move(handoff));
  }
  if (auto watching = Watch(std::move(handoff)); !watching) LogError("container {}: {}", name_, watching.error().message);
}

Result<void> Container::Watch(supervisor::ListenerHandoff handoff) {
  UniqueFd copy(Faulty("container.copy", [&] { return ::fcntl(handoff.listener.get(), F_DUPFD_CLOEXEC, 0); }));
  if (!copy) return FailErrno("out of descriptors for one more process of the container", errno);
  if (auto watching = notifier_->Watch(std::move(handoff.listener), handoff.first); !watching) return watching;
  // Only of what is watched: a process that nobody answers sees its calls fail once the last copy is closed.
  listeners_.push_back(std::move(copy));
  return {};
}

Result<void> Container::Begin() {
  if (auto prepared = Prepare(); !prepared) return prepared;
  if (auto checked = CheckCarried(job_.listener); !checked) return checked;
  // The caller may be a hook's program, with files of its own.
  if (auto checked = supervisor::CheckCarried(job_.process.pid, capture_.netns_cookie); !checked) return checked;
  if (auto started = StartParts(); !started) return started;
  if (!job_.options.quiet) {
    const policy::SnapshotPtr snapshot = policy_->Get();
    LogInfo("container {}: supervised  policy {} {}  {} rule{}{}", name_, job_.options.policy, snapshot->digest().substr(0, 12),
            snapshot->rules().size(), snapshot->rules().size() == 1 ? "" : "s", AuditModeRemark(*snapshot));
  }
  (void)!::write(job_.control.get(), &kContainerReady, 1);
  return Watch(std::move(job_.listener));
}

Result<void> Container::Attend() {
  for (;;) {
    std::vector<pollfd> fds{{job_.control.get(), POLLIN, 0}};
    // Calls are the notifier's; a hang-up says that no process of that filter is left.
    for (const UniqueFd& listener : listeners_) fds.push_back({listener.get(), 0, 0});
    if (Faulty("container.wait", [&] { return ::poll(fds.data(), fds.size(), -1); }) < 0) {
      if (errno != EINTR) return FailErrno("cannot wait for the container", errno);
      continue;
    }
    for (size_t i = 1; i < fds.size(); ++i)
      if ((fds[i].revents & (POLLHUP | POLLERR)) != 0) listeners_[i - 1].Reset();
    if (std::erase_if(listeners_, [](const UniqueFd& listener) { return !listener; }) != 0 && notifier_->Prune() == 0) return {};
    if (fds[0].revents == 0) continue;
    auto handoff = supervisor::ReceiveListener(job_.control.get());
    if (!handoff) return std::unexpected(handoff.error());
    Enter(*std::move(handoff));
  }
}

// Nothing is asked any more; what it was using goes after it.
void Container::Conclude() {
  watcher_.reset();
  resolver_.reset();
  notifier_.reset();
  bridge_.reset();
  engine_.reset();
  if (!writer_) return;
  const audit::Totals totals = writer_->totals();
  recorded_ = writer_->healthy();
  writer_.reset();
  if (!job_.options.quiet) LogInfo("container {}: ended · {} allowed · {} denied", name_, totals.allowed, totals.denied);
}

void Container::Refuse(const Error& why) {
  LogError("container {}: not started: {}", name_, why.span ? policy::RenderError(why, false) : why.message);
  if (!job_.listener.listener) return;
  RefuseCall(std::move(job_.listener));
  // The runtime's own process ends by itself, and says why; the agent kills what does not.
  pollfd ended{job_.process.pidfd.get(), POLLIN, 0};
  (void)::poll(&ended, 1, kRefusedLifeMs);
}

}  // namespace

int SuperviseContainer(ContainerJob job) {
  Container container(std::move(job));
  if (auto begun = container.Begin(); !begun) {
    container.Refuse(begun.error());
    return ExitCodeFor(begun.error());
  }
  const auto attended = container.Attend();
  container.Conclude();
  if (!attended) LogError("{}", attended.error().message);
  return attended && container.recorded() ? kExitOk : kExitFault;
}

}  // namespace sluice::app
