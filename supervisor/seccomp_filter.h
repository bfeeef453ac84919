#pragma once

// The workload's seccomp filter, as a classic BPF program. It answers by itself what never depends on a policy (socket
// families, io_uring, foreign ABIs, options that would get around the supervisor) and notifies the supervisor of connect
// and of sendto with an address. Pure: installing it is the launcher's business.
//
//   const std::vector<sock_filter> program = BuildSeccompFilter();
//   const sock_fprog fprog{static_cast<unsigned short>(program.size()), const_cast<sock_filter*>(program.data())};
//   seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &fprog);
//
// For the machine this is compiled for (x86_64 or aarch64). Another ABI of the same machine kills the caller with SIGSYS; x32
// and calls newer than this program knows get ENOSYS. Every number that is always allowed is a leaf that looks at nothing
// but the number, so that the kernel (5.11 or later) keeps it in its bitmap and does not run the program at all.

#include <linux/filter.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "supervisor/launch_spec.h"

namespace sluice::supervisor {

/// The whole program; at most kMaxSeccompInstructions long. Unless refused, clone and unshare may make user, process and network
/// namespaces; for containers all but those of time, with the calls that build them.
[[nodiscard]] std::vector<sock_filter> BuildSeccompFilter(OwnNamespaces own = OwnNamespaces::kRefused);

/// The kernel's own limit is 4096 (BPF_MAXINSNS).
inline constexpr size_t kMaxSeccompInstructions = 1024;

/// The system calls that the filter refuses whatever their arguments, for documents and tests.
struct RefusedCall {
  uint32_t number;
  int error;
};
[[nodiscard]] std::vector<RefusedCall> SeccompRefusedCalls();

}  // namespace sluice::supervisor
