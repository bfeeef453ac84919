#include "base/spawner.h"

#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <future>
#include <span>
#include <utility>

#include "base/fault.h"
#include "base/patient_poll.h"
#include "base/send_descriptors.h"
#include "base/socket_pair.h"
#include "base/start_thread.h"

namespace sluice {
namespace {

constexpr int kLastStandard = 2;

// What the calling thread has from here on: a table without the copies above `keep` in the first place, and then without the
// rest.
Result<void> KeepAlone(int keep) {
  if (::close_range(static_cast<unsigned>(keep) + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0 ||
      (keep > kLastStandard + 1 && ::close_range(kLastStandard + 1, static_cast<unsigned>(keep) - 1, 0) != 0))
    return FailErrno("cannot make a table of descriptors", errno);
  return {};
}

// False: nobody asks any more. Whoever asks waits for an answer, so that what cannot be received now is received later.
bool ReceiveAll(int channel, std::vector<UniqueFd>* fds) {
  std::byte byte{};
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostSpawned)> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  ssize_t got = 0;
  do got = Faulty("spawner.receive", [&] { return ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC); });
  while (got < 0 && (errno == EINTR || (std::this_thread::sleep_for(kPollRest), true)));
  if (got == 0) return false;
  TakeDescriptors(message, fds);
  return true;
}

std::vector<char*> PointersTo(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// posix_spawn's error, or 0.
int SpawnWith(const SpawnedProgram& program, const std::vector<UniqueFd>& fds, pid_t* child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  // Received one after the other, each has at least the number that it becomes: none is overwritten before it is copied.
  for (size_t i = 0; i < fds.size(); ++i) ::posix_spawn_file_actions_adddup2(&actions, fds[i].get(), static_cast<int>(i));
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&defaults, signal);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  const std::vector<char*> argv = PointersTo(program.argv);
  const std::vector<char*> environment = PointersTo(program.environment);
  const int error = ::posix_spawnp(child, program.path.c_str(), &actions, &attributes, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace

struct Spawner::Request {
  const SpawnedProgram& program;
  std::promise<Result<pid_t>> answer{};
};

Result<std::unique_ptr<Spawner>> Spawner::Start() {
  auto pair = MakeSocketPair();
  if (!pair) return std::unexpected(pair.error());
  std::unique_ptr<Spawner> spawner(new Spawner);
  spawner->channel_ = std::move(pair->mine);
  std::promise<Result<void>> begun;
  auto ready = begun.get_future();
  auto run = [self = spawner.get(), channel = pair->theirs.get(), said = std::move(begun)]() mutable {
    auto alone = KeepAlone(channel);
    const bool goes_on = alone.has_value();
    said.set_value(std::move(alone));
    if (goes_on) self->Loop(channel);
  };
  if (StartThread(&spawner->thread_, std::move(run)) != 0) return FailErrno("cannot start a thread", errno);
  // Only now may its end be closed here.
  if (auto alone = ready.get(); !alone) return std::unexpected(alone.error());
  return spawner;
}

Spawner::~Spawner() {
  ::shutdown(channel_.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

Result<pid_t> Spawner::Spawn(const SpawnedProgram& program) {
  if (program.descriptors.size() <= kLastStandard || program.descriptors.size() > kMostSpawned)
    return FailErrno("a program is started with three to eight descriptors", EINVAL);
  const std::lock_guard lock(mutex_);
  Request request{.program = program};
  request_ = &request;
  auto answer = request.answer.get_future();
  constexpr std::byte kAsk{1};
  if (SendDescriptors(channel_.get(), std::span(&kAsk, 1), program.descriptors) < 0)
    return FailErrno("cannot hand over what a program is given", errno);
  return answer.get();
}

void Spawner::Loop(int channel) {
  while (true) {
    std::vector<UniqueFd> fds;
    if (!ReceiveAll(channel, &fds)) return;
    Request& request = *request_;  // sent after it was set
    const bool complete = fds.size() == request.program.descriptors.size();
    pid_t child = 0;
    const int error = complete ? SpawnWith(request.program, fds, &child) : EMFILE;
    fds.clear();  // whoever asked has them still, so that none of these is the last
    if (error != 0) {
      request.answer.set_value(FailErrno("cannot start a program", error));
    } else {
      request.answer.set_value(child);
    }
  }
}

}  // namespace sluice

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Its thread has a table of descriptors of its own, whose numbers are taken for those of the others.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:sluice::Spawner::Loop\n"; }
#endif
#endif
