#pragma once

// One request of an HTTP/2 connection: judged, forwarded and recorded alone. It runs as a coroutine of its own; what nghttp2
// says about it arrives through the On functions, which only take note and poke it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "proxy/h2_head.h"
#include "proxy/h2_session.h"
#include "proxy/io/exchange_judge.h"
#include "proxy/io/obtain.h"
#include "proxy/io/upstream_leg.h"

namespace sluice::proxy {

class H2Connection;

class H2Stream {
 public:
  /// Reads the section; a malformed one is answered when the stream runs.
  H2Stream(H2Connection& connection, int32_t id, uint64_t number, H2Section& section, H2End end);

  // From nghttp2's callbacks.
  void OnData(std::string_view bytes);
  void OnTrailers(const H2Section& section);
  void OnEnd();
  void OnClosed();
  H2Listener::Piece ReadBody(std::span<char> room);

  /// Until both sides are done with it. Once.
  [[nodiscard]] Task<> Run();
  [[nodiscard]] bool StillAllowed();
  /// Has the client told, at the connection's next write, and ends it from the reactor's loop; `why` is static.
  void Revoke(std::string_view why);
  /// Ends it now.
  void Cancel() { waiter_.Cancel(); }
  [[nodiscard]] int32_t id() const { return id_; }

 private:
  enum class Carried : uint8_t {
    kDone,      ///< the response is whole, as far as the upstream goes
    kSwitched,  ///< a WebSocket is open
    kFailed,    ///< lost_ says how
    kAborted,   ///< the client or the policy ended it
  };
  Task<> Exchange();
  Task<> Forward();
  Task<Carried> Carry();
  Task<Carried> CarryOn();
  Task<std::optional<DialFailure>> ObtainLeg(UpstreamAsk::Reuse reuse);

  // Bodies (h2_stream_body.cc). What ends the exchange says so, to the client and in the record.
  /// Reads as much of the body as the policy asks for, and asks again. Absent: the exchange has ended.
  Task<std::optional<ExchangeJudge::Verdict>> ReadJudgedBody();
  /// Puts the credential in, with the whole body where its signature is over that. False: the exchange has ended.
  Task<bool> UseCredential();
  Task<bool> CollectBody();
  /// More of the body has come, or its end. False: the exchange has ended.
  Task<bool> AwaitBody(SteadyTime deadline);
  /// A client that waits to be asked for its body is asked, once.
  void Continue();
  /// Of what has come of the body so much is used up: the client may send as much more.
  void TakeCome(size_t n);
  /// What is held, then what has come, into changed_. A fault: the body cannot go on.
  Fault FillChanged();
  Fault SendBody();
  [[nodiscard]] bool BodyWaits() const;
  /// Lets all that still comes of the body go by. False: the client stopped, or left.
  Task<bool> DropRest();

  // WebSockets (h2_stream_websocket.cc).
  class DownEnd;
  /// Tells the client that it is open.
  void DeliverSwitch(const ResponseHead& head);
  Task<> CarryWebSocket();

  void Deliver(const ResponseHead& head, const Framing& framing);
  /// Answers with it, and stays until the client has it.
  Task<> Refuse(Denial denial);
  Task<> RefuseFault(Fault fault);
  /// Lets the response leave, and what the client still sends go by.
  Task<> Drain();
  /// How an exchange ends that is neither whole nor refused.
  void Abort(uint32_t code, std::string_view why);
  void Leave() { Abort(kH2Cancel, revoked_ ? failure_ : "the client went away"); }
  void ResetStream(uint32_t code);
  void Poke();
  [[nodiscard]] ExchangeJudge::Awaited WaitsFor(bool writing) const;
  /// Until when the client must have taken some of the response, whatever it sends meanwhile.
  [[nodiscard]] SteadyTime StuckAt() const;

  H2Connection& connection_;
  const int32_t id_;
  ExchangeJudge judge_;
  H2HeadStore store_;
  Waiter waiter_;
  Fault fault_;       ///< of the head
  BodyPipe request_;  ///< as it comes
  BodyPipe changed_;  ///< as it leaves, where that is not the same
  BodyPipe response_;
  bool through_changed_ = false;  ///< it is not
  size_t held_sent_ = 0;          ///< of what the judge holds
  H2Output output_;
  WebSocketOffer offer_;
  std::unique_ptr<UpstreamLeg> leg_;
  std::string_view failure_;  ///< static; why the policy ended the exchange
  LegFailure lost_;
  uint64_t sent_down_ = 0;  ///< bytes that nghttp2 took from response_
  SteadyTime taken_at_{};   ///< when it last did, or had no reason to
  int status_ = 0;          ///< sent to the client
  bool carrying_ = false;   ///< a poke is welcome
  bool dropping_ = false;   ///< what still comes of the request is dropped
  bool closed_ = false;
  bool reset_ = false;  ///< by this side
  bool revoked_ = false;
  bool switched_ = false;  ///< to a WebSocket
  size_t dropped_ = 0;
};

}  // namespace sluice::proxy
