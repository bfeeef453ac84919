#pragma once

// Both ends of HTTP/2 over the testbed's blocking connections: a client that collects responses, and an origin that answers.

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proxy/h2_session.h"
#include "tests/proxy/h2_frames.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {

/// One message that came, and how its stream stands.
struct H2Message {
  FieldList head;
  std::vector<FieldList> interims;
  std::string body;
  std::string trailers;
  bool ended = false;
  std::optional<uint32_t> closed;
  [[nodiscard]] std::string Field(const std::string& name) const;
  [[nodiscard]] std::string status() const { return Field(":status"); }
};

/// Common to both ends.
class H2Talker : public H2Listener {
 public:
  H2Talker(Peer peer, H2Role role) : peer_(std::move(peer)), session(role, *this) {}

  /// Sends what is waiting, and reads once. False: the connection has ended.
  bool Turn();
  void Send();
  /// Turns until it holds.
  bool Until(const std::function<bool()>& done);
  /// Bytes said on this stream that have not left, for want of a window.
  [[nodiscard]] size_t Unsent(int32_t stream) { return outgoing_[stream].bytes.size() - outgoing_[stream].sent; }
  void Say(int32_t stream, std::string_view bytes, bool last = false, std::string trailer_lines = "");

  std::map<int32_t, H2Message> messages;
  bool consume = true;

 protected:
  void OnHead(int32_t id, H2Section& section, H2End end) override;
  void OnTrailers(int32_t id, H2Section& section) override { messages[id].trailers = ReadTrailerSection(section); }
  void OnData(int32_t id, std::string_view bytes) override;
  void OnEnd(int32_t id) override { messages[id].ended = true; }
  void OnClosed(int32_t id, uint32_t code) override { messages[id].closed = code; }
  Piece ReadBody(int32_t id, std::span<char> room) override;

  struct Outgoing {
    std::string bytes;
    size_t sent = 0;
    bool last = false;
    std::string trailer_lines;
  };
  std::map<int32_t, Outgoing> outgoing_;
  Peer peer_;

 public:
  H2Session session;
  Peer& peer() { return peer_; }
};

class H2Client : public H2Talker {
 public:
  explicit H2Client(Peer peer) : H2Talker(std::move(peer), H2Role::kClient) {}
  enum class Body : uint8_t { kNone, kOpen };
  int32_t Start(const FieldList& fields, Body body = Body::kNone);
  /// A whole exchange.
  H2Message Do(const FieldList& fields, std::string_view body = "");
};

/// Serves one connection: `handle` runs for each request once it has ended, or at its head where `early` is set.
struct H2Answer {
  FieldList head;
  std::string body;
  std::string trailer_lines;
};
void ServeH2(Peer peer, const std::function<H2Answer(const H2Message&)>& handle);

/// An origin's end, frames by hand: it acknowledges SETTINGS, and does nothing else by itself.
class H2ByHand {
 public:
  explicit H2ByHand(Peer peer, const std::vector<std::pair<uint16_t, uint32_t>>& settings = {});
  bool Write(std::string_view frames) { return peer_.Write(frames); }
  /// Hears frames until one more of this type has come. False: the other side has left.
  bool Until(int type);
  /// A number that no frame has: until the other side leaves.
  void ToEnd() { (void)Until(-1); }
  void Reset() { peer_.Reset(); }

 private:
  Peer peer_;
  std::string bytes_;
  std::deque<SeenFrame> heard_;
};

/// ":method :path|body".
H2Answer EchoH2(const H2Message& request);

}  // namespace sluice::proxy::testing
