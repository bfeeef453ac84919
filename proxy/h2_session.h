#pragma once

// One end of an HTTP/2 connection (RFC 9113) as a machine over bytes: fed what came, it tells its listener what it meant and
// gives the bytes to send. nghttp2 reads and writes the frames and HPACK; bounds against abuse are kept here. No I/O, no clock.
//
//   H2Session session(H2Role::kServer, listener, {});
//   if (!session.Feed(bytes, now)) …send what Write gives, then close…
//   session.Write(&out);
//
// A section, data and the end of a stream arrive in that order; OnClosed is the last word about a stream. Within a callback
// everything may be called but Feed and Write.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "proxy/buffer.h"
#include "proxy/h2_head.h"

struct nghttp2_session;

namespace sluice::proxy {

inline constexpr uint32_t kH2MaxStreams = 100;             ///< of one connection at a time, in either role
inline constexpr uint32_t kH2DownstreamWindow = 64 << 10;  ///< unread bytes of one request body
inline constexpr uint32_t kH2DownstreamConnectionWindow = 1 << 20;
inline constexpr uint32_t kH2UpstreamWindow = 256 << 10;  ///< unread bytes of one response body
inline constexpr uint32_t kH2UpstreamConnectionWindow = 16 << 20;
inline constexpr size_t kH2WriteAhead = 64 << 10;         ///< bytes taken from streams before the socket has taken them
inline constexpr size_t kH2MaxContinuations = 8;          ///< CONTINUATION frames of one section
inline constexpr size_t kH2MaxSectionOctets = 256 << 10;  ///< what one section may unpack to before the connection ends
inline constexpr size_t kH2MaxSettings = 32;              ///< entries of one SETTINGS frame
inline constexpr size_t kH2MaxOutboundAcks = 100;         ///< answers to SETTINGS and PING that wait to be sent

/// Frames that cost a sender nothing: SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA. Each DATA or HEADERS
/// frame in either direction earns some back.
inline constexpr double kH2ControlBurst = 1000;
inline constexpr double kH2ControlPerSecond = 100;
inline constexpr double kH2ControlEarned = 4;
/// Streams that the peer opened and reset, or made this side reset by breaking the rules.
inline constexpr double kH2ResetBurst = 300;
inline constexpr double kH2ResetPerSecond = 50;
/// Streams that are gone of which it is known how they went: by this side's reset, after which the client's frames may still be
/// on their way, and else.
inline constexpr size_t kH2MaxPastResets = 1024;
inline constexpr size_t kH2MaxPastStreams = 128;

/// Error codes of RFC 9113 section 7 that are named here.
enum H2Code : uint32_t {
  kH2NoError = 0,
  kH2ProtocolError = 1,
  kH2InternalError = 2,
  kH2StreamClosed = 5,
  kH2RefusedStream = 7,
  kH2Cancel = 8,
  kH2EnhanceYourCalm = 11,
};

enum class H2Role : uint8_t { kServer, kClient };

class H2Listener {
 public:
  virtual ~H2Listener() = default;
  /// A request, or one of a response's heads. The section may be swapped out.
  virtual void OnHead(int32_t stream, H2Section& section, H2End end) = 0;
  virtual void OnTrailers(int32_t stream, H2Section& section) = 0;
  virtual void OnData(int32_t stream, std::string_view bytes) = 0;
  /// The peer has said all it will on this stream.
  virtual void OnEnd(int32_t stream) = 0;
  /// The stream is gone. kH2NoError: both sides ended. kH2RefusedStream: the peer has not looked at it.
  virtual void OnClosed(int32_t stream, uint32_t code) = 0;

  struct Piece {
    size_t size = 0;  ///< 0 and not ended: Resume will be called
    bool ended = false;
    std::string* trailer_lines = nullptr;  ///< with ended; sent where they leave anything
  };
  /// Fills `room` with body bytes of this side.
  virtual Piece ReadBody(int32_t stream, std::span<char> room) = 0;
};

/// A bucket that fills with time.
class H2Budget {
 public:
  H2Budget(double burst, double per_second) : burst_(burst), per_second_(per_second), left_(burst) {}
  void Refill(SteadyTime now);
  void Earn(double tokens);
  /// False: nothing is left.
  [[nodiscard]] bool Spend();

 private:
  double burst_;
  double per_second_;
  double left_;
  SteadyTime at_{};
};

/// How a client's streams went that are gone.
class H2PastStreams {
 public:
  enum class How : uint8_t { kUnknown, kEnded, kResetByPeer, kResetHere };
  void Note(int32_t stream, How how);
  [[nodiscard]] How Find(int32_t stream) const;

 private:
  struct Latest {
    size_t room;
    std::vector<std::pair<int32_t, How>> kept{};
    size_t oldest = 0;
    void Note(int32_t stream, How how);
  };
  Latest reset_here_{kH2MaxPastResets};
  Latest others_{kH2MaxPastStreams};
};

class H2Session {
 public:
  /// The listener outlives the session.
  H2Session(H2Role role, H2Listener& listener);
  ~H2Session();
  H2Session(const H2Session&) = delete;
  H2Session& operator=(const H2Session&) = delete;

  /// False: the connection has failed (failure() says why); what Write gives must still be sent.
  [[nodiscard]] bool Feed(std::string_view bytes, SteadyTime now);
  /// Appends frames until `out` holds kH2WriteAhead or nothing is left to send. False as for Feed.
  [[nodiscard]] bool Write(Buffer* out);
  /// Nothing more will be read or written.
  [[nodiscard]] bool done() const;
  /// What ended the connection: empty while it is well. `failure_code` is what GOAWAY says.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] uint32_t failure_code() const { return failure_code_; }
  /// When the header section began that has not ended, if there is one: until it has, nothing else can come.
  [[nodiscard]] std::optional<SteadyTime> section_since() const { return section_since_; }
  /// The peer sent GOAWAY: no stream can be opened any more.
  [[nodiscard]] bool draining() const { return draining_; }

  /// A new stream of a client, or a negative number where none can be opened.
  [[nodiscard]] int32_t Request(const H2Output& section, H2End end);
  /// The peer's first SETTINGS have come.
  [[nodiscard]] bool peer_settings_seen() const { return peer_settings_seen_; }
  /// Whether the peer takes an extended CONNECT (RFC 8441), as far as is known.
  [[nodiscard]] bool PeerTakesConnect() const;
  /// How many streams the peer allows at a time.
  [[nodiscard]] uint32_t PeerMaxStreams() const;
  /// An interim response.
  void Interim(int32_t stream, const H2Output& section);
  /// The final response.
  void Respond(int32_t stream, const H2Output& section, H2End end);
  /// ReadBody has something again.
  void Resume(int32_t stream);
  /// Body bytes were used up: the peer may send as many more.
  void Consume(int32_t stream, size_t n);
  void Reset(int32_t stream, uint32_t code);
  void Ping();
  /// GOAWAY without an error: streams that are open go on, new ones are refused.
  void Shutdown();
  /// GOAWAY with an error, now.
  void Terminate(uint32_t code, std::string_view why);

 private:
  friend struct H2Callbacks;
  void Count(uint8_t type, uint8_t flags, size_t length);
  void Fail(uint32_t code, std::string_view why);
  void PassOverSection(uint8_t flags);
  /// A stream is gone, and with it what nghttp2 would say of a section on it.
  void LeaveSection(int32_t stream);
  /// A section that begins on a stream, held to what that stream has become.
  void CheckStream(int32_t stream);

  H2Listener& listener_;
  const H2Role role_;
  nghttp2_session* session_ = nullptr;
  H2Section section_;  ///< under way: sections are never interleaved
  H2Output trailers_;
  SteadyTime fed_at_{};
  std::optional<SteadyTime> section_since_;
  bool section_told_ = false;  ///< nghttp2 tells of its end
  int32_t section_stream_ = 0;
  uint8_t section_flags_ = 0;  ///< of its latest frame
  int32_t last_opened_ = 0;    ///< by the peer
  H2PastStreams past_;
  H2Budget control_{kH2ControlBurst, kH2ControlPerSecond};
  H2Budget resets_{kH2ResetBurst, kH2ResetPerSecond};
  std::string failure_;
  uint32_t failure_code_ = kH2NoError;
  bool terminated_ = false;
  bool draining_ = false;
  bool peer_settings_seen_ = false;
};

}  // namespace sluice::proxy
