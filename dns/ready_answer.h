#pragma once

// Answers kept as octets. Two queries over UDP that differ in nothing but their id and the case of the name's letters have
// answers that differ in nothing else, so the second needs no decoding, no judgement and no encoding.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dns/name.h"

namespace sluice::dns {

/// What tells such queries from all others: every octet after the id, the name in lower case.
class ReadyKey {
 public:
  /// False for anything but a plain question: one name without pointers, nothing in the answer and authority sections, and of no
  /// more octets than a name and an OPT record need. Whether it is well-formed is not looked at.
  [[nodiscard]] bool Read(std::span<const uint8_t> query);
  [[nodiscard]] std::string_view text() const { return {reinterpret_cast<const char*>(octets_.data()), size_}; }
  /// Octets of the name on the wire, its final zero included.
  [[nodiscard]] size_t name_octets() const { return name_octets_; }

 private:
  static constexpr size_t kRoom = 12 + kMaxNameOctets + 4 + 64;
  std::array<uint8_t, kRoom> octets_{};
  size_t size_ = 0;
  size_t name_octets_ = 0;
};

/// The kept answer for this query of the same key: with its id, and its spelling of the name. All names of the answer that are
/// the question's point to it, as Encode writes them.
[[nodiscard]] std::vector<uint8_t> Retell(std::span<const uint8_t> kept, std::span<const uint8_t> query, size_t name_octets);

}  // namespace sluice::dns
