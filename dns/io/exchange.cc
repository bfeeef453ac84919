#include "dns/io/exchange.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "dns/frame.h"
#include "dns/io/addresses.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using TimePoint = Exchange::TimePoint;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// A socket that is closed at the deadline, which ends whatever awaits it.
struct Guarded {
  Guarded(const asio::any_io_executor& executor, TimePoint deadline) : socket(executor), timer(executor, deadline) {}
  tcp::socket socket;
  asio::steady_timer timer;
  bool expired = false;

  static std::shared_ptr<Guarded> Make(const asio::any_io_executor& executor, TimePoint deadline) {
    auto self = std::make_shared<Guarded>(executor, deadline);
    self->timer.async_wait([self](error_code error) {
      if (error) return;
      self->expired = true;
      error_code ignored;
      self->socket.close(ignored);
    });
    return self;
  }
  // However the coroutine ends, the timer must not keep the descriptor until the deadline.
  struct Stop {
    Guarded* self;
    ~Stop() { self->timer.cancel(); }
  };
  [[nodiscard]] Error Failure(const Endpoint& server, error_code error) const {
    if (expired) return {Code::kTimeout, "no answer from the resolver " + server.ToString(), 0, std::nullopt};
    return {Code::kIo, "the resolver " + server.ToString() + ": " + error.message(), error.value(), std::nullopt};
  }
};

asio::awaitable<Result<UpstreamAnswer>> ByTcp(Endpoint server, SentQuery sent, TimePoint deadline, SocketSeal seal) {
  const auto guard = Guarded::Make(co_await asio::this_coro::executor, deadline);
  const Guarded::Stop stop{guard.get()};
  const tcp::endpoint peer(ToAsio(server.address), server.port);
  error_code open_error;
  guard->socket.open(peer.protocol(), open_error);
  if (open_error) co_return std::unexpected(guard->Failure(server, open_error));
  if (!ApplySeal(guard->socket.native_handle(), seal)) co_return FailErrno("a socket for lookups", errno);
  const auto [connect_error] = co_await guard->socket.async_connect(peer, kAwait);
  if (connect_error) co_return std::unexpected(guard->Failure(server, connect_error));
  const std::vector<uint8_t> frame = Framed(sent.wire);
  const auto [write_error, written] = co_await asio::async_write(guard->socket, asio::buffer(frame), kAwait);
  if (write_error) co_return std::unexpected(guard->Failure(server, write_error));
  std::array<uint8_t, 2> length{};
  const auto [length_error, length_octets] = co_await asio::async_read(guard->socket, asio::buffer(length), kAwait);
  if (length_error) co_return std::unexpected(guard->Failure(server, length_error));
  std::vector<uint8_t> body(static_cast<size_t>(length[0]) << 8 | length[1]);
  const auto [body_error, body_octets] = co_await asio::async_read(guard->socket, asio::buffer(body), kAwait);
  if (body_error) co_return std::unexpected(guard->Failure(server, body_error));
  auto message = Decode(body);
  if (!message || MatchResponse(*message, sent.id, sent.question) == Match::kNo || message->header.truncated)
    co_return Fail(Code::kProtocol, "the resolver " + server.ToString() + " answered by TCP with something else than was asked");
  co_return UpstreamAnswer{std::move(*message), body.size()};
}

}  // namespace

Result<std::shared_ptr<Exchange>> Exchange::Create(asio::io_context& context, const std::vector<UpstreamServer>& servers,
                                                   SocketSeal seal, const std::vector<std::string>& tls_roots) {
  std::shared_ptr<Exchange> self(new Exchange(context, seal));
  auto udp = UdpPool::Create(context, seal);
  if (!udp) return std::unexpected(udp.error());
  self->udp_ = *std::move(udp);
  for (const UpstreamServer& server : servers) {
    if (server.kind != UpstreamServer::Kind::kTls) continue;
    auto tls = TlsServer::Create(context, server, seal, tls_roots);
    if (!tls) {
      self->Stop();
      return std::unexpected(tls.error());
    }
    self->tls_.emplace_back(server, *std::move(tls));
  }
  return self;
}

void Exchange::Stop() {
  udp_->Stop();
  for (const auto& [server, tls] : tls_) tls->Stop();
}

void Exchange::Ask(const UpstreamServer& server, const Question& question, TimePoint deadline, Done done) {
  if (server.kind == UpstreamServer::Kind::kPlain)
    return AskUdp(server.endpoint, question, Extension::kEdns, deadline, std::move(done));
  const auto found = std::ranges::find(tls_, server, [](const auto& entry) { return entry.first; });
  found->second->Ask(question, deadline, [done = std::move(done)](Result<TlsServer::Answer> answer) mutable {
    if (!answer) return done(std::unexpected(std::move(answer.error())));
    done(UpstreamAnswer{std::move(answer->message), answer->octets});
  });
}

void Exchange::AskUdp(const Endpoint& server, const Question& question, Extension extension, TimePoint deadline, Done done) {
  udp_->Ask(server, question, extension, deadline,
            [self = shared_from_this(), server, deadline, done = std::move(done)](Result<UdpPool::Outcome> got) mutable {
              if (!got) return done(std::unexpected(std::move(got.error())));
              switch (got->reception) {
                case Reception::kAnswer:
                  return done(UpstreamAnswer{std::move(got->message), got->octets});
                case Reception::kAskPlainly:
                  return self->AskUdp(server, got->question, Extension::kPlain, deadline, std::move(done));
                default:
                  return self->AskTcp(server, got->question, deadline, std::move(done));
              }
            });
}

void Exchange::AskTcp(const Endpoint& server, const Question& question, TimePoint deadline, Done done) {
  auto asking = ByTcp(server, MakeQuery(question, Extension::kEdns, &random_), deadline, seal_);
  asio::co_spawn(context_, std::move(asking),
                 [done = std::move(done)](const std::exception_ptr& failed, Result<UpstreamAnswer> answer) mutable {
                   if (failed) return done(Fail(Code::kInternal, "a lookup by TCP ended in an exception"));
                   done(std::move(answer));
                 });
}

}  // namespace sluice::dns
