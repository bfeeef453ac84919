#pragma once

// The bound on a proof: work is spent as it is done, and what is over the limit makes the answer unknown, never a pass.

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::prover {

class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}

  /// False once the limit is reached; the caller returns, and what it returns is not looked at.
  bool Spend(uint64_t steps) {
    used_ += steps;
    if (used_ > limit_ && why_.empty()) why_ = "the comparison takes more steps than the limit allows";
    return why_.empty();
  }
  /// Something else is too large. The first reason is kept.
  void Exhaust(std::string_view why) {
    if (why_.empty()) why_ = why;
  }
  [[nodiscard]] bool exhausted() const { return !why_.empty(); }
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] uint64_t used() const { return used_; }

 private:
  uint64_t limit_;
  uint64_t used_ = 0;
  std::string why_;
};

}  // namespace sluice::prover
