#include "proxy/websocket_handshake.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::proxy {
namespace {

constexpr std::string_view kDeflateName = "permessage-deflate";

bool IsToken(std::string_view text) {
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kOther.find(c) != kOther.npos;
  });
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool HasItem(std::string_view list, std::string_view lower) {
  bool found = false;
  ForEachListItem(list, [&](std::string_view item) { found |= EqualsLower(item, lower); });
  return found;
}

bool ConnectionNamesUpgrade(const Head& head) {
  return std::ranges::any_of(
      head.fields, [](const Field& field) { return field.id == FieldId::kConnection && HasItem(field.value, "upgrade"); });
}

enum class Name : uint8_t { kNotOurs, kKey, kAccept, kVersion, kProtocol, kExtensions, kOther };

Name Classify(std::string_view name) {
  constexpr std::string_view kPrefix = "sec-websocket-";
  if (name.size() < kPrefix.size()) return Name::kNotOurs;
  std::string lower(name);
  // A server that goes through CGI's names reads '_' as '-' (RFC 3875 section 4.1.18).
  for (char& c : lower) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (!lower.starts_with(kPrefix)) return Name::kNotOurs;
  if (name.find('_') != name.npos) return Name::kOther;
  const std::string_view rest = std::string_view(lower).substr(kPrefix.size());
  if (rest == "key") return Name::kKey;
  if (rest == "accept") return Name::kAccept;
  if (rest == "version") return Name::kVersion;
  if (rest == "protocol") return Name::kProtocol;
  if (rest == "extensions") return Name::kExtensions;
  return Name::kOther;
}

// 8 to 15, without a leading zero (RFC 7692 section 7.1.2); in quotes or not (RFC 6455 section 9.1).
std::optional<uint8_t> WindowBits(std::string_view value) {
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  if (value == "8") return 8;
  if (value == "9") return 9;
  if (value.size() == 2 && value[0] == '1' && value[1] >= '0' && value[1] <= '5')
    return static_cast<uint8_t>(10 + value[1] - '0');
  return std::nullopt;
}

// One parameter; false: unknown, repeated or with a value it cannot have.
bool TakeParameter(std::string_view text, DeflateParameters* into) {
  const size_t equals = text.find('=');
  const std::string_view name = Trim(text.substr(0, equals));
  const bool has_value = equals != text.npos;
  const std::string_view value = has_value ? Trim(text.substr(equals + 1)) : std::string_view();
  const auto once = [&](bool* flag) { return !has_value && !std::exchange(*flag, true); };
  if (name == "server_no_context_takeover") return once(&into->server_no_context_takeover);
  if (name == "client_no_context_takeover") return once(&into->client_no_context_takeover);
  const bool server = name == "server_max_window_bits";
  if (!server && name != "client_max_window_bits") return false;
  std::optional<uint8_t>* const bits = server ? &into->server_max_window_bits : &into->client_max_window_bits;
  if (bits->has_value() || (!server && into->client_max_window_bits_offered)) return false;
  if (!has_value) return !server && once(&into->client_max_window_bits_offered);
  *bits = WindowBits(value);
  return bits->has_value();
}

enum class Extension : uint8_t { kDeflate, kUnknown, kMalformed };

// "name; parameter; parameter=value". Extension values hold no commas, quoted or not, that we would pass on.
Extension ReadExtension(std::string_view item, DeflateParameters* parameters) {
  const std::string_view name = Trim(item.substr(0, item.find(';')));
  if (!IsToken(name)) return Extension::kMalformed;
  if (name != kDeflateName) return Extension::kUnknown;
  size_t at = item.find(';');
  while (at != item.npos) {
    const size_t next = item.find(';', at + 1);
    if (!TakeParameter(Trim(item.substr(at + 1, next == item.npos ? next : next - at - 1)), parameters))
      return Extension::kMalformed;
    at = next;
  }
  return Extension::kDeflate;
}

std::string DeflateText(const DeflateParameters& parameters) {
  std::string text(kDeflateName);
  if (parameters.server_no_context_takeover) text += "; server_no_context_takeover";
  if (parameters.client_no_context_takeover) text += "; client_no_context_takeover";
  if (parameters.server_max_window_bits) text += fmt::format("; server_max_window_bits={}", *parameters.server_max_window_bits);
  if (parameters.client_max_window_bits_offered) text += "; client_max_window_bits";
  if (parameters.client_max_window_bits) text += fmt::format("; client_max_window_bits={}", *parameters.client_max_window_bits);
  return text;
}

Fault TakeProtocols(std::string_view list, WebSocketOffer* offer) {
  Fault fault;
  ForEachListItem(list, [&](std::string_view item) {
    if (!IsToken(item)) fault = {400, "a malformed WebSocket subprotocol"};
    if (std::ranges::find(offer->protocols, item) != offer->protocols.end()) fault = {400, "a WebSocket subprotocol named twice"};
    if (offer->protocols.size() == kMaxSubprotocols) {
      fault = {400, "too many WebSocket subprotocols"};
    } else {
      offer->protocols.push_back(item);
    }
  });
  return fault;
}

// An offer that we do not understand is not made: the upstream then cannot accept it, which every client must take.
void TakeExtensions(std::string_view list, WebSocketOffer* offer) {
  ForEachListItem(list, [&](std::string_view item) {
    DeflateParameters parameters;
    if (offer->deflate.size() < kMaxDeflateOffers && ReadExtension(item, &parameters) == Extension::kDeflate)
      offer->deflate.push_back(parameters);
  });
}

// RFC 7692 section 7.1: what an answer may say to an offer.
bool Answers(const DeflateParameters& answer, const DeflateParameters& offer) {
  if (offer.server_no_context_takeover && !answer.server_no_context_takeover) return false;
  if (offer.server_max_window_bits &&
      (!answer.server_max_window_bits || *answer.server_max_window_bits > *offer.server_max_window_bits))
    return false;
  if (answer.client_max_window_bits && !offer.client_max_window_bits_offered && !offer.client_max_window_bits) return false;
  return !answer.client_max_window_bits || !offer.client_max_window_bits ||
         *answer.client_max_window_bits <= *offer.client_max_window_bits;
}

Fault TakeAgreedExtensions(std::string_view list, const WebSocketOffer& offer, WebSocketAgreement* agreed) {
  Fault fault;
  ForEachListItem(list, [&](std::string_view item) {
    DeflateParameters parameters;
    const bool read = ReadExtension(item, &parameters) == Extension::kDeflate && !parameters.client_max_window_bits_offered;
    const bool offered =
        read && std::ranges::any_of(offer.deflate, [&](const DeflateParameters& one) { return Answers(parameters, one); });
    if (!offered || agreed->deflate) fault = {502, "a WebSocket extension that was not offered"};
    agreed->deflate = parameters;
  });
  return fault;
}

// `*accepted`: the one Sec-WebSocket-Accept; empty where there is none, or several.
std::expected<WebSocketAgreement, Fault> ReadAgreement(ResponseHead* head, const WebSocketOffer& offer,
                                                       std::string_view* accepted) {
  WebSocketAgreement agreed;
  size_t accepts = 0;
  size_t protocols = 0;
  for (Field& field : head->fields) {
    const Name name = Classify(field.name);
    if (name == Name::kNotOurs) continue;
    field.forward = false;
    if (name == Name::kAccept) {
      *accepted = ++accepts == 1 ? field.value : std::string_view();
    } else if (name == Name::kProtocol) {
      ++protocols;
      agreed.protocol = field.value;
    } else if (name == Name::kExtensions) {
      if (const Fault fault = TakeAgreedExtensions(field.value, offer, &agreed)) return std::unexpected(fault);
    }
  }
  const bool offered = std::ranges::find(offer.protocols, agreed.protocol) != offer.protocols.end();
  if (protocols > 1 || (protocols == 1 && !offered))
    return std::unexpected(Fault{502, "a WebSocket subprotocol that was not offered"});
  return agreed;
}

void AppendForwarded(Buffer* out, const Head& head, const HeadEdits* edits) {
  for (const Field& field : head.fields)
    if (field.forward && (edits == nullptr || !edits->Removes(field)))
      out->Append(fmt::format("{}: {}\r\n", field.name, field.value));
  if (edits == nullptr) return;
  for (const auto& [name, value] : edits->added) out->Append(fmt::format("{}: {}\r\n", name, value));
}

}  // namespace

bool AsksForWebSocket(const RequestHead& head) {
  if (head.version == Version::k2) return EqualsLower(head.upgrade, "websocket");
  if (head.upgrade.empty() || !ConnectionNamesUpgrade(head)) return false;
  return std::ranges::any_of(head.fields, [](const Field& field) {
    bool found = false;
    if (field.id == FieldId::kUpgrade)
      ForEachListItem(field.value,
                      [&](std::string_view item) { found |= EqualsLower(item.substr(0, item.find('/')), "websocket"); });
    return found;
  });
}

bool IsWebSocketKey(std::string_view key) {
  if (key.size() != kWebSocketKeyChars || !key.ends_with("==")) return false;
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  key.remove_suffix(2);
  if (key.find_first_not_of(kAlphabet) != key.npos) return false;
  // The last letter holds two bits of the sixteenth byte and four that must be zero.
  return kAlphabet.find(key.back()) % 16 == 0;
}

Fault ReadWebSocketRequest(RequestHead* head, const Framing& framing, WebSocketOffer* offer) {
  *offer = {};
  if (head->method != "GET") return {400, "a WebSocket handshake that is not a GET"};
  const bool h2 = head->version == Version::k2;
  if (head->version == Version::k10) return {400, "a WebSocket handshake in HTTP/1.0"};
  if (framing.kind == BodyKind::kChunked || framing.length != 0) return {400, "a WebSocket handshake with a body"};
  size_t keys = 0;
  size_t versions = 0;
  std::string_view version;
  for (Field& field : head->fields) {
    const Name name = Classify(field.name);
    if (name == Name::kNotOurs) continue;
    field.forward = false;
    Fault fault;
    if (name == Name::kKey) {
      ++keys;
      offer->key = field.value;
    } else if (name == Name::kVersion) {
      ++versions;
      version = field.value;
    } else if (name == Name::kProtocol) {
      fault = TakeProtocols(field.value, offer);
    } else if (name == Name::kExtensions) {
      TakeExtensions(field.value, offer);
    } else {
      fault = {400, "a Sec-WebSocket header that no client sends"};
    }
    if (fault) return fault;
  }
  if (versions != 1) return {400, "a WebSocket handshake without one Sec-WebSocket-Version"};
  if (version != "13") return {426, "a WebSocket version other than 13"};
  if (h2) return keys == 0 ? Fault{} : Fault{400, "a WebSocket key over HTTP/2, which has none"};
  if (keys != 1 || !IsWebSocketKey(offer->key)) return {400, "a WebSocket handshake without one key of 16 bytes"};
  return {};
}

void AppendWebSocketRequest(Buffer* out, const RequestHead& head, const WebSocketOffer& offer, const WebSocketForward& forward) {
  out->Append(fmt::format("GET {} HTTP/1.1\r\nhost: {}\r\n", forward.target, forward.host));
  AppendForwarded(out, head, forward.edits);
  out->Append("upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n");
  out->Append(fmt::format("sec-websocket-key: {}\r\n", forward.key));
  if (!offer.protocols.empty()) out->Append(fmt::format("sec-websocket-protocol: {}\r\n", ProtocolsText(offer)));
  if (!offer.deflate.empty()) out->Append(fmt::format("sec-websocket-extensions: {}\r\n", ExtensionsText(offer)));
  out->Append("\r\n");
}

std::string ProtocolsText(const WebSocketOffer& offer) { return fmt::format("{}", fmt::join(offer.protocols, ", ")); }

std::string ExtensionsText(const WebSocketOffer& offer) {
  std::string text;
  for (const DeflateParameters& one : offer.deflate) text += (text.empty() ? "" : ", ") + DeflateText(one);
  return text;
}

std::string ExtensionsText(const WebSocketAgreement& agreement) {
  return agreement.deflate ? DeflateText(*agreement.deflate) : std::string();
}

std::expected<WebSocketAgreement, Fault> CheckConnectAnswer(ResponseHead* head, const WebSocketOffer& offer) {
  if (head->status != 200) return std::unexpected(Fault{502, "an answer that opens no WebSocket"});
  if (head->content_lengths != 0) return std::unexpected(Fault{502, "a WebSocket with a length"});
  std::string_view accepted;
  auto agreed = ReadAgreement(head, offer, &accepted);
  if (agreed && !accepted.empty()) return std::unexpected(Fault{502, "a WebSocket accept value over HTTP/2, which has none"});
  return agreed;
}

std::expected<WebSocketAgreement, Fault> CheckWebSocketAnswer(ResponseHead* head, const WebSocketOffer& offer,
                                                              std::string_view accept) {
  if (head->version != Version::k11) return std::unexpected(Fault{502, "a switch of protocols in HTTP/1.0"});
  const bool elsewhere = std::ranges::any_of(
      head->fields, [](const Field& field) { return field.id == FieldId::kUpgrade && !EqualsLower(field.value, "websocket"); });
  if (head->upgrade.empty() || elsewhere || !ConnectionNamesUpgrade(*head))
    return std::unexpected(Fault{502, "a switch to another protocol than WebSocket"});
  if (head->transfer_encodings != 0 || head->content_lengths != 0)
    return std::unexpected(Fault{502, "a switch of protocols with a body"});
  std::string_view accepted;
  auto agreed = ReadAgreement(head, offer, &accepted);
  if (agreed && (accept.empty() || accepted != accept))
    return std::unexpected(Fault{502, "a WebSocket handshake that does not answer the key it was sent"});
  return agreed;
}

void AppendWebSocketAnswer(Buffer* out, const ResponseHead& head, const WebSocketAgreement& agreement, std::string_view accept) {
  out->Append("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n");
  AppendForwarded(out, head, nullptr);
  out->Append(fmt::format("sec-websocket-accept: {}\r\n", accept));
  if (!agreement.protocol.empty()) out->Append(fmt::format("sec-websocket-protocol: {}\r\n", agreement.protocol));
  if (agreement.deflate) out->Append(fmt::format("sec-websocket-extensions: {}\r\n", DeflateText(*agreement.deflate)));
  out->Append("\r\n");
}

}  // namespace sluice::proxy
