#pragma once

// Bytes waiting between a reader and a writer: filled at the back, consumed at the front, never more than the caller asks
// room for. Not thread-safe; the owner is one connection.

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace sluice::proxy {

class Buffer {
 public:
  [[nodiscard]] size_t size() const { return end_ - begin_; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] size_t capacity() const { return capacity_; }
  [[nodiscard]] std::string_view view() const { return {data_.get() + begin_, size()}; }
  [[nodiscard]] std::span<char> span() { return {data_.get() + begin_, size()}; }

  /// At least `room` writable bytes behind what is held. Moves or grows, so earlier views become invalid.
  std::span<char> Prepare(size_t room) {
    if (capacity_ - end_ < room) MakeRoom(room);
    return {data_.get() + end_, capacity_ - end_};
  }
  void Commit(size_t n) { end_ += n; }
  void Consume(size_t n) {
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void Append(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(Prepare(bytes.size()).data(), bytes.data(), bytes.size());
    end_ += bytes.size();
  }
  void Clear() { begin_ = end_ = 0; }
  /// Gives the memory back; for idle connections.
  void Release() {
    data_.reset();
    capacity_ = begin_ = end_ = 0;
  }

 private:
  void MakeRoom(size_t room) {
    const size_t held = size();
    if (capacity_ >= held + room) {
      if (held != 0) std::memmove(data_.get(), data_.get() + begin_, held);
    } else {
      const size_t grown = held + room < 2 * capacity_ ? 2 * capacity_ : held + room;
      auto bigger = std::make_unique_for_overwrite<char[]>(grown);
      if (held != 0) std::memcpy(bigger.get(), data_.get() + begin_, held);
      data_ = std::move(bigger);
      capacity_ = grown;
    }
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace sluice::proxy
