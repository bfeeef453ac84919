#pragma once

// Connections that a parent hands over, one with each message of a SOCK_SEQPACKET socket pair (SCM_RIGHTS, unix(7)): a way in
// that has no name, so that nobody else can find it. One thread.

#include <functional>
#include <memory>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

class PassedSockets {
 public:
  /// `take`: a connected UNIX stream socket, non-blocking, close-on-exec. `ended`: whoever handed them over is gone, or broke the
  /// protocol; once. Both on the thread.
  static Result<std::unique_ptr<PassedSockets>> Start(UniqueFd channel, std::function<void(UniqueFd)> take,
                                                      std::function<void()> ended);
  ~PassedSockets();
  PassedSockets(const PassedSockets&) = delete;
  PassedSockets& operator=(const PassedSockets&) = delete;

 private:
  PassedSockets() = default;
  void Loop();

  UniqueFd channel_;
  UniqueFd stop_;
  std::function<void(UniqueFd)> take_;
  std::function<void()> ended_;
  std::thread thread_;
};

/// Takes descriptor `number`, inherited from the parent, for such a channel: kInvalid where it is none.
[[nodiscard]] Result<UniqueFd> TakeChannel(int number);

}  // namespace sluice::app
