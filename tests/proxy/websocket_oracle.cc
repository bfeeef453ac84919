// Reads lines "SIDE HEX" (SIDE is client or server) and says for each what the frames in it are: "opcode:fin:hex" and a space
// each, then "fault CODE", "closed CODE" or "more". websocket_oracle_test.py holds it against another implementation.
#include <fmt/format.h>

#include <iostream>
#include <string>

#include "proxy/websocket.h"

using namespace sluice::proxy;

namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string Tell(WebSocketSide side, std::string bytes) {
  WebSocketReader reader(side, WebSocketCompression::kNone);
  std::string told;
  std::string frame;
  size_t at = 0;
  while (!reader.closed()) {
    const auto step = reader.Next({bytes.data() + at, bytes.size() - at});
    if (!step) return told + fmt::format("fault {}", step.error().code);
    if (step->what == WebSocketReader::What::kNeedMore) return told + "more";
    at += step->consumed;
    if (step->what != WebSocketReader::What::kPayload)
      frame = fmt::format("{}:{}:", static_cast<int>(step->frame.opcode), step->frame.fin ? 1 : 0);
    for (const char c : step->data) frame += fmt::format("{:02x}", static_cast<unsigned char>(c));
    if (step->frame_end || step->what == WebSocketReader::What::kControl) told += frame + " ";
  }
  return told + fmt::format("closed {}", reader.close_code());
}

}  // namespace

int main() {
  std::string side;
  std::string hex;
  while (std::cin >> side >> hex)
    std::cout << Tell(side == "client" ? WebSocketSide::kClient : WebSocketSide::kServer, FromHex(hex)) << '\n';
  return 0;
}
