#pragma once

// The opening handshake of a WebSocket (RFC 6455 section 4), as values: what a client asks for, the request that asks the
// upstream for it in our own words and with a key of our own, whether the upstream's answer is to that request, and the
// answer to the client. Of extensions only permessage-deflate (RFC 7692) is offered further, and only with parameters that
// were understood.
//
//   WebSocketOffer offer;
//   if (auto fault = ReadWebSocketRequest(&head, framing, &offer); fault) …refuse…
//   AppendWebSocketRequest(&out, head, offer, {target, host, key});
//   auto agreed = CheckWebSocketAnswer(&answer, offer, accept);   // after a 101

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/buffer.h"
#include "proxy/forward.h"
#include "proxy/http1.h"
#include "proxy/websocket.h"

namespace sluice::proxy {

inline constexpr size_t kMaxSubprotocols = 64;    ///< of one offer
inline constexpr size_t kMaxDeflateOffers = 8;    ///< permessage-deflate, of one offer; others are not counted
inline constexpr size_t kWebSocketKeyChars = 24;  ///< base64 of 16 bytes

/// Parameters of permessage-deflate, of an offer or an answer (RFC 7692 section 7.1).
struct DeflateParameters {
  bool server_no_context_takeover = false;
  bool client_no_context_takeover = false;
  std::optional<uint8_t> server_max_window_bits{};
  bool client_max_window_bits_offered = false;  ///< the parameter without a value, which only an offer may have
  std::optional<uint8_t> client_max_window_bits{};
  bool operator==(const DeflateParameters&) const = default;
};

/// What a client asks for. Views point into its head.
struct WebSocketOffer {
  std::string_view key;  ///< HTTP/1.1 only
  std::vector<std::string_view> protocols;
  std::vector<DeflateParameters> deflate;
};

/// Upgrade and Connection ask for a WebSocket, or over HTTP/2 an extended CONNECT does. An Upgrade that Connection does not name
/// asks for nothing (RFC 9110 section 7.8).
[[nodiscard]] bool AsksForWebSocket(const RequestHead& head);

/// Refuses with 400 what is not a handshake, with 426 another version than 13. Marks Sec-WebSocket fields as not forwarded.
/// Over HTTP/2 there is no key (RFC 8441 section 5).
Fault ReadWebSocketRequest(RequestHead* head, const Framing& framing, WebSocketOffer* offer);

/// Whether `key` is the base64 of 16 bytes, in its one canonical spelling.
[[nodiscard]] bool IsWebSocketKey(std::string_view key);

struct WebSocketForward {
  std::string_view target;  ///< canonical
  std::string_view host;
  std::string_view key;  ///< ours
  const HeadEdits* edits = nullptr;
};
void AppendWebSocketRequest(Buffer* out, const RequestHead& head, const WebSocketOffer& offer, const WebSocketForward& forward);

/// Values of Sec-WebSocket-Protocol and Sec-WebSocket-Extensions; empty: no such field.
[[nodiscard]] std::string ProtocolsText(const WebSocketOffer& offer);
[[nodiscard]] std::string ExtensionsText(const WebSocketOffer& offer);

/// What was agreed on. Views point into the answer's head.
struct WebSocketAgreement {
  std::string_view protocol;  ///< empty: none
  std::optional<DeflateParameters> deflate{};
  [[nodiscard]] WebSocketCompression compression() const {
    return deflate ? WebSocketCompression::kDeflate : WebSocketCompression::kNone;
  }
};

/// Of a 101: it switches to a WebSocket, its accept value is `accept`, protocol and extension are among those offered, and it
/// has no body. Every fault has status 502. Marks Sec-WebSocket fields as not forwarded.
[[nodiscard]] std::expected<WebSocketAgreement, Fault> CheckWebSocketAnswer(ResponseHead* head, const WebSocketOffer& offer,
                                                                            std::string_view accept);

/// The same of an answer over HTTP/2, whose status is 200 and which answers no key.
[[nodiscard]] std::expected<WebSocketAgreement, Fault> CheckConnectAnswer(ResponseHead* head, const WebSocketOffer& offer);

/// Values for the answer to the client.
[[nodiscard]] std::string ExtensionsText(const WebSocketAgreement& agreement);

/// The 101 to the client. `accept` answers the client's own key.
void AppendWebSocketAnswer(Buffer* out, const ResponseHead& head, const WebSocketAgreement& agreement, std::string_view accept);

}  // namespace sluice::proxy
