#include "dns/io/tls_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <deque>
#include <unordered_map>

#include "dns/frame.h"
#include "dns/io/addresses.h"
#include "dns/io/sent_query.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kMaxTlsInFlight = 256;
constexpr milliseconds kTlsIdle{20'000};  ///< without a question before the connection is closed (RFC 7858 section 3.4)
constexpr milliseconds kTick{50};

// One connection. It ends with the first fault; what was asked on it is then told so.
struct Connection {
  Connection(asio::io_context& context, ssl::context& tls) : stream(context, tls) {}
  ssl::stream<tcp::socket> stream;
  std::deque<std::vector<uint8_t>> outgoing{};
  bool open = false;  // the handshake is done
  bool closed = false;
  bool writing = false;
  bool proven = false;           // it has answered something …
  TlsServer::TimePoint heard{};  // … last at this time
  void Close() {
    closed = true;
    error_code ignored;
    stream.lowest_layer().close(ignored);
  }
};
using ConnectionPtr = std::shared_ptr<Connection>;

struct Waiting {
  SentQuery sent;
  TlsServer::TimePoint asked;
  TlsServer::TimePoint deadline;
  TlsServer::Done done;
  ConnectionPtr on;
  bool again = false;  // asked on a second connection already
};

class Running final : public TlsServer, public std::enable_shared_from_this<Running> {
 public:
  Running(asio::io_context& context, UpstreamServer server, SocketSeal seal, ssl::context tls)
      : context_(context), server_(std::move(server)), seal_(seal), tls_(std::move(tls)), tick_(context) {}

  void Ask(const Question& question, TimePoint deadline, Done done) override {
    if (stopped_ || waiting_.size() >= kMaxTlsInFlight) {
      const Error error = stopped_ ? Error{Code::kIo, "the resolver was shut down", 0, std::nullopt}
                                   : Error{Code::kExhausted, "too many lookups are outstanding", 0, std::nullopt};
      asio::post(context_, [error, done = std::move(done)]() mutable { done(std::unexpected(error)); });
      return;
    }
    SentQuery sent = MakeQuery(question, Extension::kEdns, &random_);
    while (waiting_.contains(sent.id)) sent = MakeQuery(question, Extension::kEdns, &random_);
    const uint16_t id = sent.id;
    last_asked_ = std::chrono::steady_clock::now();
    Send(&waiting_.emplace(id, Waiting{std::move(sent), last_asked_, deadline, std::move(done), {}}).first->second);
    if (!ticking_) Tick();
  }

  void Stop() override {
    stopped_ = true;
    tick_.cancel();
    if (connection_) connection_->Close();
    auto all = std::exchange(waiting_, {});
    for (auto& [id, waiting] : all) waiting.done(Fail(Code::kIo, "the resolver was shut down"));
  }

 private:
  void Send(Waiting* waiting) {
    if (!connection_ || connection_->closed) {
      connection_ = std::make_shared<Connection>(context_, tls_);
      asio::co_spawn(context_, Connect(shared_from_this(), connection_), asio::detached);
    }
    waiting->on = connection_;
    connection_->outgoing.push_back(Framed(waiting->sent.wire));
    if (connection_->open) StartWriting(connection_);
  }

  void StartWriting(const ConnectionPtr& connection) {
    if (connection->writing || connection->outgoing.empty()) return;
    connection->writing = true;
    asio::co_spawn(context_, Write(shared_from_this(), connection), asio::detached);
  }

  Result<void> Prepare(Connection* connection) {
    error_code error;
    auto& socket = connection->stream.next_layer();
    const tcp::endpoint peer(ToAsio(server_.endpoint.address), server_.endpoint.port);
    socket.open(peer.protocol(), error);
    if (error || !ApplySeal(socket.native_handle(), seal_))
      return FailErrno("a socket for lookups", error ? error.value() : errno);
    socket.set_option(tcp::no_delay(true), error);
    SSL* const handle = connection->stream.native_handle();
    X509_VERIFY_PARAM* const checks = SSL_get0_param(handle);
    X509_VERIFY_PARAM_set_hostflags(checks, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    const std::string address = server_.endpoint.address.ToString();
    const bool named = !server_.name.empty();
    if (named ? X509_VERIFY_PARAM_set1_host(checks, server_.name.c_str(), 0) != 1 || !SetServerName(handle)
              : X509_VERIFY_PARAM_set1_ip_asc(checks, address.c_str()) != 1)
      return Fail(Code::kInternal, "cannot set what the resolver's certificate must say");
    return {};
  }
  bool SetServerName(SSL* handle) const {
    // SSL_set_tlsext_host_name, without its cast.
    return SSL_ctrl(handle, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(server_.name.c_str())) ==
           1;
  }

  static asio::awaitable<void> Connect(std::shared_ptr<Running> self, ConnectionPtr connection) {
    co_await asio::post(self->context_, asio::use_awaitable);  // never within the call that asks
    if (auto prepared = self->Prepare(connection.get()); !prepared) co_return self->End(connection, prepared.error());
    const tcp::endpoint peer(ToAsio(self->server_.endpoint.address), self->server_.endpoint.port);
    const auto [connect_error] = co_await connection->stream.next_layer().async_connect(peer, kAwait);
    if (connect_error) co_return self->End(connection, self->Fault(connect_error));
    const auto [handshake_error] = co_await connection->stream.async_handshake(ssl::stream_base::client, kAwait);
    if (handshake_error) co_return self->End(connection, self->HandshakeFault(*connection, handshake_error));
    connection->open = true;
    self->StartWriting(connection);
    co_await Read(self, connection);
  }

  static asio::awaitable<void> Write(std::shared_ptr<Running> self, ConnectionPtr connection) {
    while (!connection->outgoing.empty() && !connection->closed) {
      const std::vector<uint8_t> frame = std::move(connection->outgoing.front());
      connection->outgoing.pop_front();
      const auto [error, octets] = co_await asio::async_write(connection->stream, asio::buffer(frame), kAwait);
      if (error) co_return self->End(connection, self->Fault(error));
    }
    connection->writing = false;
  }

  static asio::awaitable<void> Read(std::shared_ptr<Running> self, ConnectionPtr connection) {
    FrameReader reader;
    std::vector<uint8_t> buffer(4096);
    for (;;) {
      const auto [error, octets] = co_await connection->stream.async_read_some(asio::buffer(buffer), kAwait);
      if (error) co_return self->End(connection, self->Fault(error));
      reader.Feed(std::span(buffer).first(octets));
      while (const auto message = reader.Next())
        if (!self->Take(connection, *message))
          co_return self->End(connection,
                              {Code::kProtocol, self->Name() + " answered something that was not asked", 0, std::nullopt});
    }
  }

  // False: the stream makes no sense. An answer to what is not waited for any more is nothing strange.
  bool Take(const ConnectionPtr& connection, std::span<const uint8_t> octets) {
    auto message = Decode(octets);
    if (!message) return false;
    const auto found = waiting_.find(message->header.id);
    if (found == waiting_.end() || found->second.on != connection) return true;
    if (MatchResponse(*message, found->second.sent.id, found->second.sent.question) == Match::kNo || message->header.truncated)
      return false;
    connection->proven = true;
    connection->heard = std::chrono::steady_clock::now();
    Done done = std::move(found->second.done);
    waiting_.erase(found);
    done(Answer{std::move(*message), octets.size()});
    return true;
  }

  // Servers close connections as they like: what an old one took with it is asked once more, on a new one.
  void End(const ConnectionPtr& connection, const Error& error) {
    connection->Close();
    std::vector<Done> failed;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      Waiting& waiting = it->second;
      if (waiting.on != connection) {
        ++it;
      } else if (connection->proven && !waiting.again && !stopped_) {
        waiting.again = true;
        Send(&waiting);
        ++it;
      } else {
        failed.push_back(std::move(waiting.done));
        it = waiting_.erase(it);
      }
    }
    for (Done& done : failed) done(std::unexpected(error));
  }

  void Tick() {
    ticking_ = true;
    tick_.expires_after(kTick);
    tick_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && !self->stopped_) self->EndOverdue();
    });
  }
  void EndOverdue() {
    const TimePoint now = std::chrono::steady_clock::now();
    std::vector<Done> late;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->second.deadline > now) {
        ++it;
        continue;
      }
      // A connection that leads nowhere, or no more, must not be waited on by the next question too.
      if (it->second.on->heard < it->second.asked) it->second.on->Close();
      late.push_back(std::move(it->second.done));
      it = waiting_.erase(it);
    }
    for (Done& done : late) done(Fail(Code::kTimeout, "no answer from the resolver " + Name()));
    if (stopped_) return;
    if (waiting_.empty() && now - last_asked_ > kTlsIdle && connection_) {
      connection_->Close();
      connection_.reset();
    }
    ticking_ = false;
    if (!waiting_.empty() || connection_) Tick();
  }

  [[nodiscard]] std::string Name() const { return server_.ToString(); }
  [[nodiscard]] Error Fault(error_code error) const {
    return {Code::kIo, "the resolver " + Name() + ": " + error.message(), error.value(), std::nullopt};
  }
  [[nodiscard]] Error HandshakeFault(Connection& connection, error_code error) const {
    const long verified = SSL_get_verify_result(connection.stream.native_handle());
    if (verified == X509_V_OK) return Fault(error);
    return {Code::kProtocol, "the resolver " + Name() + " is not who it should be: " + X509_verify_cert_error_string(verified), 0,
            std::nullopt};
  }

  asio::io_context& context_;
  const UpstreamServer server_;
  const SocketSeal seal_;
  ssl::context tls_;
  asio::steady_timer tick_;
  RandomOctets random_;
  ConnectionPtr connection_;
  std::unordered_map<uint16_t, Waiting> waiting_;
  TimePoint last_asked_{};
  bool ticking_ = false;
  bool stopped_ = false;
};

}  // namespace

Result<std::shared_ptr<TlsServer>> TlsServer::Create(asio::io_context& context, UpstreamServer server, SocketSeal seal,
                                                     const std::vector<std::string>& roots) {
  ssl::context tls(ssl::context::tls_client);
  error_code error;
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(tls.native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  tls.set_verify_mode(ssl::verify_peer, error);
  if (!error) tls.set_default_verify_paths(error);
  if (error) return Fail(Code::kInvalid, "the system's roots, for resolvers by TLS: " + error.message());
  for (const std::string& file : roots) {
    tls.load_verify_file(file, error);
    if (error) return Fail(Code::kInvalid, "roots for resolvers by TLS: " + file + ": " + error.message());
  }
  return std::make_shared<Running>(context, std::move(server), seal, std::move(tls));
}

}  // namespace sluice::dns
