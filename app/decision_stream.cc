#include "app/decision_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "audit/record.h"

namespace sluice::app {
namespace {

bool Wants(const StreamFilter& filter, const RecordAbout& about) {
  switch (about.kind) {
    case RecordAbout::Kind::kNote:
      return true;
    case RecordAbout::Kind::kExchange:
      return filter.exchanges;
    case RecordAbout::Kind::kDecision:
      break;
  }
  if (!filter.verdict.empty() && (filter.verdict == "allowed") != about.allowed) return false;
  return filter.layer.empty() || filter.layer == audit::LayerText(about.layer);
}

std::array<std::string_view, kLayers> Layers() {
  std::array<std::string_view, kLayers> names;
  for (size_t i = 0; i < kLayers; ++i) names[i] = audit::LayerText(static_cast<policy::EventLayer>(i));
  return names;
}

}  // namespace

Result<StreamFilter> ReadStreamFilter(const AdminRequest& request) {
  if (auto known = CheckParameters(request, {"verdict", "layer", "exchanges"}); !known) return std::unexpected(known.error());
  StreamFilter filter;
  if (const std::string* verdict = request.Parameter("verdict")) {
    if (*verdict != "allowed" && *verdict != "denied") return Fail(Code::kInvalid, "`verdict` is allowed or denied");
    filter.verdict = *verdict;
  }
  if (const std::string* layer = request.Parameter("layer")) {
    const auto layers = Layers();
    if (std::ranges::find(layers, *layer) == layers.end())
      return Fail(Code::kInvalid, fmt::format("`layer` is one of {}", fmt::join(layers, ", ")));
    filter.layer = *layer;
  }
  const auto exchanges = request.Says("exchanges");
  if (!exchanges) return std::unexpected(exchanges.error());
  filter.exchanges = *exchanges;
  return filter;
}

RecordAbout AboutOf(const policy::DecisionEvent& event) {
  return {.kind = RecordAbout::Kind::kDecision, .allowed = event.decision.allowed, .layer = event.layer};
}

DecisionStream::Reader::~Reader() { stream_.Leave(*this); }

std::string DecisionStream::Reader::Take(bool* ended) {
  const std::lock_guard lock(stream_.mutex_);
  std::string taken = std::exchange(waiting_, {});
  *ended = missed_ != 0 || stream_.over_;
  if (missed_ != 0)
    taken += fmt::format(
        "{{\"event\":\"note\",\"note\":\"this reader was too slow: {} record{} could not wait for it; connect again\"}}\n",
        missed_, missed_ == 1 ? "" : "s");
  return taken;
}

std::unique_ptr<DecisionStream::Reader> DecisionStream::Open(StreamFilter filter, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (readers_.size() >= kMaxStreamReaders) return nullptr;
  std::unique_ptr<Reader> reader(new Reader(*this, std::move(filter), std::move(wake)));
  readers_.push_back(reader.get());
  readers_open_.store(readers_.size(), std::memory_order_relaxed);
  return reader;
}

void DecisionStream::End() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  for (const Reader* reader : readers_) reader->wake_();
}

void DecisionStream::Leave(const Reader& reader) {
  const std::lock_guard lock(mutex_);
  std::erase(readers_, &reader);
  readers_open_.store(readers_.size(), std::memory_order_relaxed);
}

void DecisionStream::Saw(const policy::DecisionEvent& event, uint64_t times) noexcept {
  const auto layer = static_cast<size_t>(event.layer);
  const auto reason = static_cast<size_t>(event.decision.reason);
  last_ = AboutOf(event);
  if (layer >= kLayers || reason >= kReasons) return;
  counts_[(layer * kReasons + reason) * 2 + (event.decision.allowed ? 1 : 0)].fetch_add(times, std::memory_order_relaxed);
}

void DecisionStream::Saw(const policy::ExchangeEvent& event) noexcept {
  last_ = {.kind = RecordAbout::Kind::kExchange};
  exchanges_.fetch_add(1, std::memory_order_relaxed);
  bytes_up_.fetch_add(event.bytes_up, std::memory_order_relaxed);
  bytes_down_.fetch_add(event.bytes_down, std::memory_order_relaxed);
}

void DecisionStream::Line(std::string_view line) noexcept { Forward(last_, line); }

void DecisionStream::Forward(const RecordAbout& about, std::string_view line) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    for (Reader* reader : readers_) {
      if (!Wants(reader->filter_, about)) continue;
      if (reader->missed_ != 0 || reader->waiting_.size() + line.size() > kMaxStreamBytes) {
        if (reader->missed_++ == 0) dropped_.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      const bool was_empty = reader->waiting_.empty();
      reader->waiting_ += line;
      if (was_empty) reader->wake_();
    }
  } catch (...) {
    // Out of memory: a reader misses what the file has.
  }
}

void DecisionStream::FillMetrics(MetricsView* view) const {
  for (size_t layer = 0; layer < kLayers; ++layer)
    for (size_t reason = 0; reason < kReasons; ++reason)
      for (const size_t allowed : {1u, 0u})
        if (const uint64_t count = counts_[(layer * kReasons + reason) * 2 + allowed].load(std::memory_order_relaxed); count != 0)
          view->decisions.push_back(
              {static_cast<policy::EventLayer>(layer), allowed == 1, static_cast<policy::Reason>(reason), count});
  view->exchanges = exchanges_.load(std::memory_order_relaxed);
  view->bytes_up = bytes_up_.load(std::memory_order_relaxed);
  view->bytes_down = bytes_down_.load(std::memory_order_relaxed);
  view->stream_readers = readers_open_.load(std::memory_order_relaxed);
  view->stream_dropped = dropped_.load(std::memory_order_relaxed);
}

}  // namespace sluice::app
