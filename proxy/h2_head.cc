#include "proxy/h2_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "proxy/chunked.h"

namespace sluice::proxy {
namespace {

// RFC 9113 section 8.2.2: what speaks of a connection has no place in a stream.
bool IsConnectionField(FieldId id) {
  switch (id) {
    case FieldId::kConnection:
    case FieldId::kKeepAlive:
    case FieldId::kProxyConnection:
    case FieldId::kTransferEncoding:
    case FieldId::kUpgrade:
    case FieldId::kHttp2Settings:
      return true;
    default:
      return false;
  }
}

Fault TakeRegular(const H2Field& field, uint16_t status, Head* head) {
  if (const Fault fault = AddField(field.name, field.value, status, head)) return fault;
  const Field& added = head->fields.back();
  if (IsConnectionField(added.id)) return {status, "a connection field in HTTP/2"};
  if (added.id == FieldId::kTe && !EqualsLower(added.value, "trailers")) return {status, "a TE other than trailers in HTTP/2"};
  return {};
}

// RFC 9113 section 8.2.3: crumbs are one field to everybody else.
void JoinCookies(H2HeadStore* store, Head* head) {
  size_t crumbs = 0;
  for (const Field& field : head->fields) crumbs += field.name == "cookie" ? 1 : 0;
  if (crumbs < 2) return;
  store->cookie.clear();
  Field* first = nullptr;
  for (Field& field : head->fields) {
    if (field.name != "cookie") continue;
    if (first == nullptr) first = &field;
    if (&field != first) {
      store->cookie += "; ";
      field.forward = false;
    }
    store->cookie += field.value;
  }
  first->value = store->cookie;
}

struct Pseudo {
  std::string_view method;
  std::string_view scheme;
  std::string_view authority;
  std::string_view path;
  std::string_view protocol;
};

Fault TakePseudo(const H2Field& field, Pseudo* pseudo) {
  std::string_view* slot = field.name == ":method"      ? &pseudo->method
                           : field.name == ":scheme"    ? &pseudo->scheme
                           : field.name == ":authority" ? &pseudo->authority
                           : field.name == ":path"      ? &pseudo->path
                           : field.name == ":protocol"  ? &pseudo->protocol
                                                        : nullptr;
  if (slot == nullptr) return {400, "an unknown pseudo-header field"};
  if (slot->data() != nullptr) return {400, "a repeated pseudo-header field"};
  if (field.value.empty() && slot != &pseudo->authority) return {400, "an empty pseudo-header field"};
  *slot = field.value.empty() ? std::string_view("") : field.value;
  return {};
}

Fault CheckPseudo(const Pseudo& pseudo, std::string_view scheme, const RequestHead& head) {
  if (pseudo.method.empty()) return {400, "no :method"};
  for (const char c : pseudo.method)
    if (!IsTokenByte(c)) return {400, "a malformed :method"};
  // Plain CONNECT is no request for a proxied origin.
  if ((pseudo.method == "CONNECT") != !pseudo.protocol.empty()) return {400, "CONNECT inside a connection"};
  if (!pseudo.protocol.empty() && !EqualsLower(pseudo.protocol, "websocket"))
    return {501, "an extended CONNECT to another protocol than WebSocket"};
  if (pseudo.path.empty()) return {400, "no :path"};
  if (pseudo.path.size() > kMaxTargetBytes) return {414, "a request target that is too long"};
  for (const char c : pseudo.path)
    if (c <= 0x20 || c >= 0x7f) return {400, "a byte in the request target that is not visible ASCII"};
  if (pseudo.path.front() != '/' && pseudo.path != "*") return {400, "a :path that is not a path"};
  if (!EqualsLower(pseudo.scheme, scheme)) return {400, "a :scheme that is not the connection's"};
  if (head.hosts > 1) return {400, "more than one Host"};
  if (pseudo.authority.empty() && head.hosts == 0) return {400, "neither :authority nor Host"};
  if (!pseudo.authority.empty() && head.hosts != 0 && pseudo.authority != head.host)
    return {400, "a Host that disagrees with :authority"};
  return {};
}

std::string_view ReasonOf(uint16_t status) {
  static constexpr std::array<std::pair<uint16_t, std::string_view>, 26> kReasons = {{
      {100, "Continue"},
      {103, "Early Hints"},
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {206, "Partial Content"},
      {301, "Moved Permanently"},
      {302, "Found"},
      {303, "See Other"},
      {304, "Not Modified"},
      {307, "Temporary Redirect"},
      {308, "Permanent Redirect"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {409, "Conflict"},
      {410, "Gone"},
      {412, "Precondition Failed"},
      {416, "Range Not Satisfiable"},
      {429, "Too Many Requests"},
      {500, "Internal Server Error"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
  }};
  const auto found = std::ranges::find(kReasons, status, &std::pair<uint16_t, std::string_view>::first);
  return found != kReasons.end() ? found->second : std::string_view();
}

// https://github.com/grpc/grpc/blob/master/doc/statuscodes.md names them: what fits a refusal, and what may pass by itself.
std::string_view GrpcStatus(const Denial& denial) {
  switch (denial.status) {
    case 400:
      return "13";  // INTERNAL
    case 403:
    case 405:
    case 421:
      return "7";  // PERMISSION_DENIED
    case 413:
    case 414:
    case 431:
      return "8";  // RESOURCE_EXHAUSTED
    default:
      return "14";  // UNAVAILABLE
  }
}

// A grpc-message is UTF-8, percent-encoded outside visible ASCII.
std::string GrpcMessage(const Denial& denial) {
  std::string out;
  for (const char c : ReasonPhrase(denial)) {
    if (c == '%') {
      out += "%25";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void H2Section::Add(std::string_view name, std::string_view value) {
  octets_ += name.size() + value.size();
  if (overflowed_ || octets_ > kMaxHeadBytes || places_.size() > kMaxFields + 8) {
    overflowed_ = true;
    return;
  }
  places_.push_back(
      {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(name.size()), static_cast<uint32_t>(value.size())});
  bytes_ += name;
  bytes_ += value;
}

void H2Section::Clear() {
  bytes_.clear();
  places_.clear();
  octets_ = 0;
  overflowed_ = false;
}

std::vector<H2Field> H2Section::Fields() const {
  const std::string_view all = bytes_;
  std::vector<H2Field> fields;
  fields.reserve(places_.size());
  for (const Place& place : places_)
    fields.push_back({all.substr(place.at, place.name_size), all.substr(place.at + place.name_size, place.value_size)});
  return fields;
}

Fault ReadRequestSection(H2HeadStore* store, H2End end, std::string_view scheme, RequestHead* head, Framing* framing) {
  *head = RequestHead{};
  head->version = Version::k2;
  if (store->section.overflowed()) return {431, "header fields that are too large"};
  Pseudo pseudo;
  bool regular = false;
  for (const H2Field& field : store->section.Fields()) {
    if (!field.name.starts_with(':')) {
      regular = true;
      if (const Fault fault = TakeRegular(field, 400, head)) return fault;
      continue;
    }
    if (regular) return {400, "a pseudo-header field after other fields"};
    if (const Fault fault = TakePseudo(field, &pseudo)) return fault;
  }
  head->method = pseudo.method;
  head->target = pseudo.path;
  // As Upgrade says it in HTTP/1.1; HTTP/2 has no such field.
  head->upgrade = pseudo.protocol;
  if (const Fault fault = CheckPseudo(pseudo, scheme, *head)) return fault;
  if (!pseudo.authority.empty()) head->host = pseudo.authority;
  head->hosts = 1;
  for (Field& field : head->fields) {
    if (field.id == FieldId::kHost) field.forward = false;
    if (field.id != FieldId::kExpect) continue;
    if (!EqualsLower(field.value, "100-continue")) return {417, "an Expect other than 100-continue"};
    head->expect_continue = true;
  }
  JoinCookies(store, head);
  const auto framed = RequestFraming(*head);
  if (!framed) return framed.error();
  *framing = *framed;
  if (!pseudo.protocol.empty()) {
    // What follows are the bytes of the WebSocket, no body.
    head->method = "GET";
    if (end == H2End::kEndStream) return {400, "a WebSocket handshake that ends its stream"};
    return {};
  }
  if (end == H2End::kEndStream) {
    if (framing->length != 0) return {400, "a Content-Length without a body"};
  } else if (framing->kind == BodyKind::kNone) {
    framing->kind = BodyKind::kChunked;
  }
  return {};
}

Fault ReadResponseSection(H2HeadStore* store, H2End end, std::string_view request_method, ResponseHead* head, Framing* framing) {
  *head = ResponseHead{};
  head->version = Version::k2;
  if (store->section.overflowed()) return {502, "header fields that are too large"};
  bool regular = false;
  for (const H2Field& field : store->section.Fields()) {
    if (!field.name.starts_with(':')) {
      regular = true;
      if (const Fault fault = TakeRegular(field, 502, head)) return fault;
      continue;
    }
    if (regular || field.name != ":status" || head->status != 0) return {502, "a pseudo-header field that is out of place"};
    if (field.value.size() != 3) return {502, "a malformed status code"};
    for (const char c : field.value) {
      if (c < '0' || c > '9') return {502, "a malformed status code"};
      head->status = static_cast<uint16_t>(head->status * 10 + (c - '0'));
    }
  }
  if (head->status < 100) return {502, "a malformed status code"};
  if (head->status == 101) return {502, "a switch of protocols, which HTTP/2 does not have"};
  head->reason = ReasonOf(head->status);
  const auto framed = ResponseFraming(*head, request_method);
  if (!framed) return framed.error();
  *framing = *framed;
  if (framing->kind == BodyKind::kUntilClose) *framing = {BodyKind::kChunked, 0};
  const bool bodiless = head->status < 200 || head->status == 204 || head->status == 304 || request_method == "HEAD";
  if (end == H2End::kEndStream && !bodiless) {
    if (framing->kind == BodyKind::kLength && framing->length != 0) return {502, "a Content-Length without a body"};
    *framing = {BodyKind::kLength, 0};
  }
  return {};
}

std::string ReadTrailerSection(const H2Section& section) {
  std::string lines;
  if (section.overflowed() || section.octets() > kMaxTrailerBytes) return lines;
  Head scratch;
  for (const H2Field& field : section.Fields()) {
    if (field.name.starts_with(':') || AddField(field.name, field.value, 400, &scratch) || !IsTrailerAllowed(field.name))
      continue;
    lines += field.name;
    lines += ": ";
    lines += field.value;
    lines += "\r\n";
  }
  return lines;
}

void H2Output::Reset(size_t octets) {
  fields_.clear();
  own_.clear();
  own_.reserve(octets);
}

void H2Output::AddLower(std::string_view name, std::string_view value) {
  const size_t at = own_.size();
  for (const char c : name) own_ += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  Add(std::string_view(own_).substr(at), value);
}

void H2Output::AddCopy(std::string_view name, std::string_view value) {
  const size_t at = own_.size();
  own_ += value;
  Add(name, std::string_view(own_).substr(at));
}

namespace {

void AddRequest(H2Output* out, std::string_view target, std::string_view host, std::string_view scheme, const RequestHead& head,
                const HeadEdits* edits) {
  out->Add(":scheme", scheme);
  out->Add(":authority", host);
  if (edits != nullptr && edits->target) {
    out->AddSecret(":path", target);
  } else {
    out->Add(":path", target);
  }
  for (const Field& field : head.fields)
    if (field.forward && (edits == nullptr || !edits->Removes(field))) out->Add(field.name, field.value);
  if (edits != nullptr)
    for (const auto& [name, value] : edits->added) out->AddSecret(name, value);
}

}  // namespace

void WriteWebSocketSection(H2Output* out, const RequestHead& head, const WebSocketOffer& offer, const WebSocketForward& forward,
                           std::string_view scheme) {
  const std::string protocols = ProtocolsText(offer);
  const std::string extensions = ExtensionsText(offer);
  out->Reset(protocols.size() + extensions.size());
  out->Add(":method", "CONNECT");
  out->Add(":protocol", "websocket");
  AddRequest(out, forward.target, forward.host, scheme, head, forward.edits);
  out->Add("sec-websocket-version", "13");
  if (!protocols.empty()) out->AddCopy("sec-websocket-protocol", protocols);
  if (!extensions.empty()) out->AddCopy("sec-websocket-extensions", extensions);
}

void WriteWebSocketAnswer(H2Output* out, const ResponseHead& head, const WebSocketAgreement& agreement) {
  const std::string extensions = ExtensionsText(agreement);
  size_t names = extensions.size();
  for (const Field& field : head.fields) names += field.name.size();
  out->Reset(names);
  out->Add(":status", "200");
  for (const Field& field : head.fields)
    if (field.forward) out->AddLower(field.name, field.value);
  if (!agreement.protocol.empty()) out->Add("sec-websocket-protocol", agreement.protocol);
  if (!extensions.empty()) out->AddCopy("sec-websocket-extensions", extensions);
}

void WriteRequestSection(H2Output* out, const RequestHead& head, const RequestForward& forward, std::string_view scheme) {
  out->Reset(32);
  out->Add(":method", head.method);
  AddRequest(out, forward.target, forward.host, scheme, head, forward.edits);
  if (head.te_trailers) out->Add("te", "trailers");
  if (!head.trailer.empty()) out->Add("trailer", head.trailer);
  const bool explicit_zero = forward.framing.kind == BodyKind::kNone && head.content_lengths != 0;
  if (forward.framing.kind == BodyKind::kLength || explicit_zero)
    out->AddCopy("content-length", fmt::format("{}", forward.framing.length));
}

void WriteResponseSection(H2Output* out, const ResponseHead& head, const Framing& framing) {
  size_t names = 64;
  for (const Field& field : head.fields) names += field.name.size();
  out->Reset(names);
  out->AddCopy(":status", fmt::format("{}", head.status));
  for (const Field& field : head.fields)
    if (field.forward) out->AddLower(field.name, field.value);
  if (head.status < 200) return;
  if (framing.kind == BodyKind::kLength) {
    out->AddCopy("content-length", fmt::format("{}", framing.length));
  } else if (framing.kind == BodyKind::kNone && head.status != 204 && head.content_lengths != 0) {
    // HEAD and 304 describe the body that a GET would have had (RFC 9110 section 8.6).
    out->Add("content-length", head.content_length);
  }
  if (framing.kind == BodyKind::kChunked && !head.trailer.empty()) out->Add("trailer", head.trailer);
}

void WriteTrailerSection(H2Output* out, std::string& lines) {
  out->Reset(0);
  size_t at = 0;
  while (at < lines.size()) {
    const size_t end = lines.find("\r\n", at);
    if (end == std::string::npos) break;
    const auto field = ParseFieldLine({lines.data() + at, end - at});
    if (field && IsTrailerAllowed(field->name)) out->Add(field->name, field->value);
    at = end + 2;
  }
}

H2DenialForm H2FormFor(const RequestHead& request) {
  const std::string_view type = request.Find(FieldId::kContentType);
  constexpr std::string_view kGrpc = "application/grpc";
  if (type.starts_with(kGrpc) && (type.size() == kGrpc.size() || type[kGrpc.size()] == '+' || type[kGrpc.size()] == ';'))
    return H2DenialForm::kGrpc;
  return FormFor(request) == DenialForm::kText ? H2DenialForm::kText : H2DenialForm::kJson;
}

void WriteDenialSection(H2Output* out, const Denial& denial, H2DenialForm form, size_t body_size) {
  out->Reset(3 * kMaxReasonPhrase + 512);
  if (form == H2DenialForm::kGrpc) {
    out->Add(":status", "200");
    out->Add("content-type", "application/grpc");
    out->Add("grpc-status", GrpcStatus(denial));
    out->AddCopy("grpc-message", GrpcMessage(denial));
  } else {
    out->AddCopy(":status", fmt::format("{}", denial.status));
    out->Add("content-type", DenialType(denial, form == H2DenialForm::kText ? DenialForm::kText : DenialForm::kJson));
    out->AddCopy("content-length", fmt::format("{}", body_size));
    out->Add("cache-control", "no-store");
    if (denial.status == 405) out->Add("allow", kForwardedMethods);
    if (denial.status == 426) out->Add("sec-websocket-version", "13");
  }
  out->AddCopy("proxy-status", fmt::format("sluice; error={}; details=\"{}\"", denial.proxy_error, denial.id));
  out->Add("x-sluice-denied", denial.id);
}

}  // namespace sluice::proxy
