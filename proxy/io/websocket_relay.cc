#include "proxy/io/websocket_relay.h"

#include <algorithm>
#include <memory>

#include "base/random.h"
#include "proxy/io/limits.h"

namespace sluice::proxy {
namespace {

enum class Turned : uint8_t { kMore, kBlocked };

/// One direction, with what it reads from and writes to.
struct Way {
  WebSocketEnd& from;
  WebSocketEnd& to;
  WebSocketLane lane;
  bool ended = false;   ///< `from` has sent its last byte
  bool broken = false;  ///< `from` or `to` is in error
  uint8_t from_needs = 0;
  uint8_t to_needs = 0;
  SteadyTime took_at{};  ///< when `to` last took something, or had nothing to take
  std::optional<WebSocketFault> fault{};
};

/// What came of writing: progress is made where there was nothing to write too.
struct Written {
  bool progress = false;
  bool broken = false;
  uint8_t needs = 0;
};

Written Write(WebSocketEnd& to) {
  Written written;
  written.progress = to.out.empty();
  while (!to.out.empty()) {
    const Io io = to.Write(to.out.view());
    if (io.status == IoStatus::kOk) {
      to.out.Consume(io.n);
      written.progress = true;
      continue;
    }
    written.broken = io.status != IoStatus::kWouldBlock;
    if (!written.broken) written.needs = to.write_needs();
    return written;
  }
  return written;
}

Turned Turn(Way* way, SteadyTime now) {
  way->from_needs = way->to_needs = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (!way->fault) way->fault = way->lane.Move(&way->from.in, &way->to.out, kHighWater);
    const Written written = Write(way->to);
    way->broken |= written.broken;
    way->to_needs = written.needs;
    if (written.progress) way->took_at = now;
    if (way->broken || way->fault || way->ended || way->lane.closed() || !way->to.out.empty()) return Turned::kBlocked;
    const Io io = way->from.Read(way->from.in.Prepare(kReadPiece));
    if (io.status == IoStatus::kOk) {
      way->from.in.Commit(io.n);
      continue;
    }
    if (io.status == IoStatus::kWouldBlock) {
      way->from_needs |= way->from.read_needs();
    } else {
      way->ended = true;
      way->broken = io.status == IoStatus::kError;
    }
    return Turned::kBlocked;
  }
  return Turned::kMore;
}

/// The relay and how it ends.
class Relaying {
 public:
  Relaying(WebSocketEnd& down, WebSocketEnd& up, WebSocketCompression compression, WebSocketHooks hooks)
      : down_(down),
        up_(up),
        to_up_{down_, up_, WebSocketLane(WebSocketSide::kClient, compression, RandomMasks(), std::move(hooks))},
        to_down_{up_, down_, WebSocketLane(WebSocketSide::kServer, compression, {}, {})} {}

  Task<WebSocketOutcome> Run(Reactor& reactor, Waiter& waiter, WebSocketDeadlines deadlines) {
    std::optional<SteadyTime> closing;
    for (;;) {
      const Turned up = Turn(&to_up_, reactor.now());
      const Turned down = Turn(&to_down_, reactor.now());
      NoteBroken();
      if (Finished()) break;
      if (!closing && (to_up_.lane.closed() || to_down_.lane.closed())) closing = reactor.now() + deadlines.close;
      const SteadyTime stuck = std::min(StuckAt(to_up_, deadlines), StuckAt(to_down_, deadlines));
      const SteadyTime deadline =
          std::min({reactor.now() + deadlines.idle, stuck, deadlines.end, closing.value_or(deadlines.end)});
      const Wake wake =
          up == Turned::kMore || down == Turned::kMore ? co_await waiter.Yield(deadline) : co_await Wait(waiter, deadline);
      if (wake == Wake::kReady) continue;
      Stop(wake, closing.has_value(), reactor.now() >= stuck, reactor.now() >= deadlines.end);
      break;
    }
    up_.Close();
    co_return Outcome();
  }

 private:
  Waiter::Awaiter Wait(Waiter& waiter, SteadyTime deadline) {
    // Most WebSockets are idle most of the time.
    for (Buffer* buffer : {&down_.in, &down_.out, &up_.in, &up_.out})
      if (buffer->empty()) buffer->Release();
    const auto down_needs = static_cast<uint8_t>(to_up_.from_needs | to_down_.to_needs);
    const auto up_needs = static_cast<uint8_t>(to_up_.to_needs | to_down_.from_needs);
    return waiter.Wait({down_.channel(), down_needs}, {up_.channel(), up_needs}, deadline);
  }

  static SteadyTime StuckAt(const Way& way, const WebSocketDeadlines& deadlines) {
    return way.to.out.empty() ? deadlines.end : way.took_at + deadlines.stuck;
  }

  /// A side in error of which nothing is asked would wake every wait.
  void NoteBroken() {
    const auto down_needs = static_cast<uint8_t>(to_up_.from_needs | to_down_.to_needs);
    const auto up_needs = static_cast<uint8_t>(to_up_.to_needs | to_down_.from_needs);
    to_down_.broken |= down_needs == 0 && down_.broken();
    to_up_.broken |= up_needs == 0 && up_.broken();
  }

  /// Nothing more is to be relayed; says why where that is no orderly end.
  bool Finished() {
    if (to_up_.fault || to_down_.fault) {
      const WebSocketFault& fault = to_up_.fault ? *to_up_.fault : *to_down_.fault;
      error_ = fault.why;
      SendClose(fault.code, fault.why);
      return true;
    }
    const bool flushed = up_.out.empty() && down_.out.empty();
    if (to_up_.lane.closed() && to_down_.lane.closed() && flushed) return true;
    if (to_up_.broken || to_down_.broken) {
      if (!to_up_.lane.closed() || !to_down_.lane.closed()) error_ = "reset by a peer";
      return true;
    }
    // After the end of one side, what it has sent still goes on.
    const bool gone = to_up_.ended || to_down_.ended;
    if (!gone || !flushed) return false;
    if (!to_up_.lane.closed() && !to_down_.lane.closed()) error_ = "ended without a close frame";
    return true;
  }

  void Stop(Wake wake, bool closing, bool stuck, bool over) {
    if (wake == Wake::kCancelled && down_.broken()) {
      error_ = "the client went away";
      SendClose(websocket_close::kGoingAway, error_);
      return;
    }
    if (wake == Wake::kCancelled) {
      error_ = "closed by a change of policy";
      SendClose(websocket_close::kPolicy, "no longer allowed by the egress policy");
      return;
    }
    if (closing) {
      error_ = "no answer to a close frame";
      return;
    }
    error_ = over ? "open for too long" : stuck ? "a peer that takes nothing" : "idle for too long";
    SendClose(websocket_close::kGoingAway, error_);
  }

  /// To both peers, where a frame may stand; what cannot be written at once is not.
  void SendClose(uint16_t code, std::string_view reason) {
    if (!to_up_.lane.closed() && !to_down_.lane.closed()) own_code_ = code;
    if (to_up_.lane.between_frames() && !to_up_.lane.closed()) {
      AppendWebSocketClose(&up_.out, code, reason, RandomMasks()());
      (void)Write(up_);
    }
    if (to_down_.lane.between_frames() && !to_down_.lane.closed()) {
      AppendWebSocketClose(&down_.out, code, reason, std::nullopt);
      (void)Write(down_);
    }
  }

  WebSocketOutcome Outcome() const {
    WebSocketOutcome outcome{to_up_.lane.payload_bytes(), to_down_.lane.payload_bytes(), websocket_close::kAbnormal, error_};
    if (to_up_.lane.closed()) outcome.close_code = to_up_.lane.close_code();
    if (to_down_.lane.closed() && !to_up_.lane.closed()) outcome.close_code = to_down_.lane.close_code();
    if (own_code_ != 0) outcome.close_code = own_code_;
    return outcome;
  }

  WebSocketEnd& down_;
  WebSocketEnd& up_;
  Way to_up_;
  Way to_down_;
  std::string_view error_;
  uint16_t own_code_ = 0;
};

}  // namespace

Io LegEnd::Read(std::span<char> room) {
  while (down_.bytes.empty()) {
    const auto got = leg_.Receive(&head_, &framing_, &down_);
    if (got == UpstreamLeg::Got::kBody) continue;
    if (got == UpstreamLeg::Got::kNothing) return {IoStatus::kWouldBlock, 0};
    failed_ |= got != UpstreamLeg::Got::kEnd;
    return {failed_ ? IoStatus::kError : IoStatus::kEof, 0};
  }
  const size_t n = std::min(room.size(), down_.bytes.size());
  std::copy_n(down_.bytes.view().data(), n, room.data());
  down_.bytes.Consume(n);
  return {IoStatus::kOk, n};
}

// What the leg does not take stays with whoever writes.
Io LegEnd::Write(std::string_view bytes) {
  up_.bytes.Append(bytes.substr(0, kHighWater));
  const size_t taken = leg_.Send(&up_);
  up_.bytes.Clear();
  return taken != 0 ? Io{IoStatus::kOk, taken} : Io{IoStatus::kWouldBlock, 0};
}

void LegEnd::Close() {
  up_.ended = true;
  (void)leg_.Send(&up_);
  leg_.WriteNow();
}

WebSocketMaskSource RandomMasks() {
  struct Drawn {
    std::array<uint8_t, 256> bytes;
    size_t at = sizeof bytes;
  };
  return [drawn = std::make_shared<Drawn>()]() -> WebSocketMask {
    if (drawn->at == drawn->bytes.size()) {
      FillRandom(drawn->bytes);
      drawn->at = 0;
    }
    WebSocketMask mask;
    std::copy_n(drawn->bytes.begin() + static_cast<ptrdiff_t>(drawn->at), mask.size(), mask.begin());
    drawn->at += mask.size();
    return mask;
  };
}

Task<WebSocketOutcome> RelayWebSocket(Reactor& reactor, Waiter& waiter, WebSocketEnd& down, WebSocketEnd& up,
                                      WebSocketCompression compression, WebSocketHooks hooks, WebSocketDeadlines deadlines) {
  Relaying relaying(down, up, compression, std::move(hooks));
  co_return co_await relaying.Run(reactor, waiter, deadlines);
}

}  // namespace sluice::proxy
