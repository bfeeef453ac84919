#include "supervisor/io/process_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "supervisor/io/kernel.h"

namespace sluice::supervisor {
namespace {

constexpr int kKcmpFiles = 2;
constexpr size_t kMaxProcText = 4096;
constexpr size_t kMaxLink = 4096;

std::string ReadProcFile(int proc, const char* name) {
  const UniqueFd fd(Faulty("proc.open", [&] { return openat(proc, name, O_RDONLY | O_CLOEXEC); }));
  if (!fd) return {};
  char buffer[kMaxProcText];
  const ssize_t n = Faulty("proc.read", [&] { return read(fd.get(), buffer, sizeof buffer); });
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
}

std::string ReadLink(int proc, const char* name) {
  char buffer[kMaxLink];
  const ssize_t n = Faulty("proc.link", [&] { return readlinkat(proc, name, buffer, sizeof buffer); });
  // A full buffer may be a cut name, and a cut name is another name.
  return n > 0 && static_cast<size_t>(n) < sizeof buffer ? std::string(buffer, static_cast<size_t>(n)) : std::string();
}

// 0 where it cannot be read.
uint64_t PidNamespace(int proc) {
  struct stat about{};
  return Faulty("proc.namespace", [&] { return fstatat(proc, "ns/pid", &about, 0); }) == 0 ? about.st_ino : 0;
}

UniqueFd OpenProc(pid_t pid) {
  const std::string path = fmt::format("/proc/{}", pid);
  return UniqueFd(Faulty("proc.folder", [&] { return open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
}

ThreadPinning BestPinning() {
  const UniqueFd probe(kernel::PidfdOpen(gettid(), kernel::kPidfdThread));
  return probe ? ThreadPinning::kPidfdThread : ThreadPinning::kViaLeader;
}

}  // namespace

int CallerThread::TakeFd(int fd) const {
  const int taken = Faulty("pidfd.getfd", [&] {
    const int got = kernel::PidfdGetfd(pidfd_.get(), fd);
    return got < 0 ? (errno = -got, -1) : got;
  });
  if (taken < 0) return -errno;
  if (pinning_ == ThreadPinning::kPidfdThread || tid_ == thread_group_) return taken;
  // Tables never become one again: equal now means that both had one table when the descriptor was taken.
  if (::syscall(SYS_kcmp, tid_, thread_group_, kKcmpFiles, 0, 0) == 0) return taken;
  ::close(taken);
  return -EPERM;
}

std::optional<ProcStatus> CallerThread::Status() const { return ParseProcStatus(ReadProcFile(proc_.get(), "status")); }

std::string CallerThread::Link(const char* name) const { return ReadLink(proc_.get(), name); }

bool CallerThread::SignalPending() const {
  const auto status = Status();
  return status && (status->pending & ~status->blocked) != 0;
}

ProcessTable::ProcessTable(Options options) : options_(options), pinning_(options.pinning.value_or(BestPinning())) {}

CallerThreadPtr ProcessTable::Open(pid_t tid) const {
  UniqueFd proc = OpenProc(tid);
  if (!proc) return nullptr;
  const auto status = ParseProcStatus(ReadProcFile(proc.get(), "status"));
  if (!status) return nullptr;
  const bool by_thread = pinning_ == ThreadPinning::kPidfdThread;
  UniqueFd pidfd(Faulty("pidfd.open", [&] {
    return kernel::PidfdOpen(by_thread ? tid : status->thread_group, by_thread ? kernel::kPidfdThread : 0);
  }));
  if (!pidfd) return nullptr;
  // The folder was opened before the pidfd: if it still answers, both are of the same thread.
  if (ReadProcFile(proc.get(), "stat").empty()) return nullptr;
  return std::make_shared<CallerThread>(tid, status->thread_group, std::move(pidfd), std::move(proc), pinning_);
}

CallerThreadPtr ProcessTable::Find(pid_t tid) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = threads_.find(tid); it != threads_.end()) return it->second;
  }
  CallerThreadPtr thread = Open(tid);
  std::vector<CallerThreadPtr> dropped;  // closed outside the lock
  const std::lock_guard lock(mutex_);
  if (!thread) {
    // Perhaps out of descriptors: give back what is only a cache.
    for (auto& [number, old] : threads_) dropped.push_back(std::move(old));
    threads_.clear();
    order_.clear();
    return nullptr;
  }
  while (order_.size() >= options_.most_threads) {
    if (const auto it = threads_.find(order_.front()); it != threads_.end()) {
      dropped.push_back(std::move(it->second));
      threads_.erase(it);
    }
    order_.pop_front();
  }
  if (threads_.insert_or_assign(tid, thread).second) order_.push_back(tid);
  return thread;
}

void ProcessTable::Forget(const CallerThreadPtr& thread) {
  const std::lock_guard lock(mutex_);
  const auto it = threads_.find(thread->tid());
  if (it == threads_.end() || it->second != thread) return;
  threads_.erase(it);
  std::erase(order_, thread->tid());
}

void ProcessTable::ForgetAll() {
  std::unordered_map<pid_t, CallerThreadPtr> dropped;  // closed outside the lock
  const std::lock_guard lock(mutex_);
  dropped.swap(threads_);
  order_.clear();
}

policy::ProcessPtr ProcessTable::Glimpse(pid_t tid) {
  const CallerThreadPtr thread = Find(tid);
  const auto status = thread ? thread->Status() : std::nullopt;
  if (!status) return nullptr;
  auto process = std::make_shared<policy::Process>();
  process->pid = status->thread_group;
  process->uid = status->uid;
  process->comm = status->name;
  return process;
}

policy::ProcessPtr ProcessTable::Identify(CallerThread& thread, Digests digests) {
  std::string exe = thread.Link("exe");
  if (exe.empty()) return nullptr;
  const SteadyTime now = std::chrono::steady_clock::now();
  const std::lock_guard lock(thread.mutex_);
  const policy::ProcessPtr& known = thread.process_;
  // With digests asked for, or where a path may be another file's in another view, the same path may be another file by now: read
  // it again each time.
  if (known && digests == Digests::kNone && options_.view < 0 && known->exe.path == exe &&
      now - thread.ancestors_at_ < kAncestorAge)
    return known;
  policy::ProcessPtr fresh = Read(thread, std::move(exe), digests);
  thread.process_ = fresh;
  thread.ancestors_at_ = now;
  return fresh;
}

policy::ProcessPtr ProcessTable::Read(const CallerThread& thread, std::string exe, Digests digests) {
  const auto status = thread.Status();
  if (!status) return nullptr;
  auto process = std::make_shared<policy::Process>();
  process->pid = status->thread_group;
  process->uid = status->uid;
  process->comm = status->name;
  std::optional<uint64_t> start;
  if (thread.tid() == status->thread_group) {
    start = ParseStartTime(ReadProcFile(thread.proc_fd(), "stat"));
  } else {
    const UniqueFd leader = OpenProc(status->thread_group);
    if (leader) start = ParseStartTime(ReadProcFile(leader.get(), "stat"));
  }
  if (!start) return nullptr;
  process->start_time = *start;
  process->exe = ReadExecutable(thread.proc_fd(), std::move(exe), digests);
  process->ancestors = Ancestors(status->parent, status->thread_group, digests);
  return process;
}

std::vector<policy::Executable> ProcessTable::Ancestors(pid_t parent, pid_t thread_group, Digests digests) {
  std::vector<policy::Executable> out;
  if (thread_group == options_.workload_pid) return out;
  while (parent > 1 && parent != getpid() && out.size() < kMaxAncestors) {
    const UniqueFd proc = OpenProc(parent);
    if (!proc) break;
    const auto status = ParseProcStatus(ReadProcFile(proc.get(), "status"));
    // An orphan hangs from the sandbox's own init, which is not the workload's, unless it is the workload's first process itself.
    // The first process of a namespace that the workload made is its own.
    const bool of_workload = options_.view >= 0 && status && status->parent != getpid();
    if (!status || (status->innermost_pid == 1 && parent != options_.workload_pid && !of_workload)) break;
    // Whoever entered a container was started from outside: what stands there is nobody's that the container could name.
    if (options_.pid_namespace != 0 && PidNamespace(proc.get()) != options_.pid_namespace) break;
    out.push_back(ReadExecutable(proc.get(), ReadLink(proc.get(), "exe"), digests));
    if (parent == options_.workload_pid) break;
    parent = status->parent;
  }
  return out;
}

policy::Executable ProcessTable::ReadExecutable(int proc, std::string link, Digests digests) {
  policy::Executable out;
  out.trusted = IsNamedExecutable(link) && (options_.view < 0 || IsInView(proc, link));
  out.path = std::move(link);
  if (digests == Digests::kNeeded) out.sha256 = Digest(proc);
  return out;
}

// A path is what the mounts of whoever started the program make of it: whether it is the same file's in the view.
bool ProcessTable::IsInView(int proc, const std::string& path) const {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
  const UniqueFd file(static_cast<int>(::syscall(SYS_openat2, options_.view, path.c_str(), &how, sizeof how)));
  struct stat named{};
  struct stat running{};
  return file && fstat(file.get(), &named) == 0 && fstatat(proc, "exe", &running, 0) == 0 && named.st_dev == running.st_dev &&
         named.st_ino == running.st_ino;
}

std::optional<std::array<uint8_t, 32>> ProcessTable::Digest(int proc) {
  const UniqueFd file(Faulty("exe.open", [&] { return openat(proc, "exe", O_RDONLY | O_CLOEXEC); }));
  struct stat about{};
  if (!file || Faulty("exe.look", [&] { return fstat(file.get(), &about); }) != 0 || !S_ISREG(about.st_mode) ||
      static_cast<uint64_t>(about.st_size) > kMaxDigestBytes) {
    return std::nullopt;
  }
  const FileKey key{about.st_dev, about.st_ino, static_cast<uint64_t>(about.st_size),
                    about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec,
                    about.st_ctim.tv_sec * 1'000'000'000 + about.st_ctim.tv_nsec};
  {
    const std::lock_guard lock(digest_mutex_);
    if (const auto it = digests_.find(key); it != digests_.end()) return it->second;
  }
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return std::nullopt;
  std::vector<uint8_t> buffer(size_t{1} << 17);
  for (;;) {
    const ssize_t n = Faulty("exe.read", [&] { return read(file.get(), buffer.data(), buffer.size()); });
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    if (EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(n)) != 1) return std::nullopt;
  }
  std::array<uint8_t, 32> digest{};
  unsigned length = 0;
  if (EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1 || length != digest.size()) return std::nullopt;
  const std::lock_guard lock(digest_mutex_);
  if (digests_.size() >= kMaxCachedDigests) digests_.clear();
  digests_.emplace(key, digest);
  return digest;
}

}  // namespace sluice::supervisor
