#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <variant>

#include "audit/audit.h"
#include "audit/console.h"
#include "audit/record.h"
#include "base/bounded_queue.h"
#include "base/log.h"
#include "base/terminal_line.h"
#include "base/unique_fd.h"

namespace sluice::audit {
namespace {

using policy::DecisionEvent;
using policy::EventLayer;
using policy::ExchangeEvent;

constexpr size_t kFlushOctets = size_t{256} << 10;  ///< of formatted records, before they are written
constexpr std::chrono::seconds kConsoleTick{1};
/// Records that follow within this time wake nobody: whoever decides pays for the wake-up.
constexpr std::chrono::milliseconds kGather{1};

// 0, or the errno of what could not be written in full.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Standard error, and the thread that tells of repeats once they are over. A terminal that blocks holds up this and nothing else.
class Console {
 public:
  Console()
      : repeats_(StderrHasColor() ? Style::kColor : Style::kPlain),
        ticker_([this](const std::stop_token& stop) { Tick(stop); }) {}
  ~Console() {
    ticker_.request_stop();
    ticker_.join();
    Show(repeats_.Collect(SystemClock().Steady(), Repeats::Due::kAll));
  }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void Denied(const DecisionEvent& event) {
    const std::lock_guard lock(mutex_);
    Show(repeats_.Offer(event, SystemClock().Steady()));
    if (repeats_.pending()) wake_.notify_one();
  }

 private:
  static void Show(std::string_view text) {
    [[maybe_unused]] const int error = WriteAll(STDERR_FILENO, ForStderr(std::string(text)));
  }

  void Tick(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    // The wait returns what its predicate says even when it was asked to stop.
    while (wake_.wait(lock, stop, [this] { return repeats_.pending(); }) && !stop.stop_requested()) {
      wake_.wait_for(lock, stop, kConsoleTick, [] { return false; });
      Show(repeats_.Collect(SystemClock().Steady(), Repeats::Due::kOnly));
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  Repeats repeats_;
  std::jthread ticker_;  // last: it uses the rest
};

class Running final : public Writer {
 public:
  Running(const Options& options, UniqueFd file)
      : format_(options.sandbox, options.labels), path_(options.file), file_(std::move(file)), queue_(options.queue) {
    if (options.console) console_.emplace();
    thread_ = std::thread([this] { Run(); });
  }
  ~Running() override {
    queue_.Close();
    thread_.join();
  }

  bool Record(DecisionEvent event) noexcept override {
    // An upstream that cannot be reached was allowed: nothing for --fail-on-deny.
    const bool denied = !event.decision.allowed && event.decision.reason != policy::Reason::kUpstream;
    const bool failed = !event.decision.allowed && !denied;
    const bool counted = event.layer == EventLayer::kRequest || event.layer == EventLayer::kUnix;
    if (!Push(std::move(event))) return false;
    if (denied) {
      denied_.fetch_add(1, std::memory_order_relaxed);
    } else if (counted && !failed) {
      allowed_.fetch_add(1, std::memory_order_relaxed);
    }
    return true;
  }

  bool Record(ExchangeEvent event) noexcept override {
    const bool relay = event.request == 0;  // its requests are unseen: the connection is what was allowed
    if (!Push(std::move(event))) return false;
    if (relay) allowed_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  std::string NextDenialId() override { return "d-" + std::to_string(next_denial_.fetch_add(1, std::memory_order_relaxed) + 1); }
  Totals totals() const override { return {allowed_.load(std::memory_order_relaxed), denied_.load(std::memory_order_relaxed)}; }
  bool healthy() const override { return healthy_.load(std::memory_order_acquire); }

 private:
  using Item = std::variant<DecisionEvent, ExchangeEvent>;

  bool Push(Item item) noexcept {
    try {
      return healthy() && queue_.TryPush(std::move(item));
    } catch (...) {
      return false;  // out of memory: no record, so what it describes is refused
    }
  }

  void Run() {
    std::string buffer;
    while (auto items = queue_.PopAll(kGather)) {
      for (const Item& item : *items) {
        if (file_) std::visit([&](const auto& event) { format_.Append(&buffer, event); }, item);
        if (buffer.size() >= kFlushOctets) Flush(&buffer);
      }
      Flush(&buffer);
      if (!console_) continue;
      for (const Item& item : *items) {
        const auto* decision = std::get_if<DecisionEvent>(&item);
        if (decision != nullptr && (!decision->decision.allowed || decision->decision.audit_only)) console_->Denied(*decision);
      }
    }
  }

  void Flush(std::string* buffer) {
    if (!buffer->empty() && healthy()) {
      if (const int error = WriteAll(file_.get(), *buffer); error != 0) {
        healthy_.store(false, std::memory_order_release);
        LogError("{}; from now on everything is refused", SystemError("cannot write audit records to " + path_, error).message);
      }
    }
    buffer->clear();
  }

  const RecordFormat format_;
  const std::string path_;
  const UniqueFd file_;
  BoundedQueue<Item> queue_;
  std::optional<Console> console_;
  std::atomic<bool> healthy_{true};
  std::atomic<uint64_t> allowed_{0};
  std::atomic<uint64_t> denied_{0};
  std::atomic<uint64_t> next_denial_{0};
  std::thread thread_;
};

// A link could lead the records into another file, and a pipe could block the writer before it is known to be one.
Result<UniqueFd> OpenFile(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
  if (!file) return FailErrno("cannot open the audit file " + path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return FailErrno("cannot open the audit file " + path, errno);
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode))
    return Fail(Code::kInvalid, "the audit file " + path + " is neither a file nor a character device");
  // Only the opening must not wait: a terminal that is slow to take a record is no failed write.
  if (::fcntl(file.get(), F_SETFL, O_APPEND) != 0) return FailErrno("cannot open the audit file " + path, errno);
  return file;
}

}  // namespace

Result<std::unique_ptr<Writer>> Writer::Start(const Options& options) {
  UniqueFd file;
  if (!options.file.empty()) {
    auto opened = OpenFile(options.file);
    if (!opened) return std::unexpected(opened.error());
    file = std::move(*opened);
  }
  if (options.queue == 0) return Fail(Code::kInvalid, "the audit queue needs room for a record");
  return std::make_unique<Running>(options, std::move(file));
}

}  // namespace sluice::audit
