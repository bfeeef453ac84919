// A WebSocket in HttpSession: the handshake toward the upstream, its answer, and the frames.

#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/websocket_key.h"
#include "proxy/io/websocket_relay.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

void HttpSession::AskForWebSocket(std::string_view target) {
  websocket_key_ = NewWebSocketKey();
  if (auto* credential = judge_.credential(); credential != nullptr) judge_.text_edit = credential->TextEdit();
  // Compressed text cannot be edited; an extension that is not offered cannot be agreed on.
  if (judge_.text_edit) offer_.deflate.clear();
  AppendWebSocketRequest(&up_out_, judge_.request, offer_, {target, judge_.host_field(), websocket_key_, &judge_.edits});
}

Fault HttpSession::TakeSwitch(size_t size) {
  if (judge_.upgrade != policy::Upgrade::kWebSocket) return {502, "a switch of protocols that was not asked for"};
  const auto agreed = CheckWebSocketAnswer(&response_, offer_, WebSocketAccept(websocket_key_));
  if (!agreed) return agreed.error();
  AppendWebSocketAnswer(&out_, response_, *agreed, WebSocketAccept(offer_.key));
  compression_ = agreed->compression();
  upstream_->in.Consume(size);
  switched_ = response_started_ = response_read_ = true;
  return {};
}

Task<HttpSession::After> HttpSession::CarryWebSocket() {
  Reactor& reactor = flow_.worker().reactor();
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  const WebSocketDeadlines limits{deadlines.websocket_idle, deadlines.write_stuck, deadlines.websocket_close,
                                  judge_.started + deadlines.exchange};
  const WebSocketEnd down{flow_.down, in_, out_};
  const WebSocketEnd up{upstream_->stream, upstream_->in, up_out_};
  WebSocketTextEdit edit = std::move(judge_.text_edit);
  const WebSocketOutcome outcome =
      co_await RelayWebSocket(reactor, flow_.waiter, down, up, compression_, std::move(edit), limits);
  judge_.bytes_up = outcome.bytes_up;
  judge_.bytes_down = outcome.bytes_down;
  judge_.close_code = outcome.close_code;
  judge_.RecordExchange(outcome.error, response_.status);
  upstream_.reset();
  co_return After::kLinger;
}

}  // namespace sluice::proxy
