#pragma once

// Programs that run as the workload. Each case is a function that returns when all is as it should be and otherwise says
// what was not and exits with 1. The test that started it reads the exit code, and what it printed on failure.

#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace workload {

using Arguments = std::vector<std::string>;
using Run = void (*)(const Arguments&);
struct Case {
  const char* name;
  Run run;
};

/// Adds a case at start-up.
struct Register {
  Register(const char* name, Run run);
};
#define WORKLOAD_CASE(name)                                                 \
  static void Run_##name([[maybe_unused]] const workload::Arguments& args); \
  static const workload::Register register_##name(#name, Run_##name);       \
  static void Run_##name([[maybe_unused]] const workload::Arguments& args)

/// Ends the program with 1 unless `ok`.
void Check(bool ok, const std::string& what);
/// Ends the program with 1 unless both are equal.
void Same(long got, long wanted, const std::string& what);

// The places that the tests' policy knows. Where they are others, the environment says so: PLACES (main.cc), and PLACES_PORT.
inline constexpr const char* kAllowed = "198.18.0.1";       ///< a.test, port 80 allowed
inline constexpr const char* kOtherAllowed = "198.18.0.2";  ///< b.test, port 80 allowed
inline constexpr const char* kNoUpstream = "198.18.0.3";    ///< down.test: allowed, its upstream refuses
inline constexpr const char* kSlow = "198.18.0.4";          ///< slow.test: allowed, its upstream takes a second
inline constexpr const char* kForbidden = "198.18.0.9";     ///< no.test: a name that no rule allows
inline constexpr const char* kForbiddenLiteral = "8.8.8.8";
inline const uint16_t kPort =
    std::getenv("PLACES_PORT") != nullptr ? static_cast<uint16_t>(std::atoi(std::getenv("PLACES_PORT"))) : 80;

/// A sockaddr for an address of either family.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
Address To(const std::string& address, uint16_t port = kPort);
/// ::ffff:a.b.c.d
Address Mapped(const std::string& address, uint16_t port = kPort);

int TcpSocket(int family = AF_INET, int flags = 0);
/// connect, as 0 or an errno.
int Connect(int fd, const Address& address);
/// Waits for POLLOUT and gives SO_ERROR; -1 after `timeout_ms`.
int FinishConnect(int fd, int timeout_ms = 3000);
/// What the other end says first: the name it stands for, with a line feed.
std::string Greeting(int fd);
/// Milliseconds of a monotonic clock.
int64_t NowMs();

}  // namespace workload
