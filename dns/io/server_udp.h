#pragma once

// Lookups by UDP on one socket, IPv4 or dual-stack IPv6. Each answer leaves from the very address that was asked. A flood is
// dropped before it is parsed, and soon by the kernel before it is queued.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "base/complaint.h"
#include "base/unique_fd.h"
#include "dns/flood_gate.h"
#include "dns/io/server_core.h"

namespace sluice::dns {

inline constexpr size_t kMaxQueryOctets = 2048;  ///< a longer query is cut, then refused as malformed
inline constexpr size_t kMaxWaiting = 1024;      ///< queries that wait for the upstream

class UdpSide : public std::enable_shared_from_this<UdpSide> {
 public:
  /// `gate` null: all are answered.
  static Result<std::shared_ptr<UdpSide>> Start(boost::asio::io_context& context, UniqueFd socket,
                                                std::shared_ptr<ServerCore> core, std::shared_ptr<FloodGate> gate);
  void Stop();

 private:
  struct Batch;

  UdpSide(boost::asio::io_context& context, int family, const Endpoint& own, std::shared_ptr<ServerCore> core,
          std::shared_ptr<FloodGate> gate);
  static boost::asio::awaitable<void> Run(std::shared_ptr<UdpSide> self);
  void AnswerLater(std::unique_ptr<Work> work, const ClientInfo& client);
  /// What one call brought; less than none: it cannot be read.
  struct Received {
    int datagrams = 0;
    int judged = 0;  ///< of these, not dropped unread
  };
  [[nodiscard]] Received ReceiveSome();
  /// False: dropped.
  bool TakeOne(size_t i, SteadyTime now);
  void Reply(Step step, const ClientInfo& client);
  void UpdateFilter(SteadyTime now);
  void Queue(Wire wire, const ClientInfo& client);
  void SendQueued();
  void SendSoon();

  boost::asio::io_context& context_;
  boost::asio::posix::stream_descriptor socket_;
  const int family_;
  const Endpoint own_;
  const bool fixed_;  ///< bound to one address: what is asked of it and answered from it is that one
  size_t waiting_ = 0;
  bool sending_soon_ = false;
  Complaint complaint_;
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<FloodGate> gate_;
  boost::asio::steady_timer rest_;
  boost::asio::steady_timer reopen_;  ///< runs while ports are shut
  std::unique_ptr<Batch, void (*)(Batch*)> batch_;
};

}  // namespace sluice::dns
