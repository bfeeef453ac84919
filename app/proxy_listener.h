#pragma once

// Where clients of `sluice proxy` come in: TCP addresses and UNIX sockets, one thread that accepts, finds out whose connection it
// is, and hands it to the engine.

#include <memory>
#include <string>
#include <vector>

#include "app/accept_loop.h"
#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "base/unix_listener.h"
#include "policy/event.h"
#include "proxy/io/engine.h"
#include "supervisor/io/client_process.h"

namespace sluice::app {

/// "127.0.0.1:3128", "[::1]:3128", "0.0.0.0:0", "unix:/run/sluice.sock".
struct ListenAddress {
  std::string unix_path;  ///< empty: TCP
  Endpoint endpoint{};
};
[[nodiscard]] Result<ListenAddress> ParseListen(const std::string& text);
/// Binds and listens, close-on-exec and non-blocking; fills in the port that the kernel chose. A UNIX socket is made with mode
/// 0600, as ListenUnix says; of others the name is empty.
[[nodiscard]] Result<UnixListener> ListenAt(ListenAddress* address);
/// Whether ListenAt could have it now. Nothing listens meanwhile.
[[nodiscard]] Result<void> CheckListenAt(const ListenAddress& address);

class ProxyListener {
 public:
  static Result<std::unique_ptr<ProxyListener>> Open(const std::vector<ListenAddress>& addresses);
  /// Stops, and removes its UNIX sockets.
  ~ProxyListener();
  ProxyListener(const ProxyListener&) = delete;
  ProxyListener& operator=(const ProxyListener&) = delete;

  /// As bound: with the port that the kernel chose.
  [[nodiscard]] const std::vector<ListenAddress>& addresses() const { return addresses_; }

  /// Whether clients are asked after in /proc. Not where a load balancer stands before them.
  enum class Attribute : uint8_t { kProcesses, kNothing };
  /// References outlive the listener. `host_addresses`: from where a client may be of this machine.
  [[nodiscard]] Result<void> Start(proxy::Engine& engine, const policy::CurrentPolicy& policy, Attribute attribute,
                                   std::vector<IpAddress> host_addresses);
  /// Accepts no more. Once; the thread has ended afterwards.
  void Stop();

 private:
  ProxyListener() = default;
  void Take(UniqueFd socket, const sockaddr_storage& from, socklen_t size);
  [[nodiscard]] policy::ProcessPtr WhoseIs(const UniqueFd& socket, const std::optional<Endpoint>& source);

  std::vector<ListenAddress> addresses_;
  std::vector<SocketName> names_;  // go before the sockets
  std::unique_ptr<AcceptLoop> loop_;
  proxy::Engine* engine_ = nullptr;
  const policy::CurrentPolicy* policy_ = nullptr;
  std::unique_ptr<supervisor::ClientProcesses> processes_;
  std::vector<IpAddress> host_addresses_;
  uint64_t next_id_ = 0;
};

}  // namespace sluice::app
