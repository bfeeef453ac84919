// WebSocket frames of either side, in pieces: the same bytes read alike whatever the pieces are, and what was read, written
// anew with another mask, is read as the same. The first byte says whose frames they are and whether text may be compressed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "proxy/websocket.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;

namespace {

constexpr uint64_t kMaxMessage = 70000;

struct Piece {
  WebSocketFrame frame;
  std::string data;
  bool operator==(const Piece&) const = default;
};

struct Outcome {
  std::vector<Piece> frames;
  uint16_t fault = 0;
  uint16_t close_code = 0;
  uint64_t messages = 0;
  size_t used = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome Read(std::string bytes, WebSocketSide side, WebSocketCompression compression, size_t piece) {
  WebSocketReader reader(side, compression, kMaxMessage);
  Outcome out;
  size_t end = 0;
  while (!reader.closed()) {
    const auto step = reader.Next({bytes.data() + out.used, end - out.used});
    if (!step) {
      // The payload of a text is passed on as far as it was good, which depends on the pieces.
      out.fault = step.error().code;
      out.used = 0;
      if (!out.frames.empty() && out.frames.back().frame.length != out.frames.back().data.size()) out.frames.pop_back();
      return out;
    }
    if (step->what == WebSocketReader::What::kNeedMore) {
      if (step->consumed != 0) std::abort();
      if (end == bytes.size()) break;
      end = std::min(bytes.size(), end + piece);
      continue;
    }
    if (step->consumed == 0 || step->consumed > end - out.used) std::abort();
    out.used += step->consumed;
    if (step->what != WebSocketReader::What::kPayload) out.frames.push_back({step->frame, {}});
    out.frames.back().data.append(step->data.data(), step->data.size());
    if (step->frame_end != (step->what != WebSocketReader::What::kControl && reader.between_frames())) std::abort();
  }
  out.close_code = reader.close_code();
  out.messages = reader.messages();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto side = (data[0] & 1) != 0 ? WebSocketSide::kClient : WebSocketSide::kServer;
  const auto compression = (data[0] & 2) != 0 ? WebSocketCompression::kDeflate : WebSocketCompression::kNone;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Read(bytes, side, compression, bytes.size());
  if (Read(bytes, side, compression, 1) != whole || Read(bytes, side, compression, 5) != whole) std::abort();
  if (whole.fault != 0) return 0;

  Buffer again;
  std::optional<WebSocketMask> mask;
  if (side == WebSocketSide::kClient) mask = WebSocketMask{0x5a, 0, 0xff, data[0]};
  for (const Piece& piece : whole.frames) {
    AppendWebSocketHead(&again, piece.frame, mask);
    AppendWebSocketPayload(&again, piece.data, mask, 0);
  }
  const Outcome second = Read(std::string(again.view()), side, compression, 3);
  if (second.frames != whole.frames || second.fault != 0 || second.close_code != whole.close_code) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kWebSocket, data, size, most, seed);
}
