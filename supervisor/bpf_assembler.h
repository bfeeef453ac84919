#pragma once

// Classic BPF with labels. Jumps go forward only, as the kernel demands. A conditional jump is written as a test over an
// unconditional one, whose 32-bit offset reaches everywhere; the two-instruction form costs nothing that can be measured.

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::supervisor {

class BpfAssembler {
 public:
  enum class Label : size_t {};
  enum class Test : uint16_t { kEqual = BPF_JEQ, kAtLeast = BPF_JGE, kAbove = BPF_JGT, kAnyBit = BPF_JSET };

  [[nodiscard]] Label NewLabel();
  void Bind(Label label);
  /// A = the 32-bit word at this offset of seccomp_data.
  void Load(size_t offset);
  /// A &= mask.
  void And(uint32_t mask);
  /// Goes to `label` when the test of A against `value` holds, on otherwise.
  void JumpIf(Test test, uint32_t value, Label label);
  void Jump(Label label);
  void Return(uint32_t action);
  /// Return(action) when the test holds, on otherwise.
  void ReturnIf(Test test, uint32_t value, uint32_t action);

  /// Resolves the labels. An unbound one, or one bound before its jump, ends the process: the program is fixed at build time.
  [[nodiscard]] std::vector<sock_filter> Finish() const;

 private:
  struct Fixup {
    size_t at;
    Label label;
  };
  static constexpr size_t kUnbound = SIZE_MAX;
  void Emit(uint16_t code, uint32_t k, uint8_t jt = 0, uint8_t jf = 0);

  std::vector<sock_filter> program_;
  std::vector<size_t> labels_;
  std::vector<Fixup> fixups_;
};

}  // namespace sluice::supervisor
