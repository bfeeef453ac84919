#include "app/doctor/io/staged_container.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "app/doctor/io/started.h"
#include "base/send_descriptors.h"
#include "base/unique_fd.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/user_namespace.h"
#include "supervisor/seccomp_filter.h"

namespace sluice::app {
namespace {

using std::chrono::steady_clock;
using supervisor::Step;

constexpr int kStepMs = 10'000;
constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
constexpr int kRefusedExit = 126;

// What runs are held by, and as an agent's profile has it the program's start besides.
std::vector<sock_filter> ContainerFilter() {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};
  const std::vector<sock_filter> rest = supervisor::BuildSeccompFilter();
  program.insert(program.end(), rest.begin(), rest.end());
  return program;
}

// The container's first process: does not come back.
[[noreturn]] void RunProgram(int channel, int output, const std::vector<std::string>& argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto give_up = [channel](const Error& error) {
    supervisor::SendFailure(channel, error);
    ::_exit(kRefusedExit);
  };
  if (auto dropped = supervisor::DropPrivileges(); !dropped) give_up(dropped.error());
  std::vector<sock_filter> filter = ContainerFilter();
  sock_fprog program{};
  program.len = static_cast<unsigned short>(filter.size());
  program.filter = filter.data();
  UniqueFd listener(
      static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program)));
  if (!listener) give_up(SystemError("cannot install a seccomp filter", errno));
  if (auto sent = supervisor::Send(channel, Step::kFiltered, 0, {listener.get()}); !sent) ::_exit(kRefusedExit);
  listener.Reset();
  ::dup2(output, STDOUT_FILENO);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  char* environment[] = {nullptr};
  ::execve(words.front(), words.data(), environment);
  ::_exit(kRefusedExit);
}

// Makes the namespaces and waits for their first process, whose exit code is its own.
[[noreturn]] void RunStage(int channel, int output, const std::vector<std::string>& argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto give_up = [channel](const Error& error) {
    supervisor::SendFailure(channel, error);
    ::_exit(1);
  };
  if (::unshare(CLONE_NEWUSER) != 0) give_up(supervisor::NamespaceError("a user namespace", errno));
  ::prctl(PR_SET_DUMPABLE, 1);  // the maps of one that is not are root's
  if (auto told = supervisor::Send(channel, Step::kInit); !told) ::_exit(1);
  if (auto mapped = supervisor::Expect(channel, Step::kGo, kStepMs); !mapped) ::_exit(1);
  if (::unshare(kNamespaces) != 0) give_up(supervisor::NamespaceError("a container's namespaces", errno));
  const pid_t first = ::fork();
  if (first < 0) give_up(SystemError("cannot fork", errno));
  if (first == 0) RunProgram(channel, output, argv);
  ::close(channel);
  ::close(output);
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

Result<UniqueFd> ConnectAgent(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Fail(Code::kInvalid, "TMPDIR is too long for a socket's path");
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FailErrno("cannot connect to the agent", errno);
  return socket;
}

// As runc does: one message with the descriptor beside it, and the socket left open.
Result<void> HandOver(int agent, int listener, pid_t pid) {
  const std::string text = fmt::format(
      R"({{"ociVersion":"0.2.0","fds":["seccompFd"],"pid":{0},"metadata":"","state":{{"ociVersion":"1.0.2","id":"sluice-doctor-{0}",)"
      R"("status":"creating","pid":{0},"bundle":"/","annotations":{{}}}}}})",
      pid);
  if (SendDescriptors(agent, std::as_bytes(std::span(text)), {&listener, 1}) == static_cast<ssize_t>(text.size())) return {};
  return FailErrno("cannot hand a container to the agent", errno);
}

// False: it takes too long.
bool ReadAll(int output, steady_clock::time_point deadline, std::string* text) {
  std::array<char, 4096> piece{};
  while (text->size() < kMaxStartedOutput) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd ready{output, POLLIN, 0};
    if (left <= 0) return false;
    const int polled = ::poll(&ready, 1, static_cast<int>(left));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return false;
    const ssize_t got = ::read(output, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text->append(piece.data(), static_cast<size_t>(got));
  }
  return true;
}

// The stage's process, killed and reaped with the object.
class Stage {
 public:
  explicit Stage(pid_t pid) : pid_(pid) {}
  ~Stage() { (void)End(); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  // The wait status; what still runs is killed.
  int End() {
    if (pid_ <= 0) return status_;
    ::kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
    return Await();
  }
  int Await() {
    while (pid_ > 0 && ::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status_;
  }

 private:
  pid_t pid_;
  int status_ = 0;
};

}  // namespace

Result<std::string> RunStagedContainer(const std::string& agent, const std::vector<std::string>& argv,
                                       std::chrono::milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  auto handshake = supervisor::MakeHandshake();
  if (!handshake) return std::unexpected(handshake.error());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("cannot create a pipe", errno);
  const UniqueFd output(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno("cannot fork", errno);
  if (pid == 0) {
    handshake->first.Reset();
    RunStage(handshake->second.get(), writer.get(), argv);
  }
  Stage stage(pid);
  writer.Reset();
  handshake->second.Reset();
  const int channel = handshake->first.get();
  if (auto made = supervisor::Expect(channel, Step::kInit, kStepMs); !made) return std::unexpected(made.error());
  if (auto mapped = supervisor::WriteIdentityMaps(pid); !mapped) return std::unexpected(mapped.error());
  if (auto go = supervisor::Send(channel, Step::kGo); !go) return std::unexpected(go.error());
  auto filtered = supervisor::Expect(channel, Step::kFiltered, kStepMs);
  if (!filtered) return std::unexpected(filtered.error());
  if (filtered->fds.size() != 1) return Fail(Code::kInternal, "a filter came without its descriptor");
  auto socket = ConnectAgent(agent);
  if (!socket) return std::unexpected(socket.error());
  if (auto handed = HandOver(socket->get(), filtered->fds.front().get(), filtered->sender); !handed)
    return std::unexpected(handed.error());
  filtered->fds.clear();  // the agent's alone: where it lets go of it, the program fails to start
  std::string text;
  if (!ReadAll(output.get(), deadline, &text)) return Fail(Code::kTimeout, "the container's program did not end");
  const int status = stage.Await();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kRefusedExit)
    return Fail(Code::kPermission, "the agent did not let the container's program start");
  return text;
}

}  // namespace sluice::app
