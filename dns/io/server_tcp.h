#pragma once

// Lookups by TCP (RFC 7766): pipelined, answered out of order, bounded in connections, in queries of each, and in time. A flood
// meets the gate that UDP has: one query too many is told so, the next ends the connection unread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <unordered_set>

#include "base/unique_fd.h"
#include "dns/flood_gate.h"
#include "dns/io/server_core.h"

namespace sluice::dns {

class TcpConnection;

class TcpSide : public std::enable_shared_from_this<TcpSide> {
 public:
  /// `gate` null: all are answered.
  static Result<std::shared_ptr<TcpSide>> Start(boost::asio::io_context& context, UniqueFd listener,
                                                std::chrono::milliseconds idle, std::shared_ptr<ServerCore> core,
                                                std::shared_ptr<FloodGate> gate);
  void Stop();

 private:
  TcpSide(boost::asio::io_context& context, std::chrono::milliseconds idle, std::shared_ptr<ServerCore> core,
          std::shared_ptr<FloodGate> gate)
      : context_(context), acceptor_(context), idle_(idle), core_(std::move(core)), gate_(std::move(gate)) {}
  static boost::asio::awaitable<void> Run(std::shared_ptr<TcpSide> self);
  /// Whether there is place for one more; what has waited longest without a query in flight gives way.
  [[nodiscard]] bool MakeRoom();
  static boost::asio::awaitable<void> Serve(std::shared_ptr<TcpSide> self, std::shared_ptr<TcpConnection> connection);

  boost::asio::io_context& context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  const std::chrono::milliseconds idle_;
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<FloodGate> gate_;
  std::unordered_set<std::shared_ptr<TcpConnection>> connections_;
};

}  // namespace sluice::dns
