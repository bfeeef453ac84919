#include "library/io/supervisor_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "base/send_descriptors.h"
#include "base/socket_pair.h"

namespace sluice::library {
namespace {

// Where the supervisor finds its descriptors; the standard streams lie below.
constexpr int kChannel = 3;
constexpr int kLog = 4;
constexpr int kPolicy = 5;
constexpr int kAbove = 16;  // sources lie here, so that none is overwritten before it is used

Result<UniqueFd> TextFile(const std::string& text) {
  UniqueFd file(::memfd_create("sluice-policy", MFD_CLOEXEC));
  if (!file) return FailErrno("cannot make a file of memory for the policy", errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return FailErrno("cannot write the policy into memory", errno);
    done += static_cast<size_t>(n);
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return FailErrno("cannot rewind the policy", errno);
  return Duplicate(file.get());
}

// File actions and attributes of a spawn.
class Spawn {
 public:
  Spawn() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  void Give(const UniqueFd& source, int as) {
    if (source) posix_spawn_file_actions_adddup2(&actions_, source.get(), as);
  }
  /// Nothing from `above` on is passed on, nor below but what was given.
  Result<pid_t> Start(const std::string& program, const std::vector<std::string>& words, int above) {
    posix_spawn_file_actions_addclosefrom_np(&actions_, above);
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_t pid = 0;
    if (const int error = posix_spawn(&pid, program.c_str(), &actions_, &attributes_, argv.data(), environ); error != 0)
      return FailErrno(fmt::format("cannot execute {}", program), error);
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<std::string> Words(const SupervisorPlan& plan) {
  std::vector<std::string> words{"sluice", "run"};
  words.insert(words.end(), plan.arguments.begin(), plan.arguments.end());
  words.push_back(fmt::format("--control=fd:{}", kChannel));
  words.push_back(fmt::format("--log-fd={}", kLog));
  if (plan.policy_text) words.push_back(fmt::format("--policy-fd={}", kPolicy));
  words.emplace_back("--await-hold");
  words.emplace_back("--");
  words.insert(words.end(), plan.command.begin(), plan.command.end());
  return words;
}

// The two ends of what only this process and the supervisor hold.
Result<SocketPair> MakeChannel() {
  auto ends = MakeSocketPair();
  if (!ends) return ends;
  auto above = Duplicate(ends->theirs.get());
  if (!above) return std::unexpected(above.error());
  ends->theirs = *std::move(above);
  return ends;
}

struct Ends {
  UniqueFd mine;
  UniqueFd theirs;
};

Result<Ends> MakePipe() {
  std::array<int, 2> pair{};
  if (::pipe2(pair.data(), O_CLOEXEC) != 0) return FailErrno("cannot make a pipe", errno);
  Ends ends{UniqueFd(pair[0]), UniqueFd(pair[1])};
  // This end alone: the other is an open file of its own.
  if (::fcntl(ends.mine.get(), F_SETFL, O_NONBLOCK) != 0) return FailErrno("cannot set up a pipe", errno);
  auto above = Duplicate(ends.theirs.get());
  if (!above) return std::unexpected(above.error());
  ends.theirs = *std::move(above);
  return ends;
}

}  // namespace

Result<UniqueFd> Duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kAbove));
  if (!copy) return FailErrno(fmt::format("cannot duplicate descriptor {}", fd), errno);
  return copy;
}

Result<SupervisorProcess> StartSupervisor(const SupervisorPlan& plan) {
  auto channel = MakeChannel();
  if (!channel) return std::unexpected(channel.error());
  auto log = MakePipe();
  if (!log) return std::unexpected(log.error());
  std::array<UniqueFd, 3> streams;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (plan.streams[i] < 0) continue;
    auto above = Duplicate(plan.streams[i]);
    if (!above) return std::unexpected(above.error());
    streams[i] = *std::move(above);
  }
  UniqueFd policy;
  if (plan.policy_text) {
    auto file = TextFile(*plan.policy_text);
    if (!file) return std::unexpected(file.error());
    policy = *std::move(file);
  }
  Spawn spawn;
  for (size_t i = 0; i < streams.size(); ++i) spawn.Give(streams[i], static_cast<int>(i));
  spawn.Give(channel->theirs, kChannel);
  spawn.Give(log->theirs, kLog);
  spawn.Give(policy, kPolicy);
  const auto pid = spawn.Start(plan.program, Words(plan), policy ? kPolicy + 1 : kPolicy);
  if (!pid) return std::unexpected(pid.error());
  SupervisorProcess process;
  process.pid = *pid;
  process.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
  // It has no way to live on: its channel closes.
  if (!process.pidfd) return FailErrno("the supervisor ended at once", errno);
  process.channel = std::move(channel->mine);
  process.log = std::move(log->mine);
  return process;
}

Result<std::string> InstalledProgram() {
  Dl_info about{};
  std::error_code error;
  if (::dladdr(reinterpret_cast<const void*>(&InstalledProgram), &about) == 0 || about.dli_fname == nullptr)
    return Fail(Code::kNotFound, "cannot tell where the library is; name the program (SLUICE_PROGRAM)");
  const std::filesystem::path library = std::filesystem::canonical(about.dli_fname, error);
  if (error) return Fail(Code::kNotFound, fmt::format("{}: {}", about.dli_fname, error.message()));
  const auto program = std::filesystem::canonical(library.parent_path() / SLUICE_PROGRAM_FROM_LIBRARY, error);
  if (!error) return program.string();
  return Fail(Code::kNotFound,
              fmt::format("no program `sluice` where it is installed with {}: {}; name it (SLUICE_PROGRAM)", library.string(),
                          (library.parent_path() / SLUICE_PROGRAM_FROM_LIBRARY).lexically_normal().string()));
}

Result<UniqueFd> OpenConnection(int channel) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0)
    return FailErrno("cannot make a socket pair", errno);
  UniqueFd mine(pair[0]);
  const UniqueFd theirs(pair[1]);
  constexpr std::byte kByte{};
  const int passed = theirs.get();
  ssize_t sent = 0;
  do {
    sent = SendDescriptors(channel, {&kByte, 1}, {&passed, 1});
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return FailErrno("the supervisor takes no connection", errno);
  return mine;
}

std::optional<int> Reap(int pidfd) {
  siginfo_t info{};
  int waited = 0;
  do {
    waited = ::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED);
  } while (waited != 0 && errno == EINTR);
  if (waited != 0) return std::nullopt;
  return info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : info.si_status;
}

}  // namespace sluice::library
