#pragma once

// Runs a classic BPF program over seccomp_data, as the kernel would: an oracle that shares nothing with the assembler.

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace sluice::supervisor::testing {

/// The action, or nothing for a program that the kernel would refuse on this path.
inline std::optional<uint32_t> RunBpf(std::span<const sock_filter> program, const seccomp_data& data) {
  uint32_t a = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const sock_filter& one = program[at];
    switch (one.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (one.k % 4 != 0 || one.k + 4 > sizeof data) return std::nullopt;
        std::memcpy(&a, reinterpret_cast<const char*>(&data) + one.k, sizeof a);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        a &= one.k;
        break;
      case BPF_JMP | BPF_JA:
        at += one.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += a == one.k ? one.jt : one.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        at += a >= one.k ? one.jt : one.jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        at += a > one.k ? one.jt : one.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        at += (a & one.k) != 0 ? one.jt : one.jf;
        break;
      case BPF_RET | BPF_K:
        return one.k;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace sluice::supervisor::testing
