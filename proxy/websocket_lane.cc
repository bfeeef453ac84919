#include "proxy/websocket_lane.h"

namespace sluice::proxy {

std::optional<WebSocketMask> WebSocketLane::NextMask() const {
  if (side_ == WebSocketSide::kServer) return std::nullopt;
  return masks_();
}

std::optional<WebSocketFault> WebSocketLane::Hold(const WebSocketReader::Step& step, Buffer* out) {
  if (held_.size() + step.data.size() > kMaxEditedText)
    return WebSocketFault{websocket_close::kTooBig, "a text message that is too large to be edited"};
  held_.append(step.data.data(), step.data.size());
  if (!step.message_end) return std::nullopt;
  const auto edited = hooks_.edit(held_);
  held_.clear();
  holding_ = false;
  if (!edited) return WebSocketFault{websocket_close::kPolicy, edited.error()};
  AppendWebSocketFrame(out, {WebSocketOpcode::kText, true, false, 0}, *edited, NextMask());
  return std::nullopt;
}

std::optional<WebSocketFault> WebSocketLane::Move(Buffer* in, Buffer* out, size_t high_water) {
  using What = WebSocketReader::What;
  while (!reader_.closed() && !in->empty() && out->size() < high_water) {
    const auto step = reader_.Next(in->span());
    if (!step) return step.error();
    if (step->what == What::kNeedMore) return std::nullopt;
    const std::string_view data(step->data.data(), step->data.size());
    if (step->what == What::kControl) {
      AppendWebSocketFrame(out, step->frame, data, NextMask());
    } else {
      payload_bytes_ += data.size();
      if (step->what == What::kFrame && step->frame.opcode == WebSocketOpcode::kText && !step->frame.compressed && hooks_.edit)
        holding_ = true;
      if (holding_) {
        if (const auto fault = Hold(*step, out)) return fault;
      } else if (step->what == What::kFrame) {
        mask_ = NextMask();
        written_ = 0;
        AppendWebSocketHead(out, step->frame, mask_);
        open_ = !step->frame_end;
      } else {
        if (hooks_.search)
          if (const auto why = hooks_.search(data)) return WebSocketFault{websocket_close::kPolicy, *why};
        AppendWebSocketPayload(out, data, mask_, written_);
        written_ = (written_ + data.size()) % 4;
        open_ = !step->frame_end;
      }
    }
    in->Consume(step->consumed);
  }
  return std::nullopt;
}

}  // namespace sluice::proxy
