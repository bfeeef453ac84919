#include "proxy/io/explicit_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/fault.h"
#include "base/unix_listener.h"
#include "proxy/io/limits.h"
#include "proxy/io/listener_tls.h"
#include "proxy/io/route.h"
#include "proxy/io/worker.h"
#include "proxy/proxy_protocol.h"
#include "proxy/socks5_request.h"

namespace sluice::proxy {
namespace {

constexpr size_t kMessagePiece = 4096;
constexpr int kMaxChallenges = 8;  // 407 answers on one connection
constexpr char kHandshakeRecord = 0x16;
constexpr uint8_t kUnexpectedMessage = 10;  // TLS alert (RFC 8446 section 6.2)
constexpr uint8_t kSocksNone = 0;
constexpr uint8_t kSocksPassword = 2;
constexpr uint8_t kSocksNoMethod = 0xff;

}  // namespace

ExplicitClient::ExplicitClient(Worker& worker, Client client, Stage stage)
    : worker_(worker),
      id_(client.id),
      stage_(stage),
      source_(client.source),
      process_(std::move(client.process)),
      waiter_(worker.reactor()) {
  if (stage == Stage::kNew && !client.source && !RefuseDescriptors(client.socket.get())) brief_.emplace();
  if (!down_->channel.Open(worker.reactor(), std::move(client.socket), kReadable | kWritable)) waiter_.Cancel();
}

Task<> ExplicitClient::Run() {
  const ExplicitOptions& options = *worker_.shared().options().explicit_proxy;
  if (!down_->channel.open()) {
    who_ = Who(nullptr);
    Note(policy::Reason::kLimit, kNotWatched);
    co_return;
  }
  if (stage_ == Stage::kNew) {
    who_ = Who(nullptr);
    if (options.proxy_protocol == ProxyProtocol::kRequired && !co_await ReadProxyHeader()) co_return;
    if (!Enter()) co_return;
    if (options.tls != nullptr) {
      co_await RunTls();
      co_return;
    }
  }
  who_ = Who(nullptr);
  if (in_.empty()) {
    const Read read = co_await More(worker_.reactor().now() + kFirstByteDeadline);
    if (read != Read::kMore) co_return;
  }
  under_way_ = true;
  const char first = seen().front();
  if (first == kSocks5Version) {
    co_await RunSocks();
  } else if (first == kSocks4Version) {
    Note(policy::Reason::kUnsupported, "SOCKS4, which names nobody; use SOCKS5 (socks5h://)");
    out_.Append({"\0\x5b\0\0\0\0\0\0", 8});
    co_await FlushAndLinger();
  } else if (first == kHandshakeRecord) {
    Note(policy::Reason::kProtocol, "TLS to a listener without --listen-tls-cert; the proxy's URL is http://");
    const char alert[] = {0x15, 3, 3, 0, 2, 2, static_cast<char>(kUnexpectedMessage)};
    out_.Append({alert, sizeof alert});
    co_await FlushAndLinger();
  } else {
    co_await RunHttp();
  }
}

Task<ExplicitClient::Read> ExplicitClient::More(SteadyTime deadline) {
  for (;;) {
    const Io io = down_->RawRead(in_.Prepare(kMessagePiece));
    if (io.status == IoStatus::kOk) {
      in_.Commit(io.n);
      co_return Read::kMore;
    }
    if (io.status != IoStatus::kWouldBlock) co_return Read::kClosed;
    const Wake wake = co_await waiter_.Wait({&down_->channel, kReadable}, deadline);
    if (wake != Wake::kReady) co_return wake == Wake::kTimeout ? Read::kLate : Read::kClosed;
  }
}

Task<bool> ExplicitClient::Flush() {
  const SteadyTime deadline = worker_.reactor().now() + kWriteStuck;
  while (!out_.empty()) {
    const Io io = down_->RawWrite(out_.view());
    if (io.status == IoStatus::kOk) {
      out_.Consume(io.n);
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return false;
    const Wake wake = co_await waiter_.Wait({&down_->channel, kWritable}, deadline);
    if (wake != Wake::kReady) co_return false;
  }
  co_return true;
}

// A last answer. What the client has sent ahead is read and dropped, or closing would reset the connection and the answer with
// it.
Task<> ExplicitClient::FlushAndLinger() {
  const bool flushed = co_await Flush();
  if (!flushed) co_return;
  down_->ShutdownWrite();
  const SteadyTime deadline = worker_.reactor().now() + kLingerTime;
  for (size_t dropped = 0; dropped < kLingerBytes;) {
    const Io io = down_->RawRead(worker_.scratch());
    if (io.status == IoStatus::kOk) {
      dropped += io.n;
      if (dropped % (1 << 20) >= io.n) continue;
      const Wake turn = co_await waiter_.Yield(deadline);
      if (turn != Wake::kReady) co_return;
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return;
    const Wake wake = co_await waiter_.Wait({&down_->channel, kReadable}, deadline);
    if (wake != Wake::kReady) co_return;
  }
}

Task<bool> ExplicitClient::ReadProxyHeader() {
  const ExplicitOptions& options = *worker_.shared().options().explicit_proxy;
  const bool listed = source_ && std::ranges::any_of(options.proxy_protocol_from,
                                                     [&](const Cidr& from) { return from.Contains(source_->address); });
  if (!listed) {
    Note(policy::Reason::kUnattributed, "a peer that --proxy-protocol-from does not list");
    down_->Close(Stream::How::kReset);
    co_return false;
  }
  const SteadyTime deadline = worker_.reactor().now() + kFirstByteDeadline;
  for (;;) {
    const Read read = co_await More(deadline);
    if (read != Read::kMore) co_return false;
    const ProxyHeader header = ParseProxyHeader(seen());
    if (header.status == ProxyHeaderStatus::kNeedMore) continue;
    if (header.status == ProxyHeaderStatus::kMalformed) {
      Note(policy::Reason::kProtocol, std::string(header.why));
      down_->Close(Stream::How::kReset);
      co_return false;
    }
    in_.Consume(header.consumed);
    if (header.source) source_ = *header.source;
    // The socket is the load balancer's, and so would be the process.
    process_ = nullptr;
    who_ = Who(nullptr);
    co_return true;
  }
}

bool ExplicitClient::Enter() {
  if (!source_ || worker_.shared().client_counts.Enter(source_->address, &place_)) return true;
  Note(policy::Reason::kLimit, fmt::format("more than {} connections of this client", kMaxClientConnections));
  down_->Close(Stream::How::kReset);
  return false;
}

Task<> ExplicitClient::RunTls() {
  const std::shared_ptr<ListenerTls>& tls = worker_.shared().options().explicit_proxy->tls;
  down_->prefix = std::exchange(in_, {});
  if (!down_->StartTls(tls->context(), Stream::Side::kServer)) co_return;
  const SteadyTime deadline = worker_.reactor().now() + kTlsHandshakeDeadline;
  for (;;) {
    const Io io = down_->Handshake();
    if (io.status == IoStatus::kOk) break;
    if (io.status != IoStatus::kWouldBlock) {
      Note(policy::Reason::kUnattributed, fmt::format("TLS to the proxy failed: {}", TakeSslError()));
      co_return;
    }
    const Wake wake = co_await waiter_.Wait({&down_->channel, down_->read_needs}, deadline);
    if (wake != Wake::kReady) co_return;
  }
  int ends[2];
  const auto make = [&] { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends); };
  if (Faulty("client.pair", make) != 0) {
    Note(policy::Reason::kLimit, "out of descriptors for what comes by TLS");
    co_return;
  }
  Client inner;
  inner.id = id_;
  inner.socket = UniqueFd(ends[1]);
  inner.source = source_;
  inner.process = process_;
  if (const std::string name = PeerName(down_->ssl()); !name.empty()) {
    auto process = process_ != nullptr ? std::make_shared<policy::Process>(*process_) : std::make_shared<policy::Process>();
    process->client = name;
    inner.process = std::move(process);
  }
  Stream plain;
  if (!plain.channel.Open(worker_.reactor(), UniqueFd(ends[0]), kReadable | kWritable)) {
    Note(policy::Reason::kLimit, kNotWatched);
    co_return;
  }
  under_way_ = true;
  worker_.StartBehindTls(std::move(inner));
  co_await Shuttle(worker_.reactor(), waiter_, *down_, plain);
}

Task<> ExplicitClient::RunSocks() {
  const bool known = co_await SocksAuthenticate();
  if (!known) co_return;
  const SteadyTime deadline = worker_.reactor().now() + worker_.shared().options().deadlines.head;
  SocksRequest request = ParseSocksRequest(seen());
  while (request.status == SocksStatus::kNeedMore) {
    const Read read = co_await More(deadline);
    if (read != Read::kMore) co_return;
    request = ParseSocksRequest(seen());
  }
  if (request.status == SocksStatus::kMalformed || request.refusal != SocksReply::kSucceeded) {
    const bool unsupported = request.refusal == SocksReply::kCommandNotSupported;
    Note(unsupported ? policy::Reason::kUnsupported : policy::Reason::kProtocol, std::string(request.why));
    out_.Append(SocksReplyText(request.refusal == SocksReply::kSucceeded ? SocksReply::kFailure : request.refusal));
    co_await FlushAndLinger();
    co_return;
  }
  in_.Consume(request.consumed);
  FlowTarget target = TargetFor(request.target);
  FlowTarget asked = target;
  auto refusal = co_await Approve(std::move(asked));
  if (refusal) {
    const SocksReply reply = refusal->status == 403 ? SocksReply::kNotAllowed : SocksReplyFor(refusal->error);
    (void)Deny(target, *std::move(refusal), "");
    out_.Append(SocksReplyText(reply));
    co_await FlushAndLinger();
    co_return;
  }
  out_.Append(SocksReplyText(SocksReply::kSucceeded));
  const bool flushed = co_await Flush();
  if (flushed) co_await RunTunnel(std::move(target));
}

Task<bool> ExplicitClient::SocksAuthenticate() {
  const SteadyTime deadline = worker_.reactor().now() + worker_.shared().options().deadlines.head;
  SocksGreeting greeting = ParseSocksGreeting(seen());
  while (greeting.status == SocksStatus::kNeedMore) {
    const Read read = co_await More(deadline);
    if (read != Read::kMore) co_return false;
    greeting = ParseSocksGreeting(seen());
  }
  in_.Consume(greeting.consumed);
  const auto& tokens = worker_.shared().options().explicit_proxy->tokens;
  const uint8_t wanted = tokens != nullptr ? kSocksPassword : kSocksNone;
  if (tokens != nullptr ? !greeting.password : !greeting.none) {
    Note(policy::Reason::kUnattributed, tokens != nullptr ? "a SOCKS client that gives no name and password"
                                                          : "a SOCKS client that wants to log in; no tokens are set");
    out_.Append(SocksMethodText(kSocksNoMethod));
    co_await FlushAndLinger();
    co_return false;
  }
  out_.Append(SocksMethodText(wanted));
  const bool flushed = co_await Flush();
  if (!flushed || tokens == nullptr) co_return flushed;
  SocksPassword password = ParseSocksPassword(seen());
  while (password.status == SocksStatus::kNeedMore) {
    const Read read = co_await More(deadline);
    if (read != Read::kMore) co_return false;
    password = ParseSocksPassword(seen());
  }
  const auto shown = password.name.empty() ? nullptr : tokens->Get()->Find(password.name, password.password);
  if (shown == nullptr) {
    Note(policy::Reason::kUnattributed, "a SOCKS name and password that no token of --tokens has");
    out_.Append(SocksPasswordText(false));
    co_await FlushAndLinger();
    co_return false;
  }
  in_.Consume(password.consumed);
  shown_ = shown;
  who_ = Who(shown);
  out_.Append(SocksPasswordText(true));
  const bool told = co_await Flush();
  co_return told;
}

Task<> ExplicitClient::RunHttp() {
  const auto head_deadline = worker_.shared().options().deadlines.head;
  for (int attempt = 0; attempt <= kMaxChallenges; ++attempt) {
    SteadyTime deadline = worker_.reactor().now() + (in_.empty() ? std::chrono::milliseconds(kKeepAliveIdle) : head_deadline);
    size_t resume = 0;
    std::expected<size_t, Fault> end = FindHeadEnd(seen(), &resume);
    while (end && *end == 0) {
      const bool begun = !in_.empty();
      const Read read = co_await More(deadline);
      if (read == Read::kClosed || (read == Read::kLate && !begun)) co_return;
      if (!begun) deadline = worker_.reactor().now() + head_deadline;
      end = read == Read::kLate ? std::unexpected(Fault{408, "a request head that did not arrive in time"})
                                : FindHeadEnd(seen(), &resume);
    }
    if (!end) {
      co_await RefuseFault(nullptr, end.error());
      co_return;
    }
    if (!seen().starts_with("CONNECT ")) {
      co_await RunForward();
      co_return;
    }
    std::string head_bytes(seen().substr(0, *end));
    in_.Consume(*end);
    const Next next = co_await HandleConnect(std::move(head_bytes));
    if (next == Next::kEnd) co_return;
  }
}

Task<ExplicitClient::Next> ExplicitClient::HandleConnect(std::string head_bytes) {
  RequestHead head;
  if (const Fault fault = ParseRequestHead({head_bytes.data(), head_bytes.size()}, &head)) {
    co_await RefuseFault(nullptr, fault);
    co_return Next::kEnd;
  }
  const auto asked = ParseConnectRequest(head);
  if (!asked) {
    co_await RefuseFault(&head, asked.error());
    co_return Next::kEnd;
  }
  if (const auto& tokens = worker_.shared().options().explicit_proxy->tokens; tokens != nullptr) {
    const std::string_view field = head.Find(FieldId::kProxyAuthorization);
    const auto shown = tokens->Get()->FromField(field);
    if (shown == nullptr) {
      if (!field.empty()) Note(policy::Reason::kUnattributed, "a Proxy-Authorization that no token of --tokens has");
      AppendChallenge(&out_, head.persistent() ? Keep::kKeepAlive : Keep::kClose);
      if (head.persistent()) {
        const bool flushed = co_await Flush();
        co_return flushed ? Next::kAgain : Next::kEnd;
      }
      co_await FlushAndLinger();
      co_return Next::kEnd;
    }
    shown_ = shown;
    who_ = Who(shown);
  }
  FlowTarget target = TargetFor(*asked);
  FlowTarget copy = target;
  auto refusal = co_await Approve(std::move(copy));
  if (refusal) {
    const Denial denial = Deny(target, *std::move(refusal), "CONNECT");
    AppendDenial(&out_, denial, FormFor(head), Keep::kClose, "CONNECT");
    co_await FlushAndLinger();
    co_return Next::kEnd;
  }
  out_.Append("HTTP/1.1 200 Connection established\r\n\r\n");
  const bool flushed = co_await Flush();
  if (flushed) co_await RunTunnel(std::move(target));
  co_return Next::kEnd;
}

// Recorded before anything comes of it. An opaque connection is dialled before the client is told that it stands; where the
// client's first bytes are judged, they are needed first.
Task<std::optional<ExplicitClient::Refusal>> ExplicitClient::Approve(FlowTarget target) {
  auto decision = JudgeConnect(worker_, target, std::nullopt);
  DialTarget to{target.host, target.destination.address, target.destination.port, target.process};
  (void)RouteConnection(worker_, target, decision, &to);
  if (decision.allowed() && to.via != nullptr && !to.name.empty()) decision = JudgeRemote(worker_, target);
  Refusal refusal;
  if (!decision.allowed()) {
    refusal.decision = decision;
    co_return refusal;
  }
  if (!RecordConnectDecision(worker_, id_, target, policy::EventLayer::kConnect, decision, std::nullopt, {})) {
    refusal.decision = DeniedFor(policy::Reason::kLimit);
    refusal.status = 503;
    refusal.detail = "audit queue full";
    refusal.proxy_error = "proxy_internal_error";
    co_return refusal;
  }
  if (decision.verdict != policy::ConnectVerdict::kOpaqueTcp) co_return std::nullopt;
  AddressJudge judge = [this, &target](const IpAddress& address) {
    const auto at = JudgeConnect(worker_, target, address);
    policy::Decision answer = at.decision;
    answer.allowed = at.allowed();
    return answer;
  };
  auto dialled = co_await Dial(worker_, waiter_, std::move(to), std::move(judge));
  if (dialled) {
    worker_.KeepPrepared(id_, std::move(*dialled));
    co_return std::nullopt;
  }
  DialFailure& failure = dialled.error();
  refusal.decision = failure.refused ? policy::ConnectDecision{policy::ConnectVerdict::kDeny, *failure.refused}
                                     : DeniedFor(policy::Reason::kUpstream);
  if (!failure.refused) refusal.decision.decision.rule = decision.decision.rule;
  refusal.address = failure.address;
  refusal.status = failure.status;
  refusal.error = failure.error;
  refusal.detail = std::move(failure.detail);
  refusal.proxy_error = failure.proxy_error;
  co_return refusal;
}

Flow ExplicitClient::FlowTo(FlowTarget target) const {
  Flow flow;
  flow.id = id_;
  flow.source = source_.value_or(Endpoint{});
  flow.target = std::move(target);
  return flow;
}

// The client's end leaves this object, with what was read of it already.
std::unique_ptr<Stream> ExplicitClient::HandOver() {
  out_.Release();
  if (!in_.empty()) down_->prefix = std::exchange(in_, {});
  in_.Release();
  return std::move(down_);
}

Task<> ExplicitClient::RunTunnel(FlowTarget target) {
  if (waiter_.cancelled()) co_return;
  connection_ = std::make_unique<Connection>(worker_, FlowTo(std::move(target)), HandOver());
  co_await connection_->Run();
}

Task<> ExplicitClient::RunForward() {
  if (waiter_.cancelled()) co_return;
  FlowTarget nowhere;
  nowhere.process = who_;
  forward_ = std::make_unique<ForwardSession>(worker_, FlowTo(std::move(nowhere)), HandOver());
  co_await forward_->Run();
}

bool ExplicitClient::StillAllowed() {
  if (shown_ != nullptr && !worker_.shared().options().explicit_proxy->tokens->Get()->Knows(shown_)) return false;
  if (connection_ != nullptr) return connection_->StillAllowed();
  return forward_ == nullptr || forward_->StillAllowed();
}

void ExplicitClient::CutOff() {
  if (connection_ != nullptr) connection_->CutOff();
  if (forward_ != nullptr) forward_->CutOff();
}

void ExplicitClient::Trim(SteadyTime now) {
  if (connection_ != nullptr) connection_->Trim(now);
  if (forward_ != nullptr) forward_->Trim(now);
}

void ExplicitClient::Cancel() {
  if (connection_ != nullptr) {
    connection_->Cancel();
  } else if (forward_ != nullptr) {
    forward_->Cancel();
  } else {
    waiter_.Cancel();
  }
}

void ExplicitClient::Drain() {
  if (!under_way_ || (forward_ != nullptr && forward_->idle())) Cancel();
}

}  // namespace sluice::proxy
