#pragma once

// What a self-test reaches: a server of one word and a resolver of one domain, both on this machine's loopback alone, in a child
// of this process.

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace sluice::app {

inline constexpr std::string_view kDoctorAllowed = "allowed.doctor.test";  ///< what a self-test's policy lets through
inline constexpr std::string_view kDoctorInspected = "seen.doctor.test";   ///< the same, inspected
inline constexpr std::string_view kDoctorDenied = "denied.doctor.test";
/// What the server says to whoever has sent it something.
inline constexpr std::string_view kDoctorWord = "sluice-doctor\n";

class StandIn {
 public:
  /// Forks: one thread. Both listen when it returns, at 127.0.0.1 of the calling thread's network namespace.
  static Result<StandIn> Start();
  StandIn(StandIn&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), port_(other.port_), resolver_port_(other.resolver_port_) {}
  StandIn& operator=(StandIn&&) = delete;
  ~StandIn();

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] uint16_t resolver_port() const { return resolver_port_; }

 private:
  StandIn(pid_t pid, uint16_t port, uint16_t resolver_port) : pid_(pid), port_(port), resolver_port_(resolver_port) {}
  pid_t pid_;
  uint16_t port_;
  uint16_t resolver_port_;
};

}  // namespace sluice::app
