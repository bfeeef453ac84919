#include "supervisor/io/container_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/fault.h"
#include "base/log.h"
#include "base/path_error.h"
#include "supervisor/container_text.h"
#include "supervisor/io/container_cgroup.h"
#include "supervisor/io/small_file.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

constexpr std::string_view kSuffix = ".json";
constexpr std::chrono::milliseconds kFreezeWait{1000};
constexpr std::chrono::milliseconds kFreezeLook{5};

// Names no text of the runtime's.
std::string FileName(const ContainerRecord& record) { return fmt::format("{}-{}{}", record.pid, record.start_time, kSuffix); }

std::string ToText(const ContainerRecord& record, const std::string& boot) {
  return nlohmann::json{
             {"boot", boot}, {"id", record.id}, {"pid", record.pid}, {"start_time", record.start_time}, {"cgroup", record.cgroup}}
             .dump() +
         "\n";
}

// Empty `id`: of an earlier boot.
Result<ContainerRecord> FromText(const std::string& text, const std::string& boot) {
  const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
  const auto has = [&](const char* key, auto is) { return in.contains(key) && (in[key].*is)(); };
  using Json = nlohmann::json;
  if (!in.is_object() || !has("boot", &Json::is_string) || !has("id", &Json::is_string) || !has("cgroup", &Json::is_string) ||
      !has("pid", &Json::is_number_integer) || !has("start_time", &Json::is_number_unsigned) || in["pid"] <= 1 ||
      in["pid"] > (1 << 22))
    return Fail(Code::kInvalid, "it is no record of a container");
  if (in["boot"] != boot) return ContainerRecord{};
  return ContainerRecord{in["id"], in["pid"], in["start_time"], in["cgroup"]};
}

// The process of the record, held so that its number cannot become another's; not valid where it is gone. An error says that
// nobody knows: what cannot be looked at may well run.
Result<UniqueFd> Find(const ContainerRecord& record) {
  UniqueFd pidfd(static_cast<int>(Faulty("record.process", [&] { return ::syscall(SYS_pidfd_open, record.pid, 0); })));
  // Gone: its number is nobody's, or a thread's (ENOENT, of older kernels EINVAL).
  if (!pidfd && (errno == ESRCH || errno == ENOENT || errno == EINVAL)) return UniqueFd();
  if (!pidfd) return FailErrno(fmt::format("cannot look at process {}", record.pid), errno);
  const auto stat = ReadSmallFile(fmt::format("/proc/{}/stat", record.pid));
  if (!stat && (stat.error().sys_errno == ENOENT || stat.error().sys_errno == ESRCH)) return UniqueFd();
  if (!stat) return std::unexpected(stat.error());
  const auto start = ParseStartTime(*stat);
  return start && *start == record.start_time ? std::move(pidfd) : UniqueFd();
}

// What is done to a container as a whole: the process on record is looked at anew.
struct Whole {
  NamespaceId pids;
  bool first = false;  ///< of its pid namespace, which dies with it
  std::string folder;  ///< of its cgroup; empty: in the one on record it is no longer
};

Whole LookAt(const ContainerRecord& record) {
  Whole whole;
  struct stat about{};
  if (::stat(fmt::format("/proc/{}/ns/pid", record.pid).c_str(), &about) == 0) whole.pids = {about.st_dev, about.st_ino};
  const auto status = ReadSmallFile(fmt::format("/proc/{}/status", record.pid));
  const auto parsed = status ? ParseProcStatus(*status) : std::nullopt;
  whole.first = parsed && parsed->innermost_pid == 1;
  const auto now = ReadSmallFile(fmt::format("/proc/{}/cgroup", record.pid));
  const auto path = now ? ParseCgroup2Path(*now) : std::nullopt;
  // A container may be given cgroups of its own below that one.
  if (!record.cgroup.empty() && path && (*path == record.cgroup || path->starts_with(record.cgroup + "/")))
    whole.folder = CgroupFolder(record.cgroup);
  return whole;
}

// Who stands still starts nothing and goes nowhere: what is found then was there before, and what does not belong goes on.
bool Freeze(const Whole& whole) {
  if (!HoldsOnly(whole.folder, whole.pids) || !WriteSmallFile(whole.folder + "/cgroup.freeze", "1")) return false;
  const auto until = std::chrono::steady_clock::now() + kFreezeWait;
  do {
    const auto events = ReadSmallFile(whole.folder + "/cgroup.events");
    if (events && events->find("frozen 1") != std::string::npos) {
      if (HoldsOnly(whole.folder, whole.pids)) return true;
      break;
    }
    std::this_thread::sleep_for(kFreezeLook);
  } while (std::chrono::steady_clock::now() < until);
  (void)WriteSmallFile(whole.folder + "/cgroup.freeze", "0");
  return false;
}

}  // namespace

Result<ContainerRecords> ContainerRecords::Open(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return FailPath(fmt::format("cannot make the state folder {}", folder), errno);
  UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat about{};
  if (!directory || ::fstat(directory.get(), &about) != 0)
    return FailPath(fmt::format("cannot open the state folder {}", folder), errno);
  if (about.st_uid != ::geteuid() || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Fail(
        Code::kInvalid,
        fmt::format("the state folder {} is another user's, or others may write it: chmod 0700 it, or name another", folder));
  if (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0)
    return Fail(Code::kInvalid, fmt::format("another agent keeps its records in {}: give each a --state-dir of its own", folder));
  auto boot = ReadSmallFile("/proc/sys/kernel/random/boot_id");
  if (!boot) return std::unexpected(boot.error());
  return ContainerRecords(folder, *std::move(boot), std::move(directory));
}

Result<void> ContainerRecords::Put(const ContainerRecord& record) {
  const std::string name = FileName(record);
  const std::string fresh = name + ".new";
  const std::string text = ToText(record, boot_);
  const UniqueFd file(Faulty("record.open", [&] {
    return ::openat(directory_.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  }));
  const auto write = [&] { return ::write(file.get(), text.data(), text.size()); };
  if (!file || Faulty("record.write", write) != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0 ||
      ::renameat(directory_.get(), fresh.c_str(), directory_.get(), name.c_str()) != 0)
    return FailErrno(fmt::format("cannot record a container in {}", folder_), errno);
  return {};
}

void ContainerRecords::Remove(const ContainerRecord& record) { (void)::unlinkat(directory_.get(), FileName(record).c_str(), 0); }

Result<std::vector<ContainerRecord>> ContainerRecords::Read() {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(
      ::fdopendir(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir);
  if (!entries) return FailErrno(fmt::format("cannot read the state folder {}", folder_), errno);
  std::vector<ContainerRecord> records;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr && errno != 0) return FailErrno(fmt::format("cannot read the state folder {}", folder_), errno);
    if (entry == nullptr) return records;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const auto text = name.ends_with(kSuffix) ? ReadSmallFile(folder_ + "/" + name) : Result<std::string>(std::string());
    // Of a record that cannot be read, the container may well run.
    if (!text) return std::unexpected(text.error());
    auto record = FromText(*text, boot_);
    if (record && !record->id.empty()) {
      records.push_back(*std::move(record));
      continue;
    }
    if (!record) LogWarn("{}/{}: {}; removed", folder_, name, record.error().message);
    (void)::unlinkat(directory_.get(), name.c_str(), 0);
  }
}

bool IsRunning(const ContainerRecord& record) {
  const auto process = Find(record);
  return !process || process->valid();
}

Result<Ended> EndContainer(const ContainerRecord& record, Unsupervised fate) {
  const auto found = Find(record);
  if (!found) return std::unexpected(found.error());
  const UniqueFd& process = *found;
  if (!process) return Ended::kGone;
  const Whole whole = LookAt(record);
  // It was this one that was looked at.
  if (::syscall(SYS_pidfd_send_signal, process.get(), 0, nullptr, 0) != 0 && errno == ESRCH) return Ended::kGone;
  if (fate == Unsupervised::kFreeze && Freeze(whole)) return Ended::kFrozen;
  // A pid namespace dies with its first process, whoever else is in the cgroup. That is needed where the namespace is shared.
  const bool by_cgroup =
      !whole.first && HoldsOnly(whole.folder, whole.pids) && WriteSmallFile(whole.folder + "/cgroup.kill", "1").has_value();
  const bool by_process = ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0 || errno == ESRCH;
  if (!by_cgroup && !by_process) return FailErrno(fmt::format("cannot kill container {}", record.id), errno);
  if (!by_cgroup && !whole.first)
    return Fail(Code::kInternal,
                "its first process is killed; it shares its process namespace, and its cgroup with others, so that more of it "
                "may run on");
  return Ended::kKilled;
}

}  // namespace sluice::supervisor
