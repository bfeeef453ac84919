#include "proxy/io/upstream_leg.h"

#include <algorithm>

#include "proxy/io/limits.h"
#include "proxy/io/websocket_key.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

H1Leg::H1Leg(Worker& worker, UpstreamPtr upstream, std::string pool_key)
    : worker_(worker), upstream_(std::move(upstream)), pool_key_(std::move(pool_key)) {}

void H1Leg::Begin(const RequestHead& head, const RequestForward& forward) {
  method_ = head.method;
  announced_ = head.trailer;
  request_ = forward.framing;
  upstream_->bound |= BindsConnection(head, "authorization");
  AppendRequestHead(&out_, head, forward);
  last_queued_ = request_.kind == BodyKind::kNone || (request_.kind == BodyKind::kLength && request_.length == 0);
}

void H1Leg::BeginWebSocket(const RequestHead& head, const WebSocketOffer& offer, WebSocketForward forward) {
  offer_ = &offer;
  method_ = "GET";
  key_ = NewWebSocketKey();
  forward.key = key_;
  upstream_->bound |= BindsConnection(head, "authorization");
  AppendWebSocketRequest(&out_, head, offer, forward);
  last_queued_ = true;
}

bool H1Leg::Write(std::string_view bytes, size_t* taken) {
  const Io io = upstream_->stream.Write(bytes);
  if (io.status == IoStatus::kOk) {
    *taken = io.n;
    return true;
  }
  if (io.status == IoStatus::kWouldBlock) {
    wants_ |= upstream_->stream.write_needs;
  } else {
    // It may have answered before it stopped.
    broken_ = true;
  }
  return false;
}

size_t H1Leg::Send(BodyPipe* body) {
  wants_ = 0;
  size_t consumed = 0;
  for (int round = 0; round < kRoundsPerTurn && !sent_; ++round) {
    if (broken_) {
      consumed += body->bytes.size();
      body->bytes.Clear();
      return consumed;
    }
    const std::string_view data = body->bytes.view();
    size_t taken = 0;
    if (out_.empty() && request_.kind == BodyKind::kLength && !data.empty()) {
      // Straight from where it lies; the client's side has made sure that there is no more than was announced.
      if (!Write(data, &taken)) continue;
      body->bytes.Consume(taken);
      consumed += taken;
      continue;
    }
    if (request_.kind == BodyKind::kChunked && !data.empty() && out_.size() < kReadPiece) {
      AppendChunk(&out_, data);
      consumed += data.size();
      body->bytes.Clear();
    }
    if (body->ended && body->bytes.empty() && !last_queued_) {
      if (request_.kind == BodyKind::kChunked) AppendLastChunk(&out_, body->trailer_lines, announced_);
      last_queued_ = true;
    }
    if (out_.empty()) {
      sent_ = last_queued_;
      return consumed;
    }
    if (Write(out_.view(), &taken)) {
      out_.Consume(taken);
    } else if (!broken_) {
      return consumed;
    }
  }
  return consumed;
}

bool H1Leg::Fill() {
  if (ended_) return false;
  Buffer& in = upstream_->in;
  const Io io = upstream_->stream.Read(in.Prepare(kReadPiece));
  switch (io.status) {
    case IoStatus::kOk:
      in.Commit(io.n);
      answered_ = true;
      return true;
    case IoStatus::kWouldBlock:
      wants_ |= upstream_->stream.read_needs;
      return false;
    case IoStatus::kEof:
      ended_ = true;
      if (begun_ && response_.kind == BodyKind::kUntilClose) whole_ = true;
      return false;
    case IoStatus::kError:
      break;
  }
  ended_ = true;
  return false;
}

UpstreamLeg::Got H1Leg::Fail(std::string_view why) {
  failure_.fault = {502, why};
  failure_.untouched = upstream_->reused && !answered_;
  return Got::kFailed;
}

UpstreamLeg::Got H1Leg::Head(ResponseHead* head, Framing* framing) {
  Buffer& in = upstream_->in;
  for (;;) {
    const auto end = FindHeadEnd(in.view(), &resume_);
    if (!end) return Fail(end.error().why);
    if (*end == 0) {
      if (Fill()) continue;
      if (!ended_) return Got::kNothing;
      return Fail(in.empty() ? "nothing: it closed the connection" : "a response head that was cut short");
    }
    resume_ = 0;
    head_bytes_.assign(in.view().substr(0, *end));
    in.Consume(*end);
    break;
  }
  if (const Fault fault = ParseResponseHead({head_bytes_.data(), head_bytes_.size()}, head)) return Fail(fault.why);
  const auto framed = ResponseFraming(*head, method_);
  if (!framed) return Fail(framed.error().why);
  if (head->status < 200) {
    if (head->status == 101) {
      if (offer_ == nullptr) return Fail("a switch of protocols that was not asked for");
      const auto agreed = CheckWebSocketAnswer(head, *offer_, WebSocketAccept(key_));
      if (!agreed) return Fail(agreed.error().why);
      agreement_ = *agreed;
      return Got::kSwitched;
    }
    if (++interims_ > kMaxInterimResponses) return Fail("too many interim responses");
    return Got::kInterim;
  }
  // To a client of HTTP/2 any 2xx would say that the WebSocket is open.
  if (offer_ != nullptr && head->status < 300) return Fail("an answer that opens no WebSocket");
  upstream_->bound |= BindsConnection(*head, "www-authenticate");
  response_ = *framed;
  left_ = response_.length;
  keep_ = head->persistent() && response_.kind != BodyKind::kUntilClose;
  begun_ = true;
  whole_ = response_.kind == BodyKind::kNone || (response_.kind == BodyKind::kLength && left_ == 0);
  *framing = response_;
  if (framing->kind == BodyKind::kUntilClose) framing->kind = BodyKind::kChunked;
  return Got::kHead;
}

UpstreamLeg::Got H1Leg::Body(BodyPipe* body) {
  Buffer& in = upstream_->in;
  while (!whole_) {
    if (in.empty() && !Fill()) {
      if (whole_) break;
      return ended_ ? Fail("a response that was cut short") : Got::kNothing;
    }
    std::string_view data = in.view();
    size_t consumed = data.size();
    if (response_.kind == BodyKind::kLength) {
      data = data.substr(0, std::min<uint64_t>(left_, data.size()));
      consumed = data.size();
      left_ -= consumed;
      whole_ = left_ == 0;
    } else if (response_.kind == BodyKind::kChunked) {
      const auto step = chunks_.Next(data);
      if (!step) return Fail(step.error().why);
      data = step->data;
      consumed = step->consumed;
      whole_ = chunks_.done();
    }
    const bool some = !data.empty();
    body->bytes.Append(data);
    in.Consume(consumed);
    if (some) return Got::kBody;
  }
  body->ended = true;
  if (response_.kind == BodyKind::kChunked) body->trailer_lines = std::move(chunks_.trailers());
  return Got::kEnd;
}

UpstreamLeg::Got H1Leg::Receive(ResponseHead* head, Framing* framing, BodyPipe* body) {
  return begun_ ? Body(body) : Head(head, framing);
}

void H1Leg::Finish() {
  // Bytes after the response belong to nothing: such a connection is not trusted with another request. One that authenticated
  // as a whole belongs to whoever did, and HTTP/2 has no such thing.
  if (!keep_ || !sent_ || broken_ || upstream_->bound || !upstream_->in.empty()) return;
  worker_.pool().Give(pool_key_, std::move(upstream_), worker_.reactor().now());
}

}  // namespace sluice::proxy
