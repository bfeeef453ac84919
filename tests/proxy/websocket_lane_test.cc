#include "proxy/websocket_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace sluice::proxy {
namespace {

constexpr size_t kRoom = 1 << 16;
constexpr WebSocketMask kTheirs{1, 2, 3, 4};

WebSocketMaskSource Masks() {
  return [n = uint8_t{0}]() mutable -> WebSocketMask {
    ++n;
    return {n, 0xaa, 0, 0xff};
  };
}

WebSocketLane ClientLane(WebSocketTextEdit edit = {}, WebSocketSearch search = {}) {
  return {WebSocketSide::kClient, WebSocketCompression::kNone, Masks(), {std::move(edit), std::move(search)}};
}

void Put(Buffer* in, WebSocketOpcode opcode, std::string_view data, bool fin = true) {
  AppendWebSocketFrame(in, {opcode, fin, false, 0}, data, kTheirs);
}

/// What a server would read: "opcode:data" a frame, '+' where more follow.
std::string AtServer(std::string bytes) {
  WebSocketReader reader(WebSocketSide::kClient, WebSocketCompression::kNone);
  std::string seen;
  size_t at = 0;
  while (at < bytes.size() && !reader.closed()) {
    const auto step = reader.Next({bytes.data() + at, bytes.size() - at});
    if (!step || step->consumed == 0) return seen + (step ? "…" : "fault");
    at += step->consumed;
    if (step->what != WebSocketReader::What::kPayload) {
      seen += std::to_string(static_cast<int>(step->frame.opcode));
      seen += step->frame.fin ? ":" : "+:";
    }
    seen.append(step->data.data(), step->data.size());
    if (step->frame_end || step->what == WebSocketReader::What::kControl) seen += " ";
  }
  return seen;
}

TEST(WebSocketLane, WritesFramesAnewWithMasksOfItsOwn) {
  Buffer in;
  Buffer out;
  Put(&in, WebSocketOpcode::kText, "one");
  Put(&in, WebSocketOpcode::kPing, "p");
  Put(&in, WebSocketOpcode::kBinary, "two", false);
  Put(&in, WebSocketOpcode::kContinuation, "three");
  Put(&in, WebSocketOpcode::kClose,
      "\x03\xe8"
      "bye");
  Put(&in, WebSocketOpcode::kText, "after the close");
  WebSocketLane lane = ClientLane();
  EXPECT_FALSE(lane.Move(&in, &out, kRoom));
  EXPECT_TRUE(lane.closed());
  EXPECT_EQ(lane.close_code(), 1000);
  EXPECT_EQ(lane.payload_bytes(), 11u);
  EXPECT_EQ(AtServer(std::string(out.view())),
            "1:one 9:p 2+:two 0:three 8:\x03\xe8"
            "bye ");
  EXPECT_EQ(out.view().find(std::string_view("\x01\x02\x03\x04")), std::string_view::npos) << "the client's mask goes no further";
}

TEST(WebSocketLane, StreamsAMessageLargerThanItsBuffers) {
  Buffer in;
  Buffer out;
  std::string sent;
  AppendWebSocketHead(&in, {WebSocketOpcode::kBinary, true, false, 1000000}, kTheirs);
  WebSocketLane lane = ClientLane();
  std::string written;
  for (size_t at = 0; at < 1000000;) {
    const std::string piece(std::min<size_t>(4999, 1000000 - at), static_cast<char>('a' + at % 26));
    AppendWebSocketPayload(&in, piece, kTheirs, at);
    sent += piece;
    at += piece.size();
    ASSERT_FALSE(lane.Move(&in, &out, 8192));
    EXPECT_LE(out.size(), 8192u + 5000u);
    EXPECT_EQ(lane.between_frames(), at == 1000000 && in.empty());
    written += out.view();
    out.Clear();
  }
  EXPECT_TRUE(AtServer(written) == "2:" + sent + " ");
}

TEST(WebSocketLane, StopsAtItsHighWaterAndGoesOn) {
  Buffer in;
  Buffer out;
  for (int i = 0; i < 100; ++i) Put(&in, WebSocketOpcode::kText, std::string(100, 'x'));
  WebSocketLane lane = ClientLane();
  ASSERT_FALSE(lane.Move(&in, &out, 1000));
  EXPECT_GE(out.size(), 1000u);
  EXPECT_LT(out.size(), 1200u);
  EXPECT_FALSE(in.empty());
  out.Clear();
  ASSERT_FALSE(lane.Move(&in, &out, kRoom));
  EXPECT_TRUE(in.empty());
  EXPECT_EQ(lane.payload_bytes(), 10000u);
}

TEST(WebSocketLane, KnowsWhetherAFrameIsOpenWhenItsTextBreaks) {
  Buffer in;
  Buffer out;
  Put(&in, WebSocketOpcode::kText, "abc\xff");
  WebSocketLane lane = ClientLane();
  const auto fault = lane.Move(&in, &out, kRoom);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, 1007);
  EXPECT_FALSE(lane.between_frames()) << "its head went out, its payload did not";
}

TEST(WebSocketLane, EditsTextOnlyOnceItIsWhole) {
  Buffer in;
  Buffer out;
  std::string given;
  WebSocketLane lane = ClientLane([&](std::string_view text) -> std::expected<std::string, std::string_view> {
    given += "[" + std::string(text) + "]";
    if (text == "bad") return std::unexpected("a placeholder that may not go there");
    return "<" + std::string(text) + ">";
  });
  Put(&in, WebSocketOpcode::kText, "to", false);
  ASSERT_FALSE(lane.Move(&in, &out, kRoom));
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(lane.between_frames());
  Put(&in, WebSocketOpcode::kPing, "p");
  Put(&in, WebSocketOpcode::kContinuation, "ken");
  Put(&in, WebSocketOpcode::kBinary, "token");
  Put(&in, WebSocketOpcode::kText, "");
  ASSERT_FALSE(lane.Move(&in, &out, kRoom));
  EXPECT_EQ(AtServer(std::string(out.view())), "9:p 1:<token> 2:token 1:<> ");
  EXPECT_EQ(given, "[token][]");
  Put(&in, WebSocketOpcode::kText, "bad");
  const auto fault = lane.Move(&in, &out, kRoom);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, 1008);
}

TEST(WebSocketLane, SearchesWhatIsNotHeldAndStopsAtAFind) {
  Buffer in;
  Buffer out;
  std::string looked_at;
  const WebSocketSearch search = [&](std::string_view piece) -> std::optional<std::string_view> {
    looked_at += piece;
    if (looked_at.ends_with("secret")) return "a placeholder that may not go there";
    return std::nullopt;
  };
  WebSocketLane lane = ClientLane({}, search);
  Put(&in, WebSocketOpcode::kText, "a se", false);
  Put(&in, WebSocketOpcode::kPing, "secret");
  Put(&in, WebSocketOpcode::kContinuation, "c,");
  Put(&in, WebSocketOpcode::kBinary, "x");
  ASSERT_FALSE(lane.Move(&in, &out, kRoom));
  EXPECT_EQ(AtServer(std::string(out.view())), "1+:a se 9:secret 0:c, 2:x ");
  out.Clear();
  Put(&in, WebSocketOpcode::kBinary, "se", false);
  Put(&in, WebSocketOpcode::kContinuation, "cret");
  const auto fault = lane.Move(&in, &out, kRoom);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, 1008);
  EXPECT_FALSE(out.view().contains("cret"));
  // Text that is held to be edited is searched by whoever edits it.
  looked_at.clear();
  WebSocketLane editing = ClientLane([](std::string_view text) { return std::string(text); }, search);
  Buffer both;
  out.Clear();
  Put(&both, WebSocketOpcode::kText, "text");
  Put(&both, WebSocketOpcode::kBinary, "binary");
  ASSERT_FALSE(editing.Move(&both, &out, kRoom));
  EXPECT_EQ(looked_at, "binary");
}

TEST(WebSocketLane, HoldsNoMoreTextThanItsBound) {
  Buffer out;
  WebSocketLane lane = ClientLane([](std::string_view text) { return std::string(text); });
  Buffer in;
  Put(&in, WebSocketOpcode::kText, std::string(kMaxEditedText, 'x'));
  EXPECT_FALSE(lane.Move(&in, &out, kRoom));
  Put(&in, WebSocketOpcode::kText, std::string(kMaxEditedText, 'x'), false);
  Put(&in, WebSocketOpcode::kContinuation, "x");
  out.Clear();
  const auto fault = lane.Move(&in, &out, kRoom);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, 1009);
}

}  // namespace
}  // namespace sluice::proxy
