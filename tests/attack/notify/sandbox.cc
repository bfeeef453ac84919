#include "tests/attack/notify/sandbox.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "policy/io/load.h"

namespace sluice::supervisor::testing {
namespace {

const std::map<std::string, std::string>& Names() {
  static const std::map<std::string, std::string> names = {
      {"198.18.0.1", "a.test"},    {"198.18.0.2", "b.test"},  {"198.18.0.3", "down.test"},
      {"198.18.0.4", "slow.test"}, {"198.18.0.9", "no.test"}, {"fd5c::1", "a.test"},
  };
  return names;
}

constexpr std::chrono::milliseconds kSlowUpstream{1000};

}  // namespace

policy::SnapshotPtr TestPolicy() {
  auto loaded = policy::LoadText(
      "version: 1\nrules:\n"
      "  - allow: tcp a.test:80\n"
      "  - allow: tcp b.test:80\n"
      "  - allow: tcp down.test:80\n"
      "  - allow: tcp slow.test:80\n",
      "test.yaml");
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    std::abort();
  }
  return *loaded;
}

bool Records::Record(policy::DecisionEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  if (refuse_) return false;
  events_.push_back(std::move(event));
  return true;
}
bool Records::Record(policy::ExchangeEvent) noexcept { return !refuse_; }
std::string Records::NextDenialId() { return "d-" + std::to_string(++next_); }
std::vector<policy::DecisionEvent> Records::All() const {
  const std::lock_guard lock(mutex_);
  return events_;
}
size_t Records::Count(bool allowed, policy::Reason reason) const {
  const std::lock_guard lock(mutex_);
  size_t out = 0;
  for (const auto& event : events_) out += event.decision.allowed == allowed && event.decision.reason == reason ? 1 : 0;
  return out;
}

Upstream::Upstream()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {}

Upstream::~Upstream() {
  stop_ = true;
  thread_.join();
}

std::optional<std::string> Upstream::NameOf(const IpAddress& address) {
  const auto it = Names().find(address.ToString());
  return it == Names().end() ? std::nullopt : std::optional(it->second);
}

bool Upstream::IsSynthetic(const IpAddress& address) {
  static const Cidr v4 = *Cidr::Parse("198.18.0.0/15");
  static const Cidr v6 = *Cidr::Parse("fd5c::/64");
  return v4.Contains(address) || v6.Contains(address);
}

void Upstream::Prepare(ApprovedConnect connect, std::function<void(int)> done) {
  if (connect.host == "down.test") return done(ECONNREFUSED);
  if (connect.host != "slow.test") return done(0);
  const std::lock_guard lock(mutex_);
  later_.emplace_back(std::chrono::steady_clock::now() + kSlowUpstream, std::move(done));
}

void Upstream::Start(ApprovedConnect connect, Endpoint, UniqueFd accepted) {
  const std::string greeting = (connect.host.empty() ? connect.destination.ToString() : connect.host) + "\n";
  (void)!send(accepted.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
  const std::lock_guard lock(mutex_);
  started_.push_back(connect);
  const int fd = accepted.get();
  flows_[fd] = Flow{std::move(connect), std::move(accepted)};
  epoll_event event{EPOLLIN, {.fd = fd}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

size_t Upstream::Open() const {
  const std::lock_guard lock(mutex_);
  return flows_.size();
}

void Upstream::Read(int fd) {
  char buffer[65536];
  const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return;
  const std::lock_guard lock(mutex_);
  const auto it = flows_.find(fd);
  if (it == flows_.end()) return;
  if (n <= 0) {
    flows_.erase(it);
    return;
  }
  std::string& kept = received_[it->second.connect.process->pid];
  if (kept.size() < 65536) kept.append(buffer, static_cast<size_t>(n));
  (void)!send(fd, buffer, static_cast<size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Upstream::Run() {
  while (!stop_) {
    epoll_event events[64];
    const int n = epoll_wait(epoll_.get(), events, 64, 10);
    for (int i = 0; i < n; ++i) Read(events[i].data.fd);
    std::vector<std::function<void(int)>> due;
    {
      const std::lock_guard lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      std::erase_if(later_, [&](auto& one) {
        if (one.first > now) return false;
        due.push_back(std::move(one.second));
        return true;
      });
    }
    for (auto& done : due) done(0);
  }
}

std::vector<ApprovedConnect> Upstream::Started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}
std::map<int, std::string> Upstream::Received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

Sandbox::Sandbox() {
  char name[] = "/tmp/sluice-notify-XXXXXX";
  directory_ = mkdtemp(name);
  auto capture = CreateCapture();
  if (!capture) {
    ADD_FAILURE() << capture.error().message;
    std::abort();
  }
  capture_ = std::move(*capture);
}

Sandbox::~Sandbox() {
  workload_.reset();
  notifier_.reset();
  std::filesystem::remove_all(directory_);
}

void Sandbox::Begin(const std::vector<std::string>& arguments) {
  LaunchSpec spec;
  spec.argv = {program_};
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.work_directory = directory_;
  spec.read_only = {std::filesystem::path(program_).parent_path().string()};
  spec.environment = {{"PATH", "/usr/bin:/bin"}};
  auto workload = Launch(spec, capture_);
  ASSERT_TRUE(workload) << workload.error().message;
  workload_ = std::move(*workload);
  NotifierOptions options{.workload_pid = workload_->pid(), .writable_trees = {directory_}};
  options.descriptor_limit = descriptor_limit_;
  options.descriptor_ceiling = descriptor_ceiling_;
  auto notifier = Notifier::Start(workload_->TakeNotifyFd(), capture_, std::move(options), upstream_, policy_, records_);
  ASSERT_TRUE(notifier) << notifier.error().message;
  notifier_ = std::move(*notifier);
  const auto released = workload_->Release();
  ASSERT_TRUE(released) << released.error().message;
}

Outcome Sandbox::Finish() {
  if (!workload_) return {};
  Outcome out;
  out.code = workload_->Wait().code;
  std::ostringstream text;
  text << std::ifstream(directory_ + "/report").rdbuf();
  out.report = text.str();
  workload_.reset();
  notifier_.reset();
  return out;
}

Outcome Sandbox::Run(const std::vector<std::string>& arguments) {
  Begin(arguments);
  return Finish();
}

}  // namespace sluice::supervisor::testing
