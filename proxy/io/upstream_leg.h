#pragma once

// One exchange as the upstream side carries it, whatever protocol is spoken there: a head goes out, body bytes move through
// bounded pipes, a response comes back. Nothing here waits; Wants says for what the caller should. One worker's thread.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/buffer.h"
#include "proxy/chunked.h"
#include "proxy/forward.h"
#include "proxy/http1.h"
#include "proxy/io/upstream.h"
#include "proxy/websocket_handshake.h"

namespace sluice::proxy {

/// Body bytes on their way from one side of an exchange to the other, without any transfer coding.
struct BodyPipe {
  Buffer bytes;
  bool ended = false;         ///< nothing comes after `bytes`
  std::string trailer_lines;  ///< with ended: "name: value\r\n" each
  void Reset() {
    bytes.Clear();
    ended = false;
    trailer_lines.clear();
  }
};

struct LegFailure {
  Fault fault;             ///< what to answer with, while nothing was answered
  bool untouched = false;  ///< the upstream cannot have acted on the request: it may be sent on another connection
  uint32_t code = 0;       ///< of RFC 9113, where the upstream gave one
};

class UpstreamLeg {
 public:
  virtual ~UpstreamLeg() = default;

  /// The head; its bytes are copied.
  virtual void Begin(const RequestHead& head, const RequestForward& forward) = 0;
  /// The same where it asks for a WebSocket. `offer` outlives the leg; a key is made where one is needed.
  virtual void BeginWebSocket(const RequestHead& head, const WebSocketOffer& offer, WebSocketForward forward) = 0;
  /// Takes what it can of the body. How many bytes that was.
  virtual size_t Send(BodyPipe* body) = 0;

  enum class Got : uint8_t {
    kNothing,   ///< for now
    kInterim,   ///< a 1xx head
    kHead,      ///< the final one
    kSwitched,  ///< in its place: a WebSocket is open, whose bytes follow as bodies do
    kBody,      ///< more of the body, up to kHighWater in the pipe
    kEnd,       ///< the body is whole: the pipe has ended
    kFailed,
  };
  /// The next of a response. The head's views live until the next call.
  virtual Got Receive(ResponseHead* head, Framing* framing, BodyPipe* body) = 0;
  [[nodiscard]] virtual const LegFailure& failure() const = 0;
  /// After kSwitched; its views live as the head's do.
  [[nodiscard]] const WebSocketAgreement& agreement() const { return agreement_; }
  /// After kSwitched: the connection itself, where it is all this leg's; else null.
  [[nodiscard]] virtual UpstreamPtr TakeConnection() = 0;
  /// What Send took is written as far as the socket takes it at once; for the last bytes of an exchange that may not wait.
  virtual void WriteNow() = 0;

  /// What Send and Receive wait for; no channel where the leg pokes the waiter that it was made with.
  [[nodiscard]] virtual Waiter::On Wants() const = 0;
  /// Nothing where only an upstream proxy knows it.
  [[nodiscard]] virtual std::optional<IpAddress> address() const = 0;
  /// The whole request has been sent.
  [[nodiscard]] virtual bool sent() const = 0;
  /// After kEnd: what was used may serve others, if the request was sent whole too. Without it, the leg's end ends the exchange.
  virtual void Finish() = 0;

 protected:
  const WebSocketOffer* offer_ = nullptr;  ///< what is asked for, if it is a WebSocket
  WebSocketAgreement agreement_;
};

/// HTTP/1.1 on a connection of its own.
class H1Leg final : public UpstreamLeg {
 public:
  /// `pool_key`: where the connection goes when it can serve again.
  H1Leg(Worker& worker, UpstreamPtr upstream, std::string pool_key);

  void Begin(const RequestHead& head, const RequestForward& forward) override;
  void BeginWebSocket(const RequestHead& head, const WebSocketOffer& offer, WebSocketForward forward) override;
  size_t Send(BodyPipe* body) override;
  Got Receive(ResponseHead* head, Framing* framing, BodyPipe* body) override;
  [[nodiscard]] const LegFailure& failure() const override { return failure_; }
  [[nodiscard]] Waiter::On Wants() const override { return {&upstream_->stream.channel, wants_}; }
  [[nodiscard]] std::optional<IpAddress> address() const override { return upstream_->known_address(); }
  [[nodiscard]] bool sent() const override { return sent_; }
  [[nodiscard]] UpstreamPtr TakeConnection() override { return std::move(upstream_); }
  void WriteNow() override {}
  void Finish() override;

 private:
  /// False: the socket takes no more for now.
  bool Write(std::string_view bytes, size_t* taken);
  /// False: nothing more can be read for now, or ever (ended_).
  bool Fill();
  Got Head(ResponseHead* head, Framing* framing);
  Got Body(BodyPipe* body);
  Got Fail(std::string_view why);

  Worker& worker_;
  UpstreamPtr upstream_;
  const std::string pool_key_;
  std::string method_;
  std::string announced_;  ///< trailer names of the request
  std::string key_;        ///< of a WebSocket's handshake
  std::string head_bytes_;
  Buffer out_;
  Framing request_;
  Framing response_;
  ChunkedDecoder chunks_;
  LegFailure failure_;
  size_t resume_ = 0;
  uint64_t left_ = 0;  ///< of a response with a length
  unsigned interims_ = 0;
  uint8_t wants_ = 0;
  bool last_queued_ = false;  ///< the request's end is in out_
  bool sent_ = false;
  bool broken_ = false;  ///< the upstream takes no more of the request
  bool ended_ = false;   ///< it has sent its last byte
  bool answered_ = false;
  bool begun_ = false;  ///< the final head was given out
  bool whole_ = false;
  bool keep_ = false;
};

}  // namespace sluice::proxy
