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
constexpr size_t kMaxNames = kV4Count - 2;

std::array<uint8_t, 16> RandomPrefix() {
  std::array<uint8_t, 16> bytes{};
  FillRandom(std::span(bytes).first(8));
  bytes[0] = 0xfd;
  return bytes;
}

}  // namespace

// A name's slot, from 1, is the host part of both its addresses.
struct SyntheticPool::State {
  explicit State(size_t names) : capacity(names) {}

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
  const std::array<uint8_t, 16> prefix = RandomPrefix();
  mutable std::shared_mutex mutex;
  std::deque<std::string> names;               // names[slot - 1]; elements never move
  KeyedMap<std::string_view, uint32_t> slots;  // views into names
};

SyntheticPool::SyntheticPool(size_t capacity)
    : state_(std::make_unique<State>(capacity == 0 ? kMaxNames : std::min(capacity, kMaxNames))) {}
SyntheticPool::~SyntheticPool() = default;

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
  const std::string& kept = state_->names.emplace_back(canonical_name);
  const auto slot = static_cast<uint32_t>(state_->names.size());
  state_->slots.emplace(kept, slot);
  return state_->Address(slot, family);
}

std::optional<std::string> SyntheticPool::NameOf(const IpAddress& address) const {
  const uint64_t slot = state_->Slot(address);
  if (slot == 0) return std::nullopt;
  const std::shared_lock lock(state_->mutex);
  if (slot > state_->names.size()) return std::nullopt;
  return state_->names[slot - 1];
}

bool SyntheticPool::InRange(const IpAddress& address) const { return state_->InV4(address) || state_->InV6(address); }

size_t SyntheticPool::size() const {
  const std::shared_lock lock(state_->mutex);
  return state_->names.size();
}

}  // namespace sluice::dns
