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
  /// Ends it from the reactor's loop; `why` is static.
  void Revoke(std::string_view why);
  /// Ends it now.
  void Cancel() { waiter_.Cancel(); }
  [[nodiscard]] int32_t id() const { return id_; }

 private:
  enum class Carried : uint8_t {
    kDone,     ///< the response is whole, as far as the upstream goes
    kFailed,   ///< failure_ says how
    kAborted,  ///< the client or the policy ended it
  };
  Task<> Exchange();
  Task<> Forward();
  Task<Carried> Carry();
  Task<std::optional<DialFailure>> ObtainLeg();
  Carried Deliver(const ResponseHead& head, const Framing& framing);
  void Refuse(Denial denial);
  /// Lets the response leave, and what the client still sends go by.
  Task<> Drain();
  void Abort(uint32_t code, std::string_view why);
  void Poke();
  [[nodiscard]] SteadyTime CarryDeadline(bool stuck) const;

  H2Connection& connection_;
  const int32_t id_;
  ExchangeJudge judge_;
  H2HeadStore store_;
  Waiter waiter_;
  Fault fault_;  ///< of the head
  BodyPipe request_;
  BodyPipe response_;
  H2Output output_;
  std::unique_ptr<UpstreamLeg> leg_;
  std::string_view failure_;  ///< static; why the exchange ended early
  LegFailure lost_;
  uint64_t sent_down_ = 0;  ///< bytes that nghttp2 took from response_
  int status_ = 0;          ///< sent to the client
  bool carrying_ = false;   ///< a poke is welcome
  bool dropping_ = false;   ///< what still comes of the request is dropped
  bool closed_ = false;
  bool revoked_ = false;
  size_t dropped_ = 0;
};

}  // namespace sluice::proxy
