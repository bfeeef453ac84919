// A WebSocket in HttpSession: the handshake toward the upstream, its answer, and the frames.

#include <memory>
#include <utility>

#include "proxy/io/http_session.h"
#include "proxy/io/limits.h"
#include "proxy/io/websocket_key.h"
#include "proxy/io/websocket_relay.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

void HttpSession::AskForWebSocket(std::string_view target) {
  judge_.PrepareWebSocket(&offer_);
  websocket_key_ = NewWebSocketKey();
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

// The same of an upstream that speaks HTTP/2 alone.
void HttpSession::TakeSwitchOverLeg() {
  const WebSocketAgreement& agreed = leg_->agreement();
  response_.status = 101;
  AppendWebSocketAnswer(&out_, response_, agreed, WebSocketAccept(offer_.key));
  compression_ = agreed.compression();
  switched_ = response_started_ = response_read_ = true;
}

Task<HttpSession::After> HttpSession::CarryWebSocket() {
  Reactor& reactor = flow_.worker().reactor();
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  const WebSocketDeadlines limits{deadlines.websocket_idle, deadlines.write_stuck, deadlines.websocket_close,
                                  judge_.started + deadlines.exchange};
  StreamEnd down(flow_.down);
  std::swap(down.in, in_);
  std::swap(down.out, out_);
  std::unique_ptr<WebSocketEnd> up;
  if (leg_ != nullptr) {
    up = std::make_unique<LegEnd>(*leg_);
  } else {
    up = std::make_unique<StreamEnd>(upstream_->stream);
    std::swap(up->in, upstream_->in);
    std::swap(up->out, up_out_);
  }
  WebSocketHooks hooks = std::move(judge_.websocket);
  const WebSocketOutcome outcome =
      co_await RelayWebSocket(reactor, flow_.waiter, down, *up, compression_, std::move(hooks), limits);
  up.reset();
  judge_.RecordWebSocket(outcome, response_.status);
  DropUpstream();
  co_return After::kLinger;
}

}  // namespace sluice::proxy
