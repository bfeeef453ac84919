#include "proxy/io/websocket_key.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "proxy/credential/encoding.h"

namespace sluice::proxy {
namespace {

std::string Base64(std::span<const uint8_t> bytes) {
  return Base64Encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string NewWebSocketKey() {
  std::array<uint8_t, 16> bytes;
  FillRandom(bytes);
  return Base64(bytes);
}

std::string WebSocketAccept(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  std::array<uint8_t, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) return {};
  return Base64(std::span(digest).first(size));
}

}  // namespace sluice::proxy
