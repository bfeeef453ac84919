#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <variant>

#include "audit/audit.h"
#include "audit/console.h"
#include "audit/fold.h"
#include "audit/io/audit_file.h"
#include "audit/io/record_queue.h"
#include "audit/record.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stderr_lines.h"

namespace sluice::audit {
namespace {

using policy::DecisionEvent;
using policy::EventLayer;
using policy::ExchangeEvent;

constexpr size_t kFlushOctets = size_t{256} << 10;  ///< of formatted records, before they are written
constexpr size_t kMaxConsoleName = 64;
constexpr std::string_view kOwnWord = "sluice: ";
constexpr std::chrono::seconds kConsoleTick{1};
constexpr std::chrono::milliseconds kFoldTick{250};

// Denials as lines, and the thread that tells of repeats once they are over. Standard error holds up neither.
class Console {
 public:
  explicit Console(const std::string& name)
      : subject_(name.empty() ? std::string() : Printable(name, "").substr(0, kMaxConsoleName) + ": "),
        repeats_(StderrHasColor() ? Style::kColor : Style::kPlain),
        ticker_([this](const std::stop_token& stop) { Tick(stop); }) {}
  ~Console() {
    ticker_.request_stop();
    ticker_.join();
    Show(repeats_.Collect(SystemClock().Steady(), Repeats::Due::kAll));
  }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void Denied(const DecisionEvent& event, uint64_t times) {
    const std::lock_guard lock(mutex_);
    Show(repeats_.Offer(event, SystemClock().Steady(), times));
    if (repeats_.pending()) wake_.notify_one();
  }

 private:
  void Show(std::string text) const {
    if (text.empty()) return;
    // At a line's beginning it is nobody else's word: what a workload chose is encoded, and stands behind it.
    for (size_t at = 0; !subject_.empty();) {
      if (text.compare(at, kOwnWord.size(), kOwnWord) == 0) text.insert(at + kOwnWord.size(), subject_);
      const size_t end = text.find('\n', at);
      if (end == std::string::npos) break;
      at = end + 1;
    }
    QueueStderr(LineKind::kDenial, std::move(text));
  }

  void Tick(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    // The wait returns what its predicate says even when it was asked to stop.
    while (wake_.wait(lock, stop, [this] { return repeats_.pending(); }) && !stop.stop_requested()) {
      wake_.wait_for(lock, stop, kConsoleTick, [] { return false; });
      Show(repeats_.Collect(SystemClock().Steady(), Repeats::Due::kOnly));
    }
  }

  const std::string subject_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  Repeats repeats_;
  std::jthread ticker_;  // last: it uses the rest
};

class Running final : public Writer {
 public:
  Running(const Options& options, std::optional<AuditFile> file)
      : format_(options.sandbox, options.labels), file_(std::move(file)), tap_(options.tap), queue_(options.queue) {
    if (options.console) console_.emplace(options.console_name);
    thread_ = std::thread([this] { Run(); });
  }
  ~Running() override {
    queue_.Close();
    thread_.join();
    if (const uint64_t lost = lost_exchanges_.load(); lost != 0 && file_ && healthy())
      LogWarn("{} finished exchanges found no room among the audit records and are missing in {}", lost, file_->path());
  }

  bool Record(DecisionEvent event) noexcept override {
    if (!event.decision.allowed) return RecordRefusal(std::move(event));
    const bool counted = event.layer == EventLayer::kRequest || event.layer == EventLayer::kUnix;
    const bool shown = console_ && event.decision.audit_only;
    const Owner owner = OwnerOf(event.process);
    if ((IsKept() || shown) && !Push(std::move(event), owner, RecordKind::kAllowed)) return false;
    if (counted) allowed_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  bool Record(ExchangeEvent event) noexcept override {
    // Its requests are unseen: the connection is what was allowed. One that came in was decided by nobody.
    const bool relay = event.request == 0 && event.target.method != kPublishMethod;
    const Owner owner = OwnerOf(event.process);
    if (IsKept() && !Push(std::move(event), owner, RecordKind::kExchange)) {
      lost_exchanges_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    if (relay) allowed_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  std::string NextDenialId() override { return "d-" + std::to_string(next_denial_.fetch_add(1, std::memory_order_relaxed) + 1); }
  Totals totals() const override { return {allowed_.load(std::memory_order_relaxed), denied_.load(std::memory_order_relaxed)}; }
  bool healthy() const override { return healthy_.load(std::memory_order_acquire); }

 private:
  // Without a file and anybody who looks on, what was allowed is only counted: no other thread need be woken for it.
  [[nodiscard]] bool IsKept() const { return file_ || tap_ != nullptr; }

  bool Push(QueuedRecord record, Owner owner, RecordKind kind) noexcept {
    try {
      return healthy() && queue_.TryPush(std::move(record), owner, kind);
    } catch (...) {
      return false;  // out of memory: no record, so what it describes is refused
    }
  }

  // A refusal counts whether it has a record or not. One among a flood of equal ones is part of their record.
  bool RecordRefusal(DecisionEvent event) noexcept {
    // An upstream that cannot be reached was allowed: nothing for --fail-on-deny.
    if (event.decision.reason != policy::Reason::kUpstream) denied_.fetch_add(1, std::memory_order_relaxed);
    if (!healthy()) return false;
    try {
      {
        const std::lock_guard lock(fold_mutex_);
        if (fold_.Offer(event, SystemClock().Steady()) == DenialFold::Fate::kCounted) return true;
      }
      const Owner owner = OwnerOf(event.process);
      QueuedRecord record(std::move(event));
      if (queue_.TryPush(std::move(record), owner, RecordKind::kRefusal)) return true;
      const std::lock_guard lock(fold_mutex_);
      fold_.AddUnrecorded(std::get<DecisionEvent>(record));
    } catch (...) {
      // As above.
    }
    return false;
  }

  void Run() {
    std::string buffer;
    while (const auto records = queue_.PopAll(HasFolded() ? std::optional(kFoldTick) : std::nullopt)) {
      for (const QueuedRecord& record : *records) {
        std::visit([&](const auto& event) { Write(&buffer, event); }, record);
        if (buffer.size() >= kFlushOctets) Flush(&buffer);
      }
      Flush(&buffer);
      for (const QueuedRecord& record : *records) {
        const auto* decision = std::get_if<DecisionEvent>(&record);
        if (console_ && decision != nullptr && (!decision->decision.allowed || decision->decision.audit_only))
          console_->Denied(*decision, 1);
      }
      WriteFolded(DenialFold::Due::kOnly);
    }
    WriteFolded(DenialFold::Due::kAll);
  }

  void TellTap(const DecisionEvent& event) { tap_->Saw(event, 1); }
  void TellTap(const Repeated& repeated) { tap_->Saw(repeated.event, repeated.count); }
  void TellTap(const ExchangeEvent& event) { tap_->Saw(event); }

  // A record for the file, where there is one, and for whoever looks on.
  template <class Event>
  void Write(std::string* buffer, const Event& event) {
    if (tap_ != nullptr) TellTap(event);
    const bool watched = tap_ != nullptr && tap_->wants_lines();
    if (!file_ && !watched) return;
    const size_t before = buffer->size();
    format_.Append(buffer, event);
    if (watched) tap_->Line(std::string_view(*buffer).substr(before));
    if (!file_) buffer->resize(before);
  }

  bool HasFolded() {
    const std::lock_guard lock(fold_mutex_);
    return !fold_.empty();
  }

  void WriteFolded(DenialFold::Due due) {
    std::vector<Repeated> folded;
    {
      const std::lock_guard lock(fold_mutex_);
      folded = fold_.Collect(SystemClock().Steady(), due);
    }
    std::string buffer;
    for (const Repeated& repeated : folded) {
      Write(&buffer, repeated);
      if (console_) console_->Denied(repeated.event, repeated.count);
    }
    Flush(&buffer);
  }

  void Flush(std::string* buffer) {
    if (!buffer->empty() && healthy()) {
      if (const auto appended = file_->Append(*buffer); !appended) {
        healthy_.store(false, std::memory_order_release);
        LogError("{}; from now on everything is refused", appended.error().message);
      }
    }
    buffer->clear();
  }

  const RecordFormat format_;
  std::optional<AuditFile> file_;
  Tap* const tap_;
  RecordQueue queue_;
  std::mutex fold_mutex_;
  DenialFold fold_;
  std::optional<Console> console_;
  std::atomic<bool> healthy_{true};
  std::atomic<uint64_t> allowed_{0};
  std::atomic<uint64_t> denied_{0};
  std::atomic<uint64_t> lost_exchanges_{0};
  std::atomic<uint64_t> next_denial_{0};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Writer>> Writer::Start(const Options& options) {
  std::optional<AuditFile> file;
  if (!options.file.empty()) {
    auto opened = AuditFile::Open(options.file);
    if (!opened) return std::unexpected(opened.error());
    file.emplace(*std::move(opened));
  }
  return Start(options, std::move(file));
}

Result<std::unique_ptr<Writer>> Writer::Start(const Options& options, std::optional<AuditFile> file) {
  if (options.queue == 0) return Fail(Code::kInvalid, "the audit queue needs room for a record");
  return std::make_unique<Running>(options, std::move(file));
}

}  // namespace sluice::audit
