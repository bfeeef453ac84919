#pragma once

// What a command writes to its standard output and error, as the relay moves it: counted, held to a bound, and copied to a
// transcript. One thread.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::supervisor {

class OutputMeter {
 public:
  /// `transcript`: borrowed, -1 for none.
  OutputMeter(int transcript, std::optional<uint64_t> bound) : transcript_(transcript), bound_(bound) {}

  /// Whether anything is to be counted or copied, so that output has to pass here at all.
  [[nodiscard]] bool wanted() const { return transcript_ >= 0 || bound_.has_value(); }
  /// How many of `size` octets may pass on; they are in the transcript then.
  [[nodiscard]] size_t Take(const char* data, size_t size);
  /// More was written than the bound allows.
  [[nodiscard]] bool exceeded() const { return exceeded_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  /// False once the transcript could not be written: then it ends early, which was logged.
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  int transcript_;
  std::optional<uint64_t> bound_;
  uint64_t count_ = 0;
  bool exceeded_ = false;
  bool complete_ = true;
};

}  // namespace sluice::supervisor
