#include "dns/frame.h"

namespace sluice::dns {

std::vector<uint8_t> Framed(std::span<const uint8_t> message) {
  std::vector<uint8_t> frame;
  frame.reserve(message.size() + 2);
  frame.push_back(static_cast<uint8_t>(message.size() >> 8));
  frame.push_back(static_cast<uint8_t>(message.size() & 0xff));
  frame.insert(frame.end(), message.begin(), message.end());
  return frame;
}

std::optional<std::vector<uint8_t>> FrameReader::Next() {
  if (pending() >= 2) {
    const size_t length = static_cast<size_t>(buffer_[begin_]) << 8 | buffer_[begin_ + 1];
    if (pending() - 2 >= length) {
      const auto first = buffer_.begin() + static_cast<std::ptrdiff_t>(begin_ + 2);
      std::vector<uint8_t> message(first, first + static_cast<std::ptrdiff_t>(length));
      begin_ += 2 + length;
      return message;
    }
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  return std::nullopt;
}

}  // namespace sluice::dns
