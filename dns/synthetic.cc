#include "dns/synthetic.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <shared_mutex>

#include "base/keyed_hash.h"
#include "base/random.h"

namespace sluice::dns {
namespace {

constexpr uint32_t kV4Base = 0xc6120000;  // 198.18.0.0/15 (RFC 2544)
constexpr uint32_t kV4Count = 1u << 17;

}  // namespace

SyntheticPlace SyntheticPlace::Draw() {
  SyntheticPlace place;
  FillRandom(place.prefix);
  place.prefix[0] = 0xfd;
  return place;
}

SyntheticPlace SyntheticPlace::DrawAnywhere() {
  SyntheticPlace place = Draw();
  place.first = static_cast<uint32_t>(RandomU64() % kMaxSyntheticNames);
  return place;
}

// A name's slot, from 1, is the host part of both its addresses.
struct SyntheticPool::State {
  State(size_t names_at_most, const SyntheticPlace& place) : capacity(names_at_most), first(place.first % kMaxSyntheticNames) {
    std::ranges::copy(place.prefix, prefix.begin());
  }

  [[nodiscard]] size_t SlotOf(size_t nth) const { return (first + nth) % kMaxSyntheticNames + 1; }
  [[nodiscard]] size_t NthOf(uint64_t slot) const {
    return static_cast<size_t>((slot - 1 + kMaxSyntheticNames - first) % kMaxSyntheticNames);
  }

  [[nodiscard]] IpAddress Address(size_t slot, Family family) const {
    if (family == Family::kV4) return IpAddress::FromV4(kV4Base + static_cast<uint32_t>(slot));
    auto bytes = prefix;
    for (size_t i = 0; i < 4; ++i) bytes[15 - i] = static_cast<uint8_t>(slot >> (8 * i));
    return IpAddress::FromV6(bytes);
  }
  [[nodiscard]] bool InV4(const IpAddress& address) const {
    return address.is_v4() && (address.v4() & ~(kV4Count - 1)) == kV4Base;
  }
  [[nodiscard]] bool InV6(const IpAddress& address) const {
    return std::equal(prefix.begin(), prefix.begin() + 8, address.bytes().begin());
  }
  /// 0 for what can be no slot.
  [[nodiscard]] uint64_t Slot(const IpAddress& address) const {
    if (InV4(address)) return address.v4() - kV4Base;
    if (!InV6(address)) return 0;
    uint64_t slot = 0;
    for (size_t i = 8; i < 16; ++i) slot = slot << 8 | address.bytes()[i];
    return slot;
  }

  const size_t capacity;
  const size_t first;
  std::array<uint8_t, 16> prefix{};
  mutable std::shared_mutex mutex;
  std::deque<std::string> names;               // as they came, empty where it is not known; elements never move
  KeyedMap<std::string_view, uint32_t> slots;  // views into names
  OnGiven on_given;
};

SyntheticPool::SyntheticPool(size_t capacity, const SyntheticPlace& place)
    : state_(std::make_unique<State>(capacity == 0 ? kMaxSyntheticNames : std::min(capacity, kMaxSyntheticNames), place)) {}
SyntheticPool::~SyntheticPool() = default;

void SyntheticPool::Adopt(std::span<const std::string> names, OnGiven on_given) {
  const std::unique_lock lock(state_->mutex);
  for (const std::string& name : names) {
    const std::string& kept = state_->names.emplace_back(name);
    if (!kept.empty()) state_->slots.emplace(kept, static_cast<uint32_t>(state_->SlotOf(state_->names.size() - 1)));
  }
  state_->on_given = std::move(on_given);
}

Result<IpAddress> SyntheticPool::AddressFor(std::string_view canonical_name, Family family) {
  if (canonical_name.empty()) return Fail(Code::kInvalid, "an empty name has no synthetic address");
  {
    const std::shared_lock lock(state_->mutex);
    const auto found = state_->slots.find(canonical_name);
    if (found != state_->slots.end()) return state_->Address(found->second, family);
  }
  const std::unique_lock lock(state_->mutex);
  const auto found = state_->slots.find(canonical_name);
  if (found != state_->slots.end()) return state_->Address(found->second, family);
  if (state_->names.size() >= state_->capacity)
    return Fail(Code::kExhausted, "every synthetic address stands for a name already");
  const size_t nth = state_->names.size();
  if (state_->on_given) state_->on_given(static_cast<uint32_t>(nth), canonical_name);
  const std::string& kept = state_->names.emplace_back(canonical_name);
  const auto slot = static_cast<uint32_t>(state_->SlotOf(nth));
  state_->slots.emplace(kept, slot);
  return state_->Address(slot, family);
}

std::optional<std::string> SyntheticPool::NameOf(const IpAddress& address) const {
  const uint64_t slot = state_->Slot(address);
  if (slot == 0 || slot > kMaxSyntheticNames) return std::nullopt;
  const size_t nth = state_->NthOf(slot);
  const std::shared_lock lock(state_->mutex);
  if (nth >= state_->names.size() || state_->names[nth].empty()) return std::nullopt;
  return state_->names[nth];
}

bool SyntheticPool::InRange(const IpAddress& address) const { return state_->InV4(address) || state_->InV6(address); }

size_t SyntheticPool::size() const {
  const std::shared_lock lock(state_->mutex);
  return state_->names.size();
}

}  // namespace sluice::dns
