#pragma once

// Addresses that stand for names: 198.18.0.0/15 and a random IPv6 /64 of fd00::/8. An address, once given to a name, means
// that name for the life of the sandbox: clients that ignore TTLs keep working, and no address ever means two names.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/ip.h"
#include "base/result.h"

namespace sluice::dns {

enum class Family : uint8_t { kV4, kV6 };

/// Any thread.
class SyntheticPool {
 public:
  /// At most `capacity` names, 131,070 and no more (198.18.0.0/15 less its ends). 0 picks that.
  explicit SyntheticPool(size_t capacity = 0);
  ~SyntheticPool();
  SyntheticPool(const SyntheticPool&) = delete;
  SyntheticPool& operator=(const SyntheticPool&) = delete;

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
