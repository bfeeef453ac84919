#pragma once

// Addresses that stand for names: 198.18.0.0/15 and a random IPv6 /64 of fd00::/8. An address, once given to a name, means
// that name for the life of the sandbox: clients that ignore TTLs keep working, and no address ever means two names.
//
// A sidecar's workload outlives it: the next process goes on from the same place, with what it knows of the names.

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"

namespace sluice::dns {

enum class Family : uint8_t { kV4, kV6 };

/// Names that can have an address: 198.18.0.0/15 less its ends.
inline constexpr size_t kMaxSyntheticNames = (size_t{1} << 17) - 2;

/// Where a pool begins in its ranges.
struct SyntheticPlace {
  std::array<uint8_t, 8> prefix{};  ///< of the IPv6 addresses
  uint32_t first = 0;               ///< of kMaxSyntheticNames, what the first name gets; at the end it goes on from the start

  /// A prefix of its own, from the start of the range.
  static SyntheticPlace Draw();
  /// Somewhere in the range: an address that was told before a restart is hardly any name's then.
  static SyntheticPlace DrawAnywhere();
};

/// Told of each name that gets an address, the `nth` from 0, before anybody knows the address. Under the pool's lock.
using OnGiven = std::function<void(uint32_t nth, std::string_view name)>;

/// Any thread.
class SyntheticPool {
 public:
  /// At most `capacity` names, kMaxSyntheticNames and no more. 0 picks that.
  explicit SyntheticPool(size_t capacity = 0, const SyntheticPlace& place = SyntheticPlace::Draw());
  ~SyntheticPool();
  SyntheticPool(const SyntheticPool&) = delete;
  SyntheticPool& operator=(const SyntheticPool&) = delete;

  /// Goes on where a former pool of this place ended: `names` in the order in which they got their addresses, empty where it is
  /// not known any more whose an address is. Before anything else is asked.
  void Adopt(std::span<const std::string> names, OnGiven on_given);

  /// The name's address, given on first use. kExhausted when full (the resolver answers SERVFAIL).
  [[nodiscard]] Result<IpAddress> AddressFor(std::string_view canonical_name, Family family);
  /// The name that `address` stands for; nothing for an address that was never given.
  [[nodiscard]] std::optional<std::string> NameOf(const IpAddress& address) const;
  /// Whether the address lies in the synthetic ranges, given or not.
  [[nodiscard]] bool InRange(const IpAddress& address) const;
  [[nodiscard]] size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::dns
