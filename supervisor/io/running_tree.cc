#include "supervisor/io/running_tree.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <filesystem>
#include <string>

#include "supervisor/io/small_file.h"

namespace sluice::supervisor {
namespace {

// What stops processes one by one has to come to an end against one that forks: after so many rounds it is killed.
constexpr int kRounds = 64;
constexpr size_t kMostProcesses = 65536;

void AddChildren(pid_t parent, std::vector<pid_t>* out) {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent), error)) {
    const auto text = ReadSmallFile(task.path().string() + "/children");
    if (!text) continue;
    for (const char *at = text->data(), *end = at + text->size(); at < end;) {
      pid_t child = 0;
      const auto read = std::from_chars(at, end, child);
      if (read.ec == std::errc{}) out->push_back(child);
      at = read.ptr + 1;
    }
  }
}

struct Standing {
  char state = 'X';  // as proc_pid_stat(5) has it; X: gone
  pid_t parent = 0;
};

Standing StandingOf(pid_t pid) {
  Standing standing;
  const auto stat = ReadSmallFile(fmt::format("/proc/{}/stat", pid));
  const size_t name = stat ? stat->rfind(") ") : std::string::npos;
  if (name == std::string::npos || name + 4 >= stat->size()) return standing;
  standing.state = (*stat)[name + 2];
  std::from_chars(stat->data() + name + 4, stat->data() + stat->size(), standing.parent);
  return standing;
}

bool Stands(char state) { return state == 'T' || state == 't' || state == 'Z' || state == 'X'; }

// All threads but the first.
bool OthersStand(pid_t process) {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), error)) {
    pid_t thread = 0;
    const std::string name = task.path().filename().string();
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread != process && !Stands(StandingOf(thread).state)) return false;
  }
  return true;
}

// By a descriptor, and only while it is a child of one of `family`: the number alone may be another's by now.
bool SignalChild(pid_t pid, const std::set<pid_t>& family, int signal) {
  const UniqueFd pinned(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pinned || !family.contains(StandingOf(pid).parent)) return false;
  return ::syscall(SYS_pidfd_send_signal, pinned.get(), signal, nullptr, 0) == 0;
}

}  // namespace

std::vector<pid_t> Descendants(pid_t root, size_t limit) {
  std::vector<pid_t> found;
  AddChildren(root, &found);
  for (size_t i = 0; i < found.size() && found.size() < limit; ++i) AddChildren(found[i], &found);
  if (found.size() > limit) found.resize(limit);
  return found;
}

void RunningTree::Begin(pid_t init, const WorkloadGroup* group) {
  const std::lock_guard lock(mutex_);
  init_ = init;
  pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, init, 0)));
  group_ = group;
}

void RunningTree::End() {
  const std::lock_guard lock(mutex_);
  init_ = 0;
  pidfd_.Reset();
  group_ = nullptr;
}

Result<void> RunningTree::Freeze() {
  {
    const std::lock_guard lock(mutex_);
    if (init_ <= 0) return Fail(Code::kNotFound, "the run has ended");
    frozen_ = true;  // before the first stop is reported, which is none of the workload's own
    if (told_) told_(true);
    auto stopped = group_ != nullptr && group_->can_freeze() ? group_->SetFrozen(true) : StopEach();
    if (stopped) return stopped;
    if (group_ != nullptr && group_->can_freeze() && StopEach()) return {};
  }
  Kill(EndedBy::kStopped);
  return Fail(Code::kInternal, "the workload could not be frozen, and was killed");
}

Result<void> RunningTree::StopEach() {
  std::set<pid_t> told;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<pid_t> found = Descendants(init_, kMostProcesses);
    std::set<pid_t> family(found.begin(), found.end());
    family.insert(init_);
    bool all = true;
    for (const pid_t pid : found) {
      // A process whose first thread has ended looks like a zombie while others of it run.
      const char state = StandingOf(pid).state;
      const bool still = Stands(state);
      // Whoever waits in the kernel for a vfork child, which is stopped, stops before it runs a line of its own again.
      // Its other threads are told of the stop only if one of them takes it.
      const bool about_to = state == 'D' && OthersStand(pid);
      if ((still || about_to) && told.contains(pid)) continue;
      all = false;
      if (!still) stopped_.insert(pid);
      if (SignalChild(pid, family, SIGSTOP)) told.insert(pid);
      if (state == 'X') told.insert(pid);
    }
    if (all) return {};
    ::usleep(1000);
  }
  return Fail(Code::kExhausted, "new processes were started faster than they were stopped");
}

void RunningTree::ContinueEach() {
  const std::vector<pid_t> found = Descendants(init_, kMostProcesses);
  std::set<pid_t> family(found.begin(), found.end());
  family.insert(init_);
  for (const pid_t pid : found)
    if (stopped_.contains(pid)) (void)SignalChild(pid, family, SIGCONT);
  stopped_.clear();
}

Result<void> RunningTree::Thaw() {
  const std::lock_guard lock(mutex_);
  if (init_ <= 0) return Fail(Code::kNotFound, "the run has ended");
  if (!frozen_) return {};
  if (group_ != nullptr && group_->can_freeze())
    if (auto thawed = group_->SetFrozen(false); !thawed) return thawed;
  ContinueEach();
  frozen_ = false;
  if (told_) told_(false);
  return {};
}

void RunningTree::Kill(EndedBy why) {
  int none = -1;
  killed_.compare_exchange_strong(none, static_cast<int>(why));
  const std::lock_guard lock(mutex_);
  if (pidfd_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

std::optional<EndedBy> RunningTree::killed() const {
  const int why = killed_.load();
  return why < 0 ? std::nullopt : std::optional(static_cast<EndedBy>(why));
}

}  // namespace sluice::supervisor
