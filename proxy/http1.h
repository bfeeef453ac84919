#pragma once

// HTTP/1.1 heads (RFC 9112), read strictly: what two readers could understand differently is refused and never forwarded.
// Views point into the caller's bytes; request field names are lower-cased in place.
//
//   size_t resume = 0;
//   auto end = FindHeadEnd(bytes, &resume);              // 0: read more and call again
//   RequestHead head;
//   if (auto fault = ParseRequestHead(span.first(*end), &head); fault) …answer fault.status and close…
//   auto framing = RequestFraming(head);

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::proxy {

inline constexpr size_t kMaxHeadBytes = 32 * 1024;    ///< request or response head, line ends included
inline constexpr size_t kMaxTargetBytes = 16 * 1024;  ///< request-target: over it 414
inline constexpr size_t kMaxFields = 256;             ///< fields in one head

/// Why a message was refused. `status` 0: it was not. Text is static.
struct [[nodiscard]] Fault {
  uint16_t status = 0;
  std::string_view why;
  explicit operator bool() const { return status != 0; }
};

enum class FieldId : uint8_t {
  kOther,
  kConnection,
  kContentLength,
  kContentType,
  kExpect,
  kHost,
  kHttp2Settings,
  kKeepAlive,
  kMaxForwards,
  kProxyAuthenticate,
  kProxyAuthorization,
  kProxyConnection,
  kProxyStatus,
  kSluiceDenied,
  kTe,
  kTrailer,
  kTransferEncoding,
  kUpgrade,
  kUserAgent,
};

struct Field {
  std::string_view name;   ///< lower case in requests, as received in responses
  std::string_view value;  ///< without the white space around it
  FieldId id = FieldId::kOther;
  bool forward = true;  ///< false: hop-by-hop, named by Connection, or rebuilt by the serialiser
};

enum class Version : uint8_t { k10, k11, k2 };

/// What both kinds of head have. Reused from message to message: parsing clears it and keeps the memory.
struct Head {
  Version version = Version::k11;
  std::vector<Field> fields;
  uint16_t content_lengths = 0;  ///< how many such fields
  uint16_t transfer_encodings = 0;
  uint16_t hosts = 0;
  std::string_view content_length;
  std::string_view transfer_encoding;
  std::string_view host;
  std::string_view trailer;  ///< the last Trailer field
  std::string_view upgrade;  ///< the last Upgrade field
  bool close = false;        ///< Connection: close
  bool keep_alive = false;   ///< Connection: keep-alive
  bool te_trailers = false;  ///< TE names trailers
  /// Whether the sender means to keep the connection (RFC 9112 section 9.3).
  [[nodiscard]] bool persistent() const { return !close && (version == Version::k11 || keep_alive); }
  [[nodiscard]] std::string_view Find(FieldId id) const;
};

struct RequestHead : Head {
  std::string_view method;
  std::string_view target;  ///< as received, visible ASCII
  bool expect_continue = false;
};

struct ResponseHead : Head {
  uint16_t status = 0;
  std::string_view reason;
};

enum class BodyKind : uint8_t { kNone, kLength, kChunked, kUntilClose };

struct Framing {
  BodyKind kind = BodyKind::kNone;
  uint64_t length = 0;
};

/// Length of the head up to and including its empty line, or 0 when more bytes are needed. `*resume` is 0 at first and
/// remembers what was looked at. Refuses bare LF, heads over kMaxHeadBytes (431), first lines over kMaxTargetBytes (414).
[[nodiscard]] std::expected<size_t, Fault> FindHeadEnd(std::string_view bytes, size_t* resume);

/// `bytes` is exactly one head as FindHeadEnd measured it, and is changed: names become lower case.
Fault ParseRequestHead(std::span<char> bytes, RequestHead* head);
/// Every fault has status 502.
Fault ParseResponseHead(std::span<char> bytes, ResponseHead* head);

/// RFC 9112 section 6.3, refusing Content-Length beside Transfer-Encoding, repeated lengths and unknown codings.
[[nodiscard]] std::expected<Framing, Fault> RequestFraming(const RequestHead& head);
[[nodiscard]] std::expected<Framing, Fault> ResponseFraming(const ResponseHead& head, std::string_view request_method);

/// NTLM and Negotiate (RFC 4559) prove who asks once for a whole connection: what follows on it is that user's. `lower_name` is
/// "authorization" or "www-authenticate".
[[nodiscard]] bool BindsConnection(const Head& head, std::string_view lower_name);

/// Name comparison without regard to ASCII case; `lower` is already lower.
[[nodiscard]] bool EqualsLower(std::string_view text, std::string_view lower);

/// The parts of a comma-separated list, trimmed; empty ones are left out.
template <class Visit>
void ForEachListItem(std::string_view list, Visit visit) {
  size_t at = 0;
  while (at <= list.size()) {
    size_t comma = list.find(',', at);
    if (comma == std::string_view::npos) comma = list.size();
    std::string_view item = list.substr(at, comma - at);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (!item.empty()) visit(item);
    at = comma + 1;
  }
}

/// Whether a byte may stand in a token (RFC 9110 section 5.6.2), letters of either case.
[[nodiscard]] bool IsTokenByte(char c);

/// One field of a head that came in another form than lines (HTTP/2), held to the same rules; its name must be in lower case. The
/// views are kept. Faults have this status, or 431 where 400 was given and there are too many.
Fault AddField(std::string_view lower_name, std::string_view value, uint16_t status, Head* head);

/// One "name: value" line without its line end, for trailers. Names are lower-cased in place.
[[nodiscard]] std::expected<Field, Fault> ParseFieldLine(std::span<char> line);

}  // namespace sluice::proxy
