#include "supervisor/io/workload_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "supervisor/cgroup_place.h"
#include "supervisor/io/small_file.h"

namespace sluice::supervisor {
namespace {

constexpr const char* kOldEvents = "/memory.oom_control";
constexpr const char* kLeaf = "/workload";
constexpr const char* kMostBelow = "1000";  // groups that a workload may make in its own

constexpr int kTries = 64;  // of a process's names for its groups

std::string NameOf(const std::string& parent, pid_t pid, int nth) { return fmt::format("{}/sluice-{}-{}", parent, pid, nth); }

// Every run of a process has a folder of its own.
Result<std::string> MakeFolder(const std::string& parent) {
  for (int i = 0; i < kTries; ++i) {
    std::string folder = NameOf(parent, ::getpid(), i);
    if (::mkdir(folder.c_str(), 0755) == 0) return folder;
    if (errno != EEXIST) return FailErrno(fmt::format("{}", parent), errno);
  }
  return Fail(Code::kExhausted, fmt::format("{} holds {} groups of this process already", parent, kTries));
}

// Where groups of a run are made: this process's own group, and the one above it.
std::vector<std::string> ParentsOf(const CgroupPlace& place) {
  std::vector<std::string> parents = {place.folder};
  if (place.folder != place.mount) parents.push_back(place.folder.substr(0, place.folder.rfind('/')));
  return parents;
}

enum class Busy : uint8_t { kWait, kLeave };

// What was killed a moment ago may still count as there.
bool RemoveFolder(const std::string& folder, Busy busy = Busy::kWait) {
  for (int i = 0; ::rmdir(folder.c_str()) != 0; ++i) {
    if (errno != EBUSY) return true;
    if (busy == Busy::kLeave || i == 50) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// With what the workload made there.
bool RemoveTree(const std::string& folder, Busy busy = Busy::kWait) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::error_code ignored; at->is_directory(ignored)) (void)RemoveTree(at->path().string(), busy);
  return RemoveFolder(folder, busy);
}

// Whoever owns a file may write it, whatever its mode: it may change that.
bool MayWrite(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return errno != ENOENT;
  if (about.st_uid == ::geteuid()) return true;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(::getgroups(0, nullptr), 0)));
  if (!groups.empty() && ::getgroups(static_cast<int>(groups.size()), groups.data()) < 0) return true;
  groups.push_back(::getegid());
  const mode_t needed = std::ranges::find(groups, about.st_gid) != groups.end() ? S_IWGRP : S_IWOTH;
  return (about.st_mode & needed) != 0;
}

std::string WithSign(char sign, const std::vector<std::string>& controllers) {
  std::string text;
  for (const std::string& controller : controllers) text += fmt::format("{}{}{}", text.empty() ? "" : " ", sign, controller);
  return text;
}

}  // namespace

std::unique_ptr<WorkloadGroup> WorkloadGroup::Make(const Limits& wanted, LimitsInForce* limits) {
  std::unique_ptr<WorkloadGroup> group(new WorkloadGroup);
  // A controller that version 1 has is not to be had in version 2.
  if (wanted.memory) group->MakeOld("memory", "memory.limit_in_bytes", *wanted.memory, &limits->memory);
  if (wanted.processes) group->MakeOld("pids", "pids.max", *wanted.processes, &limits->processes);
  (void)group->MakeUnified(wanted, limits);
  const bool lacks = (wanted.memory && !limits->memory) || (wanted.processes && !limits->processes);
  if (lacks || group->folders_.empty()) limits->no_cgroup = group->reason_;
  if (group->folders_.empty()) return nullptr;
  return group;
}

bool WorkloadGroup::MakeUnified(const Limits& wanted, LimitsInForce* limits) {
  const auto own = ReadSmallFile("/proc/self/cgroup");
  const auto mounts = ReadSmallFile("/proc/self/mountinfo");
  const auto place = own && mounts ? FindCgroup2(*own, *mounts) : std::nullopt;
  if (!place) {
    reason_ = "no cgroup 2 is mounted that shows this process's group";
    return false;
  }
  std::vector<std::string> controllers;
  if (wanted.memory && !limits->memory) controllers.emplace_back("memory");
  if (wanted.processes && !limits->processes) controllers.emplace_back("pids");
  const std::vector<std::string> parents = ParentsOf(*place);
  std::vector<std::string> reasons;  // of each, with all controllers
  for (const bool complete : {true, false}) {
    if (!complete) reason_ = fmt::format("{}", fmt::join(reasons, "; "));
    for (const std::string& parent : parents) {
      if (complete && !TurnOn(parent, controllers, parent == place->folder)) {
        reasons.push_back(reason_);
        continue;
      }
      auto folder = MakeFolder(parent);
      if (!folder) {
        if (complete) reasons.push_back(folder.error().message);
        continue;
      }
      UniqueFd entrance(::open((*folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
      const auto type = ReadSmallFile(*folder + "/cgroup.type");
      if (!entrance || !type || *type != "domain\n") {
        if (complete) reasons.push_back(fmt::format("no process can enter a group below {}", parent));
        (void)RemoveFolder(*folder);
        continue;
      }
      unified_ = *folder;
      folders_.push_back(*std::move(folder));
      entrances_.push_back(std::move(entrance));
      if (wanted.memory && !limits->memory && WriteSmallFile(unified_ + "/memory.max", fmt::format("{}", *wanted.memory))) {
        limits->memory = LimitInForce{*wanted.memory, LimitBy::kCgroup2};
        memory_events_ = unified_ + "/memory.events";
        (void)WriteSmallFile(unified_ + "/memory.swap.max", "0");   // absent without swap accounting
        (void)WriteSmallFile(unified_ + "/memory.oom.group", "1");  // a run that lost a process at random is of no use
      }
      if (wanted.processes && !limits->processes && WriteSmallFile(unified_ + "/pids.max", fmt::format("{}", *wanted.processes)))
        limits->processes = LimitInForce{*wanted.processes, LimitBy::kCgroup2};
      return true;
    }
  }
  return false;
}

// Whether groups below `parent` have the controllers, turned on where that is allowed.
bool WorkloadGroup::TurnOn(const std::string& parent, const std::vector<std::string>& controllers, bool own) {
  const auto on = ReadSmallFile(parent + "/cgroup.subtree_control");
  const auto there = ReadSmallFile(parent + "/cgroup.controllers");
  if (!on || !there) {
    reason_ = (on ? there : on).error().message;
    return false;
  }
  std::vector<std::string> missing;
  for (const std::string& controller : controllers) {
    if (NamesController(*on, controller)) continue;
    if (!NamesController(*there, controller)) {
      reason_ = fmt::format("{} has no {} controller", parent, controller);
      return false;
    }
    missing.push_back(controller);
  }
  if (missing.empty()) return true;
  if (!MakeRoom(parent, own)) return false;
  const auto turned = WriteSmallFile(parent + "/cgroup.subtree_control", WithSign('+', missing));
  if (turned && moved_) moved_->controllers = std::move(missing);
  if (turned) return true;
  reason_ = turned.error().message;
  StepBack();
  return false;
}

// "No internal processes": a group with processes of its own has none below it that are limited. The kernel says so of memory;
// with pids it gives groups that nobody can enter ("domain invalid"). The root is exempt. This process, if it is alone, steps
// into a leaf.
bool WorkloadGroup::MakeRoom(const std::string& parent, bool own) {
  const bool is_root = !ReadSmallFile(parent + "/cgroup.type");
  const auto processes = ReadSmallFile(parent + "/cgroup.procs");
  if (is_root || (processes && processes->empty())) return true;
  const std::string self = fmt::format("{}\n", ::getpid());
  if (!own || moved_ || !processes || *processes != self) {
    reason_ = fmt::format("{} holds other processes, and then has no limited group below it", parent);
    return false;
  }
  auto leaf = MakeFolder(parent);
  if (!leaf) {
    reason_ = leaf.error().message;
    return false;
  }
  if (const auto stepped = WriteSmallFile(*leaf + "/cgroup.procs", self); !stepped) {
    reason_ = stepped.error().message;
    (void)RemoveFolder(*leaf);
    return false;
  }
  moved_ = Moved{parent, *std::move(leaf), {}};
  return true;
}

void WorkloadGroup::StepBack() {
  if (!moved_) return;
  if (!moved_->controllers.empty())
    (void)WriteSmallFile(moved_->from + "/cgroup.subtree_control", WithSign('-', moved_->controllers));
  (void)WriteSmallFile(moved_->from + "/cgroup.procs", fmt::format("{}", ::getpid()));
  (void)RemoveFolder(moved_->to);
  moved_.reset();
}

void WorkloadGroup::MakeOld(const char* controller, const char* file, uint64_t value, std::optional<LimitInForce>* in_force) {
  const auto own = ReadSmallFile("/proc/self/cgroup");
  const auto mounts = ReadSmallFile("/proc/self/mountinfo");
  const auto place = own && mounts ? FindCgroup1(controller, *own, *mounts) : std::nullopt;
  if (!place) return;
  auto folder = MakeFolder(place->folder);
  if (!folder) return;
  UniqueFd entrance(::open((*folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!entrance || !WriteSmallFile(fmt::format("{}/{}", *folder, file), fmt::format("{}", value))) {
    (void)RemoveFolder(*folder);
    return;
  }
  *in_force = LimitInForce{value, LimitBy::kCgroup1};
  if (std::strcmp(controller, "memory") == 0) memory_events_ = *folder + kOldEvents;
  folders_.push_back(*std::move(folder));
  entrances_.push_back(std::move(entrance));
}

Result<void> WorkloadGroup::Enclose(WorkloadGroup* group) {
  if (group != nullptr)
    if (auto made = group->MakeLeaves(); !made) return made;
  const auto own = ReadSmallFile("/proc/self/cgroup");
  const auto mounts = ReadSmallFile("/proc/self/mountinfo");
  if (!own || !mounts) return std::unexpected((own ? mounts : own).error());
  constexpr const char* kAdvice =
      "a container could write what bounds this process, and more: start it with a control group delegated to it "
      "(systemd-run --user -p Delegate=yes --scope), or where the groups are root's";
  for (const OwnCgroup& one : FindCgroups(*own, *mounts)) {
    if (!one.place)
      return Fail(Code::kUnsupported,
                  fmt::format("--allow-containers: the control group ({}) is mounted nowhere here, and so not "
                              "known to be another's; {}",
                              one.name, kAdvice));
    const bool enclosed = group != nullptr && std::ranges::any_of(group->folders_, [&](const std::string& folder) {
                            return folder.starts_with(one.place->mount + "/");
                          });
    if (!enclosed && (MayWrite(one.place->folder) || MayWrite(one.place->folder + "/cgroup.procs")))
      return Fail(Code::kUnsupported,
                  fmt::format("--allow-containers: {} may be written by this user; {}", one.place->folder, kAdvice));
  }
  return {};
}

Result<void> WorkloadGroup::MakeLeaves() {
  for (size_t i = 0; i < folders_.size(); ++i) {
    const std::string leaf = folders_[i] + kLeaf;
    if (::mkdir(leaf.c_str(), 0755) != 0) return FailErrno(fmt::format("cannot make {}", leaf), errno);
    leaves_.push_back(leaf);
    entrances_[i] = UniqueFd(::open((leaf + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (!entrances_[i]) return FailErrno(leaf, errno);
    (void)WriteSmallFile(folders_[i] + "/cgroup.max.descendants", kMostBelow);  // absent in version 1
    // In version 1 a kill counts in the group that it happened to.
    if (memory_events_ == folders_[i] + kOldEvents) memory_events_ = leaf + kOldEvents;
  }
  return {};
}

bool WorkloadGroup::RemoveOf(pid_t pid) {
  const auto own = ReadSmallFile("/proc/self/cgroup");
  const auto mounts = ReadSmallFile("/proc/self/mountinfo");
  if (!own || !mounts) return true;
  std::vector<std::string> parents;
  if (const auto place = FindCgroup2(*own, *mounts)) parents = ParentsOf(*place);
  for (const char* controller : {"memory", "pids"})
    if (const auto place = FindCgroup1(controller, *own, *mounts)) parents.push_back(place->folder);
  bool removed = true;
  for (const std::string& parent : parents)
    for (int i = 0; i < kTries; ++i) removed &= RemoveTree(NameOf(parent, pid, i), Busy::kLeave);
  return removed;
}

WorkloadGroup::~WorkloadGroup() {
  entrances_.clear();
  for (const std::string& leaf : leaves_) (void)RemoveTree(leaf);
  for (const std::string& folder : folders_) (void)RemoveFolder(folder);
  StepBack();
}

std::vector<int> WorkloadGroup::entrances() const {
  std::vector<int> fds;
  fds.reserve(entrances_.size());
  for (const UniqueFd& entrance : entrances_) fds.push_back(entrance.get());
  return fds;
}

Result<void> WorkloadGroup::SetFrozen(bool frozen) const {
  return WriteSmallFile(unified_ + "/cgroup.freeze", frozen ? "1" : "0");
}

bool WorkloadGroup::MemoryRanOut() const {
  if (memory_events_.empty()) return false;
  const auto events = ReadSmallFile(memory_events_);
  return events && KeyedNumber(*events, "oom_kill").value_or(0) > 0;
}

}  // namespace sluice::supervisor
