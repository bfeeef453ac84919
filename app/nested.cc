#include "app/nested.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/trust.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/patient_poll.h"
#include "base/poll_timeout.h"
#include "base/socket_pair.h"
#include "base/wake_timer.h"
#include "policy/compiled.h"
#include "policy/io/load.h"
#include "prover/prove.h"
#include "supervisor/environment.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/signal_pipe.h"
#include "supervisor/io/workload_group.h"
#include "supervisor/mount_plan.h"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;
using supervisor::Step;

constexpr size_t kPassedFds = 5;    // the launch, the policy, and what become 0 to 2
constexpr int kLifelineNumber = 3;  // beside its standard streams
constexpr int kRationsNumber = 4;
constexpr int kRecordsNumber = 5;
constexpr std::chrono::milliseconds kEndTime{3000};  // for a child that is to end by itself
constexpr size_t kMaxNestedCloses = 64;              // each may take kWakeInterval, and the run's end waits for them
constexpr int kKilledMs = 50;                        // between looks at one that was killed
constexpr int kSweptMs = 10;                         // … and at what one left
constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

// What a file of memory holds, as it is now: its maker may write to it still.
Result<std::string> ReadMemory(const UniqueFd& file, size_t limit) {
  struct stat about{};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < 0 ||
      static_cast<size_t>(about.st_size) > limit)
    return Fail(Code::kInvalid, fmt::format("the request is no plain file of at most {} octets", limit));
  std::string text(static_cast<size_t>(about.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = ::pread(file.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got <= 0) return Fail(Code::kInvalid, "the request cannot be read");
    done += static_cast<size_t>(got);
  }
  return text;
}

Result<void> WriteFile(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return FailErrno(path, errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return FailErrno(path, errno);
  return {};
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// What the outer policy lets out with a credential goes without any that the workload sent of its own. An inner run has no
// credentials that could take their place: to it, those requests are denied. Null: there are none.
policy::SnapshotPtr WithoutCredentials(const policy::Snapshot& outer) {
  const auto with = [](const policy::Rule& rule) { return rule.allow && rule.credential != policy::kNoIndex16; };
  if (std::ranges::none_of(outer.compiled().rules, with)) return nullptr;
  policy::PolicySource source;
  source.rules = outer.compiled().rules;
  source.mode = outer.mode();
  source.settings = outer.settings();
  source.credentials = outer.credentials();
  source.proxies = outer.proxies();
  for (policy::Rule& rule : source.rules) {
    if (!with(rule)) continue;
    rule.allow = rule.routes = false;
    rule.credential = rule.proxy = policy::kNoIndex16;
    rule.with.clear();
    rule.via.clear();
    rule.pins.clear();
  }
  return policy::Compile(std::move(source));
}

Error Frozen() { return {Code::kUnsupported, "the outer run is frozen, and starts nothing in it", 0, std::nullopt}; }

// All that a nested launch may say.
Result<void> CheckWishes(const LaunchFile& wanted) {
  LaunchFile rest = wanted;
  rest.command.clear();
  rest.cwd.clear();
  rest.environment_unsafe.clear();
  rest.name.clear();
  rest.wall_time.clear();
  rest.quiet = rest.fail_on_deny = false;
  if (rest != LaunchFile())
    return Fail(Code::kInvalid, "a launch in a sandbox has a command, a folder, variables, a name and a wall time alone");
  if (wanted.command.empty() || wanted.command.front().empty()) return Fail(Code::kInvalid, "there is no command");
  if (!wanted.cwd.starts_with('/')) return Fail(Code::kInvalid, "there is no folder to start in");
  return {};
}

}  // namespace

struct NestedRuns::Session {
  UniqueFd client;
  std::string folder;
  policy::SnapshotPtr inner;
  std::vector<UniqueFd> standard;
  pid_t child = 0;
  UniqueFd pidfd;
  uint64_t proved = 0;  // by the outer policy of that generation
  std::unique_ptr<RecordReceiver> records;
  bool over = false;
  bool told = false;                        // its asker has its exit code
  std::optional<SteadyTime> patience;       // once it is over: until when its child may take to end
  std::optional<SteadyTime> sweeping_till;  // once that was killed: until when what it left is looked for

  // For poll(2): when to look again, beside the child's end. -1: nothing is waited for.
  [[nodiscard]] int LookAgain() const {
    if (sweeping_till) return kSweptMs;
    if (!patience) return -1;
    const int left = PollTimeout(*patience);
    return left > 0 ? left : kKilledMs;
  }
};

Result<std::unique_ptr<NestedRuns>> NestedRuns::Prepare() {
  std::unique_ptr<NestedRuns> runs(new NestedRuns);
  std::string folder = "/tmp/sluice-nested-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return FailErrno("cannot make a folder for runs in the sandbox", errno);
  runs->folder_ = folder;
  // A folder of its own: the socket alone is shown to the workload.
  runs->path_ = folder + "/socket";
  runs->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!runs->wake_) return FailErrno("cannot make an event descriptor", errno);
  auto names = MakeNameRations();
  if (!names) return std::unexpected(names.error());
  runs->names_ = *std::move(names);
  auto listener =
      ListenUnix(runs->path_,
                 {.type = SOCK_SEQPACKET, .backlog = static_cast<int>(kMaxNestedRuns), .descriptors = SentDescriptors::kWanted});
  if (!listener) return std::unexpected(listener.error());
  runs->listener_ = *std::move(listener);
  return runs;
}

NestedRuns::~NestedRuns() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (Reins& reins : reins_) Cut(reins);  // all at once
    }
    Wake();
    thread_.join();
  }
  while (std::erase_if(sessions_, [this](const auto& session) { return Ended(*session); }), !sessions_.empty()) {
    std::vector<pollfd> ends;
    ends.reserve(sessions_.size());
    for (const auto& session : sessions_) ends.push_back({session->pidfd.get(), POLLIN, 0});
    (void)PatientPoll(ends, LookAgain());
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void NestedRuns::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t woken = ::write(wake_.get(), &one, sizeof one);
}

void NestedRuns::PolicyChanged() {
  const policy::SnapshotPtr in_force = policy_->Get();
  {
    const std::lock_guard lock(mutex_);
    for (Reins& reins : reins_)
      if (reins.digest != in_force->digest()) Stop(reins);
  }
  Wake();
}

void NestedRuns::Freeze() {
  {
    const std::lock_guard lock(mutex_);
    frozen_ = froze_ = true;
    for (Reins& reins : reins_) Cut(reins);
  }
  Wake();
}

void NestedRuns::Thaw() {
  {
    const std::lock_guard lock(mutex_);
    frozen_ = false;
  }
  Wake();
}

// All that a run in the sandbox has of the network goes through its supervisor, which the workload cannot signal. What is
// stopped here is not reaped, so that the number is its own.
void NestedRuns::Stop(Reins& reins) {
  ::kill(reins.child, SIGSTOP);
  reins.stopped = true;
}

// It ends by itself, and takes its control groups away. One that is stopped would serve what it had waiting first.
void NestedRuns::Cut(Reins& reins) {
  reins.lifeline.Reset();
  if (reins.stopped) ::kill(reins.child, SIGKILL);
}

void NestedRuns::Cut(const Session& session) {
  const std::lock_guard lock(mutex_);
  for (Reins& reins : reins_)
    if (reins.child == session.child) Cut(reins);
}

void NestedRuns::Kill(const Session& session) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(reins_, session.child, &Reins::child) != reins_.end()) ::kill(session.child, SIGKILL);
}

void NestedRuns::GiveUp(Session& session) {
  Kill(session);
  session.patience = SystemClock().Steady();
}

// How it ended, once it has. Until Reap its number is its own.
std::optional<NestedRuns::End> NestedRuns::EndOf(const Session& session) {
  siginfo_t about{};
  if (::waitid(P_PID, static_cast<id_t>(session.child), &about, WEXITED | WNOHANG | WNOWAIT) != 0 || about.si_pid == 0)
    return std::nullopt;
  const bool killed = about.si_code != CLD_EXITED;
  return End{killed ? 128 + about.si_status : about.si_status, killed};
}

// One that has ended.
void NestedRuns::Reap(Session& session) {
  const std::lock_guard lock(mutex_);
  ::waitpid(session.child, nullptr, WNOHANG);
  std::erase_if(reins_, [&](const Reins& reins) { return reins.child == session.child; });
  session.child = 0;
}

// A policy that was set, or a freeze that came, since it was judged did not find it among the others. It has not begun yet.
void NestedRuns::TakeReins(const Session& session, UniqueFd lifeline, const std::string& digest) {
  const std::lock_guard lock(mutex_);
  Reins& reins = reins_.emplace_back(session.child, std::move(lifeline), digest, false);
  if (policy_->generation() != session.proved) Stop(reins);
  if (frozen_ || stopping_) ::kill(reins.child, SIGKILL);
}

Result<void> NestedRuns::Serve(const RunOptions& options, const supervisor::LaunchSpec& spec, const policy::CurrentPolicy& policy,
                               DecisionStream* stream) {
  std::vector<std::string> writable = spec.read_write;
  writable.push_back(spec.work_directory);
  std::vector<std::string> all = writable;
  all.insert(all.end(), spec.read_only.begin(), spec.read_only.end());
  for (const std::string& tree : all)
    if (supervisor::IsWithin(folder_, tree))
      return Fail(Code::kInvalid, fmt::format("--allow-nested: the command sees {}, where what it asks for is put down", tree));
  for (const std::string& tree : all)
    for (const std::string& other : writable)
      if (tree != other && supervisor::IsWithin(tree, other))
        return Fail(Code::kInvalid,
                    fmt::format("--allow-nested: {} lies in {}, which the command may write, so that a later sandbox could "
                                "be given something else there: grant the outer one alone",
                                tree, other));
  options_ = options;
  spec_ = spec;
  policy_ = &policy;
  stream_ = stream;
  judged_ = policy.generation();
  judge_ = policy.Get();
  closer_.emplace(kMaxNestedCloses);
  if (auto ready = closer_->Ready(); !ready) return ready;
  // The thread that ends them is this one.
  if (auto made = BriefCloses::Prepare(); !made) return made;
  auto spawner = Spawner::Start();
  if (!spawner) return std::unexpected(spawner.error());
  spawner_ = *std::move(spawner);
  std::promise<Result<void>> said;
  auto made = said.get_future();
  thread_ = std::thread([this, said = std::move(said)]() mutable {
    said.set_value(BriefCloses::Prepare());
    Loop();
    // With what nobody has accepted.
    const BriefCloses brief;
    listener_.socket.Reset();
  });
  return made.get();
}

// Whether it is within the policy in force. `widened`: that lets out all that the one judged by before it did.
bool NestedRuns::MayGoOn(const Session& session, const policy::Snapshot& in_force, bool widened) {
  return (widened && session.proved == judged_) || Narrower(in_force, *session.inner).has_value();
}

void NestedRuns::GoOn(Session& session, const policy::Snapshot& in_force, uint64_t generation) {
  session.proved = generation;
  const std::lock_guard lock(mutex_);
  // Of a later policy it is stopped already, or will be.
  if (policy_->generation() != generation) return;
  for (Reins& reins : reins_) {
    if (reins.child != session.child) continue;
    reins.digest = in_force.digest();
    if (std::exchange(reins.stopped, false)) ::kill(reins.child, SIGCONT);
  }
}

// By the policy in force, which does not wait for whoever asks to have another judged. One comparison of it with the last one
// stands for those of all sessions, where it takes nothing back.
void NestedRuns::Judge() {
  while (policy_->generation() != judged_) {
    const uint64_t generation = policy_->generation();
    const policy::SnapshotPtr in_force = policy_->Get();
    const auto is_judged = [&](const auto& session) {
      return session->inner == nullptr || session->over || session->proved == generation;
    };
    const bool widened = !std::ranges::all_of(sessions_, is_judged) && Narrower(*in_force, *judge_).has_value();
    for (const auto& session : sessions_) {
      if (Stopping()) return;
      if (policy_->generation() != generation) break;
      if (session->inner == nullptr || session->over) continue;
      if (session->proved == generation || MayGoOn(*session, *in_force, widened)) {
        GoOn(*session, *in_force, generation);
        continue;
      }
      LogWarn("a run in the sandbox is killed: the new policy is narrower than its own");
      session->over = true;
      Cut(*session);
    }
    judged_ = generation;
    judge_ = in_force;
  }
}

// For poll(2).
int NestedRuns::LookAgain() const {
  int wait = -1;
  for (const auto& session : sessions_)
    if (const int again = session->LookAgain(); again >= 0) wait = wait < 0 ? again : std::min(wait, again);
  return wait;
}

// What is proved of one takes long, and the run's end does not wait for what is proved of all.
bool NestedRuns::Stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void NestedRuns::Loop() {
  constexpr size_t kFixed = 2;
  bool frozen = false;
  while (true) {
    std::vector<pollfd> polls = {{frozen ? -1 : listener_.socket.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    for (const auto& session : sessions_) {
      polls.push_back({session->over ? -1 : session->client.get(), POLLIN, 0});
      polls.push_back({session->pidfd.get(), POLLIN, 0});
    }
    if (Faulty("nested.wait", [&] { return ::poll(polls.data(), polls.size(), LookAgain()); }) < 0) {
      // All are looked at then: what the policy takes back and what has ended must not wait for it.
      for (pollfd& each : polls) each.revents = POLLIN;
      if (errno != EINTR) complaint_.Tell("wait for runs in the sandbox", errno, "they are looked at now and then");
      std::this_thread::sleep_for(kPollRest);
    }
    uint64_t woken = 0;
    if (polls[1].revents != 0) (void)!::read(wake_.get(), &woken, sizeof woken);
    bool froze = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      frozen = frozen_;
      froze = std::exchange(froze_, false);
    }
    if (froze && !sessions_.empty()) {
      LogWarn("runs in the sandbox are killed: they cannot stand still with it");
      for (const auto& session : sessions_) {
        if (session->child == 0) supervisor::SendFailure(session->client.get(), Frozen());
        session->over = true;
      }
    }
    Judge();
    for (size_t i = 0; i < sessions_.size(); ++i) {
      if (sessions_[i]->over || (polls[kFixed + 2 * i].revents == 0 && polls[kFixed + 2 * i + 1].revents == 0)) continue;
      if (Stopping()) return;
      Serve(*sessions_[i]);
      Judge();
    }
    std::erase_if(sessions_, [this](const auto& session) { return session->over && Ended(*session); });
    if (!frozen && polls[0].revents != 0) Accept();
  }
}

void NestedRuns::Accept() {
  UniqueFd client(
      Faulty("nested.accept", [&] { return ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
  if (!client) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    complaint_.Tell("hear of a run in the sandbox", errno, "it waits");
    std::this_thread::sleep_for(kPollRest);
    return;
  }
  if (sessions_.size() >= kMaxNestedRuns) {
    supervisor::SendFailure(client.get(),
                            Error{Code::kExhausted, fmt::format("{} runs are in this sandbox already", kMaxNestedRuns), 0, {}});
    return closer_->Drop(std::move(client), PinnedCloser::Kind::kUnknown);
  }
  sessions_.push_back(std::make_unique<Session>());
  sessions_.back()->client = std::move(client);
}

void NestedRuns::Serve(Session& session) {
  if (session.child > 0) {
    if (const auto end = EndOf(session)) {
      (void)supervisor::Send(session.client.get(), Step::kGo, end->code);
      session.told = session.over = true;
      return;
    }
  }
  std::vector<UniqueFd> stray;
  auto message = [&] {
    const BriefCloses brief;  // what this process has no room for
    return supervisor::Receive(session.client.get(), 0, &stray);
  }();
  Drop(std::move(stray));
  if (!message) {
    session.over = message.error().code != Code::kTimeout;
    return;
  }
  if (session.child > 0) {
    Drop(std::move(message->fds));
    const auto signal = static_cast<int>(message->number);
    if (message->step == Step::kGo && std::ranges::find(kForwarded, signal) != kForwarded.end()) ::kill(session.child, signal);
    return;
  }
  session.standard = std::move(message->fds);
  if (auto started = message->step == Step::kContent ? Start(session) : Fail(Code::kInvalid, "an unexpected message"); !started) {
    supervisor::SendFailure(session.client.get(), started.error());
    session.over = true;
  }
  Drop(std::exchange(session.standard, {}));
}

void NestedRuns::Drop(std::vector<UniqueFd> fds) {
  for (UniqueFd& fd : fds) closer_->Drop(std::move(fd), PinnedCloser::Kind::kUnknown);
}

// `inner` may be an outer policy as well: then what it sends with a credential does not count.
Result<void> NestedRuns::Narrower(const policy::Snapshot& in_force, const policy::Snapshot& inner) {
  const policy::SnapshotPtr without = WithoutCredentials(in_force);
  const policy::SnapshotPtr plain = WithoutCredentials(inner);
  const prover::Proof proof =
      prover::Compare(without ? *without : in_force, plain ? *plain : inner, {.at = SystemClock().Wall()});
  if (proof.verdict == prover::Verdict::kEqual || proof.verdict == prover::Verdict::kNarrowed) return {};
  if (proof.gains.empty())
    return Fail(Code::kInvalid,
                fmt::format("it cannot be proved that this policy only narrows the outer one: {}", proof.why_unknown));
  const policy::RuleInfo* rule = inner.rule(proof.gains.front().rule);
  return Fail(
      Code::kInvalid,
      fmt::format("a policy in a sandbox can only narrow the outer one, and `{}` would let out {}{}",
                  rule != nullptr ? rule->text : "mode: audit", proof.gains.front().witness.Text(),
                  without ? "; what the outer one sends with a credential is not for a run in the sandbox, which has none" : ""));
}

Result<void> NestedRuns::Start(Session& session) {
  if (session.standard.size() != kPassedFds) return Fail(Code::kInvalid, "a request has five descriptors");
  auto launch = ReadMemory(session.standard[0], kMaxLaunchFile);
  auto text = ReadMemory(session.standard[1], kMaxNestedPolicy);
  if (!launch || !text) return std::unexpected((launch ? text : launch).error());
  auto wanted = ParseLaunchFile(*launch, "the request");
  if (!wanted) return std::unexpected(wanted.error());
  if (auto fine = CheckWishes(*wanted); !fine) return fine;
  policy::LoadOptions load;
  load.check_executables = false;  // what there is on this machine is not the workload's to learn
  auto inner = policy::LoadText(*text, "the policy of a run in the sandbox", load);
  if (!inner) return std::unexpected(Error{Code::kInvalid, policy::RenderError(inner.error(), false), 0, std::nullopt});
  if (!(*inner)->credentials().empty() || !(*inner)->proxies().empty())
    return Fail(Code::kInvalid, "a policy in a sandbox names no credentials and no proxies: they would be this machine's");
  session.proved = policy_->generation();
  const policy::SnapshotPtr in_force = policy_->Get();
  if (auto narrower = Narrower(*in_force, **inner); !narrower) return narrower;
  session.inner = *std::move(inner);
  session.folder = fmt::format("{}/{}", folder_, ++count_);
  if (::mkdir(session.folder.c_str(), 0700) != 0) return FailErrno(session.folder, errno);
  if (auto written = WriteFile(session.folder + "/policy.yaml", *text); !written) return written;
  const std::string names = session.folder + "/names.yaml";
  if (auto written = WriteFile(names, NamesOf(*in_force)); !written) return written;
  if (auto written = WriteFile(session.folder + "/launch.json", LaunchText(session, *wanted)); !written) return written;

  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return FailErrno("cannot create a pipe", errno);
  const UniqueFd theirs(pipe[0]);
  UniqueFd ours(pipe[1]);
  std::vector<std::string> words = {"sluice",
                                    "run",
                                    "--nested",
                                    "--spec",
                                    session.folder + "/launch.json",
                                    "--outer-names",
                                    names,
                                    "--rations-fd",
                                    std::to_string(kRationsNumber)};
  auto records = stream_ != nullptr ? MakeSocketPair() : SocketPair();
  if (!records) return std::unexpected(records.error());
  if (records->theirs) words.insert(words.end(), {"--records-fd", std::to_string(kRecordsNumber)});
  for (const std::string& path : spec_.protect) words.insert(words.end(), {"--protect", path});
  for (const std::string& path : spec_.hide) words.insert(words.end(), {"--hide", path});
  SpawnedProgram program{.path = "/proc/self/exe", .argv = std::move(words)};
  for (const char* name : {"PATH", "HOME", "LANG"})
    if (const char* value = ::getenv(name)) program.environment.push_back(fmt::format("{}={}", name, value));
  for (size_t fd = 0; fd <= 2; ++fd) program.descriptors.push_back(session.standard[fd + 2].get());
  program.descriptors.push_back(theirs.get());
  program.descriptors.push_back(names_.file.get());
  if (records->theirs) program.descriptors.push_back(records->theirs.get());
  {
    const std::lock_guard lock(mutex_);
    if (frozen_) return std::unexpected(Frozen());
  }
  const auto spawn = [&] {
    const auto child = spawner_->Spawn(program);
    errno = child ? 0 : child.error().sys_errno;
    return child.value_or(-1);
  };
  const pid_t child = Faulty("nested.spawn", spawn);
  if (child < 0) return FailErrno("cannot start a run in the sandbox", errno);
  session.child = child;
  TakeReins(session, std::move(ours), in_force->digest());
  const auto watch = [&] { return ::syscall(SYS_pidfd_open, session.child, 0); };
  session.pidfd = UniqueFd(static_cast<int>(Faulty("nested.pidfd", watch)));
  if (!session.pidfd) {
    // Nobody would learn of its end: it is killed, and looked at until it is gone, so that its place is free then.
    const int why = errno;
    GiveUp(session);
    return FailErrno("cannot watch a run in the sandbox", why);
  }
  if (!records->mine) return {};
  auto receiver = RecordReceiver::Start(std::move(records->mine), *stream_);
  if (receiver) {
    session.records = *std::move(receiver);
    return {};
  }
  GiveUp(session);
  return std::unexpected(receiver.error());
}

// The outer's grants and limits, the inner's command. The folder is entered in the view, where a link leads nowhere else.
std::string NestedRuns::LaunchText(const Session& session, const LaunchFile& wanted) const {
  Json json;
  json["version"] = 1;
  json["command"] = {"/bin/sh", "-c", "cd -- \"$1\" && shift && exec \"$@\"", "sh", wanted.cwd};
  for (const std::string& word : wanted.command) json["command"].push_back(word);
  json["workspace"] = spec_.work_directory;
  json["read-write"] = spec_.read_write;
  json["read-only"] = spec_.read_only;
  json["environment"] = {{"inherit", "none"}, {"unsafe-pass", wanted.environment_unsafe}};
  json["policy"] = {{"file", session.folder + "/policy.yaml"}};
  const std::string outer = options_.name.empty() ? options_.command.front() : options_.name;
  json["name"] = fmt::format("{}/{}", outer, wanted.name.empty() ? wanted.command.front() : wanted.name);
  json["labels"] = Json::object();
  for (const std::string& label : options_.labels)
    json["labels"][label.substr(0, label.find('='))] = label.substr(label.find('=') + 1);
  Json limits = Json::object();
  if (!wanted.wall_time.empty()) limits["wall-time"] = wanted.wall_time;
  if (!options_.memory.empty()) limits["memory"] = options_.memory;
  if (!options_.output_limit.empty()) limits["output"] = options_.output_limit;
  if (options_.processes) limits["processes"] = *options_.processes;
  if (options_.open_files) limits["open-files"] = *options_.open_files;
  json["limits"] = limits;
  if (!options_.audit.empty()) json["audit"] = Absolute(options_.audit);
  json["lifeline"] = kLifelineNumber;
  json["quiet"] = options_.quiet || wanted.quiet;
  json["fail-on-deny"] = wanted.fail_on_deny;
  json["kill-on-deny"] = options_.kill_on_deny;
  Json upstream = Json::object();
  upstream["resolvers"] = options_.resolvers;
  upstream["stub-domains"] = options_.stub_domains;
  upstream["ca"] = Json::array();
  for (const std::string& file : options_.upstream_ca) upstream["ca"].push_back(Absolute(file));
  json["upstream"] = upstream;
  json["mirror-certificates"] = options_.mirror_certificates;
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Whether one that was killed has left no control group any more. What was in it may take a moment to die, and is not waited for
// for ever.
bool NestedRuns::Swept(Session& session) {
  if (supervisor::WorkloadGroup::RemoveOf(session.child)) return true;
  const SteadyTime now = SystemClock().Steady();
  session.pidfd.Reset();  // says for ever that it has ended
  if (!session.sweeping_till) session.sweeping_till = now + kEndTime;
  return now >= *session.sweeping_till;
}

// Whether nothing of it is left. A child's own end takes its control groups away; one that does not come to it is killed. Nobody
// waits for that in here: the other runs have their own questions and ends.
bool NestedRuns::Ended(Session& session) {
  if (session.child > 0) {
    Cut(session);
    const SteadyTime now = SystemClock().Steady();
    if (!session.patience) session.patience = now + kEndTime;
    const auto end = EndOf(session);
    if (!end) {
      if (now >= *session.patience) Kill(session);  // its sandbox dies too
      return false;
    }
    if (!std::exchange(session.told, true)) (void)supervisor::Send(session.client.get(), Step::kGo, 128 + SIGKILL);
    if (end->killed && !Swept(session)) return false;
    Reap(session);
  }
  session.records.reset();
  // With what lies in its queue.
  closer_->Drop(std::move(session.client), PinnedCloser::Kind::kUnknown);
  std::error_code ignored;
  if (!session.folder.empty()) std::filesystem::remove_all(session.folder, ignored);
  return true;
}

namespace {

// Whether somebody is asked about this process already, as in a container of the sandbox's, whose process 1 is another. Only the
// kernel's refusal of a second one tells, and a filter that it takes cannot be taken off again: a child tries. Where there is no
// filter yet, there is nobody to be asked.
bool HasSupervisor() {
  const auto status = ReadFile("/proc/self/status", size_t{1} << 16);
  if (!status || !status->contains("\nNoNewPrivs:\t1\n") || !status->contains("\nSeccomp:\t2\n")) return false;
  sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
  const sock_fprog program = {1, &allow};
  const pid_t child = ::fork();
  if (child == 0) {
    const long taken = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    ::_exit(taken < 0 && errno == EBUSY ? 1 : 0);
  }
  int ended = 0;
  while (child > 0 && ::waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(ended) && WEXITSTATUS(ended) == 1;
}

}  // namespace

bool InSandbox() {
  const auto name = ReadFile("/proc/1/comm", 64);
  return (name && *name == "sluice-init\n") || HasSupervisor();
}

namespace {

// The policy as one text, which is all that is asked for.
Result<std::string> PolicyText(const RunOptions& options) {
  if (options.policy_text) return *options.policy_text;
  if (!options.presets.empty()) return Fail(Code::kInvalid, "--preset is not for a run in a sandbox: name it in a policy file");
  if (!options.policy.empty()) {
    if (!options.allows.empty()) return Fail(Code::kInvalid, "in a sandbox give --policy or --allow, not both");
    return ReadFile(options.policy, kMaxNestedPolicy);
  }
  if (options.allows.empty()) return Fail(Code::kInvalid, "no policy; give --policy FILE, or at least one --allow RULE");
  std::string text = "version: 1\nrules:\n";
  for (const std::string& rule : options.allows)
    text += fmt::format("  - allow: {}\n", Json(rule).dump(-1, ' ', false, Json::error_handler_t::replace));
  return text;
}

Result<std::string> LaunchRequest(const RunOptions& options) {
  RunOptions rest = options;
  rest.policy.clear();
  rest.policy_text.reset();
  rest.policy_fd = rest.log_fd = -1;
  for (auto* list : {&rest.allows, &rest.presets, &rest.command, &rest.environment, &rest.unsafe_environment}) list->clear();
  for (auto* text : {&rest.spec, &rest.cwd, &rest.environment_inherit, &rest.name, &rest.timeout}) text->clear();
  rest.quiet = rest.verbose = rest.fail_on_deny = false;
  if (rest != RunOptions())
    return Fail(
        Code::kInvalid,
        "in a sandbox, `sluice run` takes a policy, a command, --cwd, --env, --name, --timeout and --fail-on-deny: the rest "
        "is the outer run's");
  const Trust trust = FindTrust();
  supervisor::Variables inherited;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const std::string_view name = variable.substr(0, equals);
    if (name == kNestedVariable || std::ranges::any_of(trust.environment, [name](const auto& set) { return set.first == name; }))
      continue;
    inherited.emplace_back(name, variable.substr(equals + 1));
  }
  supervisor::EnvironmentWishes wishes{.additions = options.environment, .unsafe = options.unsafe_environment};
  if (options.environment_inherit == "none") wishes.inherit = supervisor::Inherit::kNone;
  auto chosen = supervisor::ChooseEnvironment(inherited, wishes);
  if (!chosen) return std::unexpected(chosen.error());
  Json json;
  json["version"] = 1;
  json["command"] = options.command;
  std::error_code error;
  json["cwd"] = std::filesystem::absolute(options.cwd.empty() ? "." : options.cwd, error).lexically_normal().string();
  json["environment"]["unsafe-pass"] = Json::array();
  for (const auto& [name, value] : chosen->variables)
    json["environment"]["unsafe-pass"].push_back(fmt::format("{}={}", name, value));
  if (!options.name.empty()) json["name"] = options.name;
  if (!options.timeout.empty()) json["limits"]["wall-time"] = options.timeout;
  json["quiet"] = options.quiet;
  json["fail-on-deny"] = options.fail_on_deny;
  try {
    return json.dump();
  } catch (const Json::exception&) {
    return Fail(Code::kInvalid, "the command, its folder and its variables must be UTF-8 in a sandbox");
  }
}

Result<int> Ask(const RunOptions& options, const std::string& path) {
  auto launch = LaunchRequest(options);
  if (!launch) return std::unexpected(launch.error());
  auto text = PolicyText(options);
  if (!text) return std::unexpected(text.error());
  auto launch_file = WriteMemory("launch", *launch);
  auto policy_file = WriteMemory("policy", *text);
  if (!launch_file || !policy_file) return std::unexpected((launch_file ? policy_file : launch_file).error());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(path);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FailErrno("cannot reach the outer run", errno);
  supervisor::SignalPipe signals;
  if (auto opened = signals.Open(kForwarded); !opened) return std::unexpected(opened.error());
  if (auto sent = supervisor::Send(socket.get(), Step::kContent, 0, {launch_file->get(), policy_file->get(), 0, 1, 2}); !sent)
    return std::unexpected(sent.error());
  while (true) {
    std::array<pollfd, 2> polls = {{{socket.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
    if (::poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR) return FailErrno("poll", errno);
    for (const int signal : signals.Take()) (void)supervisor::Send(socket.get(), Step::kGo, signal);
    if (polls[0].revents == 0) continue;
    auto message = supervisor::Receive(socket.get(), 0);
    if (!message) return std::unexpected(message.error());
    if (message->step == Step::kFailed) return std::unexpected(message->error);
    return static_cast<int>(message->number);
  }
}

}  // namespace

int RunInside(const RunOptions& options) {
  const char* path = ::getenv(kNestedVariable);
  if (path == nullptr)
    return Report(Error{Code::kUnsupported,
                        "this already runs in a sandbox of sluice, or under another seccomp supervisor, whose policy holds for "
                        "all that is started "
                        "in it, and the kernel lets one supervisor alone be asked about a process; nothing was started: run the "
                        "command as it is, "
                        "or give the outer run of sluice --allow-nested"});
  auto code = Ask(options, path);
  return code ? *code : Report(code.error());
}

}  // namespace sluice::app
