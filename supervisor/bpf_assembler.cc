#include "supervisor/bpf_assembler.h"

#include <cstdlib>

namespace sluice::supervisor {

BpfAssembler::Label BpfAssembler::NewLabel() {
  labels_.push_back(kUnbound);
  return Label{labels_.size() - 1};
}

void BpfAssembler::Bind(Label label) { labels_[static_cast<size_t>(label)] = program_.size(); }

void BpfAssembler::Emit(uint16_t code, uint32_t k, uint8_t jt, uint8_t jf) { program_.push_back({code, jt, jf, k}); }

void BpfAssembler::Load(size_t offset) { Emit(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }

void BpfAssembler::And(uint32_t mask) { Emit(BPF_ALU | BPF_AND | BPF_K, mask); }

void BpfAssembler::JumpIf(Test test, uint32_t value, Label label) {
  Emit(static_cast<uint16_t>(BPF_JMP | BPF_K | static_cast<uint16_t>(test)), value, 0, 1);
  Jump(label);
}

void BpfAssembler::Jump(Label label) {
  fixups_.push_back({program_.size(), label});
  Emit(BPF_JMP | BPF_JA, 0);
}

void BpfAssembler::Return(uint32_t action) { Emit(BPF_RET | BPF_K, action); }

void BpfAssembler::ReturnIf(Test test, uint32_t value, uint32_t action) {
  Emit(static_cast<uint16_t>(BPF_JMP | BPF_K | static_cast<uint16_t>(test)), value, 0, 1);
  Return(action);
}

std::vector<sock_filter> BpfAssembler::Finish() const {
  std::vector<sock_filter> out = program_;
  for (const Fixup& fixup : fixups_) {
    const size_t target = labels_[static_cast<size_t>(fixup.label)];
    if (target == kUnbound || target <= fixup.at || target >= out.size()) std::abort();
    out[fixup.at].k = static_cast<uint32_t>(target - fixup.at - 1);
  }
  return out;
}

}  // namespace sluice::supervisor
