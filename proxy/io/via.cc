// The way through an upstream proxy (docs/upstream.md): connected to, verified where it speaks TLS, told where to go. What it
// answers is bounded, read strictly, and repeated to people with care; nothing falls back to another way.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "proxy/connect_reply.h"
#include "proxy/credential/encoding.h"
#include "proxy/dial_order.h"
#include "proxy/io/dial.h"
#include "proxy/io/limits.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/worker.h"
#include "proxy/socks5_client.h"

namespace sluice::proxy {
namespace {

using Kind = policy::UpstreamProxy::Kind;

std::string_view SchemeOf(Kind kind) { return kind == Kind::kHttp ? "http" : kind == Kind::kHttps ? "https" : "socks5"; }

std::string ProxyAddress(const policy::UpstreamProxy& proxy) {
  return proxy.address ? Endpoint{*proxy.address, proxy.port}.ToString() : fmt::format("{}:{}", proxy.host, proxy.port);
}

std::string ProxyText(const policy::UpstreamProxy& proxy) {
  return fmt::format("the upstream proxy {} ({}://{})", proxy.name, SchemeOf(proxy.kind), ProxyAddress(proxy));
}

DialFailure ProxyFailure(std::string_view proxy_error, int error, std::string detail) {
  DialFailure failure;
  failure.error = error;
  failure.status = error == ETIMEDOUT ? 504 : 502;
  failure.proxy_error = proxy_error;
  failure.detail = std::move(detail);
  return failure;
}

/// What a proxy is shown, and all forms of it that must not be repeated.
struct Login {
  bool basic = false;
  std::string secret;         ///< "user:password", or the bearer's token
  std::string authorization;  ///< the value of Proxy-Authorization
  [[nodiscard]] bool given() const { return !secret.empty(); }
  [[nodiscard]] std::string_view user() const { return std::string_view(secret).substr(0, secret.find(':')); }
  [[nodiscard]] std::string_view password() const { return std::string_view(secret).substr(secret.find(':') + 1); }
  [[nodiscard]] std::array<std::string_view, 3> Forms() const {
    const std::string_view value = authorization;
    return {secret, value.substr(std::min(value.find(' ') + 1, value.size())), basic ? password() : std::string_view()};
  }
};

bool HasControls(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

Result<Login> MakeLogin(const policy::UpstreamProxy& proxy, std::string secret) {
  Login login;
  login.basic = proxy.basic.has_value();
  if (login.basic) {
    if (secret.find(':') == std::string::npos || HasControls(secret))
      return Fail(Code::kInvalid, "it is not of the form user:password");
    login.authorization = "Basic " + Base64Encode(secret);
  } else {
    if (std::ranges::any_of(secret, [](char c) { return c <= 0x20 || c >= 0x7f; }))
      return Fail(Code::kInvalid, "a bearer token is visible ASCII without spaces");
    login.authorization = "Bearer " + secret;
  }
  login.secret = std::move(secret);
  return login;
}

DialResult<Login> ReadLogin(Worker& worker, const policy::UpstreamProxy& proxy) {
  const auto& source = proxy.basic ? proxy.basic : proxy.bearer;
  if (!source) return Login{};
  const SecretStore* store = worker.shared().options().secrets.get();
  const SecretLookup found = store != nullptr ? store->Find(*source) : SecretLookup{nullptr, "its secret was not read"};
  if (found.secret == nullptr) return std::unexpected(NoSecret(ProxyText(proxy), found.fault));
  auto login = MakeLogin(proxy, std::string(found.secret->Reveal()));
  if (!login) return std::unexpected(NoSecret(ProxyText(proxy), login.error().message));
  return *std::move(login);
}

/// The conversation with a proxy until the tunnel is there, under one deadline.
class Talk {
 public:
  Talk(Worker& worker, Waiter& waiter, Upstream& upstream, std::string what)
      : waiter_(waiter),
        upstream_(upstream),
        deadline_(worker.reactor().now() + worker.shared().options().deadlines.proxy_reply),
        what_(std::move(what)) {}

  Task<std::optional<DialFailure>> Write(std::string bytes) {
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const Io io = upstream_.stream.Write(rest);
      if (io.status == IoStatus::kOk) {
        rest.remove_prefix(io.n);
        continue;
      }
      if (io.status != IoStatus::kWouldBlock) co_return Gone();
      const Wake wake = co_await waiter_.Wait({&upstream_.stream.channel, upstream_.stream.write_needs}, deadline_);
      if (wake != Wake::kReady) co_return Late(wake);
    }
    co_return std::nullopt;
  }

  /// Some more bytes into the upstream's buffer.
  Task<std::optional<DialFailure>> ReadMore() {
    constexpr size_t kPiece = 2048;
    for (;;) {
      const Io io = upstream_.stream.Read(upstream_.in.Prepare(kPiece).first(kPiece));
      if (io.status == IoStatus::kOk) {
        upstream_.in.Commit(io.n);
        co_return std::nullopt;
      }
      if (io.status != IoStatus::kWouldBlock) co_return Gone();
      const Wake wake = co_await waiter_.Wait({&upstream_.stream.channel, upstream_.stream.read_needs}, deadline_);
      if (wake != Wake::kReady) co_return Late(wake);
    }
  }

  /// One SOCKS5 reply, consumed.
  template <class Parse>
  Task<std::expected<SocksAnswer, DialFailure>> ReadSocks(Parse parse) {
    for (;;) {
      const SocksAnswer reply = parse(upstream_.in.view());
      if (reply.status == SocksAnswer::Status::kDone) {
        upstream_.in.Consume(reply.consumed);
        co_return reply;
      }
      if (reply.status == SocksAnswer::Status::kRefused)
        co_return std::unexpected(
            ProxyFailure("destination_unavailable", reply.error, fmt::format("{} refused: {}", what_, reply.why)));
      if (reply.status == SocksAnswer::Status::kMalformed)
        co_return std::unexpected(
            ProxyFailure("proxy_internal_error", EPROTO, fmt::format("{} answered with {}", what_, reply.why)));
      if (auto failure = co_await ReadMore()) co_return std::unexpected(*std::move(failure));
    }
  }

  [[nodiscard]] DialFailure Broken(std::string_view why) const {
    return ProxyFailure("http_protocol_error", EPROTO, fmt::format("{} answered CONNECT with {}", what_, why));
  }
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  [[nodiscard]] DialFailure Gone() const {
    return ProxyFailure("connection_terminated", ECONNREFUSED, fmt::format("{} closed the connection", what_));
  }
  [[nodiscard]] DialFailure Late(Wake wake) const {
    if (wake == Wake::kCancelled) return Cancelled();
    return ProxyFailure("connection_read_timeout", ETIMEDOUT, fmt::format("{} did not answer in time", what_));
  }

  Waiter& waiter_;
  Upstream& upstream_;
  const SteadyTime deadline_;
  const std::string what_;
};

int ErrnoFor(uint16_t status) {
  if (status == 504) return ETIMEDOUT;
  return status == 502 || status == 503 ? EHOSTUNREACH : ECONNREFUSED;
}

Task<std::optional<DialFailure>> OpenConnect(Talk& talk, Upstream& upstream, DialTarget target, Login login) {
  std::string request = ConnectRequest(TargetText(target), login.authorization);
  if (request.empty()) co_return talk.Broken("nothing: it was not asked, since the request cannot be written");
  if (auto failure = co_await talk.Write(std::move(request))) co_return failure;
  size_t resume = 0;
  for (unsigned interims = 0;;) {
    Buffer& in = upstream.in;
    const auto end = FindHeadEnd(in.view(), &resume);
    if (!end) co_return talk.Broken(end.error().why);
    if (*end > kMaxConnectReplyBytes || (*end == 0 && in.size() > kMaxConnectReplyBytes))
      co_return talk.Broken("a head that is too large");
    if (*end == 0) {
      if (auto failure = co_await talk.ReadMore()) co_return failure;
      continue;
    }
    const auto forms = login.Forms();
    const auto reply = ParseConnectReply(in.span().first(*end), forms);
    in.Consume(*end);
    resume = 0;
    if (!reply) co_return talk.Broken(reply.error().why);
    if (reply->kind == ConnectReply::Kind::kOpen) co_return std::nullopt;
    if (reply->kind == ConnectReply::Kind::kInterim) {
      if (++interims > kMaxInterimResponses) co_return talk.Broken("too many interim responses");
      continue;
    }
    const bool wants_login = reply->status == 407;
    std::string_view hint = !wants_login    ? ""
                            : login.given() ? "; it did not take the credential"
                                            : "; no credential is configured for it";
    co_return ProxyFailure(wants_login ? "proxy_configuration_error" : "destination_unavailable", ErrnoFor(reply->status),
                           fmt::format("{} refused CONNECT to {}: {}{}", talk.what(), TargetText(target), reply->text, hint));
  }
}

Task<std::optional<DialFailure>> OpenSocks(Talk& talk, DialTarget target, Login login) {
  const SocksLoginUse use = login.given() ? SocksLoginUse::kOffered : SocksLoginUse::kNever;
  std::string greeting = SocksHello(use);
  if (auto failure = co_await talk.Write(std::move(greeting))) co_return failure;
  const auto method = co_await talk.ReadSocks([use](std::string_view bytes) { return ParseSocksMethod(bytes, use); });
  if (!method) co_return method.error();
  if (method->wants_login) {
    auto message = SocksLogin(login.user(), login.password());
    if (!message)
      co_return ProxyFailure("proxy_configuration_error", ECONNREFUSED,
                             fmt::format("{} takes a user and password of 1 to 255 bytes each", talk.what()));
    if (auto failure = co_await talk.Write(*std::move(message))) co_return failure;
    const auto taken = co_await talk.ReadSocks(ParseSocksLoginAnswer);
    if (!taken) co_return taken.error();
  }
  auto connect = SocksConnect(target.name, target.literal, target.port);
  if (!connect) co_return ProxyFailure("proxy_internal_error", EPROTO, "a name too long for SOCKS5");
  if (auto failure = co_await talk.Write(*std::move(connect))) co_return failure;
  const auto opened = co_await talk.ReadSocks(ParseSocksConnectAnswer);
  if (!opened) co_return opened.error();
  co_return std::nullopt;
}

// "localhost" is never asked for on the network (RFC 6761 section 6.3).
bool IsLocalhost(std::string_view name) { return name == "localhost" || name.ends_with(".localhost"); }

// The proxy is the policy's own choice: its address is nobody else's to judge, unless it is where this engine itself listens.
AddressJudge JudgeForProxy(Worker& worker, uint16_t port) {
  return [&worker, port](const IpAddress& address) {
    policy::Decision decision{.allowed = true, .reason = policy::Reason::kAllowed};
    const EngineOptions& options = worker.shared().options();
    if (options.explicit_proxy != nullptr && IsOwn(options.explicit_proxy->own, options.host_addresses, {address, port}))
      decision = {.allowed = false, .reason = policy::Reason::kPrivateAddress};
    return decision;
  };
}

Task<DialResult<UpstreamPtr>> ReachProxy(Worker& worker, Waiter& waiter, ProxyPtr proxy) {
  std::vector<IpAddress> order;
  if (proxy->address) {
    order.push_back(*proxy->address);
  } else if (IsLocalhost(proxy->host)) {
    order = {*IpAddress::Parse("::1"), IpAddress::FromV4(0x7f000001)};
  } else {
    std::string name = proxy->host;
    auto resolved = co_await ResolveForDial(worker, waiter, std::move(name));
    if (!resolved) {
      resolved.error().detail = fmt::format("{}: {}", ProxyText(*proxy), resolved.error().detail);
      co_return std::unexpected(std::move(resolved.error()));
    }
    order = DialOrder(resolved->addresses, worker.failed_addresses(), worker.reactor().now());
  }
  std::string what = ProxyText(*proxy);
  AddressJudge judge = JudgeForProxy(worker, proxy->port);
  auto connected = co_await ConnectFirst(worker, waiter, std::move(what), std::move(order), proxy->port, std::move(judge));
  if (!connected) {
    // It is not where the target is, and no rule could allow it.
    connected.error().address.reset();
    if (connected.error().refused && connected.error().refused->reason != policy::Reason::kLimit) {
      connected.error().refused.reset();
      connected.error().status = 502;
      connected.error().detail = fmt::format("{} is this proxy itself", ProxyText(*proxy));
    }
    co_return connected;
  }
  if (proxy->kind != Kind::kHttps) co_return connected;
  TlsOffer offer;
  offer.name = proxy->host;
  if (proxy->address) offer.literal = *proxy->address;
  offer.roots_file = proxy->ca_file;
  offer.session_key = fmt::format("proxy {} {} {}", proxy->name, ProxyAddress(*proxy), proxy->ca_file);
  std::string peer = ProxyText(*proxy);
  auto failure = co_await Handshake(worker, waiter, (*connected)->stream, std::move(offer), std::move(peer));
  if (failure) co_return std::unexpected(*std::move(failure));
  co_return connected;
}

}  // namespace

Task<DialResult<UpstreamPtr>> DialThroughProxy(Worker& worker, Waiter& waiter, DialTarget target) {
  ProxyPtr proxy = target.via;
  auto login = ReadLogin(worker, *proxy);
  if (!login) co_return std::unexpected(std::move(login.error()));
  auto reached = co_await ReachProxy(worker, waiter, proxy);
  if (!reached) co_return reached;
  UpstreamPtr upstream = *std::move(reached);
  upstream->via = proxy;
  upstream->identity = WayKey(target);
  upstream->remote_name = !target.name.empty();
  upstream->address = target.name.empty() ? target.literal : IpAddress();
  if (IsForwarded(target)) {
    upstream->proxy_authorization = login->authorization;
    if (login->given()) {
      auto login_text = std::make_shared<Redactor>();
      login_text->Add(login->secret);
      if (login->basic) login_text->Add(login->password());
      upstream->proxy_login = std::move(login_text);
    }
    co_return upstream;
  }
  Talk talk(worker, waiter, *upstream, ProxyText(*proxy));
  const bool keeps = target.early == DialTarget::EarlyBytes::kKept;
  std::optional<DialFailure> failure;
  if (proxy->kind == Kind::kSocks5) {
    failure = co_await OpenSocks(talk, std::move(target), *std::move(login));
  } else {
    failure = co_await OpenConnect(talk, *upstream, std::move(target), *std::move(login));
  }
  if (failure) co_return std::unexpected(*std::move(failure));
  if (!upstream->in.empty() && !keeps)
    co_return std::unexpected(talk.Broken("more than an answer: bytes before anything was sent"));
  // Where the socket is read from directly, it is read before.
  if (!upstream->in.empty() && !upstream->stream.tls()) upstream->stream.prefix = std::move(upstream->in);
  co_return upstream;
}

}  // namespace sluice::proxy
