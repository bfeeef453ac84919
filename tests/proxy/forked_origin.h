#pragma once

// An origin for ten thousand exchanges that stay open, in a process of its own: what it holds is counted neither as the test's
// descriptors nor as its memory. What it speaks is a HeldConnection's affair.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/unique_fd.h"

namespace sluice::proxy::testing {

/// One connection of a client. Every answer of it has begun, and ends when it is told to.
class HeldConnection {
 public:
  virtual ~HeldConnection() = default;
  /// Something can be read. False: the client has left.
  virtual bool Turn() = 0;
  /// The rest of every answer.
  virtual void Finish() = 0;
  /// Answers that have begun and not ended.
  [[nodiscard]] virtual size_t open() const = 0;
};

class ForkedOrigin {
 public:
  using Accept = std::function<std::unique_ptr<HeldConnection>(UniqueFd)>;

  /// `accept` runs in the child. To be made before the test starts a thread: what the child inherits is then whole.
  explicit ForkedOrigin(const Accept& accept);
  ~ForkedOrigin();
  ForkedOrigin(const ForkedOrigin&) = delete;
  ForkedOrigin& operator=(const ForkedOrigin&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] size_t streams() { return Ask('s'); }
  [[nodiscard]] size_t connections() { return Ask('c'); }
  void FinishAll() { (void)Ask('f'); }

 private:
  [[nodiscard]] size_t Answer();
  [[nodiscard]] size_t Ask(char what);

  UniqueFd control_;
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

/// HTTP/2 with prior knowledge.
[[nodiscard]] std::unique_ptr<HeldConnection> HoldH2(UniqueFd fd);
/// HTTP/1.1 under TLS, for a.test.
[[nodiscard]] std::unique_ptr<HeldConnection> HoldTls(UniqueFd fd);

}  // namespace sluice::proxy::testing
