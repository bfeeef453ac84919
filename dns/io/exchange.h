#pragma once

// One question to one server: by UDP, then by TCP where UDP will not do; or over TLS.

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/socket_seal.h"
#include "dns/io/tls_server.h"
#include "dns/io/udp_pool.h"
#include "dns/message.h"
#include "dns/upstream_server.h"

namespace sluice::dns {

struct UpstreamAnswer {
  Message message;
  size_t octets = 0;  ///< of the message as it came
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// Any rcode is an answer. kTimeout at the deadline; kIo where the server could not be reached.
  using Done = std::move_only_function<void(Result<UpstreamAnswer>)>;

  /// kInvalid where a TLS server is among them and the roots cannot be read.
  static Result<std::shared_ptr<Exchange>> Create(boost::asio::io_context& context, const std::vector<UpstreamServer>& servers,
                                                  SocketSeal seal, const std::vector<std::string>& tls_roots);
  /// One of the servers that Create was given. `done` is called once, never from within.
  void Ask(const UpstreamServer& server, const Question& question, TimePoint deadline, Done done);
  /// What waits ends with kIo, before it returns or soon after.
  void Stop();

 private:
  Exchange(boost::asio::io_context& context, SocketSeal seal) : context_(context), seal_(seal) {}
  void AskUdp(const Endpoint& server, const Question& question, Extension extension, TimePoint deadline, Done done);
  void AskTcp(const Endpoint& server, const Question& question, TimePoint deadline, Done done);

  boost::asio::io_context& context_;
  const SocketSeal seal_;
  std::shared_ptr<UdpPool> udp_;
  std::vector<std::pair<UpstreamServer, std::shared_ptr<TlsServer>>> tls_;
  RandomOctets random_;
};

}  // namespace sluice::dns
