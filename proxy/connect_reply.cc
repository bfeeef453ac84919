#include "proxy/connect_reply.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::proxy {
namespace {

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

// The names of the schemes that a Proxy-Authenticate field asks for. A challenge's parameters are lists too: what has a '=' in
// its first word is one of those.
void AppendSchemes(std::string_view value, std::span<const std::string_view> secrets, std::string* out) {
  ForEachListItem(value, [&](std::string_view item) {
    const std::string_view word = item.substr(0, item.find(' '));
    if (word.find_first_of("=\"") != std::string_view::npos || word.size() > 20) return;
    const std::string name = Repeatable(word, 20, secrets);
    if (name.empty() || out->size() > kMaxProxyReason) return;
    *out += out->empty() ? "; it asks for " : ", ";
    *out += name;
  });
}

}  // namespace

std::string ConnectRequest(std::string_view authority, std::string_view authorization) {
  if (authority.empty() || !IsPrintable(authority) || !IsPrintable(authorization)) return {};
  std::string text = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", authority);
  if (!authorization.empty()) text += fmt::format("Proxy-Authorization: {}\r\n", authorization);
  text += "\r\n";
  return text;
}

std::string Repeatable(std::string_view text, size_t limit, std::span<const std::string_view> secrets) {
  for (const std::string_view secret : secrets)
    if (!secret.empty() && text.find(secret) != std::string_view::npos) return {};
  std::string out;
  for (const char c : text.substr(0, limit)) {
    if (c > 0x20 && c < 0x7f) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::expected<ConnectReply, Fault> ParseConnectReply(std::span<char> head, std::span<const std::string_view> secrets) {
  ResponseHead parsed;
  if (const Fault fault = ParseResponseHead(head, &parsed)) return std::unexpected(fault);
  ConnectReply reply;
  reply.status = parsed.status;
  if (parsed.status == 101) return std::unexpected(Fault{502, "a switch of protocols that was not asked for"});
  if (parsed.status < 200) {
    reply.kind = ConnectReply::Kind::kInterim;
    return reply;
  }
  if (parsed.status < 300) {
    // It must have neither, and means nothing by them; a body that is announced would be taken for the tunnel's first bytes.
    const bool body = parsed.transfer_encodings != 0 || parsed.content_lengths > 1 ||
                      (parsed.content_lengths == 1 && parsed.content_length != "0");
    if (body) return std::unexpected(Fault{502, "a body announced where the tunnel begins"});
    reply.kind = ConnectReply::Kind::kOpen;
    return reply;
  }
  std::string schemes;
  for (const Field& field : parsed.fields)
    if (field.id == FieldId::kProxyAuthenticate) AppendSchemes(field.value, secrets, &schemes);
  const std::string reason = Repeatable(parsed.reason, kMaxProxyReason, secrets);
  reply.text = fmt::format("{}{}{}{}", parsed.status, reason.empty() ? "" : " ", reason, schemes);
  return reply;
}

}  // namespace sluice::proxy
