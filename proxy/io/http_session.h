#pragma once

// HTTP/1.1 on one inspected connection: read a head, judge it, forward it, answer it, again. Bodies stream both ways through
// bounded buffers; each pump does what it can without waiting and says what it waits for.

#include <deque>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/buffer.h"
#include "proxy/chunked.h"
#include "proxy/forward.h"
#include "proxy/http1.h"
#include "proxy/io/exchange_judge.h"
#include "proxy/io/flow_context.h"
#include "proxy/io/obtain.h"
#include "proxy/io/request_gate.h"
#include "proxy/io/upstream_leg.h"
#include "proxy/websocket_handshake.h"

namespace sluice::proxy {

class HttpSession {
 public:
  /// `prepared`: the connection that was made ahead, plain TCP, or null. `gate`: where each request goes; null: where the flow
  /// does.
  HttpSession(FlowContext& flow, policy::Scheme scheme, UpstreamPtr prepared, RequestGate* gate = nullptr);

  /// Until the client leaves, an error ends the connection, or the flow's waiter is cancelled.
  [[nodiscard]] Task<> Run();

  /// Gives buffers back where the client has been idle for a while. Between suspensions only.
  void Trim(SteadyTime now);

  /// Whether the policy now in force allows what this session does or last did. Between suspensions only.
  [[nodiscard]] bool StillAllowed();

  /// Closes the client's socket, but for a WebSocket, which has a close frame to send. What waits on it must be cancelled next.
  void CutOff();

  /// Waiting for a request of which nothing has come.
  [[nodiscard]] bool idle() const { return between_; }

 private:
  enum class HeadRead : uint8_t { kGot, kFault, kClosed };
  enum class After : uint8_t { kNextRequest, kLinger, kClosed };
  enum class Pump : uint8_t { kMore, kBlocked, kDone, kFailed };
  struct Waits {
    uint8_t down = 0;
    uint8_t up = 0;
  };

  // Requests (http_session.cc).
  Task<HeadRead> ReadHead();
  Task<After> HandleRequest();
  Fault ParseHead();
  Fault PassGate();
  Task<After> Refuse(Denial denial);
  Task<After> RefuseFault(Fault fault);
  Task<After> RefuseUpstream(DialFailure failure);
  Task<bool> Flush(SteadyTime deadline);
  Task<> Linger();

  // Bodies that must be read before they are forwarded (http_body.cc).
  void BeginBody();
  /// Reads what the policy needs of the body and asks again. A fault with status 0: the client left.
  Task<std::expected<ExchangeJudge::Verdict, Fault>> ReadJudgedBody();
  enum class BodyWait : uint8_t { kGot, kLate, kLeft };
  Task<BodyWait> ReadMore(SteadyTime deadline);
  Task<bool> Continue();
  Task<bool> DrainBody();

  /// The next of the body: what the judge holds, then what has come, its coding taken off.
  struct Piece {
    std::string_view data;
    size_t consumed = 0;  ///< of where it lies
    bool last = false;
  };
  [[nodiscard]] bool BodyIsThere() const { return held_pending_ || (!body_read_ && !in_.empty()); }
  /// Where BodyIsThere, and then Took: once for each.
  [[nodiscard]] std::expected<Piece, Fault> NextPiece();
  void Took(const Piece& piece);

  // The upstream side (http_exchange.cc).
  Task<After> Forward();
  bool TakeIdle();
  Task<std::optional<DialFailure>> Obtain(UpstreamAsk::Reuse reuse);
  void DropUpstream();
  // Credentials (http_credential.cc).
  /// Absent: go on. Else the exchange has ended so.
  Task<std::optional<After>> UseCredential();
  Task<std::optional<After>> CollectBody();
  Task<After> RefuseCredential(Denial denial);
  Task<After> RefuseBody(Fault fault);
  void BeginExchange();
  Task<After> Carry();
  [[nodiscard]] ExchangeJudge::Awaited WaitsFor(const Waits& waits) const;
  /// More of the request's body into in_; kMore: some came.
  Pump ReadBodyPiece(Waits* waits);
  Pump PumpRequest(Waits* waits);
  Pump PumpResponse(Waits* waits);
  [[nodiscard]] bool Gathers() const;
  /// Body bytes may go from where they lie to the upstream.
  [[nodiscard]] bool MayPassAsTheyAre() const;
  Fault MoveRequestBody();
  Fault PutPiece(const Piece& piece);
  Fault MoveResponse();
  Fault TakeResponseHead(size_t size);
  void FinishResponseBody();
  Pump ResponseEnded(IoStatus status);
  [[nodiscard]] bool MayRetry() const;
  After FinishExchange();
  void ResetExchange();

  // The same over HTTP/2, for upstreams that speak nothing else (http_over_leg.cc).
  void BeginOverLeg(std::string_view target);
  Pump PumpRequestOverLeg(Waits* waits);
  Pump PumpResponseOverLeg(Waits* waits);
  void DeliverHead(const Framing& framing);

  // WebSocket (http_websocket.cc).
  void AskForWebSocket(std::string_view target);
  Fault TakeSwitch(size_t size);
  void TakeSwitchOverLeg();
  Task<After> CarryWebSocket();

  FlowContext& flow_;
  ExchangeJudge judge_;
  RequestGate* const gate_;
  UpstreamPtr prepared_;
  std::string own_key_;
  UpstreamPtr own_;  ///< between requests: the connection that authenticated as this client, which no other may use

  Buffer in_;               ///< from the client
  Buffer out_;              ///< to the client
  Buffer up_out_;           ///< to the upstream
  std::string head_bytes_;  ///< the present or last request's head, which the judge's views point into
  uint64_t number_ = 0;     ///< of the request on this connection
  Fault head_fault_;
  std::optional<SteadyTime> idle_since_;  ///< waiting for a request of which nothing has come

  bool between_ = false;  ///< the same, whether or not its buffers were given back

  // The exchange under way.
  UpstreamPtr upstream_;
  std::unique_ptr<UpstreamLeg> leg_;  ///< in its place
  BodyPipe request_pipe_;
  BodyPipe response_pipe_;
  ResponseHead response_;
  Framing response_framing_;                 ///< as it comes
  BodyKind response_out_ = BodyKind::kNone;  ///< as it leaves
  ChunkedDecoder request_chunks_;
  ChunkedDecoder response_chunks_;
  std::string response_trailer_;      ///< the announced names
  std::deque<std::string> redacted_;  ///< fields of the response in which a proxy's login stood
  uint64_t request_left_ = 0;
  uint64_t response_left_ = 0;
  size_t response_resume_ = 0;
  std::optional<SteadyTime> response_head_since_;  ///< when the first byte of a head was seen that is not whole
  unsigned interims_ = 0;
  bool body_read_ = false;     ///< the client's body has been read to its end
  bool held_pending_ = false;  ///< the judge holds the beginning of the body, which has not gone on yet
  size_t held_sent_ = 0;       ///< bytes of it that are
  bool request_sent_ = false;  ///< and written, or the upstream takes no more
  bool upload_broken_ = false;
  bool response_bytes_seen_ = false;
  bool response_started_ = false;  ///< the final head has been put into out_
  bool response_read_ = false;
  bool upstream_reusable_ = false;
  bool keep_ = false;
  Framing request_out_;  ///< as the request leaves
  Fault exchange_fault_;

  // A WebSocket that is asked for, or agreed on.
  WebSocketOffer offer_;
  std::string websocket_key_;  ///< ours, toward the upstream
  WebSocketCompression compression_ = WebSocketCompression::kNone;
  bool switched_ = false;
  std::string_view failure_;  ///< static; why the exchange ended early
};

}  // namespace sluice::proxy
