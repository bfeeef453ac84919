#include "dns/name_history.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

namespace sluice::dns {

// Names are kept once however many addresses they have. `recent` holds addresses, the one told last in front.
struct NameHistory::State {
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
  };
  using Names = std::unordered_map<std::string, size_t, TextHash, std::equal_to<>>;  ///< with how many entries use it
  struct Told {
    Names::value_type* name = nullptr;  // of `names`: its address is stable
    SteadyTime until{};
  };
  struct Entry {
    IpAddress address;
    std::vector<Told> told;  // newest first
  };
  using Recent = std::list<Entry>;

  explicit State(size_t most) : capacity(std::max<size_t>(most, 1)) {}

  void Release(Names::value_type* name) {
    if (--name->second == 0) names.erase(names.find(name->first));
  }
  Names::value_type* Use(std::string_view name) {
    auto found = names.find(name);
    if (found == names.end()) found = names.emplace(std::string(name), 0).first;
    ++found->second;
    return &*found;
  }
  Entry& Front(const IpAddress& address) {
    if (const auto found = index.find(address); found != index.end()) {
      recent.splice(recent.begin(), recent, found->second);
      return recent.front();
    }
    if (recent.size() >= capacity) {
      for (const Told& told : recent.back().told) Release(told.name);
      index.erase(recent.back().address);
      recent.pop_back();
    }
    recent.push_front({address, {}});
    index.emplace(address, recent.begin());
    return recent.front();
  }

  const size_t capacity;
  mutable std::mutex mutex;
  Names names;
  Recent recent;
  std::unordered_map<IpAddress, Recent::iterator, IpHash> index;
};

NameHistory::NameHistory(size_t capacity) : state_(std::make_unique<State>(capacity)) {}
NameHistory::~NameHistory() = default;

void NameHistory::Note(std::string_view canonical_name, const IpAddress& address, SteadyTime until) {
  const std::lock_guard lock(state_->mutex);
  auto& told = state_->Front(address).told;
  const auto found = std::ranges::find_if(told, [&](const State::Told& t) { return t.name->first == canonical_name; });
  if (found != told.end()) {
    found->until = std::max(found->until, until);
    std::rotate(told.begin(), found, found + 1);
    return;
  }
  if (told.size() >= kMaxNamesOfAddress) {
    state_->Release(told.back().name);
    told.pop_back();
  }
  told.insert(told.begin(), {state_->Use(canonical_name), until});
}

std::vector<std::string> NameHistory::NamesOf(const IpAddress& address, SteadyTime now) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> names;
  const auto found = state_->index.find(address);
  if (found == state_->index.end()) return names;
  for (const State::Told& told : found->second->told)
    if (told.until > now) names.push_back(told.name->first);
  return names;
}

size_t NameHistory::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->recent.size();
}

}  // namespace sluice::dns
