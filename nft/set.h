#pragma once

// Sets of an nftables table, and their elements, as the kernel keeps them: each field of a key in network order (marks in the
// host's), padded to four bytes.

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ip.h"

namespace sluice::nft {

enum class KeyType : uint8_t { kFamily, kMark, kAddress4, kAddress6, kProtocol, kPort };

/// A key in the kernel's form.
class Key {
 public:
  /// An IPv6 address, a protocol and a port.
  static constexpr size_t kMaxBytes = 24;

  Key() = default;
  /// Four bytes for IPv4.
  Key& Address(const IpAddress& address) { return Append(AddressBytes(address)); }
  Key& Protocol(uint8_t protocol) { return Append({&protocol, 1}); }
  Key& Port(uint16_t port) {
    const std::array<uint8_t, 2> bytes{static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port & 0xff)};
    return Append(bytes);
  }
  /// Of a field in its own form; what is over kMaxBytes is left out.
  Key& Append(std::span<const uint8_t> field) {
    for (size_t i = 0; i < field.size() && length_ < kMaxBytes; ++i) bytes_[length_++] = field[i];
    while (length_ % 4 != 0) bytes_[length_++] = 0;
    return *this;
  }
  /// As read from the kernel; nothing where it is longer than kMaxBytes.
  static std::optional<Key> From(std::span<const uint8_t> bytes) {
    if (bytes.size() > kMaxBytes) return std::nullopt;
    Key key;
    for (const uint8_t byte : bytes) key.bytes_[key.length_++] = byte;
    return key;
  }

  [[nodiscard]] std::span<const uint8_t> bytes() const { return std::span(bytes_).first(length_); }
  auto operator<=>(const Key&) const = default;

 private:
  static std::span<const uint8_t> AddressBytes(const IpAddress& address) {
    const std::span<const uint8_t> all(address.bytes());
    return address.is_v4() ? all.subspan(12) : all;
  }

  std::array<uint8_t, kMaxBytes> bytes_{};
  uint8_t length_ = 0;
};

/// Of an interval set a range, both ends included; else `first` alone.
struct Element {
  Key first;
  Key last{};
  auto operator<=>(const Element&) const = default;
};

enum class SetKind : uint8_t {
  kHash,      ///< elements one by one, by the millisecond
  kInterval,  ///< ranges; adding one to a large set is slow, so only for what stays
};

struct Set {
  std::string name;
  std::vector<KeyType> key;  ///< more than one: concatenated
  SetKind kind = SetKind::kHash;
  uint32_t size = 0;                ///< most elements; 0: none given
  bool timeouts = false;            ///< elements may have an end
  std::chrono::seconds timeout{0};  ///< of elements that rules add
  bool dynamic = false;             ///< rules add to it
  std::vector<Element> elements{};  ///< of an interval set disjoint
  /// What the elements are of: the plan, or time. The latter survive a replacement.
  [[nodiscard]] bool is_static() const { return !timeouts && !dynamic; }
  bool operator==(const Set&) const = default;
};

/// Prefixes without those that lie in others, neighbours joined, as ranges of an interval set; of one family.
[[nodiscard]] std::vector<Element> Ranges(std::span<const Cidr> prefixes);

/// A range of addresses, one protocol, a range of ports: what a set of address . protocol . port holds.
struct Box {
  Cidr prefix;
  uint8_t protocol = 0;
  uint16_t first_port = 0;
  uint16_t last_port = 0;
};
/// Prefixes looked at while boxes are cut: what is over it is cut into too many pieces to be put into a kernel.
inline constexpr size_t kMaxCutWork = 20'000'000;
/// The boxes cut so that none overlaps another: the kernel refuses those that do. Of one family. Nothing where that makes more
/// than `most` pieces, or takes more than kMaxCutWork.
[[nodiscard]] std::optional<std::vector<Element>> Disjoint(std::span<const Box> boxes, size_t most);

/// The key after this one, as numbers go: an interval set of one field marks the ends of its ranges by it. Nothing after the
/// last.
[[nodiscard]] std::optional<Key> Following(const Key& key);
/// First and last address of a prefix.
[[nodiscard]] std::pair<IpAddress, IpAddress> EndsOf(const Cidr& prefix);
/// "10.0.0.0/8 . tcp . 443", "10.0.0.1-10.0.0.3", as nft(8) writes an element.
[[nodiscard]] std::string ToText(const Set& set, const Element& element);

}  // namespace sluice::nft
