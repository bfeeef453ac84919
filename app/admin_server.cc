#include "app/admin_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <condition_variable>
#include <expected>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "app/accept_loop.h"
#include "app/control_peer.h"
#include "app/file.h"
#include "app/host_watch.h"
#include "app/passed_sockets.h"
#include "base/complaint.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "base/unix_listener.h"
#include "base/wake_timer.h"

namespace sluice::app {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Socket = asio::generic::stream_protocol::socket;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;
using boost::system::error_code;

constexpr size_t kLeastToken = 16;
constexpr size_t kMostToken = 4096;
constexpr unsigned kMostRequests = 1000;  // of one connection

enum class Door : uint8_t { kAdminUnix, kAdminTcp, kHealth, kFront };

bool IsLoopback(const IpAddress& address) {
  static const Cidr kV4 = Cidr::Of(IpAddress::FromV4(0x7f000000), 8);
  static const IpAddress kV6 = *IpAddress::Parse("::1");
  return address == kV6 || (address.is_v4() && kV4.Contains(address));
}

std::string AddressText(const ListenAddress& address) {
  return address.unix_path.empty() ? address.endpoint.ToString() : "unix:" + address.unix_path;
}

// Field names come in any case; of these none may come twice, so that it is plain which one counts. Each is compared with those
// before it, and whoever sends them may have no token.
bool TakeFields(const http::request<http::string_body>& message, AdminRequest* out) {
  for (const auto& field : message) {
    if (out->fields.size() >= kMaxAdminFields) return false;
    std::string name(field.name_string());
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    if (out->Field(name) != nullptr && name != "accept" && name != "via") return false;
    out->fields.emplace_back(std::move(name), std::string(field.value()));
  }
  return true;
}

// The connections of one door that come from one side.
struct House {
  std::atomic<size_t> open{0};
  std::list<Stream*> waiting;  ///< for a request, the one that waits longest first; the server's thread
};

// A door of the server, as bound.
struct Doorway {
  Door door = Door::kHealth;
  ListenAddress address;
  SocketName name;
};

// Whatever may still lead to somebody who holds the run has a share: a socket that is listened on, a channel, a caller who has
// not opened a stream yet. With the last of them the run is given up.
class Hope {
 public:
  explicit Hope(RunHold& hold) : hold_(hold) {}
  ~Hope() { hold_.GiveUp(); }
  Hope(const Hope&) = delete;
  Hope& operator=(const Hope&) = delete;

 private:
  RunHold& hold_;
};
using HopeShare = std::shared_ptr<Hope>;

class Serving final : public AdminServer {
 public:
  Serving(AdminAddresses addresses, AdminApi& api, DecisionStream& stream, OpenSandboxFront* front, RunDoors doors)
      : addresses_(std::move(addresses)), api_(api), stream_(stream), front_(front), doors_(std::move(doors)) {}

  ~Serving() override {
    for (Doorway& doorway : doorways_) doorway.name.Remove();
    for (auto& loop : loops_) loop->Stop();
    passed_.clear();
    asio::post(context_, [this] { context_.stop(); });
    work_.reset();
    if (thread_.joinable()) thread_.join();
    {
      const std::lock_guard lock(gate_->mutex);
      gate_->open = false;
    }
    changes_.join();
    looks_.join();
  }

  Result<void> Begin() {
    for (const ListenAddress& address : addresses_.admin)
      if (auto bound = Bind(address, address.unix_path.empty() ? Door::kAdminTcp : Door::kAdminUnix); !bound) return bound;
    if (addresses_.health)
      if (auto bound = Bind(*addresses_.health, Door::kHealth); !bound) return bound;
    if (addresses_.front && front_ != nullptr)
      if (auto bound = Bind(*addresses_.front, Door::kFront); !bound) return bound;
    const HopeShare hope = doors_.hold != nullptr ? std::make_shared<Hope>(*doors_.hold) : nullptr;
    if (!loops_.empty()) hope_of_sockets_ = hope;
    hope_of_channels_.assign(doors_.channels.size(), hope);
    thread_ = std::thread([this] { context_.run(); });
    for (size_t i = 0; i < loops_.size(); ++i) {
      const Door door = doorways_[i].door;
      loops_[i]->Start([this, door](UniqueFd socket, const sockaddr_storage& from, socklen_t size) {
        Take(std::move(socket), from, size, door);
      });
    }
    return StartChannels();
  }

  void AwaitStreams(std::chrono::milliseconds longest) override {
    std::unique_lock lock(streams_mutex_);
    streams_done_.wait_for(lock, longest, [this] { return streams_ == 0; });
  }

  std::vector<std::string> admin_addresses() const override {
    std::vector<std::string> texts;
    for (const Doorway& doorway : doorways_)
      if (doorway.door == Door::kAdminUnix || doorway.door == Door::kAdminTcp) texts.push_back(AddressText(doorway.address));
    return texts;
  }
  std::string health_address() const override { return AddressOf(Door::kHealth); }
  std::string front_address() const override { return AddressOf(Door::kFront); }

 private:
  std::string AddressOf(Door door) const {
    const auto found = std::ranges::find(doorways_, door, &Doorway::door);
    return found == doorways_.end() ? "" : AddressText(found->address);
  }

  Result<void> StartChannels() {
    for (size_t i = 0; i < doors_.channels.size(); ++i) {
      HopeShare& hope = hope_of_channels_[i];  // touched on the channel's thread alone
      auto passed = PassedSockets::Start(
          std::move(doors_.channels[i]), [this, &hope](UniqueFd socket) { TakePassed(std::move(socket), hope); },
          [&hope] { hope.reset(); });
      if (!passed) return std::unexpected(passed.error());
      passed_.push_back(*std::move(passed));
    }
    return {};
  }

  Result<void> Bind(ListenAddress address, Door door) {
    auto listener = ListenAt(&address);
    if (!listener) return std::unexpected(listener.error());
    std::vector<UniqueFd> one;
    one.push_back(std::move(listener->socket));
    auto loop = AcceptLoop::Create(std::move(one));
    if (!loop) return std::unexpected(loop.error());
    loops_.push_back(*std::move(loop));
    doorways_.push_back({door, std::move(address), std::move(listener->name)});
    return {};
  }

  // On an accepting thread. Each door has room of its own, and for either side, since the workload reaches some of them from
  // here.
  void Take(UniqueFd socket, const sockaddr_storage& from, socklen_t size, Door door) {
    std::optional<BriefCloses> brief;  // of who finds no room
    if (door == Door::kAdminUnix && !RefuseDescriptors(socket.get())) brief.emplace();
    const PeerPlace place = doors_.hold != nullptr ? PeerPlace::kNotBelow : PeerPlace::kAnywhere;
    if (door == Door::kAdminUnix && !MayAdminister(socket.get(), place)) return;
    bool from_here = false;
    if (from.ss_family != AF_UNIX) {
      const auto peer = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&from), size);
      if (!peer) return;
      // Then it may be whoever is fenced.
      from_here = IsLoopback(peer->address) || host_.Has(peer->address);
    }
    House& house = HouseOf(door, from_here);
    std::atomic<size_t>& open = house.open;
    // Twice as many have come before the server's thread could make room.
    if (open.fetch_add(1) >= 2 * kMaxAdminConnections) {
      open.fetch_sub(1);
      return;
    }
    Serve(std::move(socket), from.ss_family == 0 ? AF_UNIX : from.ss_family, door, from_here, hope_of_sockets_);
  }

  // On a channel's thread: whoever has the channel is the parent.
  void TakePassed(UniqueFd socket, HopeShare hope) {
    House& house = HouseOf(Door::kAdminUnix, false);
    if (house.open.fetch_add(1) >= 2 * kMaxAdminConnections) {
      house.open.fetch_sub(1);
      return;
    }
    Serve(std::move(socket), AF_UNIX, Door::kAdminUnix, false, std::move(hope));
  }

  House& HouseOf(Door door, bool from_here) { return houses_[2 * static_cast<size_t>(door) + (from_here ? 1 : 0)]; }

  // The house counts it already.
  void Serve(UniqueFd socket, int family, Door door, bool from_here, HopeShare hope) {
    House& house = HouseOf(door, from_here);
    asio::post(context_, [this, fd = socket.Release(), family, door, from_here, hope = std::move(hope), &house,
                          &open = house.open]() mutable {
      if (!MakeRoom(house)) {
        const BriefCloses brief;
        ::close(fd);
        open.fetch_sub(1);
        return;
      }
      Socket accepted(context_);
      error_code error;
      accepted.assign(asio::generic::stream_protocol(family, 0), fd, error);
      if (error) {
        ::close(fd);
        open.fetch_sub(1);
        return;
      }
      asio::co_spawn(context_, Session(std::move(accepted), door, from_here, &house, std::move(hope)),
                     [&open](const std::exception_ptr& fault) {
                       open.fetch_sub(1);
                       if (fault) LogDebug("admin: a connection ended by a fault");
                     });
    });
  }

  // Who says nothing, or too slowly, goes first; one that is being answered stays.
  static bool MakeRoom(House& house) {
    if (house.open <= kMaxAdminConnections) return true;
    if (house.waiting.empty()) return false;
    Stream* longest = house.waiting.front();
    house.waiting.pop_front();
    longest->close();
    return true;
  }

  asio::awaitable<void> Session(Socket accepted, Door door, bool from_here, House* house, HopeShare hope) {
    // Where descriptors that a client sends cannot be refused, this thread closes them as it reads.
    std::optional<BriefCloses> brief;
    error_code unknown;
    if (accepted.local_endpoint(unknown).protocol().family() == AF_UNIX && !RefuseDescriptors(accepted.native_handle()))
      brief.emplace();
    Stream stream(std::move(accepted));
    beast::flat_buffer buffer(kMaxAdminHead + kMaxAdminBody + 4096);
    for (unsigned served = 0; served < kMostRequests; ++served) {
      http::request_parser<http::string_body> parser;
      parser.header_limit(kMaxAdminHead);
      parser.body_limit(door == Door::kHealth ? kMaxStrangerBody : kMaxAdminBody);
      stream.expires_after(door == Door::kHealth ? kHealthReadDeadline : kAdminReadDeadline);
      error_code error;
      const Waiting waiting(*house, stream);
      co_await http::async_read_header(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
      // Who has no token gets no room for a long body.
      std::optional<AdminResponse> stranger;
      if (!error && MayBeLong(parser)) stranger = RefuseStranger(parser.get(), door, from_here);
      if (!error && !stranger)
        co_await http::async_read(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
      waiting.End();
      if (stranger) {
        co_await Send(&stream, *std::move(stranger), parser.get().version(), false, false);
        break;
      }
      if (error == http::error::end_of_stream || (error && !parser.got_some())) break;
      const unsigned version = parser.is_header_done() ? parser.get().version() : 11;
      if (error) {
        AdminResponse refused = RefuseMessage(error);
        if (error != beast::error::timeout) co_await Send(&stream, std::move(refused), version, false, false);
        break;
      }
      const bool keep = parser.get().keep_alive() && served + 1 < kMostRequests;
      const bool head_only = parser.get().method() == http::verb::head;
      AdminRequest request;
      request.from_here = from_here;
      std::optional<AdminResponse> refused = Read(parser.get(), door, &request);
      if (!refused && IsStream(door, request)) {
        co_await ServeStream(&stream, std::move(request), std::move(hope));
        break;
      }
      AdminResponse answer;
      if (refused) {
        answer = *std::move(refused);
      } else {
        answer = co_await Answer(door, std::move(request));
      }
      if (!co_await Send(&stream, std::move(answer), version, keep, head_only) || !keep) break;
    }
    error_code ignored;
    stream.socket().shutdown(Socket::shutdown_both, ignored);
  }

  // Stands in the house's list for as long as it lives, or until End.
  class Waiting {
   public:
    Waiting(House& house, Stream& stream) : house_(house), stream_(stream) { house_.waiting.push_back(&stream_); }
    ~Waiting() { End(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    void End() const { house_.waiting.remove(&stream_); }

   private:
    House& house_;
    Stream& stream_;
  };

  static AdminResponse RefuseMessage(const error_code& error) {
    if (error == http::error::body_limit) return Problem(413, "too_long", "the body is longer than is taken here");
    if (error == http::error::header_limit) return Problem(431, "too_long", "the head is longer than 16 KiB");
    return Problem(400, "bad_request", "the request is not HTTP/1.1");
  }

  static AdminResponse BadFields() {
    return Problem(400, "bad_request", fmt::format("a header field comes twice, or there are more than {}", kMaxAdminFields));
  }

  static bool MayBeLong(const http::request_parser<http::string_body>& parser) {
    return parser.chunked() || parser.content_length().value_or(0) > kMaxStrangerBody;
  }

  // Nothing: whoever asks may send a long body.
  std::optional<AdminResponse> RefuseStranger(const http::request<http::string_body>& message, Door door, bool from_here) const {
    if (door != Door::kAdminTcp && door != Door::kFront) return std::nullopt;
    AdminRequest head;
    head.from_here = from_here;
    if (!TakeFields(message, &head)) return BadFields();
    return door == Door::kFront ? front_->RefuseChange(head) : CheckToken(head);
  }
  // Nothing: it has the token.
  std::optional<AdminResponse> CheckToken(const AdminRequest& request) const {
    const auto token = ReadAdminToken(addresses_.token_file);
    if (!token) {
      if (token_pace_.Due(SystemClock().Steady())) LogError("{}", token.error().message);
      return Problem(503, "no_token", "the token file cannot be read");
    }
    if (!HasBearer(request, *token))
      return Problem(401, "unauthorized", "the token is missing or wrong", {}, "Authorization: Bearer TOKEN");
    return std::nullopt;
  }

  // Fills `out`; a refusal where the caller is not one of this door's.
  std::optional<AdminResponse> Read(const http::request<http::string_body>& message, Door door, AdminRequest* out) const {
    out->method = std::string(message.method_string());
    if (!TakeFields(message, out)) return BadFields();
    if (auto read = ReadTarget({message.target().data(), message.target().size()}, out); !read)
      return Problem(400, "bad_request", read.error().message);
    out->body = message.body();
    return door == Door::kAdminTcp ? CheckToken(*out) : std::nullopt;
  }

  bool IsStream(Door door, const AdminRequest& request) const {
    if ((door != Door::kAdminUnix && door != Door::kAdminTcp) || request.method != "GET") return false;
    return request.path == "/v1/decisions" || (request.path == "/v1/hold" && doors_.hold != nullptr);
  }

  // Changes one after the other, and never in front of a probe.
  asio::awaitable<AdminResponse> Answer(Door door, AdminRequest request) {
    const bool looks = request.method == "GET" || request.method == "HEAD";
    asio::thread_pool& pool = looks || door == Door::kHealth ? looks_ : changes_;
    AdminResponse answer;
    co_await asio::co_spawn(pool.get_executor(), Judge(door, &request, &answer), asio::use_awaitable);
    co_return answer;
  }

  // On a pool's thread.
  asio::awaitable<void> Judge(Door door, const AdminRequest* request, AdminResponse* answer) {
    if (door == Door::kHealth) {
      *answer = api_.HandleHealth(*request);
    } else if (door == Door::kFront) {
      *answer = AnswerFront(*request);
    } else {
      *answer = api_.Handle(*request);
    }
    co_return;
  }

  // There /healthz is text, and a query says nothing.
  AdminResponse AnswerFront(const AdminRequest& request) const {
    if (request.path != "/healthz") return front_->Handle(request);
    AdminRequest asked = request;
    asked.path = "/readyz";
    asked.query.clear();
    AdminResponse answer = api_.HandleHealth(asked);
    answer.content_type = "text/plain; charset=utf-8";
    answer.body = answer.status == 200 ? "ok" : "not ready\n";
    return answer;
  }

  asio::awaitable<bool> Send(Stream* to, AdminResponse answer, unsigned version, bool keep, bool head_only) {
    Stream& stream = *to;
    http::response<http::string_body> message{static_cast<http::status>(answer.status), version};
    message.reason(std::string(StatusPhrase(answer.status)));
    message.set(http::field::content_type, answer.content_type);
    message.set(http::field::cache_control, "no-store");
    for (const auto& [name, value] : answer.fields) message.set(name, value);
    message.keep_alive(keep);
    const size_t size = answer.body.size();
    if (!head_only) message.body() = std::move(answer.body);
    message.content_length(size);
    stream.expires_after(kAdminWriteDeadline);
    error_code error;
    http::serializer<false, http::string_body> serializer(message);
    if (head_only) {
      co_await http::async_write_header(stream, serializer, asio::redirect_error(asio::use_awaitable, error));
      error = error == http::error::end_of_stream ? error_code{} : error;
    } else {
      co_await http::async_write(stream, serializer, asio::redirect_error(asio::use_awaitable, error));
    }
    co_return !error;
  }

  std::expected<std::unique_ptr<LineReader>, AdminResponse> OpenStream(const AdminRequest& request, std::function<void()> wake) {
    const auto bad_request = [](const Error& error) { return std::unexpected(Problem(400, "bad_request", error.message)); };
    if (request.path == "/v1/hold") {
      if (auto good = CheckParameters(request, {}); !good) return bad_request(good.error());
      if (auto held = doors_.hold->Open(std::move(wake))) return held;
      return std::unexpected(Problem(409, "held", "another connection holds the run"));
    }
    const auto filter = ReadStreamFilter(request);
    if (!filter) return bad_request(filter.error());
    if (auto reader = stream_.Open(*filter, std::move(wake))) return reader;
    return std::unexpected(Problem(503, "too_many_readers", "as many read already as may"));
  }

  // JSON Lines until the caller goes or falls behind, or there are no more.
  asio::awaitable<void> ServeStream(Stream* to, AdminRequest request, HopeShare hope) {
    Stream& stream = *to;
    const StreamCount counted(*this);
    auto wake = std::make_shared<asio::steady_timer>(context_, asio::steady_timer::time_point::max());
    // The timer is touched on its own thread alone; one that is gone is not woken.
    const std::weak_ptr<asio::steady_timer> woken = wake;
    auto opened = OpenStream(request, [this, gate = gate_, woken] {
      const std::lock_guard lock(gate->mutex);
      if (gate->open) asio::post(context_, [woken] { Wake(woken); });
    });
    hope.reset();  // it holds the run now, or asks for nothing else
    if (!opened) {
      co_await Send(&stream, std::move(opened.error()), 11, false, false);
      co_return;
    }
    const std::unique_ptr<LineReader> reader = *std::move(opened);
    // The caller has said all it had to say: what comes now is its end.
    const auto gone = std::make_shared<bool>(false);
    stream.socket().async_wait(Socket::wait_read, [gone, woken](const error_code&) {
      *gone = true;
      Wake(woken);
    });
    http::response<http::empty_body> head{http::status::ok, 11};
    head.set(http::field::content_type, "application/x-ndjson");
    head.set(http::field::cache_control, "no-store");
    head.chunked(true);
    head.keep_alive(false);
    http::serializer<false, http::empty_body> serializer(head);
    error_code error;
    stream.expires_after(kAdminWriteDeadline);
    co_await http::async_write_header(stream, serializer, asio::redirect_error(asio::use_awaitable, error));
    error = {};
    bool ended = false;
    while (!error && !ended && !*gone) {
      const std::string lines = reader->Take(&ended);
      if (lines.empty() && ended) break;
      if (lines.empty()) {
        // A blank line now and then shows that both are still there.
        wake->expires_after(kStreamBeat);
        error_code waited;
        co_await wake->async_wait(asio::redirect_error(asio::use_awaitable, waited));
        if (waited == asio::error::operation_aborted || wake->expiry() == asio::steady_timer::time_point::min()) continue;
      }
      const std::string part = lines.empty() ? "\n" : lines;
      stream.expires_after(kAdminWriteDeadline);
      co_await asio::async_write(stream, http::make_chunk(asio::buffer(part)), asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error) co_await asio::async_write(stream, http::make_chunk_last(), asio::redirect_error(asio::use_awaitable, error));
  }

  static void Wake(const std::weak_ptr<asio::steady_timer>& woken) {
    if (const auto timer = woken.lock()) timer->expires_at(asio::steady_timer::time_point::min());
  }

  // One stream that is served.
  class StreamCount {
   public:
    explicit StreamCount(Serving& serving) : serving_(serving) {
      const std::lock_guard lock(serving_.streams_mutex_);
      ++serving_.streams_;
    }
    ~StreamCount() {
      const std::lock_guard lock(serving_.streams_mutex_);
      if (--serving_.streams_ == 0) serving_.streams_done_.notify_all();
    }
    StreamCount(const StreamCount&) = delete;
    StreamCount& operator=(const StreamCount&) = delete;

   private:
    Serving& serving_;
  };

  static constexpr std::chrono::seconds kStreamBeat{15};
  // Shut before the context ends, for those who would wake somebody on it.
  struct Gate {
    std::mutex mutex;
    bool open = true;
  };

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  const AdminAddresses addresses_;
  AdminApi& api_;
  DecisionStream& stream_;
  OpenSandboxFront* const front_;
  RunDoors doors_;
  mutable Pace token_pace_;  // of what is told where the token cannot be read; the server's thread
  HostWatch host_;
  std::vector<Doorway> doorways_;
  std::vector<std::unique_ptr<AcceptLoop>> loops_;  // beside doorways_
  std::array<House, 8> houses_{};                   // by Door, and from here or not
  HopeShare hope_of_sockets_;                       // for as long as it listens; null without a hold
  std::vector<HopeShare> hope_of_channels_;         // beside doors_.channels
  std::vector<std::unique_ptr<PassedSockets>> passed_;
  std::mutex streams_mutex_;
  std::condition_variable streams_done_;
  size_t streams_ = 0;
  asio::io_context context_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_{context_.get_executor()};
  asio::thread_pool changes_{1};
  asio::thread_pool looks_{1};
  std::thread thread_;
};

}  // namespace

Result<std::string> ReadAdminToken(const std::string& file) {
  struct stat about{};
  if (::stat(file.c_str(), &about) != 0) return FailErrno(fmt::format("--admin-token {}", file), errno);
  if ((about.st_mode & (S_IRWXO | S_IWGRP)) != 0)
    return Fail(Code::kInvalid, fmt::format("--admin-token {}: others may read or write it (chmod 0600)", file));
  auto text = ReadFile(file, kMostToken);
  if (!text) return Fail(text.error().code, fmt::format("--admin-token: {}", text.error().message));
  while (text->ends_with('\n') || text->ends_with('\r')) text->pop_back();
  if (text->size() < kLeastToken || text->find_first_of(" \t\r\n") != std::string::npos)
    return Fail(
        Code::kInvalid,
        fmt::format("--admin-token {}: one line of {} bytes at least, without blanks (openssl rand -hex 32)", file, kLeastToken));
  return *std::move(text);
}

Result<void> CheckAdminAddresses(const AdminAddresses& addresses) {
  for (const ListenAddress& address : addresses.admin) {
    if (!address.unix_path.empty()) continue;
    const std::string text = address.endpoint.ToString();
    if (addresses.token_file.empty())
      return Fail(
          Code::kInvalid,
          fmt::format("--admin {}: whoever reaches it, the workload too, could change the policy; give --admin-token FILE, or "
                      "unix:/PATH",
                      text));
    if (!addresses.beyond_loopback && !IsLoopback(address.endpoint.address))
      return Fail(Code::kInvalid,
                  fmt::format("--admin {}: the token would cross the network in the clear; listen on 127.0.0.1, or say "
                              "--admin-open",
                              text));
  }
  if (!addresses.token_file.empty())
    if (auto token = ReadAdminToken(addresses.token_file); !token) return std::unexpected(token.error());
  return {};
}

Result<std::unique_ptr<AdminServer>> AdminServer::Start(AdminAddresses addresses, AdminApi& api, DecisionStream& stream,
                                                        OpenSandboxFront* front, RunDoors doors) {
  if (auto good = CheckAdminAddresses(addresses); !good) return std::unexpected(good.error());
  auto server = std::make_unique<Serving>(std::move(addresses), api, stream, front, std::move(doors));
  if (auto begun = server->Begin(); !begun) return std::unexpected(begun.error());
  return server;
}

}  // namespace sluice::app
