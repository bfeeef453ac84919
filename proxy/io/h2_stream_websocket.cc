// A WebSocket in H2Stream (RFC 8441): the stream's bytes are its frames, either way.

#include <algorithm>
#include <memory>
#include <utility>

#include "proxy/io/h2_connection.h"
#include "proxy/io/h2_stream.h"
#include "proxy/io/limits.h"
#include "proxy/io/websocket_relay.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

/// The client's side.
class H2Stream::DownEnd final : public WebSocketEnd {
 public:
  explicit DownEnd(H2Stream& stream) : stream_(stream) {}

  Io Read(std::span<char> room) override {
    const std::string_view come = stream_.request_.bytes.view();
    if (!come.empty()) {
      const size_t n = std::min(room.size(), come.size());
      std::copy_n(come.data(), n, room.data());
      stream_.TakeCome(n);
      return {IoStatus::kOk, n};
    }
    if (stream_.request_.ended) return {IoStatus::kEof, 0};
    return {stream_.closed_ ? IoStatus::kError : IoStatus::kWouldBlock, 0};
  }
  Io Write(std::string_view bytes) override {
    if (stream_.closed_) return {IoStatus::kError, 0};
    Buffer& out = stream_.response_.bytes;
    const size_t n = std::min(bytes.size(), kHighWater - std::min(kHighWater, out.size()));
    if (n == 0) return {IoStatus::kWouldBlock, 0};
    out.Append(bytes.substr(0, n));
    stream_.connection_.session().Resume(stream_.id_);
    stream_.connection_.Flush();
    return {IoStatus::kOk, n};
  }
  Channel* channel() override { return nullptr; }
  [[nodiscard]] uint8_t read_needs() const override { return kReadable; }
  [[nodiscard]] uint8_t write_needs() const override { return kWritable; }
  /// A stream that is cancelled and not revoked has lost its connection.
  [[nodiscard]] bool broken() const override { return stream_.closed_ || (stream_.waiter_.cancelled() && !stream_.revoked_); }
  void Close() override {}

 private:
  H2Stream& stream_;
};

void H2Stream::DeliverSwitch(const ResponseHead& head) {
  WriteWebSocketAnswer(&output_, head, leg_->agreement());
  connection_.session().Respond(id_, output_, H2End::kOpen);
  status_ = 200;
  connection_.Flush();
}

Task<> H2Stream::CarryWebSocket() {
  Worker& worker = connection_.flow().worker();
  const Deadlines& deadlines = worker.shared().options().deadlines;
  const WebSocketDeadlines limits{deadlines.websocket_idle, deadlines.write_stuck, deadlines.websocket_close,
                                  judge_.started + deadlines.exchange};
  switched_ = carrying_ = true;
  const WebSocketCompression compression = leg_->agreement().compression();
  const UpstreamPtr own = leg_->TakeConnection();
  DownEnd down(*this);
  std::unique_ptr<WebSocketEnd> up;
  if (own != nullptr) {
    up = std::make_unique<StreamEnd>(own->stream);
    std::swap(up->in, own->in);
  } else {
    up = std::make_unique<LegEnd>(*leg_);
  }
  WebSocketHooks hooks = std::move(judge_.websocket);
  const WebSocketOutcome outcome =
      co_await RelayWebSocket(worker.reactor(), waiter_, down, *up, compression, std::move(hooks), limits);
  up.reset();
  leg_.reset();
  judge_.RecordWebSocket(outcome, status_);
  response_.ended = true;
  if (!closed_) {
    // A close frame is to be seen before the stream is reset, where it must be.
    connection_.session().Resume(id_);
    connection_.WriteNow();
  }
  co_await Drain();
}

}  // namespace sluice::proxy
