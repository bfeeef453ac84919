#pragma once

// The administration over HTTP/1.1: a UNIX socket for whoever has this process's user id, loopback TCP with a bearer token, a
// port that tells health alone, and a compatible front's own port. One thread for the sockets, one for changes, one for looking.
// A run adds GET /v1/hold, and a channel that its parent hands connections over by.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/admin_api.h"
#include "app/opensandbox.h"
#include "app/proxy_listener.h"
#include "app/run_hold.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

/// Of each kind of door, and as many again from beyond this machine: what is fenced can hold only those of this side, and of
/// those the ones that have waited longest for a request make room for the next.
inline constexpr size_t kMaxAdminConnections = 64;
inline constexpr size_t kMaxAdminBody = 1024 * 1024;
inline constexpr size_t kMaxAdminHead = 16 * 1024;
inline constexpr size_t kMaxAdminFields = 100;         ///< of one request
inline constexpr size_t kMaxStrangerBody = 16 * 1024;  ///< of a request without the token, and at the door that tells health
inline constexpr std::chrono::seconds kAdminReadDeadline{15};   ///< of one request, whole
inline constexpr std::chrono::seconds kHealthReadDeadline{2};   ///< the same at the door that tells health
inline constexpr std::chrono::seconds kAdminWriteDeadline{30};  ///< of one answer, and of each part of a stream

struct AdminAddresses {
  std::vector<ListenAddress> admin{};
  std::string token_file{};      ///< for TCP; read again for each request
  bool beyond_loopback = false;  ///< said so by the operator
  std::optional<ListenAddress> health{};
  std::optional<ListenAddress> front{};
};

/// What the administration of a run has besides.
struct RunDoors {
  RunHold* hold = nullptr;           ///< GET /v1/hold; null for a sidecar
  std::vector<UniqueFd> channels{};  ///< as TakeChannel gives them
};

/// kInvalid: TCP without a token, or beyond loopback without saying so.
[[nodiscard]] Result<void> CheckAdminAddresses(const AdminAddresses& addresses);
/// A token file: one line, 16 bytes at least, that nobody else may read.
[[nodiscard]] Result<std::string> ReadAdminToken(const std::string& file);

class AdminServer {
 public:
  /// Binds and serves. `front` may be null. References outlive the server. With a hold, callers from a process namespace below
  /// this process's own are turned away: they may be the workload.
  static Result<std::unique_ptr<AdminServer>> Start(AdminAddresses addresses, AdminApi& api, DecisionStream& stream,
                                                    OpenSandboxFront* front, RunDoors doors = {});
  /// Ends every connection and joins; removes its UNIX sockets.
  virtual ~AdminServer() = default;
  /// Waits, for so long at most, until whoever reads a stream has it whole. Once the streams have ended.
  virtual void AwaitStreams(std::chrono::milliseconds longest) = 0;
  /// As bound: with the ports that the kernel chose. "unix:/run/x.sock", "127.0.0.1:9090".
  [[nodiscard]] virtual std::vector<std::string> admin_addresses() const = 0;
  [[nodiscard]] virtual std::string health_address() const = 0;
  [[nodiscard]] virtual std::string front_address() const = 0;
};

}  // namespace sluice::app
