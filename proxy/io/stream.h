#pragma once

// A connected socket, plain or under TLS, that never blocks: an operation that cannot go on says what to wait for.
// OpenSSL reads and writes the descriptor through a BIO of ours, which knows what the reactor knows and so makes no
// system call that would only say EAGAIN.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proxy/buffer.h"
#include "proxy/io/reactor.h"

struct ssl_st;
struct ssl_ctx_st;

namespace sluice::proxy {

enum class IoStatus : uint8_t {
  kOk,
  kWouldBlock,
  kEof,    ///< a clean end: FIN, and close_notify under TLS
  kError,  ///< reset, a TLS fault, or a TLS connection cut without close_notify
};

struct Io {
  IoStatus status = IoStatus::kError;
  size_t n = 0;
};

/// Reads of the socket within one Read or Handshake under TLS. OpenSSL goes on for as long as what comes is none of the peer's
/// data, key updates without an end among it; so many are told as kWouldBlock, and the other flows have a turn.
inline constexpr int kRawReadsAtOnce = 4;

class Stream {
 public:
  Stream();
  ~Stream() { Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Channel channel;
  Buffer prefix;                    ///< bytes already read from the socket, given out first
  uint8_t read_needs = kReadable;   ///< after Read or Handshake said kWouldBlock
  uint8_t write_needs = kWritable;  ///< after Write said kWouldBlock

  /// Puts TLS on top, at most twice: the second time it is carried by the first, as to a target behind a proxy that speaks TLS
  /// itself. Takes a session of `context`; the caller sets names and options on ssl() before Handshake.
  enum class Side : uint8_t { kServer, kClient };
  [[nodiscard]] bool StartTls(ssl_ctx_st* context, Side side);
  [[nodiscard]] ssl_st* ssl() const { return ssl_; }
  [[nodiscard]] bool tls() const { return ssl_ != nullptr; }
  /// Whether OpenSSL holds bytes of which no event of the socket tells.
  [[nodiscard]] bool HasReadAhead() const;

  [[nodiscard]] Io Handshake();
  [[nodiscard]] Io Read(std::span<char> out);
  /// What it does not take of `bytes` is to be written next.
  [[nodiscard]] Io Write(std::string_view bytes);
  /// Gives OpenSSL's empty record buffers back, some 34 KiB; they return by themselves with the next byte.
  void Trim();
  /// close_notify (best effort) and FIN; reading goes on.
  void ShutdownWrite();
  /// Drops the connection: what the peer sees is a FIN, or with kReset a RST.
  enum class How : uint8_t { kOrderly, kReset };
  void Close(How how = How::kOrderly);

  /// As the lowest TLS reads.
  [[nodiscard]] Io RecordRead(std::span<char> out);
  /// As the topmost TLS reads and writes: through the TLS that carries it, if any does.
  [[nodiscard]] Io CarriedRead(std::span<char> out);
  [[nodiscard]] Io CarriedWrite(std::string_view bytes);

  /// Straight to and from the socket, under any TLS.
  [[nodiscard]] Io RawRead(std::span<char> out);
  [[nodiscard]] Io RawWrite(std::string_view bytes);

  int last_errno = 0;  ///< of the socket, after kError

 private:
  Io FromSsl(int result);
  Io FromCarrier(int result, size_t n);
  ssl_st* ssl_ = nullptr;      ///< topmost
  ssl_st* carrier_ = nullptr;  ///< under it
  uint8_t carrier_needs_ = kReadable;
  int send_flags_;
  int raw_reads_ = 0;  ///< within the present call
};

/// Once per process; the BIO method that Stream uses.
[[nodiscard]] bool InitStreams();

/// The first error on OpenSSL's queue as text, clearing the queue; "unknown TLS fault" where there is none.
[[nodiscard]] std::string TakeSslError();

}  // namespace sluice::proxy
