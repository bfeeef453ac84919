#include "app/runtime_message.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/exit_code.h"
#include "app/file.h"
#include "base/patient_poll.h"
#include "base/wake_timer.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/listener_handoff.h"

namespace sluice::app {
namespace {

using supervisor::Step;

// Of the agent's. What strangers sent to it may be among that, and the agent close it just now.
bool CloseAllBut(int one, int other) {
  if (!BriefCloses::Prepare()) return false;
  const BriefCloses brief;
  const auto [low, high] = std::minmax(one, other);
  const auto close = [](int first, int last) {
    return first > last || ::close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0;
  };
  return close(STDERR_FILENO + 1, low - 1) && close(low + 1, high - 1) &&
         ::close_range(static_cast<unsigned>(high) + 1, ~0U, 0) == 0;
}

struct Received {
  std::string text;
  std::vector<UniqueFd> fds;
};

// Its notification descriptor's number.
Result<int> Look(const Received& received, size_t end) {
  if (received.text.find_first_not_of(" \t\r\n", end) != std::string::npos)
    return Fail(Code::kInvalid, "something follows its message");
  const auto state = supervisor::ParseOciState(std::string_view(received.text).substr(0, end));
  if (!state) return std::unexpected(state.error());
  if (state->fds.size() != received.fds.size())
    return Fail(Code::kInvalid,
                fmt::format("its message names {} descriptors, and {} came", state->fds.size(), received.fds.size()));
  const int listener = received.fds[state->seccomp_fd].get();
  if (!supervisor::IsNotifyFd(listener)) return Fail(Code::kInvalid, "what it calls seccompFd is no notification descriptor");
  return listener;
}

Result<int> Receive(int runtime, Received* received) {
  supervisor::OciStateEnd ending;
  while (true) {
    pollfd wait{runtime, POLLIN, 0};
    (void)PatientPoll({&wait, 1}, -1);
    const auto more = supervisor::ReceiveStream(runtime, supervisor::kMaxOciFds, &received->text, &received->fds);
    if (!more && more.error().code == Code::kTimeout) continue;
    if (!more) return std::unexpected(more.error());
    const auto end = ending.Find(received->text);
    if (!end) return std::unexpected(end.error());
    if (*end) {
      auto listener = Look(*received, **end);
      received->text.resize(**end);
      return listener;
    }
    if (!*more) return Fail(Code::kInvalid, "it ended in the middle of its message");
  }
}

Result<void> Tell(int agent, std::string_view text, int listener) {
  const auto file = WriteMemory("sluice-runtime-message", text);
  if (!file) return std::unexpected(file.error());
  return supervisor::Send(agent, Step::kContent, static_cast<int64_t>(text.size()), {file->get(), listener});
}

}  // namespace

void ServeRuntime(pid_t parent, UniqueFd runtime, UniqueFd agent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(kExitFault);
  if (!CloseAllBut(runtime.get(), agent.get())) ::_exit(kExitFault);
  ::signal(SIGPIPE, SIG_IGN);
  Received received;
  const auto listener = Receive(runtime.get(), &received);
  const auto told = listener ? Tell(agent.get(), received.text, *listener) : std::unexpected(listener.error());
  if (!told) supervisor::SendFailure(agent.get(), told.error());
  // With all that came, and that may take long: the agent has what it needs.
  ::_exit(kExitOk);
}

Result<RuntimeMessage> ReceiveRuntimeMessage(int child) {
  auto message = supervisor::Expect(child, Step::kContent, 0);
  if (!message) return std::unexpected(message.error());
  const auto size = static_cast<size_t>(message->number);
  if (message->fds.size() != 2 || message->number < 0 || size > supervisor::kMaxOciMessage)
    return Fail(Code::kInternal, "its message was lost");
  std::string text(size, '\0');
  if (::pread(message->fds[0].get(), text.data(), text.size(), 0) != static_cast<ssize_t>(size))
    return FailErrno("its message cannot be read", errno);
  auto state = supervisor::ParseOciState(text);
  if (!state) return std::unexpected(state.error());
  return RuntimeMessage{*std::move(state), std::move(message->fds[1])};
}

}  // namespace sluice::app
