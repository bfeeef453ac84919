#include "dns/io/server_tcp.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>

#include "base/clock.h"
#include "base/complaint.h"
#include "base/fault.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kMaxConnections = 100;
constexpr size_t kMaxInFlight = 16;  ///< queries of one connection, answers not yet written included
constexpr std::chrono::milliseconds kAcceptPause{50};

Endpoint ToEndpoint(const tcp::endpoint& endpoint) {
  return Endpoint::FromSockaddr(endpoint.data(), endpoint.size()).value_or(Endpoint{});
}

}  // namespace

class TcpConnection : public std::enable_shared_from_this<TcpConnection> {
 public:
  TcpConnection(asio::io_context& context, tcp::socket socket, std::chrono::milliseconds idle, std::shared_ptr<ServerCore> core,
                std::shared_ptr<FloodGate> gate)
      : context_(context),
        socket_(std::move(socket)),
        idle_limit_(idle),
        idle_(context),
        room_(context),
        core_(std::move(core)),
        gate_(std::move(gate)),
        touched_(SystemClock().Steady()) {}

  static asio::awaitable<void> Read(std::shared_ptr<TcpConnection> self) {
    error_code error;
    const tcp::endpoint peer = self->socket_.remote_endpoint(error);
    const tcp::endpoint own = error ? tcp::endpoint() : self->socket_.local_endpoint(error);
    if (error) co_return self->Close();
    const ClientInfo client{policy::Transport::kTcp, ToEndpoint(peer), ToEndpoint(own)};
    self->Touch();
    while (self->socket_.is_open()) {
      while (self->in_flight_ >= kMaxInFlight && self->socket_.is_open()) {
        self->room_.expires_after(self->idle_limit_);
        co_await self->room_.async_wait(kAwait);
      }
      std::array<uint8_t, 2> length{};
      const auto [length_error, length_octets] = co_await asio::async_read(self->socket_, asio::buffer(length), kAwait);
      if (length_error) break;
      std::vector<uint8_t> query(static_cast<size_t>(length[0]) << 8 | length[1]);
      const auto [body_error, body_octets] = co_await asio::async_read(self->socket_, asio::buffer(query), kAwait);
      if (body_error) break;
      self->Touch();
      if (!self->Take(query, client)) break;
    }
    // The client may have closed its side only: what it asked is still answered.
    // Until then the connection counts, or half-closed ones would be without a bound.
    while (self->in_flight_ > 0 && self->socket_.is_open()) {
      self->room_.expires_after(self->idle_limit_);
      co_await self->room_.async_wait(kAwait);
    }
    self->Close();
  }

  /// Nothing is being looked up or written for it.
  [[nodiscard]] bool is_idle() const { return in_flight_ == 0; }
  [[nodiscard]] SteadyTime touched() const { return touched_; }

  void Close() {
    error_code ignored;
    socket_.close(ignored);
    idle_.cancel();
    room_.cancel();
  }

 private:
  // False ends the connection: after silence there is no telling where the next query begins.
  bool Take(std::span<const uint8_t> query, const ClientInfo& client) {
    const auto verdict =
        gate_ ? gate_->Judge(policy::Transport::kTcp, client.client, SystemClock().Steady()) : FloodGate::Verdict::kServe;
    if (verdict == FloodGate::Verdict::kDrop) return false;
    Step step = verdict == FloodGate::Verdict::kServe ? core_->Begin(query, client) : core_->RefuseExcess(query, client);
    if (std::holds_alternative<Silence>(step)) return false;
    ++in_flight_;
    if (auto* wire = std::get_if<Wire>(&step)) {
      Enqueue(std::move(*wire));
    } else {
      core_->Finish(std::move(std::get<std::unique_ptr<Work>>(step)), [self = shared_from_this()](Wire wire) {
        if (wire.empty()) return self->Close();
        self->Enqueue(std::move(wire));
      });
    }
    return true;
  }

  void Enqueue(Wire wire) {
    if (!socket_.is_open()) return;
    Wire frame{static_cast<uint8_t>(wire.size() >> 8), static_cast<uint8_t>(wire.size() & 0xff)};
    frame.insert(frame.end(), wire.begin(), wire.end());
    queue_.push_back(std::move(frame));
    if (queue_.size() == 1) asio::co_spawn(context_, Write(shared_from_this()), asio::detached);
  }

  static asio::awaitable<void> Write(std::shared_ptr<TcpConnection> self) {
    while (!self->queue_.empty()) {
      const auto [error, octets] = co_await asio::async_write(self->socket_, asio::buffer(self->queue_.front()), kAwait);
      if (error) co_return self->Close();
      self->queue_.pop_front();
      --self->in_flight_;
      self->room_.cancel();
      self->Touch();
    }
  }

  void Touch() {
    if (!socket_.is_open()) return;
    touched_ = SystemClock().Steady();
    idle_.expires_after(idle_limit_);
    idle_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self) self->Close();
    });
  }

  asio::io_context& context_;
  tcp::socket socket_;
  const std::chrono::milliseconds idle_limit_;
  asio::steady_timer idle_;
  asio::steady_timer room_;
  std::shared_ptr<ServerCore> core_;
  const std::shared_ptr<FloodGate> gate_;
  std::deque<Wire> queue_;
  size_t in_flight_ = 0;
  SteadyTime touched_;
};

Result<std::shared_ptr<TcpSide>> TcpSide::Start(asio::io_context& context, UniqueFd listener, std::chrono::milliseconds idle,
                                                std::shared_ptr<ServerCore> core, std::shared_ptr<FloodGate> gate) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (Faulty("dns.tcp.name", [&] { return getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &length); }) != 0)
    return FailErrno("the resolver's TCP socket", errno);
  std::shared_ptr<TcpSide> self(new TcpSide(context, idle, std::move(core), std::move(gate)));
  error_code error;
  self->acceptor_.assign(own.ss_family == AF_INET ? tcp::v4() : tcp::v6(), listener.get(), error);
  if (error) return FailErrno("the resolver's TCP socket", error.value());
  [[maybe_unused]] const int owned = listener.Release();
  asio::co_spawn(context, Run(self), asio::detached);
  return self;
}

void TcpSide::Stop() {
  error_code ignored;
  acceptor_.close(ignored);
  for (const auto& connection : connections_) connection->Close();
}

// One process must not keep the others from TCP by holding connections that ask nothing.
bool TcpSide::MakeRoom() {
  if (connections_.size() < kMaxConnections) return true;
  std::shared_ptr<TcpConnection> oldest;
  for (const auto& connection : connections_)
    if (connection->is_idle() && (oldest == nullptr || connection->touched() < oldest->touched())) oldest = connection;
  if (oldest == nullptr) return false;
  oldest->Close();
  connections_.erase(oldest);
  return true;
}

asio::awaitable<void> TcpSide::Run(std::shared_ptr<TcpSide> self) {
  asio::steady_timer pause(self->context_);
  Complaint complaint;
  while (self->acceptor_.is_open()) {
    auto [error, socket] = co_await self->acceptor_.async_accept(kAwait);
    if (!self->acceptor_.is_open()) co_return;
    if (Faulty("dns.tcp.accept", [&] { return error ? -1 : 0; }) != 0) {  // out of descriptors, mostly: the backlog waits
      complaint.Tell("accept lookups by TCP", error ? error.value() : errno, "they wait");
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(kAwait);
      continue;
    }
    if (!self->MakeRoom()) continue;  // closed as it goes out of scope
    auto connection = std::make_shared<TcpConnection>(self->context_, std::move(socket), self->idle_, self->core_, self->gate_);
    self->connections_.insert(connection);
    asio::co_spawn(self->context_, Serve(self, std::move(connection)), asio::detached);
  }
}

asio::awaitable<void> TcpSide::Serve(std::shared_ptr<TcpSide> self, std::shared_ptr<TcpConnection> connection) {
  co_await TcpConnection::Read(connection);
  self->connections_.erase(connection);
}

}  // namespace sluice::dns
