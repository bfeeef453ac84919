#pragma once

// One notified call, taken in: the thread and its socket pinned, the address copied out of its memory once, and the
// notification found still waiting after all of it, so that none of it was another's. What is decided and done afterwards uses
// these copies alone; the caller's memory is never read again.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <expected>
#include <span>

#include "base/unique_fd.h"
#include "supervisor/called_address.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/seccomp_channel.h"
#include "supervisor/io/socket_facts.h"

namespace sluice::supervisor {

struct WatchedCall {
  PendingCall caller;
  CallerThreadPtr thread;
  UniqueFd pinned;
  SocketFacts facts;
  CalledAddress address;
  std::array<uint8_t, kMaxSockaddr> bytes{};
  size_t length = 0;

  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(bytes.data()); }
  [[nodiscard]] socklen_t raw_length() const { return static_cast<socklen_t>(length); }
};

/// Why a call could not be taken in.
struct NotTaken {
  enum class Why : uint8_t {
    kGone,        ///< the caller no longer waits
    kNative,      ///< the kernel's own answer to such arguments, in `error`
    kUnreadable,  ///< the supervisor may not look into this process
    kExhausted,   ///< no descriptor left
  };
  Why why = Why::kGone;
  int error = 0;
  UniqueFd pinned;  ///< to be dropped with care
};

/// connect's and sendto's arguments, from where the address is.
struct AddressArguments {
  int fd = -1;
  uint64_t pointer = 0;
  int length = 0;
};

[[nodiscard]] std::expected<WatchedCall, NotTaken> TakeCall(PendingCall caller, pid_t tid, ProcessTable& processes,
                                                            const AddressArguments& arguments);

}  // namespace sluice::supervisor
