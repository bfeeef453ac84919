#include "proxy/socks5_request.h"

#include <array>
#include <cerrno>

namespace sluice::proxy {
namespace {

constexpr uint8_t kMethodNone = 0;
constexpr uint8_t kMethodPassword = 2;
constexpr uint8_t kPasswordVersion = 1;  // RFC 1929 section 2
constexpr uint8_t kCommandConnect = 1;
constexpr uint8_t kAddressV4 = 1;
constexpr uint8_t kAddressName = 3;
constexpr uint8_t kAddressV6 = 4;
constexpr size_t kFixedBytes = 4;  // version, command, reserved, address type

uint8_t Byte(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

// The address field's size with its length byte, or 0 where more bytes are needed to tell; `known` false for other types.
size_t AddressBytes(std::string_view bytes, bool* known) {
  *known = true;
  switch (Byte(bytes, 3)) {
    case kAddressV4:
      return 4;
    case kAddressV6:
      return 16;
    case kAddressName:
      return bytes.size() > kFixedBytes ? size_t{1} + Byte(bytes, kFixedBytes) : 0;
    default:
      *known = false;
      return 0;
  }
}

bool ReadPlace(std::string_view field, uint8_t type, ProxyTarget* target) {
  if (type == kAddressName) return SetPlace(field.substr(1), target);
  if (type == kAddressV4) {
    uint32_t address = 0;
    for (size_t i = 0; i < 4; ++i) address = address << 8 | Byte(field, i);
    target->literal = IpAddress::FromV4(address);
    return true;
  }
  std::array<uint8_t, 16> address{};
  for (size_t i = 0; i < address.size(); ++i) address[i] = Byte(field, i);
  target->literal = IpAddress::FromV6(address);
  return true;
}

SocksRequest Malformed(std::string_view why) {
  SocksRequest request;
  request.status = SocksStatus::kMalformed;
  request.why = why;
  return request;
}

}  // namespace

SocksGreeting ParseSocksGreeting(std::string_view bytes) {
  SocksGreeting greeting;
  if (bytes.empty()) return greeting;
  if (bytes[0] != kSocks5Version) {
    greeting.status = SocksStatus::kMalformed;
    return greeting;
  }
  if (bytes.size() < 2 || bytes.size() < size_t{2} + Byte(bytes, 1)) return greeting;
  greeting.status = SocksStatus::kComplete;
  greeting.consumed = size_t{2} + Byte(bytes, 1);
  for (size_t i = 2; i < greeting.consumed; ++i) {
    greeting.none |= Byte(bytes, i) == kMethodNone;
    greeting.password |= Byte(bytes, i) == kMethodPassword;
  }
  return greeting;
}

SocksPassword ParseSocksPassword(std::string_view bytes) {
  SocksPassword result;
  if (bytes.empty()) return result;
  if (Byte(bytes, 0) != kPasswordVersion) {
    result.status = SocksStatus::kMalformed;
    return result;
  }
  if (bytes.size() < 2) return result;
  const size_t name = Byte(bytes, 1);
  if (bytes.size() < 3 + name) return result;
  const size_t password = Byte(bytes, 2 + name);
  if (bytes.size() < 3 + name + password) return result;
  result.status = SocksStatus::kComplete;
  result.consumed = 3 + name + password;
  result.name = bytes.substr(2, name);
  result.password = bytes.substr(3 + name, password);
  return result;
}

SocksRequest ParseSocksRequest(std::string_view bytes) {
  SocksRequest request;
  if (!bytes.empty() && bytes[0] != kSocks5Version) return Malformed("another version within SOCKS5");
  if (bytes.size() > 2 && Byte(bytes, 2) != 0) return Malformed("a reserved byte that is not zero");
  if (bytes.size() < kFixedBytes) return request;
  bool known = false;
  const size_t address = AddressBytes(bytes, &known);
  if (!known) {
    // Its size is not known, so nothing after it can be.
    request = Malformed("an unknown type of address");
    request.refusal = SocksReply::kAddressNotSupported;
    return request;
  }
  if (address == 0 || bytes.size() < kFixedBytes + address + 2) return request;
  request.status = SocksStatus::kComplete;
  request.consumed = kFixedBytes + address + 2;
  const size_t port = kFixedBytes + address;
  request.target.port = static_cast<uint16_t>(Byte(bytes, port) << 8 | Byte(bytes, port + 1));
  if (Byte(bytes, 1) != kCommandConnect) {
    request.refusal = SocksReply::kCommandNotSupported;
    request.why = "a SOCKS command other than CONNECT";
  } else if (request.target.port == 0) {
    request.refusal = SocksReply::kFailure;
    request.why = "port 0";
  } else if (!ReadPlace(bytes.substr(kFixedBytes, address), Byte(bytes, 3), &request.target)) {
    request.refusal = SocksReply::kFailure;
    request.why = "a name that is not one in DNS";
  }
  return request;
}

std::string SocksMethodText(uint8_t method) { return {kSocks5Version, static_cast<char>(method)}; }

std::string SocksPasswordText(bool accepted) {
  return {static_cast<char>(kPasswordVersion), static_cast<char>(accepted ? 0 : 1)};
}

std::string SocksReplyText(SocksReply reply) {
  std::string text(10, '\0');
  text[0] = kSocks5Version;
  text[1] = static_cast<char>(reply);
  text[3] = static_cast<char>(kAddressV4);
  return text;
}

SocksReply SocksReplyFor(int error) {
  switch (error) {
    case 0:
      return SocksReply::kSucceeded;
    case EACCES:
    case EPERM:
      return SocksReply::kNotAllowed;
    case ENETUNREACH:
      return SocksReply::kNetworkUnreachable;
    case EHOSTUNREACH:
      return SocksReply::kHostUnreachable;
    case ECONNREFUSED:
      return SocksReply::kRefused;
    case ETIMEDOUT:
      return SocksReply::kExpired;
    default:
      return SocksReply::kFailure;
  }
}

}  // namespace sluice::proxy
