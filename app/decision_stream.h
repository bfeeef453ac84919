#pragma once

// Live readers of the decisions, each with a queue that has a bound: who reads too slowly is cut off with a note, and nobody else
// notices. Counts every decision besides, for the metrics.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/admin_http.h"
#include "app/line_reader.h"
#include "app/metrics.h"
#include "audit/tap.h"
#include "base/result.h"

namespace sluice::app {

inline constexpr size_t kMaxStreamReaders = 16;
inline constexpr size_t kLayers = 7;                 ///< of policy::EventLayer
inline constexpr size_t kMaxStreamBytes = 1u << 20;  ///< that wait for one reader

/// What a reader wants to see. Empty fields: everything.
struct StreamFilter {
  std::string verdict{};   ///< "allowed" or "denied"
  std::string layer{};     ///< as records name it
  bool exchanges = false;  ///< finished exchanges too
};

/// Of the parameters `verdict`, `layer` and `exchanges`. kInvalid: another one, or a value that no record has.
[[nodiscard]] Result<StreamFilter> ReadStreamFilter(const AdminRequest& request);

/// What a record is about, as filters ask.
struct RecordAbout {
  enum class Kind : uint8_t { kDecision, kExchange, kNote };  ///< a note is for every reader
  Kind kind = Kind::kDecision;
  bool allowed = false;
  policy::EventLayer layer = policy::EventLayer::kConnect;  ///< of a decision
};
[[nodiscard]] RecordAbout AboutOf(const policy::DecisionEvent& event);

class DecisionStream final : public audit::Tap {
 public:
  class Reader final : public LineReader {
   public:
    ~Reader() override;
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    /// `*ended`: all were taken, or the reader was cut off and the last line says so.
    [[nodiscard]] std::string Take(bool* ended) override;

   private:
    friend class DecisionStream;
    Reader(DecisionStream& stream, StreamFilter filter, std::function<void()> wake)
        : stream_(stream), filter_(std::move(filter)), wake_(std::move(wake)) {}
    DecisionStream& stream_;
    const StreamFilter filter_;
    const std::function<void()> wake_;
    // With stream_.mutex_ held.
    std::string waiting_;
    uint64_t missed_ = 0;
  };

  DecisionStream() = default;
  DecisionStream(const DecisionStream&) = delete;
  DecisionStream& operator=(const DecisionStream&) = delete;

  /// Null: kMaxStreamReaders read already. `wake` is called, on the audit writer's thread, when something waits where nothing
  /// did; it must not block. The stream outlives its readers.
  [[nodiscard]] std::unique_ptr<Reader> Open(StreamFilter filter, std::function<void()> wake);

  /// Nothing comes any more: readers end once they have what waits for them. After the audit writer has ended.
  void End();

  void Saw(const policy::DecisionEvent& event, uint64_t times) noexcept override;
  void Saw(const policy::ExchangeEvent& event) noexcept override;
  [[nodiscard]] bool wants_lines() const noexcept override { return readers_open_.load(std::memory_order_relaxed) != 0; }
  void Line(std::string_view line) noexcept override;
  /// A record of another writer's, with its newline. Any thread. Not among the counts.
  void Forward(const RecordAbout& about, std::string_view line) noexcept;

  /// Fills decisions, exchanges, bytes and readers.
  void FillMetrics(MetricsView* view) const;

 private:
  void Leave(const Reader& reader);

  static constexpr size_t kReasons = 20;
  std::array<std::atomic<uint64_t>, kLayers * kReasons * 2> counts_{};
  std::atomic<uint64_t> exchanges_{0};
  std::atomic<uint64_t> bytes_up_{0};
  std::atomic<uint64_t> bytes_down_{0};
  std::atomic<size_t> readers_open_{0};
  std::atomic<uint64_t> dropped_{0};
  RecordAbout last_{};  // what Line is about; the writer's thread only
  mutable std::mutex mutex_;
  std::list<Reader*> readers_;
  bool over_ = false;
};

}  // namespace sluice::app
