#include "app/doctor/io/live.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "app/doctor/io/inside.h"
#include "app/doctor/io/staged_container.h"
#include "app/doctor/io/stand_in.h"
#include "app/doctor/io/started.h"
#include "base/unique_fd.h"
#include "supervisor/io/capture_network.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/throw_away.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using supervisor::ThrowAway;

constexpr std::chrono::milliseconds kRunPatience{30'000};
constexpr std::chrono::milliseconds kTrustPatience{60'000};
constexpr std::chrono::milliseconds kReadyPatience{15'000};
constexpr std::chrono::milliseconds kVersionPatience{5'000};
constexpr unsigned kNobody = 65534;

bool MayExecute(const fs::path& folder) {
  struct statvfs about{};
  return ::statvfs(folder.c_str(), &about) == 0 && (about.f_flag & ST_NOEXEC) == 0 && ::access(folder.c_str(), W_OK) == 0;
}

// Holds the policy, a work directory, and this program where a sandbox and another user can see it; gone with the object.
class Folder {
 public:
  static Result<Folder> Make(std::optional<unsigned> owner) {
    // That of a user is often closed to others.
    const char* named = owner ? nullptr : std::getenv("TMPDIR");
    for (const char* parent : {named, "/var/tmp", "/tmp"}) {
      if (parent == nullptr || !MayExecute(parent)) continue;
      std::string path = std::string(parent) + "/sluice-doctor-XXXXXX";
      if (::mkdtemp(path.data()) == nullptr) continue;
      Folder folder(path);
      if (auto filled = folder.Fill(owner); !filled) return std::unexpected(filled.error());
      return folder;
    }
    return Fail(Code::kIo, "no folder for temporary files in which programs may be executed (TMPDIR, /var/tmp, /tmp)");
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string bin() const { return path_ + "/bin"; }
  [[nodiscard]] std::string program() const { return path_ + "/bin/sluice"; }
  [[nodiscard]] std::string work() const { return path_ + "/work"; }
  [[nodiscard]] std::string policy() const { return path_ + "/policy.yaml"; }
  [[nodiscard]] std::string proxy() const { return path_ + "/work/proxy.sock"; }
  [[nodiscard]] std::string agent() const { return path_ + "/work/agent.sock"; }
  [[nodiscard]] std::string state() const { return path_ + "/work/state"; }
  [[nodiscard]] std::string notify() const { return path_ + "/work/ready.sock"; }

  Result<void> WritePolicy(uint16_t port) const {
    std::ofstream file(policy());
    file << "version: 1\nname: doctor\nrules:\n"
         << fmt::format("  - allow: tcp {}:{}\n    ip: [127.0.0.1/32]\n", kDoctorAllowed, port)
         << fmt::format("  - allow: GET {}:{}/never\n    ip: [127.0.0.1/32]\n", kDoctorInspected, port);
    file.close();
    return file ? Result<void>() : Fail(Code::kIo, "cannot write a policy");
  }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  Result<void> Fill(std::optional<unsigned> owner) {
    std::error_code error;
    for (const std::string& folder : {bin(), work()}) fs::create_directory(folder, error);
    for (const std::string& folder : {path_, bin(), work()})
      fs::permissions(
          folder,
          fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec,
          error);
    fs::copy_file("/proc/self/exe", program(), error);
    if (error) return Fail(Code::kIo, fmt::format("cannot copy this program: {}", error.message()));
    ::chmod(program().c_str(), 0755);
    if (owner && ::chown(work().c_str(), *owner, *owner) != 0) return FailErrno("cannot give a folder to another user", errno);
    return {};
  }

  std::string path_;
};

SelfTest NotTried(std::string why) { return {.detail = std::move(why)}; }
SelfTest Failed(std::string why) { return {.tried = true, .allowed = false, .denied = true, .detail = std::move(why)}; }

SelfTest FromLines(std::string_view lines) {
  SeenInside seen = ParseSeen(lines);
  return {.tried = true, .allowed = seen.allowed, .denied = seen.denied, .detail = std::move(seen.detail)};
}

// `sluice run` with the self-test's policy; `task`: of --inside.
StartOptions RunCommand(const Folder& folder, const StandIn& stand_in, std::string_view task, std::optional<unsigned> uid) {
  StartOptions options;
  options.argv = {folder.program(), "run",        "--policy",
                  folder.policy(),  "--resolver", fmt::format("127.0.0.1:{}", stand_in.resolver_port()),
                  "--quiet",        "--name",     "doctor",
                  "--ro",           folder.bin(), "--cwd",
                  folder.work(),    "--",         folder.program(),
                  "doctor",         "--inside",   fmt::format("{}:{}", task, stand_in.port())};
  options.folder = folder.work();
  options.as_user = uid.has_value();
  options.uid = uid.value_or(0);
  if (uid) options.environment.emplace_back("HOME", folder.work());
  return options;
}

struct Ran {
  std::string output;
  std::string fault;  ///< empty: it ended by itself
};

Result<Ran> RunTask(std::string_view task, std::optional<unsigned> uid, std::chrono::milliseconds patience) {
  auto folder = Folder::Make(uid);
  if (!folder) return std::unexpected(folder.error());
  auto stand_in = StandIn::Start();
  if (!stand_in) return std::unexpected(stand_in.error());
  if (auto written = folder->WritePolicy(stand_in->port()); !written) return std::unexpected(written.error());
  auto started = Started::Start(RunCommand(*folder, *stand_in, task, uid));
  if (!started) return std::unexpected(started.error());
  auto ended = started->AwaitEnd(patience);
  Ran ran{started->output(), {}};
  if (!ended) ran.fault = ended.error().message;
  if (ended && started->code() != 0) ran.fault = started->LastWords();
  return ran;
}

SelfTest RunTest(std::optional<unsigned> uid) {
  auto ran = RunTask("connect", uid, kRunPatience);
  if (!ran) return NotTried(ran.error().message);
  return ran->fault.empty() ? FromLines(ran->output) : Failed(ran->fault);
}

Result<UniqueFd> OpenNotify(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Fail(Code::kInvalid, "TMPDIR is too long for a socket's path");
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FailErrno("cannot make a socket in a temporary folder", errno);
  return socket;
}

// Of `proxy`, `sidecar` and `agent`: started, and waited for.
Result<Started> StartService(const Folder& folder, std::vector<std::string> arguments, bool keep_rights) {
  auto notify = OpenNotify(folder.notify());
  if (!notify) return std::unexpected(notify.error());
  StartOptions options;
  options.argv = {folder.program()};
  options.argv.insert(options.argv.end(), std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
  options.environment.emplace_back("NOTIFY_SOCKET", folder.notify());
  options.folder = folder.work();
  options.keep_rights = keep_rights;
  auto started = Started::Start(options);
  if (!started) return started;
  if (auto ready = started->AwaitReady(notify->get(), kReadyPatience); !ready) return std::unexpected(ready.error());
  return started;
}

std::vector<std::string> ServiceArguments(const Folder& folder, const StandIn& stand_in, const char* command) {
  return {command,   "--policy", folder.policy(), "--resolver", fmt::format("127.0.0.1:{}", stand_in.resolver_port()),
          "--quiet", "--name",   "doctor"};
}

// The workload of a fence: any process of the namespace, here without rights.
std::string TryFenced(uint16_t port) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string lines = "allowed this process keeps its rights\n";
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && supervisor::DropCapabilities())
      lines = TryFromInside(port, Loopback::kShared);
    (void)!::write(writer.get(), lines.data(), lines.size());
    ::_exit(0);
  }
  writer.Reset();
  std::string lines;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::read(reader.get(), piece.data(), piece.size())) > 0 || (got < 0 && errno == EINTR);)
    if (got > 0) lines.append(piece.data(), static_cast<size_t>(got));
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return lines;
}

// In the throw-away namespace: one step after the other, each with what came of it.
class FencedStage {
 public:
  explicit FencedStage(const Folder& folder) : folder_(folder) {}

  Result<void> Prepare() {
    if (auto device = supervisor::AddBlindDevice(); !device) return device;
    auto stand_in = StandIn::Start();
    if (!stand_in) return std::unexpected(stand_in.error());
    stand_in_.emplace(*std::move(stand_in));
    return folder_.WritePolicy(stand_in_->port());
  }
  Result<void> Start() {
    std::vector<std::string> arguments = ServiceArguments(folder_, *stand_in_, "sidecar");
    arguments.insert(arguments.end(), {"--processes", "unseen"});
    auto started = StartService(folder_, std::move(arguments), true);
    if (!started) return std::unexpected(started.error());
    sidecar_.emplace(*std::move(started));
    return {};
  }
  // An error's code tells which of the two it was.
  Result<void> Look() {
    const SeenInside seen = ParseSeen(TryFenced(stand_in_->port()));
    if (seen.allowed && seen.denied) return {};
    return Fail(seen.denied ? Code::kNotFound : Code::kPermission, seen.detail);
  }

 private:
  const Folder& folder_;
  std::optional<StandIn> stand_in_;
  std::optional<Started> sidecar_;
};

constexpr int kStageLimitMs = 60'000;

std::string FindOnPath(std::string_view path, std::string_view name) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    std::string file = fmt::format("{}/{}", path.substr(at, end - at), name);
    if (file.front() == '/' && ::access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return {};
}

std::string OutputOf(std::vector<std::string> argv) {
  auto started = Started::Start({.argv = std::move(argv), .folder = "/"});
  return started && started->AwaitEnd(kVersionPatience) ? started->output() : std::string();
}

// What `runc features` prints names the actions that it knows. crun has that since 1.9; notifications it hands over since 0.19,
// where it was built with seccomp.
bool HandsOver(const ContainerRuntime& runtime) {
  return OutputOf({runtime.path, "features"}).contains("SCMP_ACT_NOTIFY") ||
         (runtime.name == "crun" && OutputOf({runtime.path, "--version"}).contains("+SECCOMP"));
}

std::string FirstLineOf(std::vector<std::string> argv) {
  const std::string text = OutputOf(std::move(argv));
  return text.substr(0, text.find('\n'));
}

}  // namespace

SelfTest LiveTests::Run() const { return RunTest(std::nullopt); }

SelfTest LiveTests::RunRootless() const {
  if (::geteuid() != 0) return NotTried("this is an ordinary user already: see self-test-run");
  return RunTest(kNobody);
}

SelfTest LiveTests::Proxy() const {
  auto folder = Folder::Make(std::nullopt);
  if (!folder) return NotTried(folder.error().message);
  auto stand_in = StandIn::Start();
  if (!stand_in) return NotTried(stand_in.error().message);
  if (auto written = folder->WritePolicy(stand_in->port()); !written) return NotTried(written.error().message);
  std::vector<std::string> arguments = ServiceArguments(*folder, *stand_in, "proxy");
  arguments.insert(arguments.end(), {"--listen", "unix:" + folder->proxy()});
  auto started = StartService(*folder, std::move(arguments), false);
  if (!started) return Failed(started.error().message);
  return FromLines(TryThroughProxy(folder->proxy(), stand_in->port()));
}

SelfTest LiveTests::Sidecar() const {
  auto folder = Folder::Make(std::nullopt);
  if (!folder) return NotTried(folder.error().message);
  // Lives in the child alone: what is made there is gone with it.
  FencedStage stage(*folder);
  const std::vector<supervisor::Trial> trials = {{"prepare", [&] { return stage.Prepare(); }},
                                                 {"start", [&] { return stage.Start(); }},
                                                 {"look", [&] { return stage.Look(); }}};
  supervisor::Tried tried = supervisor::TryThere(ThrowAway::kUser, trials, kStageLimitMs);
  if (!tried.made) tried = supervisor::TryThere(ThrowAway::kNetwork, trials, kStageLimitMs);
  if (!tried.made)
    return NotTried("no network namespace of its own may be made here; the sidecar proves itself before it says ready");
  const auto failed = std::ranges::find_if(tried.outcomes, [](const Result<void>& outcome) { return !outcome; });
  if (failed == tried.outcomes.end() && tried.outcomes.size() == trials.size())
    return {.tried = true, .allowed = true, .denied = true};
  if (failed == tried.outcomes.end() || failed == tried.outcomes.begin())
    return NotTried(failed == tried.outcomes.end() ? "it died" : failed->error().message);
  if (failed - tried.outcomes.begin() == 1) return Failed(failed->error().message);
  return {.tried = true,
          .allowed = failed->error().code == Code::kPermission,
          .denied = failed->error().code == Code::kNotFound,
          .detail = failed->error().message};
}

SelfTest LiveTests::Agent() const {
  auto folder = Folder::Make(std::nullopt);
  if (!folder) return NotTried(folder.error().message);
  auto stand_in = StandIn::Start();
  if (!stand_in) return NotTried(stand_in.error().message);
  if (auto written = folder->WritePolicy(stand_in->port()); !written) return NotTried(written.error().message);
  std::vector<std::string> arguments = ServiceArguments(*folder, *stand_in, "agent");
  arguments.insert(arguments.end(), {"--listen", folder->agent(), "--state-dir", folder->state()});
  auto started = StartService(*folder, std::move(arguments), false);
  if (!started) return Failed(started.error().message);
  const auto lines = RunStagedContainer(
      folder->agent(), {folder->program(), "doctor", "--inside", fmt::format("connect:{}", stand_in->port())}, kRunPatience);
  if (!lines && lines.error().code == Code::kUnsupported) return NotTried(lines.error().message);
  return lines ? FromLines(*lines) : Failed(fmt::format("{}: {}", lines.error().message, started->LastWords()));
}

// The others are started by one of the first three.
std::vector<ContainerRuntime> LiveTests::ContainerRuntimes() const {
  std::vector<ContainerRuntime> found;
  for (const auto& [name, lower] : std::initializer_list<std::pair<const char*, bool>>{
           {"runc", true}, {"crun", true}, {"youki", true}, {"podman", false}, {"docker", false}, {"containerd", false}}) {
    ContainerRuntime runtime{.name = name, .path = FindOnPath(path_, name)};
    if (runtime.path.empty()) continue;
    runtime.version = FirstLineOf({runtime.path, "--version"});
    if (lower && HandsOver(runtime)) runtime.notifies = Notifies::kYes;
    found.push_back(std::move(runtime));
  }
  return found;
}

std::vector<Runtime> LiveTests::TrustOfRuntimes() const {
  std::vector<Runtime> found = FindRuntimes(path_);
  auto ran = RunTask("trust", std::nullopt, kTrustPatience);
  const std::vector<Runtime> inside = ran ? ParseRuntimes(ran->output) : std::vector<Runtime>();
  const bool failed = !ran || !ran->fault.empty();
  for (Runtime& runtime : found) {
    const auto seen = std::ranges::find(inside, runtime.name, &Runtime::name);
    if (seen != inside.end()) {
      runtime = *seen;
    } else if (failed) {
      runtime.detail = ran ? ran->fault : ran.error().message;
    } else {
      runtime.trusts = Trusts::kHidden;
      runtime.detail = "a sandbox does not see it: --ro shows it its folder";
    }
  }
  return found;
}

}  // namespace sluice::app
