#include "proxy/client_hello.h"

#include <algorithm>

namespace sluice::proxy {
namespace {

constexpr uint16_t kExtensionServerName = 0;
constexpr uint16_t kExtensionAlpn = 16;
constexpr uint16_t kExtensionEch = 0xfe0d;
constexpr uint16_t kExtensionEsni = 0xffce;

/// Reads big-endian numbers and counted strings; once something was missing, everything after it is too.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  uint32_t Number(size_t size) {
    uint32_t value = 0;
    for (const char c : Take(size)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::string_view Take(size_t size) {
    if (!ok_ || bytes_.size() < size) {
      ok_ = false;
      return {};
    }
    const auto out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }
  std::string_view Counted(size_t length_size) {
    const size_t size = Number(length_size);
    return Take(size);
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

bool ParseServerName(std::string_view body, ClientHello* hello) {
  Reader outer(body);
  Reader list(outer.Counted(2));
  if (!outer.ok() || !outer.empty() || list.empty()) return false;
  while (!list.empty()) {
    const uint32_t type = list.Number(1);
    const std::string_view name = list.Counted(2);
    if (!list.ok()) return false;
    if (type != 0) continue;
    // RFC 6066 section 3: never two names of one type.
    if (hello->sni || name.empty() || name.find('\0') != std::string_view::npos) return false;
    hello->sni = std::string(name);
  }
  return true;
}

bool ParseAlpn(std::string_view body, ClientHello* hello) {
  Reader outer(body);
  Reader list(outer.Counted(2));
  if (!outer.ok() || !outer.empty() || list.empty()) return false;
  while (!list.empty()) {
    const std::string_view name = list.Counted(1);
    if (!list.ok() || name.empty() || hello->alpn.size() == kMaxAlpnProtocols) return false;
    hello->alpn.emplace_back(name);
  }
  return true;
}

bool ParseExtensions(std::string_view block, ClientHello* hello) {
  Reader reader(block);
  std::vector<uint16_t> seen;
  while (!reader.empty()) {
    const auto type = static_cast<uint16_t>(reader.Number(2));
    const std::string_view body = reader.Counted(2);
    if (!reader.ok() || std::ranges::find(seen, type) != seen.end() || seen.size() == 128) return false;
    seen.push_back(type);
    if (type == kExtensionServerName && !ParseServerName(body, hello)) return false;
    if (type == kExtensionAlpn && !ParseAlpn(body, hello)) return false;
    hello->ech |= type == kExtensionEch;
    hello->esni |= type == kExtensionEsni;
  }
  return true;
}

bool ParseHelloBody(std::string_view body, ClientHello* hello) {
  Reader reader(body);
  reader.Take(2);   // legacy_version
  reader.Take(32);  // random
  if (reader.Counted(1).size() > 32) return false;
  const std::string_view suites = reader.Counted(2);
  const std::string_view compression = reader.Counted(1);
  if (!reader.ok() || suites.empty() || suites.size() % 2 != 0 || compression.empty()) return false;
  if (reader.empty()) return true;  // TLS 1.2 without extensions
  const std::string_view extensions = reader.Counted(2);
  if (!reader.ok() || !reader.empty()) return false;
  return ParseExtensions(extensions, hello);
}

HelloResult Malformed(std::string_view why) { return {HelloStatus::kMalformed, {}, why}; }

}  // namespace

HelloResult ParseClientHello(std::string_view bytes) {
  std::string message;
  Reader records(bytes);
  while (!records.empty()) {
    const uint32_t type = records.Number(1);
    if (type != 22) return Malformed("the first record is not a TLS handshake");
    const uint32_t version = records.Number(2);
    if (!records.ok()) return {};
    if (version >> 8 != 3) return Malformed("an unknown TLS record version");
    const uint32_t size = records.Number(2);
    if (!records.ok()) return {};
    if (size == 0 || size > 16384) return Malformed("a TLS record of an impossible size");
    const std::string_view fragment = records.Take(size);
    if (!records.ok()) {
      // Its own claims are checked as early as its header allows.
      return bytes.size() > kMaxClientHelloBytes + 5 ? Malformed("a ClientHello that is too long") : HelloResult{};
    }
    message.append(fragment);
    if (message.size() < 4) continue;
    if (message[0] != 1) return Malformed("the first TLS message is not a ClientHello");
    Reader header(std::string_view(message).substr(1));
    const size_t length = header.Number(3);
    if (length > kMaxClientHelloBytes) return Malformed("a ClientHello that is too long");
    if (message.size() < 4 + length) continue;
    if (message.size() > 4 + length) return Malformed("bytes after the ClientHello");
    HelloResult result{HelloStatus::kComplete, {}, {}};
    if (!ParseHelloBody(std::string_view(message).substr(4), &result.hello)) return Malformed("a malformed ClientHello");
    return result;
  }
  if (bytes.size() > 2 * kMaxClientHelloBytes) return Malformed("a ClientHello that is too long");
  return {};
}

}  // namespace sluice::proxy
