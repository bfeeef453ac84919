#include "proxy/io/h2_upstream.h"

#include <algorithm>

#include "base/log.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

H2Upstream::H2Upstream(Worker& worker, UpstreamPtr upstream, policy::Scheme scheme)
    : worker_(worker),
      upstream_(std::move(upstream)),
      scheme_(scheme),
      session_(H2Role::kClient, *this),
      waiter_(worker.reactor()),
      idle_since_(worker.reactor().now()),
      written_at_(idle_since_),
      heard_at_(idle_since_) {}

std::shared_ptr<H2Upstream> H2Upstream::Start(Worker& worker, UpstreamPtr upstream, policy::Scheme scheme) {
  auto self = std::make_shared<H2Upstream>(worker, std::move(upstream), scheme);
  Run(self);
  return self;
}

detail::Detached H2Upstream::Run(std::shared_ptr<H2Upstream> self) {
  self->worker_.h2_pool().Begun(self.get());
  try {
    co_await self->Pass();
  } catch (const std::exception& fault) {
    LogError("proxy upstream: {}", fault.what());
  }
  self->worker_.h2_pool().Ended(self.get());
  self->Lose();
}

bool H2Upstream::Takes() const {
  return !retired_ && !dead_ && !ping_open_ && !session_.draining() && session_.failure().empty() &&
         legs_.size() < session_.PeerMaxStreams() && (upstream_->stream.channel.ready & (kBroken | kPeerDone)) == 0;
}

void H2Upstream::Retire() {
  retired_ = true;
  if (legs_.empty()) waiter_.Cancel();
}

int32_t H2Upstream::Open(H2Leg* leg, const H2Output& section, H2End end) {
  if (dead_) return -1;
  const int32_t id = session_.Request(section, end);
  if (id < 0) return id;
  if (legs_.empty()) heard_at_ = std::max(heard_at_, worker_.reactor().now());
  legs_.emplace(id, leg);
  Flush();
  return id;
}

void H2Upstream::WriteNow() {
  if (!dead_) (void)WriteSome();
}

void H2Upstream::Forget(int32_t id) {
  legs_.erase(id);
  served_ = true;
  idle_since_ = worker_.reactor().now();
  if (legs_.empty() && retired_) {
    waiter_.CancelSoon();
  } else {
    Flush();
  }
}

void H2Upstream::OnHead(int32_t id, H2Section& section, H2End end) {
  spoken_ = true;
  if (const auto found = legs_.find(id); found != legs_.end()) found->second->OnHead(section, end);
}

void H2Upstream::OnTrailers(int32_t id, H2Section& section) {
  if (const auto found = legs_.find(id); found != legs_.end()) found->second->OnTrailers(section);
}

void H2Upstream::OnData(int32_t id, std::string_view bytes) {
  spoken_ = true;
  if (const auto found = legs_.find(id); found != legs_.end()) {
    found->second->OnData(bytes);
  } else {
    session_.Consume(id, bytes.size());
  }
}

void H2Upstream::OnEnd(int32_t id) {
  if (const auto found = legs_.find(id); found != legs_.end()) found->second->OnEnd();
}

void H2Upstream::OnClosed(int32_t id, uint32_t code) {
  if (const auto found = legs_.find(id); found != legs_.end()) found->second->OnClosed(code);
}

H2Listener::Piece H2Upstream::ReadBody(int32_t id, std::span<char> room) {
  const auto found = legs_.find(id);
  return found != legs_.end() ? found->second->ReadBody(room) : Piece{};
}

H2Upstream::Pump H2Upstream::ReadSome() {
  read_needs_ = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    const Io io = upstream_->stream.Read(worker_.scratch());
    if (io.status == IoStatus::kWouldBlock) {
      read_needs_ = upstream_->stream.read_needs;
      return Pump::kBlocked;
    }
    if (io.status != IoStatus::kOk) return Pump::kEnded;
    heard_at_ = worker_.reactor().now();
    ping_open_ = false;
    if (!session_.Feed({worker_.scratch().data(), io.n}, heard_at_)) return Pump::kEnded;
  }
  return Pump::kMore;
}

H2Upstream::Pump H2Upstream::WriteSome() {
  write_needs_ = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    const bool well = session_.Write(&out_);
    if (out_.empty()) {
      if (ping_open_ && !ping_sent_at_) ping_sent_at_ = worker_.reactor().now();
      return well ? Pump::kBlocked : Pump::kEnded;
    }
    const Io io = upstream_->stream.Write(out_.view());
    if (io.status == IoStatus::kWouldBlock) {
      write_needs_ = upstream_->stream.write_needs;
      return Pump::kBlocked;
    }
    if (io.status != IoStatus::kOk) return Pump::kEnded;
    out_.Consume(io.n);
    written_at_ = worker_.reactor().now();
  }
  return Pump::kMore;
}

std::optional<SteadyTime> H2Upstream::HeadBy() const {
  const auto since = session_.section_since();
  return since ? std::optional<SteadyTime>(*since + worker_.shared().options().deadlines.head) : std::nullopt;
}

std::optional<SteadyTime> H2Upstream::PingBy() const {
  const Deadlines& deadlines = worker_.shared().options().deadlines;
  // Behind bytes that the upstream does not take it cannot be answered: how long it may take none has a bound of its own.
  if (ping_open_) return ping_sent_at_ ? std::optional<SteadyTime>(*ping_sent_at_ + deadlines.ping) : std::nullopt;
  if (legs_.empty()) return std::nullopt;
  const SteadyTime due = heard_at_ + deadlines.ping_after;
  return pinged_at_ && !spoken_ ? std::max<SteadyTime>(due, *pinged_at_ + deadlines.ping_again) : due;
}

SteadyTime H2Upstream::Deadline() const {
  SteadyTime deadline = legs_.empty() ? idle_since_ + kPoolIdle : worker_.reactor().now() + kResponseIdle;
  if (!out_.empty()) deadline = std::min<SteadyTime>(deadline, written_at_ + worker_.shared().options().deadlines.write_stuck);
  return std::min({deadline, HeadBy().value_or(deadline), PingBy().value_or(deadline)});
}

bool H2Upstream::OnDeadline() {
  const SteadyTime now = worker_.reactor().now();
  if (const auto by = HeadBy(); by && now >= *by) {
    late_ = {504, "a response head that did not arrive in time"};
    session_.Terminate(kH2EnhanceYourCalm, late_.why);
    return false;
  }
  if (const auto by = PingBy(); by && now >= *by) {
    if (ping_open_) {
      late_ = {504, "nothing, not even to a PING"};
      return false;
    }
    session_.Ping();
    pinged_at_ = now;
    ping_open_ = true;
    ping_sent_at_.reset();
    spoken_ = false;
    return true;
  }
  if (!legs_.empty() && out_.empty()) return true;
  session_.Shutdown();
  return false;
}

Task<> H2Upstream::Pass() {
  for (;;) {
    const Pump read = ReadSome();
    const Pump wrote = WriteSome();
    if (read == Pump::kEnded || wrote == Pump::kEnded || session_.done()) break;
    const SteadyTime deadline = Deadline();
    Wake wake = Wake::kReady;
    if (read == Pump::kMore || wrote == Pump::kMore) {
      wake = co_await waiter_.Yield(deadline);
    } else {
      const auto needs = static_cast<uint8_t>(read_needs_ | write_needs_);
      wake = co_await waiter_.Wait({&upstream_->stream.channel, needs}, deadline);
    }
    if (wake == Wake::kReady) continue;
    if (wake == Wake::kTimeout) {
      if (OnDeadline()) continue;
    } else {
      session_.Shutdown();
    }
    break;
  }
  // GOAWAY, as far as the socket takes it at once.
  (void)WriteSome();
}

void H2Upstream::Lose() {
  dead_ = true;
  upstream_->stream.Close();
  const bool stale = session_.failure().empty();
  const Fault why = late_                                           ? late_
                    : stale                                         ? Fault{502, "nothing: it closed the connection"}
                    : session_.failure_code() == kH2EnhanceYourCalm ? Fault{502, "more frames than an answer needs"}
                                                                    : Fault{502, "frames that break the rules of HTTP/2"};
  // A leg may end while it is told.
  while (!legs_.empty()) {
    H2Leg* leg = legs_.begin()->second;
    legs_.erase(legs_.begin());
    leg->OnLost(why, stale);
  }
}

H2Leg::H2Leg(std::shared_ptr<H2Upstream> connection, Waiter& waiter) : connection_(std::move(connection)), waiter_(waiter) {}

H2Leg::~H2Leg() {
  if (id_ < 0) return;
  connection_->session().Consume(id_, in_.size());
  if (!closed_) connection_->session().Reset(id_, kH2Cancel);
  connection_->Forget(id_);
}

void H2Leg::Begin(const RequestHead& head, const RequestForward& forward) {
  method_ = head.method;
  no_body_ =
      forward.framing.kind == BodyKind::kNone || (forward.framing.kind == BodyKind::kLength && forward.framing.length == 0);
  last_taken_ = sent_ = no_body_;
  WriteRequestSection(&output_, head, forward, connection_->scheme() == policy::Scheme::kHttps ? "https" : "http");
  Open();
}

void H2Leg::BeginWebSocket(const RequestHead& head, const WebSocketOffer& offer, WebSocketForward forward) {
  offer_ = &offer;
  method_ = "GET";
  WriteWebSocketSection(&output_, head, offer, forward, connection_->scheme() == policy::Scheme::kHttps ? "https" : "http");
  Open();
}

void H2Leg::Open() {
  id_ = connection_->Open(this, output_, no_body_ ? H2End::kEndStream : H2End::kOpen);
  if (id_ >= 0) return;
  closed_ = true;
  failure_.untouched = true;
  lost_ = {502, "nothing: it takes no more requests on this connection"};
}

void H2Leg::WriteNow() {
  if (id_ >= 0) connection_->WriteNow();
}

size_t H2Leg::Send(BodyPipe* body) {
  if (closed_) {
    const size_t dropped = body->bytes.size();
    body->bytes.Clear();
    return dropped;
  }
  if (last_taken_) return 0;
  const size_t room = kHighWater - std::min(out_.size(), kHighWater);
  const size_t n = std::min(room, body->bytes.size());
  if (n != 0) {
    out_.Append(body->bytes.view().substr(0, n));
    body->bytes.Consume(n);
  }
  if (body->ended && body->bytes.empty()) {
    last_taken_ = true;
    trailers_up_ = body->trailer_lines;
  }
  if (n != 0 || last_taken_) {
    connection_->session().Resume(id_);
    connection_->Flush();
  }
  return n;
}

H2Listener::Piece H2Leg::ReadBody(std::span<char> room) {
  const size_t n = std::min(room.size(), out_.size());
  if (n != 0) {
    std::copy_n(out_.view().data(), n, room.data());
    out_.Consume(n);
    waiter_.Poke();
  }
  const bool ended = last_taken_ && out_.empty();
  sent_ |= ended;
  return {n, ended, ended && !trailers_up_.empty() ? &trailers_up_ : nullptr};
}

void H2Leg::OnHead(H2Section& section, H2End end) {
  answered_ = true;
  if (heads_.size() < kMaxInterimResponses + 2) {
    heads_.emplace_back();
    std::swap(heads_.back().first, section);
    heads_.back().second = end;
  }
  waiter_.Poke();
}

void H2Leg::OnTrailers(const H2Section& section) { trailers_down_ = ReadTrailerSection(section); }

void H2Leg::OnData(std::string_view bytes) {
  in_.Append(bytes);
  waiter_.Poke();
}

void H2Leg::OnEnd() {
  ended_ = true;
  waiter_.Poke();
}

void H2Leg::OnClosed(uint32_t code) {
  closed_ = true;
  if (!ended_) {
    failure_.code = code;
    failure_.untouched = code == kH2RefusedStream;
    lost_ = {502, answered_ ? "a response that was cut short" : "a reset of the stream"};
  }
  waiter_.Poke();
}

void H2Leg::OnLost(Fault why, bool stale) {
  id_ = -1;
  if (!closed_ && !ended_) {
    lost_ = why;
    failure_.untouched = stale && connection_->reused() && !answered_;
  }
  closed_ = true;
  waiter_.Poke();
}

UpstreamLeg::Got H2Leg::Fail(Fault fault) {
  failure_.fault = fault;
  return Got::kFailed;
}

UpstreamLeg::Got H2Leg::Receive(ResponseHead* head, Framing* framing, BodyPipe* body) {
  if (!heads_.empty()) {
    std::swap(store_.section, heads_.front().first);
    const H2End end = heads_.front().second;
    heads_.pop_front();
    if (begun_) return Fail({502, "a second head"});
    if (const Fault fault = ReadResponseSection(&store_, end, method_, head, framing)) return Fail({502, fault.why});
    if (head->status < 200) return ++interims_ > kMaxInterimResponses ? Fail({502, "too many interim responses"}) : Got::kInterim;
    begun_ = true;
    if (offer_ == nullptr || head->status >= 300) return Got::kHead;
    const auto agreed = CheckConnectAnswer(head, *offer_);
    if (!agreed) return Fail({502, agreed.error().why});
    if (end == H2End::kEndStream) return Fail({502, "a WebSocket that ends with its head"});
    agreement_ = *agreed;
    return Got::kSwitched;
  }
  if (begun_ && !in_.empty()) {
    const size_t n = std::min(in_.size(), kHighWater);
    body->bytes.Append(in_.view().substr(0, n));
    in_.Consume(n);
    if (id_ >= 0) {
      connection_->session().Consume(id_, n);
      connection_->Flush();
    }
    return Got::kBody;
  }
  if (begun_ && ended_) {
    body->ended = true;
    body->trailer_lines = std::move(trailers_down_);
    return Got::kEnd;
  }
  if (closed_) return Fail(lost_ ? lost_ : Fault{502, "a response without a head"});
  return Got::kNothing;
}

}  // namespace sluice::proxy
