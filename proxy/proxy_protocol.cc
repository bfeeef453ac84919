#include "proxy/proxy_protocol.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace sluice::proxy {
namespace {

constexpr std::string_view kSignature1 = "PROXY ";
constexpr std::string_view kSignature2("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr size_t kFixed2 = 16;
constexpr uint8_t kCommandLocal = 0x20;
constexpr uint8_t kCommandProxy = 0x21;
constexpr uint8_t kTcpV4 = 0x11;
constexpr uint8_t kTcpV6 = 0x21;

uint8_t Byte(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

ProxyHeader Malformed(std::string_view why) {
  ProxyHeader header;
  header.status = ProxyHeaderStatus::kMalformed;
  header.why = why;
  return header;
}

// Whether the bytes so far could still become `signature`, or are it and more.
bool MayBe(std::string_view bytes, std::string_view signature) {
  const size_t n = std::min(bytes.size(), signature.size());
  return bytes.substr(0, n) == signature.substr(0, n);
}

bool ParsePort(std::string_view text, uint16_t* port) {
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *port);
  return error == std::errc{} && end == text.data() + text.size();
}

// "TCP4 192.0.2.1 192.0.2.2 5000 443", what stands between the signature and CRLF.
ProxyHeader ParseLine(std::string_view line, size_t consumed) {
  ProxyHeader header;
  header.status = ProxyHeaderStatus::kComplete;
  header.consumed = consumed;
  if (line == "UNKNOWN" || line.starts_with("UNKNOWN ")) return header;
  std::array<std::string_view, 5> words;
  for (std::string_view& word : words) {
    const bool last = &word == &words.back();
    const size_t end = last ? line.size() : line.find(' ');
    if (end == std::string_view::npos) return Malformed("a PROXY line with a word missing");
    word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  if (words[0] != "TCP4" && words[0] != "TCP6") return Malformed("a PROXY line of an unknown protocol");
  const auto source = IpAddress::Parse(words[1]);
  const auto destination = IpAddress::Parse(words[2]);
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  if (!source || !destination || !ParsePort(words[3], &source_port) || !ParsePort(words[4], &destination_port))
    return Malformed("a PROXY line with a malformed address or port");
  const bool dotted = words[1].find(':') == std::string_view::npos;
  if (dotted != (words[0] == "TCP4")) return Malformed("a PROXY line with an address of another family");
  header.source = Endpoint{*source, source_port};
  return header;
}

ProxyHeader ParseVersion1(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, kMaxProxyLine);
  const size_t end = head.find('\n');
  if (end == std::string_view::npos)
    return bytes.size() >= kMaxProxyLine ? Malformed("a PROXY line that is too long") : ProxyHeader{};
  if (head[end - 1] != '\r') return Malformed("a PROXY line that does not end in CRLF");
  return ParseLine(head.substr(kSignature1.size(), end - 1 - kSignature1.size()), end + 1);
}

std::optional<Endpoint> SourceOf(std::string_view block, uint8_t family) {
  const auto port = [&](size_t at) { return static_cast<uint16_t>(Byte(block, at) << 8 | Byte(block, at + 1)); };
  if (family == kTcpV4) {
    uint32_t address = 0;
    for (size_t i = 0; i < 4; ++i) address = address << 8 | Byte(block, i);
    return Endpoint{IpAddress::FromV4(address), port(8)};
  }
  std::array<uint8_t, 16> address{};
  for (size_t i = 0; i < address.size(); ++i) address[i] = Byte(block, i);
  return Endpoint{IpAddress::FromV6(address), port(32)};
}

ProxyHeader ParseVersion2(std::string_view bytes) {
  ProxyHeader header;
  if (bytes.size() < kFixed2) return header;
  const uint8_t command = Byte(bytes, 12);
  const uint8_t family = Byte(bytes, 13);
  const size_t length = static_cast<size_t>(Byte(bytes, 14)) << 8 | Byte(bytes, 15);
  if (command != kCommandLocal && command != kCommandProxy) return Malformed("a PROXY header of an unknown version or command");
  if (kFixed2 + length > kMaxProxyHeader) return Malformed("a PROXY header that is too large");
  if (bytes.size() < kFixed2 + length) return header;
  header.status = ProxyHeaderStatus::kComplete;
  header.consumed = kFixed2 + length;
  if (command == kCommandLocal || (family != kTcpV4 && family != kTcpV6)) return header;
  const size_t needed = family == kTcpV4 ? 12 : 36;
  if (length < needed) return Malformed("a PROXY header without room for its addresses");
  header.source = SourceOf(bytes.substr(kFixed2, length), family);
  return header;
}

}  // namespace

ProxyHeader ParseProxyHeader(std::string_view bytes) {
  if (bytes.size() >= kSignature2.size() && bytes.starts_with(kSignature2)) return ParseVersion2(bytes);
  if (bytes.size() >= kSignature1.size() && bytes.starts_with(kSignature1)) return ParseVersion1(bytes);
  if (MayBe(bytes, kSignature1) || MayBe(bytes, kSignature2)) return {};
  return Malformed("no PROXY header, which this listener wants first");
}

}  // namespace sluice::proxy
