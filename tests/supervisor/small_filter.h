#pragma once

// A filter that notifies of nothing, for tests of what launching does by itself: it refuses one call that no program makes,
// so that its being there can be seen.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace sluice::supervisor {

inline constexpr std::array<sock_filter, 4> kSmallFilter = {{
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_acct, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTUNIQ),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
}};

}  // namespace sluice::supervisor
