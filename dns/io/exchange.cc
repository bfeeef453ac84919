#include "dns/io/exchange.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <optional>

#include "base/random.h"
#include "dns/chain.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;
using TimePoint = std::chrono::steady_clock::time_point;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr int kMaxStrangers = 64;  ///< datagrams that do not match before the question goes by TCP: someone is guessing

asio::ip::address ToAsio(const IpAddress& address) {
  if (address.is_v4()) return asio::ip::address_v4(address.v4());
  return asio::ip::address_v6(address.bytes());
}

// A socket that is closed at the deadline, which ends whatever awaits it.
template <class Socket>
struct Guarded {
  Guarded(const asio::any_io_executor& executor, TimePoint deadline) : socket(executor), timer(executor, deadline) {}
  Socket socket;
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

struct Sent {
  uint16_t id = 0;
  Question question;
  std::vector<uint8_t> wire;
};

enum class Extension : uint8_t { kEdns, kPlain };

Sent MakeQuery(const Question& question, Extension extension) {
  std::array<uint8_t, 34> random{};
  FillRandom(random);
  Sent sent;
  sent.id = static_cast<uint16_t>(random[32] << 8 | random[33]);
  sent.question = question;
  sent.question.name.RandomizeCase(std::span(random).first(32));
  Message message;
  message.header.id = sent.id;
  message.header.recursion_desired = true;
  message.questions.push_back(sent.question);
  if (extension == Extension::kEdns) message.edns.emplace();
  sent.wire = Encode(message);
  return sent;
}

// A server that knows no EDNS may answer with a bare header (RFC 6891 section 7).
bool RefusesEdns(const Message& message, uint16_t id) {
  const Rcode rcode = message.header.rcode;
  return message.header.response && message.header.id == id && message.questions.empty() && !message.edns &&
         (rcode == Rcode::kFormErr || rcode == Rcode::kNotImp);
}

enum class Next : uint8_t { kDone, kTcp, kPlain };
struct UdpOutcome {
  Next next = Next::kDone;
  UpstreamAnswer answer;
};

asio::awaitable<Result<UdpOutcome>> AskUdp(Endpoint server, Question question, Extension extension, TimePoint deadline) {
  const auto guard = Guarded<udp::socket>::Make(co_await asio::this_coro::executor, deadline);
  const Guarded<udp::socket>::Stop stop{guard.get()};
  const udp::endpoint peer(ToAsio(server.address), server.port);
  error_code error;
  guard->socket.open(peer.protocol(), error);
  if (!error) guard->socket.connect(peer, error);  // the kernel picks a random port, and drops what others send
  if (error) co_return std::unexpected(guard->Failure(server, error));
  const Sent sent = MakeQuery(question, extension);
  const auto [send_error, sent_octets] = co_await guard->socket.async_send(asio::buffer(sent.wire), kAwait);
  if (send_error) co_return std::unexpected(guard->Failure(server, send_error));
  std::vector<uint8_t> buffer(4096);
  for (int strangers = 0; strangers < kMaxStrangers; ++strangers) {
    const auto [receive_error, octets] = co_await guard->socket.async_receive(asio::buffer(buffer), kAwait);
    if (receive_error) co_return std::unexpected(guard->Failure(server, receive_error));
    const std::span<const uint8_t> datagram(buffer.data(), octets);
    auto message = Decode(datagram);
    if (!message) {
      // Cut in the middle of a record, but it says so: the header is all that such an answer is good for.
      const auto header = DecodeHeader(datagram);
      if (header && header->response && header->id == sent.id && header->truncated) co_return UdpOutcome{Next::kTcp, {}};
      continue;
    }
    if (extension == Extension::kEdns && RefusesEdns(*message, sent.id)) co_return UdpOutcome{Next::kPlain, {}};
    const Match match = MatchResponse(*message, sent.id, sent.question);
    if (match == Match::kNo) continue;
    if (match == Match::kOtherCase || message->header.truncated) co_return UdpOutcome{Next::kTcp, {}};
    co_return UdpOutcome{Next::kDone, {std::move(*message), {datagram.begin(), datagram.end()}}};
  }
  co_return UdpOutcome{Next::kTcp, {}};
}

asio::awaitable<Result<UpstreamAnswer>> AskTcp(Endpoint server, Question question, TimePoint deadline) {
  const auto guard = Guarded<tcp::socket>::Make(co_await asio::this_coro::executor, deadline);
  const Guarded<tcp::socket>::Stop stop{guard.get()};
  const tcp::endpoint peer(ToAsio(server.address), server.port);
  const auto [connect_error] = co_await guard->socket.async_connect(peer, kAwait);
  if (connect_error) co_return std::unexpected(guard->Failure(server, connect_error));
  const Sent sent = MakeQuery(question, Extension::kEdns);
  std::vector<uint8_t> frame{static_cast<uint8_t>(sent.wire.size() >> 8), static_cast<uint8_t>(sent.wire.size() & 0xff)};
  frame.insert(frame.end(), sent.wire.begin(), sent.wire.end());
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
  co_return UpstreamAnswer{std::move(*message), std::move(body)};
}

}  // namespace

asio::awaitable<Result<UpstreamAnswer>> AskServer(Endpoint server, Question question, TimePoint deadline) {
  auto outcome = co_await AskUdp(server, question, Extension::kEdns, deadline);
  if (outcome && outcome->next == Next::kPlain) outcome = co_await AskUdp(server, question, Extension::kPlain, deadline);
  if (!outcome) co_return std::unexpected(outcome.error());
  if (outcome->next == Next::kDone) co_return std::move(outcome->answer);
  co_return co_await AskTcp(server, std::move(question), deadline);
}

}  // namespace sluice::dns
