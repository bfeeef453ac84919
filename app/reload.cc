#include "app/reload.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iterator>
#include <vector>

#include "app/sd_notify.h"
#include "app/watched_names.h"
#include "app/whole_file.h"
#include "base/log.h"
#include "base/patient_poll.h"
#include "base/poll_timeout.h"

namespace sluice::app {
namespace {

// An editor or a ConfigMap writes in several steps; one reload serves them all.
constexpr std::chrono::milliseconds kSettle{20};
// A file's time of change is that of a tick, and of another clock where the file is elsewhere.
constexpr std::chrono::seconds kClockSlack{1};
// Of folders that lead to the policy and its includes: a deep path has ten.
constexpr size_t kMaxFolders = 512;
constexpr int kMaxLooks = 16;                            // at ways that change while they are looked at
constexpr std::chrono::milliseconds kLongestLook{2000};  // between two, at a file that is being written

bool IsSymbolicLink(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

// A folder is moved away and another comes in its place; what is in it by then was written before. An editor moves a file away
// that it is about to write.
uint32_t EventsOf(NameKind kind) {
  return kind == NameKind::kFolder ? IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
                                   : IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE;
}

}  // namespace

Result<std::unique_ptr<PolicyWatcher>> PolicyWatcher::Start(policy::SnapshotPtr own, Load load, Put put, ReloadNotice notice,
                                                            std::chrono::milliseconds unwatched) {
  std::unique_ptr<PolicyWatcher> watcher(new PolicyWatcher(std::move(own), std::move(load), std::move(put), notice));
  sigset_t hangup;
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  watcher->signal_ = UniqueFd(signalfd(-1, &hangup, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!watcher->signal_ || watcher->stop_.Open() != 0) return FailErrno("cannot wait for SIGHUP", errno);
  if (unwatched.count() > 0)
    watcher->watch_from_ = SystemClock().Steady() + unwatched;
  else
    watcher->BeginWatching();
  watcher->thread_ = std::thread([w = watcher.get()] { w->Loop(); });
  return watcher;
}

PolicyWatcher::~PolicyWatcher() {
  stop_.Call();
  if (thread_.joinable()) thread_.join();
}

void PolicyWatcher::BeginWatching() {
  // A user has 128 of these by default (fs.inotify.max_user_instances), and a machine may hold a thousand runs.
  if (own_->files().empty()) return;
  inotify_ = UniqueFd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_)
    LogWarn("cannot watch the policy file: {} (see fs.inotify.max_user_instances); send SIGHUP after a change",
            std::strerror(errno));
  WatchFolders();
}

// Folders, not files: an editor replaces a file by renaming over it, and a watch on the old inode would then say nothing. A
// ConfigMap mount swaps the link `..data` on the way to the file; others swap `current`, or a folder.
bool PolicyWatcher::WatchFolders() {
  if (!inotify_) return false;  // which was told
  const auto before = std::exchange(names_, {});
  std::set<int> former = std::exchange(folders_, {});
  std::vector<WatchedName> watched;
  for (int look = 0; look < kMaxLooks; ++look) {
    std::vector<WatchedName> now;
    for (const std::string& file : own_->file_names()) std::ranges::move(NamesOnTheWay(file), std::back_inserter(now));
    // As it was before it was watched, so that whatever changes from here on is told.
    if (look > 0 && now == watched) break;
    former.merge(std::exchange(folders_, {}));
    names_.clear();
    for (const WatchedName& name : now) Watch(name);
    watched = std::move(now);
  }
  // Who swaps folders and keeps the old ones would have all of them watched in time.
  for (const int folder : former)
    if (!folders_.contains(folder)) inotify_rm_watch(inotify_.get(), folder);
  if (folders_.size() >= kMaxFolders)
    LogWarn("only {} of the folders that lead to the policy are watched; send SIGHUP after a change", kMaxFolders);
  return !std::ranges::includes(before, names_);
}

void PolicyWatcher::Watch(const WatchedName& watched) {
  if (folders_.size() >= kMaxFolders) return;
  // A folder that is watched already goes on with these events too.
  const uint32_t events = EventsOf(watched.kind) | IN_MOVE_SELF | IN_DELETE_SELF | IN_MASK_ADD;
  const int folder = inotify_add_watch(inotify_.get(), watched.folder.c_str(), events);
  if (folder >= 0) {
    folders_.insert(folder);
    names_.emplace(std::pair(folder, watched.name), watched);
  } else if (errno != ENOENT && (errno != EACCES || watched.kind != NameKind::kFolder)) {
    // That one is gone, its own folder tells; that one moves which may only be entered, what is in it.
    LogWarn("cannot watch {}: {}; send SIGHUP after a change", watched.folder, std::strerror(errno));
  }
}

bool PolicyWatcher::DrainHangups() {
  signalfd_siginfo info{};
  bool any = false;
  while (::read(signal_.get(), &info, sizeof info) > 0) any = true;
  return any;
}

// A symbolic link is whole at once, and a folder may be. A file that is made, and another name of a file that is there, look the
// same to whoever is only told of the name: what was written before may be closed already, or never be closed under this one.
bool PolicyWatcher::IsWhole(const WatchedName& watched, uint32_t event) {
  if ((event & EventsOf(watched.kind)) == 0) return false;
  const std::string path = watched.folder + "/" + watched.name;
  if ((event & IN_CREATE) == 0 || (event & IN_ISDIR) != 0 || IsSymbolicLink(path)) {
    begun_.erase(path);
    return true;
  }
  LookLaterAt(path);
  return false;
}

int PolicyWatcher::UntilLook() const { return begun_.empty() ? -1 : PollTimeout(look_at_); }

// Whether one of them is whole now, where it is time to look.
bool PolicyWatcher::LookAtBegun() {
  if (UntilLook() != 0) return false;
  bool whole = false;
  std::erase_if(begun_, [&](const std::string& path) {
    const Wholeness wholeness = WholenessOf(path);
    if (wholeness == Wholeness::kUnknown)
      LogWarn("{} was put in place, and whether it is whole cannot be told; send SIGHUP if it is", path);
    whole = whole || wholeness == Wholeness::kWhole;
    return wholeness != Wholeness::kBegun;
  });
  look_pause_ = std::min(look_pause_ * 2, kLongestLook);
  look_at_ = SystemClock().Steady() + look_pause_;
  if (look_pause_ == kLongestLook && !begun_.empty() && begun_notice_.Due(*begun_.begin(), SystemClock().Steady()))
    LogWarn("{} is open for writing: the policy is read anew once it is closed, or at SIGHUP", *begun_.begin());
  return whole;
}

void PolicyWatcher::LookLaterAt(const std::string& path) {
  if (!begun_.insert(path).second) return;
  look_pause_ = kSettle;
  look_at_ = SystemClock().Steady() + look_pause_;
}

// Half of a file may be a policy too.
bool PolicyWatcher::BeingWritten() {
  for (const std::string& file : own_->file_names())
    if (WholenessOf(file) == Wholeness::kBegun) LookLaterAt(file);
  return !begun_.empty();
}

bool PolicyWatcher::DrainInotify() {
  alignas(inotify_event) char buffer[8192];
  bool ours = false;
  ssize_t n = 0;
  while ((n = ::read(inotify_.get(), buffer, sizeof buffer)) > 0) {
    for (ssize_t at = 0; at < n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if ((event->mask & IN_Q_OVERFLOW) != 0) ours = true;
      if ((event->mask & (IN_MOVE_SELF | IN_DELETE_SELF | IN_UNMOUNT)) != 0) ours = ours || folders_.contains(event->wd);
      if (event->len == 0) continue;
      const auto found = names_.find({event->wd, event->name});
      if (found != names_.end() && IsWhole(found->second, event->mask)) ours = true;
    }
  }
  return ours;
}

// Between the reading of the files and the watching of their folders nobody would be told of a change.
bool PolicyWatcher::MissedAChange() {
  using std::chrono::seconds, std::chrono::nanoseconds;
  const auto read_from = std::chrono::duration_cast<nanoseconds>(own_->read_from().time_since_epoch() - kClockSlack);
  const auto is_newer = [&](const std::string& name) {
    return std::ranges::any_of(NamesOnTheWay(name), [&](const WatchedName& watched) {
      struct stat status{};
      return ::lstat((watched.folder + "/" + watched.name).c_str(), &status) == 0 &&
             seconds(status.st_ctim.tv_sec) + nanoseconds(status.st_ctim.tv_nsec) >= read_from;
    });
  };
  if (std::ranges::none_of(own_->file_names(), is_newer)) return false;
  const auto next = load_();
  return !next || (*next)->digest() != own_->digest();
}

void PolicyWatcher::Loop() {
  bool changed = inotify_ && MissedAChange();
  for (;;) {
    if (watch_from_ && PollTimeout(*watch_from_) == 0) {
      watch_from_.reset();
      BeginWatching();
      changed = changed || (inotify_ && MissedAChange());
    }
    if (changed && !BeingWritten()) {
      changed = false;
      Reload("file changed");
    }
    pollfd fds[] = {{stop_.fd(), POLLIN, 0}, {signal_.get(), POLLIN, 0}, {inotify_.get(), POLLIN, 0}};
    // Where it cannot wait, it looks all the same, after each rest: a policy that takes something back must not wait for it.
    if (PatientPoll(fds, watch_from_ ? PollTimeout(*watch_from_) : UntilLook()) < 0 && errno != EINTR)
      complaint_.Tell("wait for changes of the policy", errno, "they are looked for now and then");
    if (stop_.called()) return;
    if (DrainHangups()) Reload("SIGHUP");
    if (DrainInotify()) {
      if (stop_.Rest(kSettle)) return;
      DrainInotify();
      changed = true;
    }
    if (LookAtBegun()) changed = true;
  }
}

void PolicyWatcher::Reload(const char* cause) {
  const bool told = notice_ == ReloadNotice::kService;
  if (told) NotifyReloading();
  if (const auto revision = PutAnew(); !revision) {
    LogError("policy not reloaded ({}); the one in force stays\n{}", cause, policy::RenderError(revision.error(), false));
  } else {
    const size_t rules = own_->rules().size();
    LogInfo("policy reloaded ({}): revision {}, {} rule{}, digest {}", cause, *revision, rules, rules == 1 ? "" : "s",
            own_->digest().substr(0, 12));
  }
  if (told) NotifyService("READY=1");
}

Result<uint64_t> PolicyWatcher::PutAnew() {
  auto next = load_();
  // Where the names lead now, what is wrong may be put right: from here on that is seen, and it may have been just before.
  if (!next && WatchFolders()) next = load_();
  if (!next) return std::unexpected(next.error());
  own_ = *std::move(next);
  if (WatchFolders() && MissedAChange()) {  // once: whoever changes it all the time is served by the next event
    next = load_();
    if (!next) return std::unexpected(next.error());
    own_ = *std::move(next);
    WatchFolders();
  }
  return put_(own_);
}

}  // namespace sluice::app
