#pragma once

// Questions to one server over TLS (RFC 7858): one connection, kept and pipelined, answers in any order. Always verified: by the
// server's name where it has one, else by its address. TLS 1.2 at least.

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/socket_seal.h"
#include "dns/message.h"
#include "dns/upstream_server.h"

namespace sluice::dns {

class TlsServer {
 public:
  struct Answer {
    Message message;
    size_t octets = 0;
  };
  using Done = std::move_only_function<void(Result<Answer>)>;
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `roots`: PEM files beside the system's. kInvalid where one cannot be read.
  static Result<std::shared_ptr<TlsServer>> Create(boost::asio::io_context& context, UpstreamServer server, SocketSeal seal,
                                                   const std::vector<std::string>& roots);
  virtual ~TlsServer() = default;
  /// `done` is called once, later, on the context's thread; at the deadline with kTimeout, from Stop with kIo. kProtocol: the
  /// server could not be verified, or said something else than was asked.
  virtual void Ask(const Question& question, TimePoint deadline, Done done) = 0;
  virtual void Stop() = 0;
};

}  // namespace sluice::dns
