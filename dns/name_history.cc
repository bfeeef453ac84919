#include "dns/name_history.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "dns/recent_table.h"

namespace sluice::dns {
namespace {

int64_t HourOf(SteadyTime time) { return std::chrono::floor<std::chrono::hours>(time.time_since_epoch()).count(); }

}  // namespace

struct NameHistory::State {
  struct Told {
    std::string name;
    SteadyTime until{};
  };
  using Names = std::vector<Told>;  ///< newest first

  explicit State(size_t capacity) : recent(capacity) {}
  void Tell(std::string_view name, const IpAddress& address, SteadyTime until) const {
    if (on_told) on_told(name, address, until);
  }
  mutable std::mutex mutex;
  OnTold on_told;
  RecentTable<IpAddress, Names> recent;
};

NameHistory::NameHistory(size_t capacity) : state_(std::make_unique<State>(capacity)) {}
NameHistory::~NameHistory() = default;

void NameHistory::Tell(OnTold on_told) {
  const std::lock_guard lock(state_->mutex);
  state_->on_told = std::move(on_told);
}

void NameHistory::Note(std::string_view canonical_name, const IpAddress& address, SteadyTime until) {
  const std::lock_guard lock(state_->mutex);
  const auto known = state_->recent.Find(address);
  const auto place = known ? *known : state_->recent.Take(address);
  if (known) state_->recent.Use(place);
  std::vector<State::Told>& told = state_->recent.value(place);
  // In another address's place, the memory of one of its names serves again.
  if (!known && !told.empty()) {
    told.resize(1);
    told.front().name = canonical_name;
    told.front().until = until;
    return state_->Tell(canonical_name, address, until);
  }
  const auto found = std::ranges::find(told, canonical_name, &State::Told::name);
  if (found != told.end()) {
    const bool later = HourOf(until) > HourOf(found->until);
    found->until = std::max(found->until, until);
    std::rotate(told.begin(), found, found + 1);
    if (later) state_->Tell(canonical_name, address, until);
    return;
  }
  if (told.size() >= kMaxNamesOfAddress) told.pop_back();
  told.insert(told.begin(), {std::string(canonical_name), until});
  state_->Tell(canonical_name, address, until);
}

std::vector<std::string> NameHistory::NamesOf(const IpAddress& address, SteadyTime now) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> names;
  const auto place = state_->recent.Find(address);
  if (!place) return names;
  for (const State::Told& told : state_->recent.value(*place))
    if (told.until > now) names.push_back(told.name);
  return names;
}

size_t NameHistory::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->recent.size();
}

}  // namespace sluice::dns
