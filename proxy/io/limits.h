#pragma once

// Every deadline and bound of the proxy's I/O, in one place; docs/limits.md carries them. Parsers state their own.

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice::proxy {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""h;

// Downstream.
inline constexpr auto kFirstByteDeadline = 30s;     ///< a client that says nothing: a server-first protocol, or nobody
inline constexpr auto kTlsHandshakeDeadline = 30s;  ///< first byte to the end of the handshake, either side
inline constexpr auto kHeadDeadline = 30s;          ///< first byte to the last of one request head, however it trickles
inline constexpr auto kKeepAliveIdle = 120s;        ///< between requests
inline constexpr auto kRequestBodyIdle = 120s;      ///< no byte of a request body
/// Of a request body so many octets, or its end, come in the time of each pace, until its answer begins: of whatever is sent
/// within kRequestBodyIdle, lines as short as 50 octets are enough.
inline constexpr auto kRequestBodyPace = 10min;
inline constexpr uint64_t kRequestBodyPaceOctets = 256;
inline constexpr auto kJudgedBodyDeadline = 300s;  ///< first to last byte of what must be read of a body to judge it
inline constexpr auto kWriteStuck = 120s;          ///< a peer that takes nothing
inline constexpr auto kLingerTime = 10s;           ///< reading on after a final response, so that it can be read
inline constexpr size_t kLingerBytes = size_t{64} << 20;

inline constexpr size_t kMaxHeldBodies = size_t{64} << 20;  ///< per worker: bodies that wait, and what was read in them

inline constexpr auto kTrimAfter = 1s;  ///< an idle connection gives its buffers back
// After a busy spell free memory goes back to the kernel, once all workers have been quiet for so long.
inline constexpr uint64_t kBusyRounds = 200;  ///< of a worker's loop, within kTrimAfter: it is busy
inline constexpr auto kQuietFor = 2s;

// Exchange.
inline constexpr auto kResponseIdle = 30min;  ///< upstream silence: slow answers and event streams live within it
inline constexpr auto kHalfClosedIdle = 60s;  ///< the same once the client has sent its FIN
inline constexpr auto kExchangeTotal = 24h;
inline constexpr uint64_t kMaxBodyBytes = uint64_t{1} << 40;  ///< of one message, either way
inline constexpr unsigned kMaxInterimResponses = 32;
inline constexpr auto kWebSocketIdleDeadline = 1h;     ///< no frame either way, pings included
inline constexpr auto kWebSocketCloseDeadline = 30s;   ///< from the first close frame to the end
inline constexpr size_t kReadPiece = 16 * 1024 + 512;  ///< one TLS record and a little
inline constexpr size_t kHighWater = 64 * 1024;        ///< a direction stops reading when this much waits to be written
inline constexpr int kRoundsPerTurn = 16;              ///< reads by one flow before the others have a turn

// Upstream.
inline constexpr auto kConnectDeadline = 5s;      ///< one address
inline constexpr auto kConnectTotal = 20s;        ///< all addresses of a name
inline constexpr auto kConnectStagger = 250ms;    ///< before the next address is tried beside those that have not answered
inline constexpr auto kProxyReplyDeadline = 30s;  ///< an upstream proxy's whole answer to CONNECT, or its SOCKS5 replies
inline constexpr size_t kMaxAddressesTried = 8;
inline constexpr auto kPoolIdle = 50s;
inline constexpr size_t kMaxIdleUpstreams = 512;  ///< per worker, with the dials that go on for the pool
inline constexpr size_t kMaxIdlePerKey = 256;     ///< of these, of one key; as many as four clients of HTTP/2 may want at a time
inline constexpr auto kPreparedLife = 10s;        ///< a connection made by Prepare waits this long for its flow
inline constexpr size_t kMaxPrepared = 1024;      ///< per worker, waiting or under way

// A PING asks a connection of HTTP/2 on which streams wait whether it still leads anywhere. Servers of gRPC end a connection with
// more than one in five minutes, unless they have sent a head or data between.
inline constexpr auto kPingAfter = 30s;     ///< of silence
inline constexpr auto kPingAgain = 6min;    ///< where neither a head nor data has come since the last one
inline constexpr auto kPingDeadline = 60s;  ///< for any sign of life

inline constexpr size_t kMaxKnownProtocols = 4096;  ///< origins whose protocol is remembered, per worker

// Relays.
inline constexpr auto kRelayIdle = 2h;
inline constexpr int kPipeBytes = 256 * 1024;  ///< asked for; the kernel's own size is taken where it refuses
inline constexpr size_t kMaxSparePipes = 32;   ///< per worker

/// Those that an engine is made with, so that tests need not wait.
struct Deadlines {
  std::chrono::milliseconds first_byte = kFirstByteDeadline;
  std::chrono::milliseconds tls_handshake = kTlsHandshakeDeadline;
  std::chrono::milliseconds head = kHeadDeadline;
  std::chrono::milliseconds keep_alive_idle = kKeepAliveIdle;
  std::chrono::milliseconds request_body_idle = kRequestBodyIdle;
  std::chrono::milliseconds request_body_pace = kRequestBodyPace;
  std::chrono::milliseconds response_idle = kResponseIdle;
  std::chrono::milliseconds half_closed_idle = kHalfClosedIdle;
  std::chrono::milliseconds exchange = kExchangeTotal;
  std::chrono::milliseconds websocket_idle = kWebSocketIdleDeadline;
  std::chrono::milliseconds websocket_close = kWebSocketCloseDeadline;
  std::chrono::milliseconds write_stuck = kWriteStuck;
  std::chrono::milliseconds linger = kLingerTime;
  size_t linger_bytes = kLingerBytes;
  std::chrono::milliseconds proxy_reply = kProxyReplyDeadline;
  std::chrono::milliseconds ping_after = kPingAfter;
  std::chrono::milliseconds ping_again = kPingAgain;
  std::chrono::milliseconds ping = kPingDeadline;
  std::chrono::milliseconds relay_idle = kRelayIdle;
};

}  // namespace sluice::proxy
