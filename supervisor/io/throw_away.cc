#include "supervisor/io/throw_away.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "supervisor/io/user_namespace.h"

namespace sluice::supervisor {
namespace {

constexpr int kOthers = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

// One step or trial, as the child tells of it.
struct Told {
  int32_t ok = 0;
  int32_t code = 0;
  int32_t sys_errno = 0;
  std::array<char, 1000> text{};
};

bool Tell(int channel, const Result<void>& outcome) {
  Told told;
  told.ok = outcome ? 1 : 0;
  if (!outcome) {
    const Error& error = outcome.error();
    told.code = static_cast<int32_t>(error.code);
    told.sys_errno = error.sys_errno;
    std::memcpy(told.text.data(), error.message.data(), std::min(error.message.size(), told.text.size() - 1));
  }
  return ::send(channel, &told, sizeof told, MSG_NOSIGNAL) == sizeof told;
}

class Listener {
 public:
  Listener(int channel, int limit_ms)
      : channel_(channel), deadline_(std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms)) {}

  // kInternal with an empty message: the child is gone; kTimeout: it takes too long.
  Result<void> Next(bool* came) {
    *came = false;
    Told told;
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now()).count();
      if (left <= 0) return Fail(Code::kTimeout, "it took too long");
      pollfd wait{channel_, POLLIN, 0};
      const int got = ::poll(&wait, 1, static_cast<int>(left));
      if (got > 0) break;
      if (got < 0 && errno != EINTR) return FailErrno("poll", errno);
    }
    if (::recv(channel_, &told, sizeof told, 0) != sizeof told) return Fail(Code::kInternal, "the child that tried it died");
    *came = true;
    if (told.ok != 0) return {};
    told.text.back() = '\0';
    return std::unexpected(Error{static_cast<Code>(told.code), told.text.data(), told.sys_errno, std::nullopt});
  }

 private:
  int channel_;
  std::chrono::steady_clock::time_point deadline_;
};

bool AwaitMaps(int channel) {
  char go = 0;
  return ::recv(channel, &go, 1, 0) == 1;
}

[[noreturn]] void RunChild(int channel, ThrowAway where, const std::vector<Trial>& trials) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto step = [channel](const Result<void>& outcome) {
    if (!Tell(channel, outcome) || !outcome) ::_exit(1);
  };
  const auto unshare = [&step](int what) {
    Result<void> outcome = ::unshare(what) == 0 ? Result<void>() : FailErrno("unshare", errno);
    ::prctl(PR_SET_DUMPABLE, 1);  // the maps of one that is not are root's
    step(outcome);
  };
  if (where == ThrowAway::kUser) {
    unshare(CLONE_NEWUSER);
    if (!AwaitMaps(channel)) ::_exit(1);
    unshare(kOthers);
  } else if (where == ThrowAway::kNetwork) {
    unshare(CLONE_NEWNET);
  }
  for (const Trial& trial : trials)
    if (!Tell(channel, trial.run())) ::_exit(1);
  ::_exit(0);
}

// The steps that come before the trials.
Tried Follow(Listener& listener, ThrowAway where, pid_t child, int channel) {
  Tried tried;
  bool came = false;
  const auto failed = [&](Making step, Result<void> outcome) {
    tried.made = std::move(outcome);
    tried.step = step;
    return !tried.made.has_value();
  };
  if (where == ThrowAway::kHere) return tried;
  if (where == ThrowAway::kUser) {
    if (failed(Making::kUserNamespace, listener.Next(&came))) return tried;
    if (failed(Making::kMaps, WriteIdentityMaps(child))) return tried;
    const char go = 1;
    if (::send(channel, &go, 1, MSG_NOSIGNAL) != 1) {
      failed(Making::kChild, Fail(Code::kInternal, "the child that tried it died"));
      return tried;
    }
  }
  failed(Making::kOtherNamespaces, listener.Next(&came));
  return tried;
}

}  // namespace

Tried TryThere(ThrowAway where, const std::vector<Trial>& trials, int limit_ms) {
  Tried tried;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    tried.made = FailErrno("socketpair", errno);
    return tried;
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    tried.made = FailErrno("fork", errno);
    return tried;
  }
  if (child == 0) {
    ::close(ends[0]);
    RunChild(theirs.get(), where, trials);
  }
  theirs.Reset();
  Listener listener(ours.get(), limit_ms);
  tried = Follow(listener, where, child, ours.get());
  bool came = tried.made.has_value();
  while (came && tried.outcomes.size() < trials.size()) tried.outcomes.push_back(listener.Next(&came));
  ::kill(child, SIGKILL);  // not reaped yet, so the number is still its own
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return tried;
}

}  // namespace sluice::supervisor
