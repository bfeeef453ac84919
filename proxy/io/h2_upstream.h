#pragma once

// HTTP/2 to an upstream: one connection that the streams of a worker share, and one stream of it as a leg. The connection runs
// as a coroutine of its own until it fails, is retired and has no stream left, or rests for too long.

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "proxy/h2_session.h"
#include "proxy/io/upstream_leg.h"

namespace sluice::proxy {

class H2Leg;

class H2Upstream final : public H2Listener, public std::enable_shared_from_this<H2Upstream> {
 public:
  /// Takes a connection that is ready for HTTP/2: TLS that chose it, or cleartext to an upstream that is known to speak it.
  static std::shared_ptr<H2Upstream> Start(Worker& worker, UpstreamPtr upstream, policy::Scheme scheme);
  /// Use Start.
  H2Upstream(Worker& worker, UpstreamPtr upstream, policy::Scheme scheme);

  [[nodiscard]] std::optional<IpAddress> address() const { return upstream_->known_address(); }
  [[nodiscard]] policy::Scheme scheme() const { return scheme_; }
  [[nodiscard]] const MirroredPtr& mirrored() const { return upstream_->mirrored; }
  /// Whether one more stream may be opened now.
  [[nodiscard]] bool Takes() const;
  [[nodiscard]] bool idle() const { return legs_.empty(); }
  [[nodiscard]] SteadyTime idle_since() const { return idle_since_; }
  /// Opens no more streams, and closes when the last has ended.
  void Retire();
  /// Ends it now.
  void Close() { waiter_.Cancel(); }

  // For its legs.
  [[nodiscard]] H2Session& session() { return session_; }
  [[nodiscard]] int32_t Open(H2Leg* leg, const H2Output& section, H2End end);
  void Forget(int32_t id);
  void Flush() { waiter_.Poke(); }
  /// As far as the socket takes it at once.
  void WriteNow();
  /// Streams were answered on it before.
  [[nodiscard]] bool reused() const { return served_; }

 private:
  enum class Pump : uint8_t { kMore, kBlocked, kEnded };
  void OnHead(int32_t id, H2Section& section, H2End end) override;
  void OnTrailers(int32_t id, H2Section& section) override;
  void OnData(int32_t id, std::string_view bytes) override;
  void OnEnd(int32_t id) override;
  void OnClosed(int32_t id, uint32_t code) override;
  Piece ReadBody(int32_t id, std::span<char> room) override;

  static detail::Detached Run(std::shared_ptr<H2Upstream> self);
  Task<> Pass();
  Pump ReadSome();
  Pump WriteSome();
  /// When the head that is under way must be here.
  [[nodiscard]] std::optional<SteadyTime> HeadBy() const;
  /// When a PING is due, or must have its answer.
  [[nodiscard]] std::optional<SteadyTime> PingBy() const;
  [[nodiscard]] SteadyTime Deadline() const;
  /// False: the connection has ended.
  [[nodiscard]] bool OnDeadline();
  void Lose();

  Worker& worker_;
  UpstreamPtr upstream_;
  const policy::Scheme scheme_;
  H2Session session_;
  Waiter waiter_;
  Buffer out_;
  std::unordered_map<int32_t, H2Leg*> legs_;
  SteadyTime idle_since_;
  SteadyTime written_at_;
  SteadyTime heard_at_;                     ///< or streams began to wait
  std::optional<SteadyTime> pinged_at_;     ///< last
  bool ping_open_ = false;                  ///< nothing has come since
  std::optional<SteadyTime> ping_sent_at_;  ///< when the socket had taken it
  bool spoken_ = false;                     ///< a head or data have
  uint8_t read_needs_ = 0;
  uint8_t write_needs_ = 0;
  bool retired_ = false;
  bool dead_ = false;
  bool served_ = false;
  Fault late_;  ///< the deadline that ended it
};

class H2Leg final : public UpstreamLeg {
 public:
  /// `waiter` is poked when something has come or can go on; it outlives the leg.
  H2Leg(std::shared_ptr<H2Upstream> connection, Waiter& waiter);
  ~H2Leg() override;

  void Begin(const RequestHead& head, const RequestForward& forward) override;
  void BeginWebSocket(const RequestHead& head, const WebSocketOffer& offer, WebSocketForward forward) override;
  size_t Send(BodyPipe* body) override;
  Got Receive(ResponseHead* head, Framing* framing, BodyPipe* body) override;
  [[nodiscard]] const LegFailure& failure() const override { return failure_; }
  [[nodiscard]] Waiter::On Wants() const override { return {}; }
  [[nodiscard]] std::optional<IpAddress> address() const override { return connection_->address(); }
  [[nodiscard]] bool sent() const override { return sent_; }
  [[nodiscard]] UpstreamPtr TakeConnection() override { return nullptr; }
  void WriteNow() override;
  void Finish() override {}

  // From the connection.
  void OnHead(H2Section& section, H2End end);
  void OnTrailers(const H2Section& section);
  void OnData(std::string_view bytes);
  void OnEnd();
  void OnClosed(uint32_t code);
  /// The connection is gone. `stale`: as one that rested may be found to be.
  void OnLost(Fault why, bool stale);
  H2Listener::Piece ReadBody(std::span<char> room);

 private:
  Got Fail(Fault fault);
  void Open();

  std::shared_ptr<H2Upstream> connection_;
  Waiter& waiter_;
  int32_t id_ = -1;
  std::string method_;
  H2Output output_;
  std::deque<std::pair<H2Section, H2End>> heads_;
  H2HeadStore store_;
  Buffer in_;
  Buffer out_;
  std::string trailers_up_;
  std::string trailers_down_;
  LegFailure failure_;
  Fault lost_;  ///< why the stream ended before its time
  unsigned interims_ = 0;
  bool no_body_ = false;  ///< the request ended with its head
  bool last_taken_ = false;
  bool sent_ = false;
  bool answered_ = false;
  bool begun_ = false;
  bool ended_ = false;
  bool closed_ = false;
};

}  // namespace sluice::proxy
