#include "supervisor/io/launch_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/seccomp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "base/fault.h"
#include "base/unique_fd.h"
#include "supervisor/canary.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/launch_terminal.h"
#include "supervisor/io/privileges.h"

namespace sluice::supervisor {
namespace {

constexpr int kHandshake = 3;  // the one descriptor besides 0 to 2, gone at execve
constexpr int kNotFoundExit = 127;
constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";  // as shells assume where PATH is unset

// Moves descriptors that lie where others are to go out of the way, then puts each in its place and closes the rest.
Result<void> PlaceDescriptors(std::array<int, 3> standard, int handshake) {
  constexpr int kAbove = 16;
  const auto above = [](int fd) { return Faulty("launch.above", [&] { return ::fcntl(fd, F_DUPFD_CLOEXEC, kAbove); }); };
  for (int& fd : standard) fd = above(fd);
  handshake = above(handshake);
  for (int fd = 0; fd <= 2; ++fd)
    if (Faulty("launch.place", [&] { return ::dup2(standard[static_cast<size_t>(fd)], fd); }) != fd)
      return FailErrno(fmt::format("cannot set up descriptor {}", fd), errno);
  if (::dup3(handshake, kHandshake, O_CLOEXEC) != kHandshake) return FailErrno("cannot keep the start-up socket", errno);
  if (Faulty("launch.inherited", [] { return ::close_range(kHandshake + 1, ~0U, 0); }) != 0)
    return FailErrno("cannot close inherited descriptors", errno);
  return {};
}

// A program starts with no signal blocked and none ignored but what its user asked to ignore (nohup).
void ResetSignals() {
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    const bool keeps = action.sa_handler == SIG_IGN && (signal == SIGHUP || signal == SIGINT || signal == SIGQUIT);
    if (keeps || action.sa_handler == SIG_DFL) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::string PathVariable(const LaunchSpec& spec) {
  const auto path = std::ranges::find(spec.environment, "PATH", &std::pair<std::string, std::string>::first);
  return path == spec.environment.end() ? std::string(kDefaultPath) : path->second;
}

// 0 when `path` can be executed by this process, else why not.
int ExecutableErrno(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return errno;
  if (S_ISDIR(about.st_mode)) return EISDIR;
  if (!S_ISREG(about.st_mode)) return EACCES;
  return ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

Error CommandError(const std::string& name, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  return Error{absent ? Code::kNotFound : Code::kPermission,
               absent ? fmt::format("{}: command not found", name) : SystemError(name, error).message, error, std::nullopt};
}

// As execvp does: a name with a slash is itself, another is looked for in PATH, in the workload's view.
Result<std::string> FindCommand(const LaunchSpec& spec) {
  const std::string& name = spec.argv.front();
  if (name.empty()) return std::unexpected(CommandError(name, ENOENT));
  if (name.find('/') != std::string::npos) {
    if (const int error = ExecutableErrno(name); error != 0) return std::unexpected(CommandError(name, error));
    return name;
  }
  const std::string path = PathVariable(spec);
  int worst = ENOENT;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find(':', start), path.size());
    const std::string folder = start == end ? "." : path.substr(start, end - start);
    const std::string candidate = folder + "/" + name;
    const int error = ExecutableErrno(candidate);
    if (error == 0) return candidate;
    if (error != ENOENT && error != ENOTDIR) worst = EACCES;
    start = end + 1;
  }
  return std::unexpected(CommandError(name, worst));
}

// The notification descriptor. WAIT_KILLABLE_RECV (Linux 5.19) keeps signals from tearing a connect; without it things
// work, with more EINTR.
Result<int> InstallFilter(std::span<const sock_filter> filter) {
  sock_fprog program{};
  program.len = static_cast<unsigned short>(filter.size());
  program.filter = const_cast<sock_filter*>(filter.data());  // the kernel reads it
  for (const unsigned long flags :
       {SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, SECCOMP_FILTER_FLAG_NEW_LISTENER}) {
    const auto install = [&] { return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program); };
    const auto fd = static_cast<int>(Faulty("launch.filter", install));
    if (fd >= 0) return fd;
    if (errno != EINVAL) break;
  }
  const int error = errno;
  if (error == EBUSY) return Fail(Code::kUnsupported, "another seccomp supervisor already watches this process");
  return FailErrno("cannot install the seccomp filter", error);
}

Result<void> SetLimit(__rlimit_resource resource, const std::optional<LimitInForce>& limit, const char* what) {
  if (!limit || (limit->by != LimitBy::kEachProcess && limit->by != LimitBy::kUser)) return {};
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) return FailErrno(fmt::format("cannot read the limit on {}", what), errno);
  now.rlim_max = std::min<rlim_t>(now.rlim_max, limit->value);
  now.rlim_cur = now.rlim_max;
  if (::setrlimit(resource, &now) != 0) return FailErrno(fmt::format("cannot limit {} to {}", what, limit->value), errno);
  return {};
}

// What no control group holds. Private memory that can be written to is what the limit on data counts (Linux 4.7).
Result<void> SetLimits(const LimitsInForce& limits) {
  if (auto set = SetLimit(RLIMIT_DATA, limits.memory, "memory"); !set) return set;
  if (auto set = SetLimit(RLIMIT_NPROC, limits.processes, "processes"); !set) return set;
  return SetLimit(RLIMIT_NOFILE, limits.open_files, "open files");
}

struct ExecArguments {
  std::vector<std::string> variables;
  std::vector<char*> argv;
  std::vector<char*> envp;
};

ExecArguments MakeArguments(const LaunchSpec& spec) {
  ExecArguments made;
  made.variables.reserve(spec.environment.size());
  for (const auto& [name, value] : spec.environment) made.variables.push_back(name + "=" + value);
  for (std::string& variable : made.variables) made.envp.push_back(variable.data());
  made.envp.push_back(nullptr);
  for (const std::string& argument : spec.argv) made.argv.push_back(const_cast<char*>(argument.c_str()));
  made.argv.push_back(nullptr);
  return made;
}

// Runs once the filter stands: only read, write, the probe's connect, execve and exit.
Error Execute(const std::string& command, ExecArguments& arguments) {
  (void)Faulty("launch.exec", [&] { return ::execve(command.c_str(), arguments.argv.data(), arguments.envp.data()); });
  int error = errno;
  if (error == ENOEXEC) {  // a script without #!, as shells and execvp treat it
    std::vector<char*> argv = {const_cast<char*>("/bin/sh"), const_cast<char*>(command.c_str())};
    argv.insert(argv.end(), arguments.argv.begin() + 1, arguments.argv.end());
    ::execve("/bin/sh", argv.data(), arguments.envp.data());
    error = errno;
  }
  return CommandError(command, error);
}

// From the workload's place, under all that holds the workload: this connect must fail.
Result<void> ProbeCanary() {
  const UniqueFd probe(Faulty("launch.probe", [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }));
  if (!probe) return FailErrno("cannot open the start-up probe's socket", errno);
  sockaddr_storage address{};
  const size_t length = kCanary.ToSockaddr(&address);
  const int failed = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  if (failed == 0 || errno == EINPROGRESS)
    return Fail(Code::kUnsupported, "the start-up probe was not refused: this sandbox would not hold, so nothing was started");
  return {};
}

Result<void> Run(const SandboxPlan& plan, const std::array<int, 3>& standard, int& handshake) {
  if (Faulty("launch.group", [] { return ::setpgid(0, 0); }) != 0) return FailErrno("setpgid", errno);
  if (auto placed = PlaceDescriptors(standard, handshake); !placed) return placed;
  handshake = kHandshake;
  TakeForeground();
  ResetSignals();
  if (::chdir(plan.mounts->work_directory.c_str()) != 0)
    return FailErrno(fmt::format("cannot enter {}", plan.mounts->work_directory), errno);
  if (auto dropped = DropPrivileges(); !dropped) return dropped;
  if (auto entered = EnterLandlock(*plan.mounts, plan.landlock_abi); !entered) return entered;
  auto command = FindCommand(*plan.spec);
  if (!command) return std::unexpected(command.error());
  ExecArguments arguments = MakeArguments(*plan.spec);
  // Late: this process is still a copy of the supervisor, which may be larger than the limits are.
  if (auto limited = SetLimits(*plan.limits); !limited) return limited;
  auto listener = InstallFilter(plan.filter);
  if (!listener) return std::unexpected(listener.error());
  if (auto told = Send(kHandshake, Step::kFiltered, *listener); !told) return told;
  std::array<char, 2048> go{};
  const ssize_t opened = Faulty("launch.gate", [&] { return ::read(kHandshake, go.data(), go.size()); });
  if (opened < 0) return FailErrno("cannot wait for the supervisor's word", errno);
  if (opened == 0) ::_exit(kNotFoundExit);  // the supervisor is gone
  if (plan.spec->probe == StartProbe::kCanary) {
    if (auto refused = ProbeCanary(); !refused) return refused;
  }
  return std::unexpected(Execute(*command, arguments));
}

}  // namespace

void RunCommand(const SandboxPlan& plan, const std::array<int, 3>& standard) {
  int handshake = plan.handshake;
  if (auto ran = Run(plan, standard, handshake); !ran) SendFailure(handshake, ran.error());
  ::_exit(kNotFoundExit);
}

}  // namespace sluice::supervisor
