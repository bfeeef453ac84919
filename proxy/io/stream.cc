#include "proxy/io/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fault.h"

namespace sluice::proxy {
namespace {

constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

Stream* StreamOf(BIO* bio) { return static_cast<Stream*>(BIO_get_data(bio)); }

template <Io (Stream::*Read)(std::span<char>)>
int BioRead(BIO* bio, char* out, size_t size, size_t* done) {
  BIO_clear_retry_flags(bio);
  *done = 0;
  const Io io = (StreamOf(bio)->*Read)({out, size});
  switch (io.status) {
    case IoStatus::kOk:
      *done = io.n;
      return 1;
    case IoStatus::kWouldBlock:
      BIO_set_retry_read(bio);
      return 0;
    case IoStatus::kEof:
      BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
      return 0;
    case IoStatus::kError:
      break;
  }
  return 0;
}

template <Io (Stream::*Write)(std::string_view)>
int BioWrite(BIO* bio, const char* bytes, size_t size, size_t* done) {
  BIO_clear_retry_flags(bio);
  *done = 0;
  const Io io = (StreamOf(bio)->*Write)({bytes, size});
  if (io.status == IoStatus::kOk) {
    *done = io.n;
    return 1;
  }
  if (io.status == IoStatus::kWouldBlock) BIO_set_retry_write(bio);
  return 0;
}

long BioControl(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

// SSL_get_error believes what it finds in the thread's queue, whoever put it there. Looking first is much cheaper than
// clearing each time.
void DropStaleErrors() {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

using ReadEx = int (*)(BIO*, char*, size_t, size_t*);
using WriteEx = int (*)(BIO*, const char*, size_t, size_t*);

BIO_METHOD* MakeMethod(ReadEx read, WriteEx write) {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice stream");
  if (method == nullptr) return nullptr;
  BIO_meth_set_read_ex(method, read);
  BIO_meth_set_write_ex(method, write);
  BIO_meth_set_ctrl(method, BioControl);
  return method;
}

BIO_METHOD* Method() {
  static BIO_METHOD* const method = MakeMethod(BioRead<&Stream::RecordRead>, BioWrite<&Stream::RawWrite>);
  return method;
}

BIO_METHOD* CarriedMethod() {
  static BIO_METHOD* const method = MakeMethod(BioRead<&Stream::CarriedRead>, BioWrite<&Stream::CarriedWrite>);
  return method;
}

}  // namespace

Stream::Stream() : send_flags_(kSendFlags) {}

bool InitStreams() { return Method() != nullptr && CarriedMethod() != nullptr; }

std::string TakeSslError() {
  const unsigned long code = ERR_peek_error();
  std::string text = "unknown TLS fault";
  if (ERR_SYSTEM_ERROR(code)) {
    text = std::strerror(ERR_GET_REASON(code));
  } else if (const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr; reason != nullptr) {
    text = reason;
  }
  ERR_clear_error();
  return text;
}

bool Stream::StartTls(ssl_ctx_st* context, Side side) {
  if (carrier_ != nullptr) return false;
  SSL* const over = context != nullptr ? SSL_new(context) : nullptr;
  BIO* bio = over != nullptr ? BIO_new(ssl_ != nullptr ? CarriedMethod() : Method()) : nullptr;
  if (bio == nullptr) {
    SSL_free(over);
    return false;
  }
  carrier_ = ssl_;
  ssl_ = over;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  if (side == Side::kServer) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
  }
  return true;
}

Io Stream::RawRead(std::span<char> out) {
  if (!prefix.empty()) {
    const size_t n = std::min(out.size(), prefix.size());
    std::copy_n(prefix.view().data(), n, out.data());
    prefix.Consume(n);
    return {IoStatus::kOk, n};
  }
  if ((channel.ready & kReadable) == 0) return {IoStatus::kWouldBlock, 0};
  for (;;) {
    const ssize_t n = Faulty("stream.receive", [&] { return recv(channel.fd(), out.data(), out.size(), MSG_DONTWAIT); });
    if (n > 0) {
      // A short read empties the socket; what comes later is a new edge. A FIN that was already announced is not.
      if (static_cast<size_t>(n) < out.size() && (channel.ready & (kPeerDone | kBroken)) == 0)
        channel.ready &= static_cast<uint8_t>(~kReadable);
      return {IoStatus::kOk, static_cast<size_t>(n)};
    }
    if (n == 0) return {IoStatus::kEof, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      channel.ready &= static_cast<uint8_t>(~kReadable);
      return {IoStatus::kWouldBlock, 0};
    }
    last_errno = errno;
    return {IoStatus::kError, 0};
  }
}

Io Stream::RecordRead(std::span<char> out) {
  if (raw_reads_ == kRawReadsAtOnce) {
    channel.enough = true;
    return {IoStatus::kWouldBlock, 0};
  }
  ++raw_reads_;
  return RawRead(out);
}

Io Stream::RawWrite(std::string_view bytes) {
  if ((channel.ready & kWritable) == 0) return {IoStatus::kWouldBlock, 0};
  for (;;) {
    const ssize_t n = Faulty("stream.send", [&] { return send(channel.fd(), bytes.data(), bytes.size(), send_flags_); });
    if (n >= 0) return {IoStatus::kOk, static_cast<size_t>(n)};
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      channel.ready &= static_cast<uint8_t>(~kWritable);
      return {IoStatus::kWouldBlock, 0};
    }
    last_errno = errno;
    return {IoStatus::kError, 0};
  }
}

Io Stream::FromSsl(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      read_needs = write_needs = carrier_ != nullptr ? carrier_needs_ : uint8_t{kReadable};
      return {IoStatus::kWouldBlock, 0};
    case SSL_ERROR_WANT_WRITE:
      read_needs = write_needs = carrier_ != nullptr ? carrier_needs_ : uint8_t{kWritable};
      return {IoStatus::kWouldBlock, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {IoStatus::kEof, 0};
    default:
      return {IoStatus::kError, 0};
  }
}

// What the topmost TLS is told of the one that carries it: an end of it is no end of what is above, which has its own.
Io Stream::FromCarrier(int result, size_t n) {
  if (result == 1) return {IoStatus::kOk, n};
  switch (SSL_get_error(carrier_, result)) {
    case SSL_ERROR_WANT_READ:
      carrier_needs_ = kReadable;
      return {IoStatus::kWouldBlock, 0};
    case SSL_ERROR_WANT_WRITE:
      carrier_needs_ = kWritable;
      return {IoStatus::kWouldBlock, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {IoStatus::kEof, 0};
    default:
      return {IoStatus::kError, 0};
  }
}

Io Stream::CarriedRead(std::span<char> out) {
  DropStaleErrors();
  size_t n = 0;
  const int result = SSL_read_ex(carrier_, out.data(), out.size(), &n);
  return FromCarrier(result, n);
}

Io Stream::CarriedWrite(std::string_view bytes) {
  DropStaleErrors();
  size_t n = 0;
  const int result = SSL_write_ex(carrier_, bytes.data(), bytes.size(), &n);
  return FromCarrier(result, n);
}

bool Stream::HasReadAhead() const {
  return (ssl_ != nullptr && SSL_has_pending(ssl_) == 1) || (carrier_ != nullptr && SSL_has_pending(carrier_) == 1);
}

Io Stream::Handshake() {
  DropStaleErrors();
  raw_reads_ = 0;
  const int result = SSL_do_handshake(ssl_);
  return result == 1 ? Io{IoStatus::kOk, 0} : FromSsl(result);
}

Io Stream::Read(std::span<char> out) {
  if (ssl_ == nullptr) {
    read_needs = kReadable;
    return RawRead(out);
  }
  // Nothing has come since, nothing lies in OpenSSL's buffers, and nothing of its own waits to be written: it need not be asked.
  if (carrier_ == nullptr && (channel.ready & kReadable) == 0 && prefix.empty() && SSL_has_pending(ssl_) == 0 &&
      !SSL_want_write(ssl_)) {
    read_needs = kReadable;
    return {IoStatus::kWouldBlock, 0};
  }
  DropStaleErrors();
  raw_reads_ = 0;
  size_t n = 0;
  const int result = SSL_read_ex(ssl_, out.data(), out.size(), &n);
  return result == 1 ? Io{IoStatus::kOk, n} : FromSsl(result);
}

Io Stream::Write(std::string_view bytes) {
  if (ssl_ == nullptr) {
    write_needs = kWritable;
    return RawWrite(bytes);
  }
  DropStaleErrors();
  // One record at a time is taken: where another follows at once, the network gets them together.
  if (bytes.size() > SSL3_RT_MAX_PLAIN_LENGTH) send_flags_ |= MSG_MORE;
  size_t n = 0;
  const int result = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &n);
  send_flags_ = kSendFlags;
  return result == 1 ? Io{IoStatus::kOk, n} : FromSsl(result);
}

void Stream::Trim() {
  if (ssl_ != nullptr) SSL_free_buffers(ssl_);
  if (carrier_ != nullptr) SSL_free_buffers(carrier_);
}

void Stream::ShutdownWrite() {
  if (!channel.open()) return;
  if (ssl_ != nullptr && SSL_is_init_finished(ssl_) == 1) {
    ERR_clear_error();
    SSL_shutdown(ssl_);
    if (carrier_ != nullptr) SSL_shutdown(carrier_);
  }
  shutdown(channel.fd(), SHUT_WR);
}

void Stream::Close(How how) {
  if (channel.open()) {
    if (how == How::kReset) {
      const linger hard{1, 0};
      setsockopt(channel.fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    } else if (ssl_ != nullptr && SSL_is_init_finished(ssl_) == 1 && (SSL_get_shutdown(ssl_) & SSL_SENT_SHUTDOWN) == 0 &&
               (channel.ready & kBroken) == 0) {
      ERR_clear_error();
      SSL_shutdown(ssl_);
      if (carrier_ != nullptr) SSL_shutdown(carrier_);
    }
  }
  SSL_free(ssl_);
  SSL_free(carrier_);
  ssl_ = carrier_ = nullptr;
  channel.Close();
  prefix.Release();
}

}  // namespace sluice::proxy
