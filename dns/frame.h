#pragma once

// Messages on a stream, each behind its length in two octets (RFC 1035 section 4.2.2).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::dns {

/// The message with its length in front. At most kMaxMessageOctets.
[[nodiscard]] std::vector<uint8_t> Framed(std::span<const uint8_t> message);

/// Cuts a stream that arrives in pieces. Holds at most one incomplete message.
class FrameReader {
 public:
  void Feed(std::span<const uint8_t> octets) { buffer_.insert(buffer_.end(), octets.begin(), octets.end()); }
  /// The next whole message; nothing until more is fed. Call it until it gives nothing before feeding again.
  [[nodiscard]] std::optional<std::vector<uint8_t>> Next();
  /// Octets that are not yet a message.
  [[nodiscard]] size_t pending() const { return buffer_.size() - begin_; }

 private:
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;
};

}  // namespace sluice::dns
