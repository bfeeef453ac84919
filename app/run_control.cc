#include "app/run_control.h"

#include <fmt/format.h>
#include <signal.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/passed_sockets.h"
#include "app/served_policy.h"
#include "base/log.h"
#include "supervisor/mount_plan.h"

namespace sluice::app {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kChannelPrefix = "fd:";
constexpr const char* kSource = "the control socket";

Result<UniqueFd> ParseChannel(const std::string& text) {
  int number = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + kChannelPrefix.size(), end, number);
  if (error != std::errc{} || stop != end) return Fail(Code::kInvalid, fmt::format("--control {}: write fd: and a number", text));
  return TakeChannel(number);
}

// Without links up to the socket itself, which is not there yet.
Result<std::string> PlaceOf(const std::string& path) {
  const std::filesystem::path whole(path);
  std::error_code error;
  const auto folder = std::filesystem::canonical(whole.parent_path(), error);
  if (error)
    return Fail(Code::kInvalid, fmt::format("--control {}: {}: {}", path, whole.parent_path().string(), error.message()));
  return (folder / whole.filename()).string();
}

Result<ListenAddress> ParseSocket(const std::string& text, const supervisor::LaunchSpec& spec) {
  auto address = ParseListen(text.starts_with('/') ? std::string(kUnixPrefix) + text : text);
  if (!address || address->unix_path.empty())
    return Fail(Code::kInvalid,
                fmt::format("--control {}: write the absolute path of a UNIX socket, as in /run/user/1000/run.sock", text));
  auto place = PlaceOf(address->unix_path);
  if (!place) return std::unexpected(place.error());
  std::vector<std::string> trees{spec.work_directory};
  trees.insert(trees.end(), spec.read_write.begin(), spec.read_write.end());
  trees.insert(trees.end(), spec.read_only.begin(), spec.read_only.end());
  for (const std::string& tree : trees)
    if (supervisor::IsWithin(*place, tree))
      return Fail(Code::kInvalid,
                  fmt::format("--control {}: the command sees {}, and so would find the socket; put it elsewhere", text, tree));
  return address;
}

}  // namespace

Result<ControlPlan> PlanControl(const std::vector<std::string>& control, bool await_hold, const supervisor::LaunchSpec& spec) {
  ControlPlan plan;
  plan.await_hold = await_hold;
  for (const std::string& text : control) {
    if (text.starts_with(kChannelPrefix)) {
      auto channel = ParseChannel(text);
      if (!channel) return std::unexpected(channel.error());
      plan.channels.push_back(*std::move(channel));
      continue;
    }
    auto socket = ParseSocket(text, spec);
    if (!socket) return std::unexpected(socket.error());
    plan.sockets.push_back(*std::move(socket));
  }
  if (await_hold && !plan.wanted()) return Fail(Code::kInvalid, "--await-hold: nobody can hold the run without --control");
  return plan;
}

RunControl::RunControl(RunControlParts parts, policy::CurrentPolicy& policy, Sandbox& sandbox, audit::Writer& writer,
                       DecisionStream& stream)
    : parts_(std::move(parts)),
      policy_(policy),
      stream_(stream),
      started_(std::chrono::steady_clock::now()),
      hold_([this](RunHold::Change change) { HoldChanged(change); }),
      sandbox_(&sandbox),
      writer_(&writer),
      source_(parts_.own_source) {
  status_.command = parts_.command;
  status_.published = parts_.published;
}

Result<std::unique_ptr<RunControl>> RunControl::Start(ControlPlan plan, RunControlParts parts, policy::CurrentPolicy& policy,
                                                      Sandbox& sandbox, audit::Writer& writer, DecisionStream& stream) {
  std::unique_ptr<RunControl> control(new RunControl(std::move(parts), policy, sandbox, writer, stream));
  control->await_hold_ = plan.await_hold;
  // Before the command runs: the room for threads is its user's, and so its own to take.
  control->killer_ = std::thread([self = control.get()] { self->KillLater(); });
  AdminApiOptions options;
  options.compile = control->parts_.compile;
  options.own_text = control->parts_.own_text;
  options.own = control->parts_.own;
  options.version = SLUICE_VERSION;
  options.source = kSource;
  control->api_ = std::make_unique<AdminApi>(std::move(options), *control, stream);
  control->Tell();
  AdminAddresses addresses;
  addresses.admin = std::move(plan.sockets);
  RunDoors doors;
  doors.hold = &control->hold_;
  doors.channels = std::move(plan.channels);
  auto server = AdminServer::Start(std::move(addresses), *control->api_, stream, nullptr, std::move(doors));
  if (!server) return std::unexpected(server.error());
  control->server_ = *std::move(server);
  return control;
}

RunControl::~RunControl() {
  hold_.End();
  server_.reset();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (killer_.joinable()) killer_.join();
}

void RunControl::HoldChanged(RunHold::Change change) {
  const std::lock_guard lock(mutex_);
  if (sandbox_ == nullptr) return;
  const bool lost = change == RunHold::Change::kLost;
  if (status_.state != RunStatus::State::kRunning) {
    if (lost) EndWithin(std::chrono::milliseconds(0));
    return;
  }
  supervisor::Workload& workload = sandbox_->workload();
  if (lost && parts_.on_disconnect == supervisor::OnDisconnect::kKill) return workload.Kill(supervisor::EndedBy::kDisconnect);
  if (const auto done = lost ? workload.Freeze() : workload.Thaw(); !done) LogError("{}", done.error().message);
}

Result<void> RunControl::AwaitHold() {
  if (!await_hold_) return {};
  const bool held = hold_.AwaitHeld(kFirstHoldDeadline);
  const std::lock_guard lock(mutex_);
  if (held || kill_at_) return {};
  return Fail(Code::kTimeout, "the command was not started: nobody came to hold the run (GET /v1/hold)");
}

Result<uint64_t> RunControl::Put(policy::SnapshotPtr next, std::string source) {
  if (sandbox_ == nullptr) return Fail(Code::kInvalid, "the command has ended");
  policy_.Set(std::move(next));
  source_ = std::move(source);
  sandbox_->PolicyChanged();
  if (parts_.policy_changed) parts_.policy_changed();
  return policy_.generation();
}

Result<uint64_t> RunControl::SetOwnPolicy(policy::SnapshotPtr own) {
  Result<uint64_t> revision;
  {
    const std::lock_guard lock(mutex_);
    revision = Put(own, parts_.own_source);
  }
  if (revision) api_->OwnPolicyLoaded(std::move(own), *revision);
  return revision;
}

// With its feed, for whoever holds the run.
void RunControl::Tell() {
  nlohmann::json line = RunJson(Status());
  line["event"] = "state";
  line["version"] = SLUICE_VERSION;
  hold_.Tell(line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
}

// Whoever hears from the command, or loses it, finds a run that is running.
Result<void> RunControl::Release() {
  {
    const std::lock_guard lock(mutex_);
    if (kill_at_) return Fail(Code::kTimeout, "the command was not started: it was stopped before");
    if (auto released = sandbox_->Release(); !released) return released;
    status_.state = RunStatus::State::kRunning;
    status_.pid = sandbox_->pid();
  }
  Tell();
  return {};
}

void RunControl::Failed(const std::string& error, int exit_code) {
  {
    const std::lock_guard lock(mutex_);
    status_.state = RunStatus::State::kFailed;
    status_.error = error;
    status_.exit_code = exit_code;
  }
  TellEnd();
}

void RunControl::CommandEnded() {
  const std::lock_guard lock(mutex_);
  sandbox_ = nullptr;
  writer_ = nullptr;
}

void RunControl::Finish(const supervisor::ExitStatus& end, audit::Totals totals, int exit_code) {
  {
    const std::lock_guard lock(mutex_);
    status_.state = RunStatus::State::kEnded;
    status_.end = end;
    status_.exit_code = exit_code;
    status_.allowed = totals.allowed;
    status_.denied = totals.denied;
  }
  TellEnd();
}

void RunControl::TellEnd() {
  Tell();
  hold_.End();
  stream_.End();
  server_->AwaitStreams(kLastStreamsDeadline);
}

std::vector<ReadinessCheck> RunControl::Readiness() const {
  const std::lock_guard lock(mutex_);
  const bool runs = status_.state == RunStatus::State::kRunning;
  const bool recorded = writer_ == nullptr || writer_->healthy();
  return {{"command", runs, runs ? "" : "it does not run"},
          {"audit", recorded, recorded ? "" : "records can no longer be written, so everything is refused"}};
}

ServedPolicy RunControl::Policy() const {
  const std::lock_guard lock(mutex_);
  return {policy_.Get(), policy_.generation(), source_};
}

PolicyOutcome RunControl::SetPolicy(policy::SnapshotPtr next, std::string source, std::optional<uint64_t> if_revision) {
  if (auto servable = CheckServable(*next, "sluice run", ServedIn::kCapture); !servable)
    return {PolicyOutcome::Kind::kRefused, policy_.generation(), servable.error()};
  const std::lock_guard lock(mutex_);
  if (if_revision && *if_revision != policy_.generation()) return {PolicyOutcome::Kind::kConflict, policy_.generation(), {}};
  const auto revision = Put(std::move(next), std::move(source));
  if (!revision) return {PolicyOutcome::Kind::kRefused, policy_.generation(), revision.error()};
  return {PolicyOutcome::Kind::kSet, *revision, {}};
}

size_t RunControl::OpenConnections() const {
  const std::lock_guard lock(mutex_);
  return sandbox_ == nullptr ? 0 : sandbox_->OpenConnections();
}

std::vector<std::string> RunControl::NamesOf(const IpAddress& address) const {
  const std::lock_guard lock(mutex_);
  if (sandbox_ == nullptr) return {};
  if (auto name = sandbox_->NameOf(address)) return {*std::move(name)};
  return {};
}

size_t RunControl::ToldAddresses() const {
  const std::lock_guard lock(mutex_);
  return sandbox_ == nullptr ? 0 : sandbox_->names();
}

std::chrono::seconds RunControl::Uptime() const {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_);
}

RunStatus RunControl::Status() const {
  const std::lock_guard lock(mutex_);
  RunStatus status = status_;
  if (writer_ == nullptr) return status;
  const audit::Totals totals = writer_->totals();
  status.allowed = totals.allowed;
  status.denied = totals.denied;
  return status;
}

void RunControl::Stop(std::chrono::milliseconds grace) {
  const std::lock_guard lock(mutex_);
  if (sandbox_ != nullptr) EndWithin(grace);
}

// Under the mutex. Before the command runs there is nobody to ask, and then it never will: no holder is waited for any more.
void RunControl::EndWithin(std::chrono::milliseconds grace) {
  const auto at = std::chrono::steady_clock::now() + grace;
  if (!kill_at_ || at < *kill_at_) kill_at_ = at;
  hold_.GiveUp();
  sandbox_->Signal(grace.count() > 0 ? SIGTERM : SIGKILL);
  wake_.notify_all();
}

void RunControl::KillLater() {
  std::unique_lock lock(mutex_);
  while (!ending_ && sandbox_ != nullptr) {
    if (!kill_at_) {
      wake_.wait(lock);
      continue;
    }
    if (std::chrono::steady_clock::now() < *kill_at_) {
      wake_.wait_until(lock, *kill_at_);
      continue;
    }
    sandbox_->Signal(SIGKILL);
    wake_.wait_for(lock, std::chrono::milliseconds(10));
  }
}

}  // namespace sluice::app
