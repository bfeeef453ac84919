#include "proxy/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sluice::proxy {
namespace {

void AppendNumber(Buffer* out, uint64_t value) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out->Append({digits, static_cast<size_t>(end - digits)});
}

void AppendField(Buffer* out, std::string_view name, std::string_view value) {
  const std::span<char> room = out->Prepare(name.size() + value.size() + 4);
  char* at = room.data();
  std::memcpy(at, name.data(), name.size());
  at += name.size();
  *at++ = ':';
  *at++ = ' ';
  if (!value.empty()) std::memcpy(at, value.data(), value.size());
  at += value.size();
  *at++ = '\r';
  *at++ = '\n';
  out->Commit(static_cast<size_t>(at - room.data()));
}

void AppendForwardedFields(Buffer* out, const Head& head) {
  for (const Field& field : head.fields)
    if (field.forward) AppendField(out, field.name, field.value);
}

void AppendEditedFields(Buffer* out, const Head& head, const HeadEdits& edits) {
  for (const Field& field : head.fields)
    if (field.forward && !edits.Removes(field)) AppendField(out, field.name, field.value);
  for (const auto& [name, value] : edits.added) AppendField(out, name, value);
}

void AppendFraming(Buffer* out, const Head& head, const Framing& framing) {
  if (framing.kind == BodyKind::kLength) {
    out->Append("content-length: ");
    AppendNumber(out, framing.length);
    out->Append("\r\n");
  } else if (framing.kind == BodyKind::kChunked) {
    out->Append("transfer-encoding: chunked\r\n");
    if (!head.trailer.empty()) AppendField(out, "trailer", head.trailer);
  }
}

void AppendStatusLine(Buffer* out, const ResponseHead& head) {
  out->Append("HTTP/1.1 ");
  AppendNumber(out, head.status);
  out->Append(" ");
  out->Append(head.reason);
  out->Append("\r\n");
}

}  // namespace

std::string HostField(std::string_view name, const IpAddress& literal, uint16_t port, uint16_t default_port) {
  std::string host(name);
  if (name.empty()) host = literal.is_v4() ? literal.ToString() : fmt::format("[{}]", literal.ToString());
  if (port != default_port) host += fmt::format(":{}", port);
  return host;
}

bool HeadEdits::Removes(const Field& field) const { return std::ranges::find(removed, field.name) != removed.end(); }

void AppendRequestHead(Buffer* out, const RequestHead& head, const RequestForward& forward) {
  out->Append(head.method);
  out->Append(" ");
  out->Append(forward.target);
  out->Append(" HTTP/1.1\r\n");
  AppendField(out, "host", forward.host);
  if (forward.edits == nullptr || (forward.edits->removed.empty() && forward.edits->added.empty())) {
    AppendForwardedFields(out, head);
  } else {
    AppendEditedFields(out, head, *forward.edits);
  }
  // A client that takes trailers is told apart from one that does not; we ourselves always do.
  if (head.te_trailers) out->Append("te: trailers\r\nconnection: te\r\n");
  Framing framing = forward.framing;
  // An explicit zero is kept: some servers answer 411 to a POST without a length.
  if (framing.kind == BodyKind::kNone && head.content_lengths != 0) framing = {BodyKind::kLength, 0};
  AppendFraming(out, head, framing);
  out->Append("\r\n");
}

void AppendResponseHead(Buffer* out, const ResponseHead& head, const ResponseForward& forward) {
  AppendStatusLine(out, head);
  AppendForwardedFields(out, head);
  if (forward.framing.kind == BodyKind::kNone) {
    // HEAD and 304 describe the body that a GET would have had; 204 has none to describe (RFC 9110 section 8.6).
    if (head.status != 204 && head.content_lengths != 0) AppendField(out, "content-length", head.content_length);
  } else {
    AppendFraming(out, head, forward.framing);
  }
  if (forward.keep == Keep::kClose) {
    out->Append("connection: close\r\n");
  } else if (forward.client == Version::k10) {
    out->Append("connection: keep-alive\r\n");
  }
  out->Append("\r\n");
}

void AppendInterimHead(Buffer* out, const ResponseHead& head) {
  AppendStatusLine(out, head);
  AppendForwardedFields(out, head);
  out->Append("\r\n");
}

}  // namespace sluice::proxy
