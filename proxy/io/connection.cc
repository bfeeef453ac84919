#include "proxy/io/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proxy/io/h2_upstream.h"
#include "proxy/io/limits.h"
#include "proxy/io/obtain.h"
#include "proxy/io/relay.h"
#include "proxy/io/route.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// TLS alerts (RFC 8446 section 6.2), fatal, in a record that every version reads.
constexpr uint8_t kDecodeError = 50;
constexpr uint8_t kUnrecognizedName = 112;
constexpr char kHandshakeRecord = 0x16;
// No method of HTTP/1.1 is called so (RFC 9113 section 3.4).
constexpr std::string_view kPrefaceMark = "PRI ";

// The name of a Host field in the first bytes of an HTTP/1.1 request, without its port: only to tell which of several names is
// meant. The request is parsed and judged in full later.
std::string_view SaidHost(std::string_view bytes) {
  constexpr std::string_view kField = "\nhost:";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; };
  const auto found = std::ranges::search(bytes, kField, same);
  if (found.empty()) return {};
  std::string_view rest = bytes.substr(static_cast<size_t>(found.end() - bytes.begin()));
  rest = rest.substr(0, rest.find_first_of("\r\n"));
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  return rest.substr(0, rest.find_first_of(": \t"));
}

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 255)) out += c > 0x20 && c < 0x7f ? c : '?';
  return out;
}

}  // namespace

Connection::Connection(Worker& worker, Flow flow, std::unique_ptr<Stream> met)
    : names_(std::exchange(flow.names, {})), flow_(worker, std::move(flow), std::move(met)), started_(worker.reactor().now()) {}

Task<> Connection::Run() {
  if (!flow_.down.channel.open()) {
    const policy::ConnectDecision refused{policy::ConnectVerdict::kDeny, {.allowed = false, .reason = policy::Reason::kLimit}};
    (void)flow_.RecordConnect(policy::EventLayer::kConnect, refused, std::nullopt, kNotWatched);
    co_return;
  }
  if (names_.size() > 1) {
    const bool chosen = co_await ChooseName();
    if (!chosen) co_return;
  }
  co_await RunJudged();
}

// No choice widens anything: each is a name that the workload was told this address for, and is judged under that name.
Task<bool> Connection::ChooseName() {
  const auto judge = [this](const std::string& name) {
    FlowTarget target = flow_.target();
    target.host = name;
    return JudgeConnect(flow_.worker(), target, target.destination.address).verdict;
  };
  const auto choose = [this](const std::string& name) {
    FlowTarget target = flow_.target();
    target.host = name;
    flow_.Retarget(std::move(target));
  };
  const auto opaque = std::ranges::find(names_, policy::ConnectVerdict::kOpaqueTcp, judge);
  const bool all_opaque = std::ranges::all_of(names_, [&](const std::string& name) {
    const policy::ConnectVerdict verdict = judge(name);
    return verdict == policy::ConnectVerdict::kOpaqueTcp || verdict == policy::ConnectVerdict::kDeny;
  });
  if (opaque != names_.end() && all_opaque) {
    choose(*opaque);
    co_return true;
  }
  const FirstBytes first = co_await ReadFirstBytes();
  if (first == FirstBytes::kClosed || first == FirstBytes::kRefused) co_return false;
  const std::string_view bytes = flow_.down.prefix.view();
  const ClientHello hello = first == FirstBytes::kTls ? ParseClientHello(bytes).hello : ClientHello{};
  const std::string said = first == FirstBytes::kTls ? hello.sni.value_or("") : std::string(SaidHost(bytes));
  const auto meant = std::ranges::find(names_, policy::CanonicalName(said).value_or(""));
  if (meant != names_.end()) {
    choose(*meant);
  } else if (opaque != names_.end()) {
    choose(*opaque);
  }
  const bool any_sni = meant != names_.end() || opaque != names_.end();
  names_.clear();
  if (first != FirstBytes::kTls || any_sni) co_return true;
  RefuseTls(policy::Reason::kAuthorityMismatch, Mismatch(hello), kUnrecognizedName);
  co_return false;
}

Task<> Connection::RunJudged() {
  UpstreamPtr prepared = flow_.worker().TakePrepared(flow_.id());
  const auto decision = flow_.JudgeConnect(std::nullopt);
  verdict_ = decision.verdict;
  if (verdict_ == policy::ConnectVerdict::kDeny) {
    (void)flow_.RecordConnect(policy::EventLayer::kConnect, decision, std::nullopt, {});
    flow_.down.Close(Stream::How::kReset);
    co_return;
  }
  if (verdict_ == policy::ConnectVerdict::kInspect) {
    co_await RunInspected(std::move(prepared));
  } else {
    co_await RunOpaque(verdict_, std::move(prepared));
  }
}

Task<> Connection::RunOpaque(policy::ConnectVerdict verdict, UpstreamPtr upstream) {
  // For a `tls` rule the name is compared before anything is dialled.
  bool looked = false;
  if (verdict == policy::ConnectVerdict::kOpaqueTls) {
    const FirstBytes first = co_await ReadFirstBytes();
    if (first == FirstBytes::kClosed || first == FirstBytes::kRefused) co_return;
    if (first == FirstBytes::kOther) {
      verdict_ = policy::ConnectVerdict::kInspect;
      co_await RunInspected(std::move(upstream));
      co_return;
    }
    if (RefuseHiddenName()) co_return;
    looked = true;
  }
  DialTarget way = flow_.dial_target();
  (void)RouteConnection(flow_.worker(), flow_.target(), flow_.JudgeConnect(std::nullopt), &way);
  via_ = way.via != nullptr ? way.via->name : "";
  way_ = WayKey(way);
  if (upstream != nullptr && (!Fits(*upstream, way) || !flow_.JudgeUsing(*upstream).allowed())) upstream.reset();
  if (upstream == nullptr) {
    AddressJudge judge = [this](const IpAddress& address) {
      const auto decision = flow_.JudgeConnect(address);
      policy::Decision answer = decision.decision;
      answer.allowed = decision.allowed();
      return answer;
    };
    if (const auto remote = flow_.JudgeRemote(); way.via != nullptr && !remote.allowed()) {
      (void)flow_.RecordConnect(policy::EventLayer::kConnect, remote, std::nullopt, {});
      flow_.down.Close(Stream::How::kReset);
      co_return;
    }
    DialTarget target = way;
    auto dialled = co_await Dial(flow_.worker(), flow_.waiter, std::move(target), std::move(judge));
    if (!dialled) {
      if (dialled.error().refused)
        (void)flow_.RecordConnect(policy::EventLayer::kConnect, {policy::ConnectVerdict::kDeny, *dialled.error().refused},
                                  dialled.error().address, dialled.error().detail);
      flow_.down.Close(Stream::How::kReset);
      RecordEnd(0, 0, dialled.error().detail);
      co_return;
    }
    upstream = std::move(*dialled);
  }
  const auto decision = flow_.JudgeUsing(*upstream);
  verdict_ = decision.verdict;
  flow_.dialled = upstream->known_address();
  if (verdict_ == policy::ConnectVerdict::kInspect) {
    co_await RunInspected(std::move(upstream));
    co_return;
  }
  if (verdict_ == policy::ConnectVerdict::kOpaqueTls && !looked) {
    const FirstBytes first = co_await ReadFirstBytes();
    if (first != FirstBytes::kTls) {
      if (first == FirstBytes::kOther) RefuseTls(policy::Reason::kProtocol, "cleartext where the rule says tls", kDecodeError);
      co_return;
    }
    if (RefuseHiddenName()) co_return;
  }
  if (verdict_ == policy::ConnectVerdict::kDeny) {
    (void)flow_.RecordConnect(policy::EventLayer::kConnect, decision, upstream->known_address(), "no longer allowed");
    flow_.down.Close(Stream::How::kReset);
    RecordEnd(0, 0, "no longer allowed");
    co_return;
  }
  // Whoever approved the flow recorded that; only what the address adds is a decision of this place.
  const bool only_audited_now = decision.decision.audit_only && !flow_.JudgeConnect(std::nullopt).decision.audit_only;
  if (only_audited_now && !flow_.RecordConnect(policy::EventLayer::kConnect, decision, upstream->known_address(), {})) {
    flow_.down.Close(Stream::How::kReset);
    RecordEnd(0, 0, "audit queue full");
    co_return;
  }
  co_await RunRelay(std::move(upstream));
}

Task<> Connection::RunRelay(UpstreamPtr upstream) {
  Worker& worker = flow_.worker();
  const RelayOn on{worker.reactor(), flow_.waiter, worker.scratch(), worker.shared().options().deadlines.relay_idle};
  RelayOutcome outcome;
  if (upstream->stream.tls()) {
    Buffer first = std::move(upstream->in);
    outcome = co_await RelayThroughTls(on, flow_.down, upstream->stream, std::move(first));
  } else {
    outcome = co_await Relay(on, worker.pipes(), flow_.down, upstream->stream);
  }
  if (*outcome.error != '\0') {
    flow_.down.Close(Stream::How::kReset);
    upstream->stream.Close(Stream::How::kReset);
  }
  RecordEnd(outcome.bytes_up, outcome.bytes_down, outcome.error);
}

Task<> Connection::RunInspected(UpstreamPtr prepared) {
  const FirstBytes first = co_await ReadFirstBytes();
  if (first == FirstBytes::kClosed || first == FirstBytes::kRefused) co_return;
  if (first == FirstBytes::kTls) {
    UpstreamPtr* const ahead = &prepared;
    MirroredPtr mirrored = co_await ChooseNames(ahead);
    const AlpnOffer offer = co_await ChooseOffer(ahead);
    const bool up = co_await TerminateTls(offer, std::move(mirrored));
    if (!up) co_return;
  }
  const bool h2 = first == FirstBytes::kTls ? ChoseH2(flow_.down.ssl()) : flow_.down.prefix.view().starts_with(kPrefaceMark);
  if (h2) {
    h2_.emplace(flow_, first == FirstBytes::kTls ? policy::Scheme::kHttps : policy::Scheme::kHttp, std::move(prepared));
    co_await h2_->Run();
    co_return;
  }
  session_.emplace(flow_, first == FirstBytes::kTls ? policy::Scheme::kHttps : policy::Scheme::kHttp, std::move(prepared));
  co_await session_->Run();
}

std::string Connection::Mismatch(const ClientHello& hello) const {
  if (!names_.empty()) return "";  // compared once one of them was chosen
  const FlowTarget& target = flow_.target();
  if (!hello.sni) return target.host.empty() ? "" : fmt::format("no SNI, the connection is to {}", target.host);
  const bool same = target.host.empty() ? IpAddress::Parse(*hello.sni) == target.destination.address
                                        : policy::CanonicalName(*hello.sni) == target.host;
  return same ? "" : fmt::format("SNI is {}, the connection is to {}", Printable(*hello.sni), flow_.name_text());
}

std::optional<Connection::FirstBytes> Connection::ClassifyFirst(std::string_view bytes) {
  if (bytes.front() != kHandshakeRecord) {
    // So few bytes may be the beginning of HTTP/2 with prior knowledge, or of a POST.
    const bool open = bytes.size() < kPrefaceMark.size() && kPrefaceMark.starts_with(bytes);
    return open ? std::nullopt : std::optional(FirstBytes::kOther);
  }
  const HelloResult result = ParseClientHello(bytes);
  if (result.status == HelloStatus::kNeedMore) return std::nullopt;
  if (result.status == HelloStatus::kMalformed) {
    RefuseTls(policy::Reason::kProtocol, std::string(result.why), kDecodeError);
    return FirstBytes::kRefused;
  }
  has_ech_ = result.hello.ech;
  has_esni_ = result.hello.esni;
  offers_h2_ = std::ranges::find(result.hello.alpn, "h2") != result.hello.alpn.end();
  if (std::string mismatch = Mismatch(result.hello); !mismatch.empty()) {
    RefuseTls(policy::Reason::kAuthorityMismatch, std::move(mismatch), kUnrecognizedName);
    return FirstBytes::kRefused;
  }
  return FirstBytes::kTls;
}

// Reads until it is known what the client speaks, and for TLS which name it asks for; the bytes stay in the stream's prefix.
Task<Connection::FirstBytes> Connection::ReadFirstBytes() {
  if (first_) co_return *first_;
  Worker& worker = flow_.worker();
  // What came with a CONNECT is looked at as all else is.
  Buffer bytes = std::exchange(flow_.down.prefix, {});
  const Deadlines& deadlines = worker.shared().options().deadlines;
  SteadyTime deadline = worker.reactor().now() + (bytes.empty() ? deadlines.first_byte : deadlines.tls_handshake);
  for (;;) {
    if (!bytes.empty()) {
      first_ = ClassifyFirst(bytes.view());
      if (first_ && *first_ != FirstBytes::kRefused) flow_.down.prefix = std::move(bytes);
      if (first_) co_return *first_;
    }
    const Io io = flow_.down.RawRead(bytes.Prepare(4096));
    if (io.status == IoStatus::kOk) {
      if (bytes.empty()) deadline = worker.reactor().now() + deadlines.tls_handshake;
      bytes.Commit(io.n);
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return FirstBytes::kClosed;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, kReadable}, deadline);
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kTimeout)
      RecordEnd(0, 0,
                bytes.empty() ? "the client said nothing; a protocol where the server speaks first needs a tcp rule"
                              : "no ClientHello in time");
    co_return FirstBytes::kClosed;
  }
}

// ECH is let through: every browser sends its like to everybody. Nobody sends ESNI but to hide a name.
bool Connection::RefuseHiddenName() {
  if (has_esni_) RefuseTls(policy::Reason::kAuthorityMismatch, "ESNI hides the name that is asked for", kUnrecognizedName);
  return has_esni_;
}

void Connection::RefuseTls(policy::Reason reason, std::string detail, uint8_t alert) {
  const policy::ConnectDecision decision{policy::ConnectVerdict::kDeny, {false, reason, policy::RuleRef::kNone, false}};
  (void)flow_.RecordConnect(policy::EventLayer::kTls, decision, flow_.dialled, std::move(detail));
  const char record[] = {0x15, 3, 3, 0, 2, 2, static_cast<char>(alert)};
  (void)flow_.down.RawWrite({record, sizeof record});
  flow_.down.Close();
}

Task<AlpnOffer> Connection::ChooseOffer(UpstreamPtr* prepared) {
  if (!offers_h2_) co_return AlpnOffer::kHttp11;
  Worker& worker = flow_.worker();
  DialTarget target = flow_.dial_target();
  // Where requests may go different ways, HTTP/2 is for clients that speak nothing else.
  if (!RouteInspectedTls(worker, flow_.target(), &target)) co_return AlpnOffer::kHttp11First;
  const bool remote = target.via != nullptr && !target.name.empty();
  if (remote && flow_.JudgeRemote().verdict != policy::ConnectVerdict::kInspect) co_return AlpnOffer::kHttp11First;
  std::string key = PoolKey(policy::Scheme::kHttps, target);
  // A proxy would be told of a name for the sake of a request that may be refused: there the first request that goes out finds
  // out.
  if (worker.h2_pool().Known(key) == H2Pool::Speaks::kUnknown && target.via == nullptr) {
    std::string copy = key;
    const auto met = co_await Meet(std::move(target), std::move(copy), prepared);
    // An upstream that cannot be reached is told of inside, in whichever protocol the client likes best.
    if (!met) co_return AlpnOffer::kH2First;
  }
  co_return worker.h2_pool().Known(key) == H2Pool::Speaks::kHttp11 ? AlpnOffer::kHttp11First : AlpnOffer::kH2First;
}

Task<DialResult<MirroredPtr>> Connection::Meet(DialTarget target, std::string key, UpstreamPtr* prepared) {
  Worker& worker = flow_.worker();
  AddressJudge judge = [this](const IpAddress& address) {
    const auto decision = flow_.JudgeConnect(address);
    policy::Decision answer = decision.decision;
    answer.allowed = decision.verdict == policy::ConnectVerdict::kInspect;
    return answer;
  };
  UsableJudge usable = [this](std::optional<IpAddress> address) {
    return address ? flow_.AddressApproved(*address) : flow_.JudgeRemote().allowed();
  };
  if (*prepared != nullptr && (!Fits(**prepared, target) || !usable((*prepared)->known_address()))) prepared->reset();
  UpstreamAsk ask{.key = std::move(key),
                  .target = std::move(target),
                  .ready = std::move(*prepared),
                  .judge = std::move(judge),
                  .usable = std::move(usable)};
  auto obtain = offers_h2_ ? &Obtain : &ObtainHttp11;
  auto obtained = co_await obtain(worker, flow_.waiter, std::move(ask));
  if (!obtained) co_return std::unexpected(std::move(obtained.error()));
  MirroredPtr mirrored = obtained->own != nullptr ? obtained->own->mirrored : obtained->shared->mirrored();
  *prepared = std::move(obtained->own);
  co_return mirrored;
}

Task<MirroredPtr> Connection::ChooseNames(UpstreamPtr* prepared) {
  Worker& worker = flow_.worker();
  if (!worker.shared().options().mirror_certificates) co_return nullptr;
  DialTarget target = flow_.dial_target();
  // Where requests may go different ways, there is no one certificate to mirror.
  if (!RouteInspectedTls(worker, flow_.target(), &target)) co_return nullptr;
  const bool remote = target.via != nullptr && !target.name.empty();
  if (remote && flow_.JudgeRemote().verdict != policy::ConnectVerdict::kInspect) co_return nullptr;
  std::string key = PoolKey(policy::Scheme::kHttps, target);
  if (MirroredPtr known = worker.shared().mirrors().Find(key); known != nullptr) co_return known;
  auto met = co_await Meet(std::move(target), std::move(key), prepared);
  // An upstream that fails is told of inside; a client that compares names ends it there.
  co_return met ? std::move(*met) : nullptr;
}

Task<bool> Connection::TerminateTls(AlpnOffer offer, MirroredPtr mirrored) {
  const FlowTarget& target = flow_.target();
  const auto context = flow_.worker().shared().authority().ContextFor(target.host, target.destination.address, mirrored.get());
  if (context == nullptr || !flow_.down.StartTls(context.get(), Stream::Side::kServer) || !OfferAlpn(flow_.down.ssl(), offer)) {
    RecordEnd(0, 0, "cannot make a certificate");
    co_return false;
  }
  flow_.tls_inspected = true;
  Worker& worker = flow_.worker();
  const SteadyTime deadline = worker.reactor().now() + worker.shared().options().deadlines.tls_handshake;
  for (;;) {
    const Io io = flow_.down.Handshake();
    if (io.status == IoStatus::kOk) co_return true;
    if (io.status != IoStatus::kWouldBlock) {
      RecordEnd(0, 0, fmt::format("TLS with the client failed ({}); does it trust the sandbox's authority?", TakeSslError()));
      co_return false;
    }
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, flow_.down.read_needs}, deadline);
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kTimeout) RecordEnd(0, 0, "the client did not finish its TLS handshake in time");
    co_return false;
  }
}

void Connection::RecordEnd(uint64_t bytes_up, uint64_t bytes_down, std::string error) {
  policy::ExchangeEvent event;
  event.time = SystemClock().Wall();
  event.connection = flow_.id();
  event.target = flow_.EventTargetFor(flow_.dialled);
  event.target.via = via_;
  if (has_ech_) event.target.asked.emplace_back("encrypted client hello");
  event.process = flow_.target().process;
  event.snapshot = flow_.worker().snapshot();
  event.rule = flow_.JudgeConnect(flow_.dialled).decision.rule;
  event.bytes_up = bytes_up;
  event.bytes_down = bytes_down;
  event.duration = std::chrono::duration_cast<std::chrono::microseconds>(SystemClock().Steady() - started_);
  event.error = std::move(error);
  (void)flow_.worker().shared().sink().Record(std::move(event));
}

// The same verdict, and through the same proxy.
bool Connection::StillOpaque() {
  DialTarget way = flow_.dial_target();
  (void)RouteConnection(flow_.worker(), flow_.target(), flow_.JudgeConnect(std::nullopt), &way);
  if (way_ && WayKey(way) != *way_) return false;
  const bool remote = way_ && way.via != nullptr;
  return (remote ? flow_.JudgeRemote() : flow_.JudgeConnect(flow_.dialled)).verdict == verdict_;
}

bool Connection::StillAllowed() { return h2_ ? h2_->Recheck() : session_ ? session_->StillAllowed() : StillOpaque(); }

void Connection::CutOff() {
  if (h2_) return;
  if (session_) return session_->CutOff();
  flow_.down.Close(Stream::How::kReset);
}

}  // namespace sluice::proxy
