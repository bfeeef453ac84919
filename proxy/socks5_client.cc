#include "proxy/socks5_client.h"

#include <array>
#include <cerrno>

namespace sluice::proxy {
namespace {

constexpr char kVersion = 5;
constexpr char kLoginVersion = 1;
constexpr uint8_t kNoLogin = 0;
constexpr uint8_t kLogin = 2;
constexpr uint8_t kNoneAcceptable = 0xff;
constexpr char kConnectCommand = 1;
constexpr uint8_t kIpv4 = 1;
constexpr uint8_t kName = 3;
constexpr uint8_t kIpv6 = 4;
// What is parsed below ends there: version, reply, reserved, kind, a name with its length, a port.
static_assert(4 + 1 + kMaxSocksText + 2 == kMaxSocksAnswer);

uint8_t At(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

SocksAnswer Malformed(std::string_view why) {
  SocksAnswer reply;
  reply.status = SocksAnswer::Status::kMalformed;
  reply.why = why;
  return reply;
}

SocksAnswer Refused(int error, std::string_view why) {
  SocksAnswer reply;
  reply.status = SocksAnswer::Status::kRefused;
  reply.error = error;
  reply.why = why;
  return reply;
}

SocksAnswer Done(size_t consumed) {
  SocksAnswer reply;
  reply.status = SocksAnswer::Status::kDone;
  reply.consumed = consumed;
  return reply;
}

struct Refusal {
  int error;
  std::string_view why;
};

// RFC 1928 section 6, by the reply's number.
constexpr std::array<Refusal, 9> kRefusals = {{
    {0, ""},
    {ECONNREFUSED, "general failure"},
    {ECONNREFUSED, "not allowed by its rules"},
    {ENETUNREACH, "network unreachable"},
    {EHOSTUNREACH, "host unreachable"},
    {ECONNREFUSED, "connection refused"},
    {EHOSTUNREACH, "TTL expired"},
    {ECONNREFUSED, "it does not know CONNECT"},
    {ECONNREFUSED, "it does not know this kind of address"},
}};

}  // namespace

std::string SocksHello(SocksLoginUse login) {
  if (login == SocksLoginUse::kNever) return {kVersion, 1, static_cast<char>(kNoLogin)};
  return {kVersion, 2, static_cast<char>(kNoLogin), static_cast<char>(kLogin)};
}

SocksAnswer ParseSocksMethod(std::string_view bytes, SocksLoginUse login) {
  if (!bytes.empty() && bytes[0] != kVersion) return Malformed("no SOCKS5 version");
  if (bytes.size() < 2) return {};
  const uint8_t method = At(bytes, 1);
  if (method == kNoneAcceptable)
    return Refused(ECONNREFUSED, login == SocksLoginUse::kOffered ? "it takes neither no login nor user and password"
                                                                  : "it wants a login, and none is configured");
  if (method != kNoLogin && (method != kLogin || login == SocksLoginUse::kNever))
    return Malformed("a way of login that was not offered");
  SocksAnswer reply = Done(2);
  reply.wants_login = method == kLogin;
  return reply;
}

std::optional<std::string> SocksLogin(std::string_view user, std::string_view password) {
  if (user.empty() || password.empty() || user.size() > kMaxSocksText || password.size() > kMaxSocksText) return std::nullopt;
  std::string bytes{kLoginVersion, static_cast<char>(user.size())};
  bytes += user;
  bytes += static_cast<char>(password.size());
  bytes += password;
  return bytes;
}

SocksAnswer ParseSocksLoginAnswer(std::string_view bytes) {
  if (!bytes.empty() && bytes[0] != kLoginVersion) return Malformed("no version of a login's reply");
  if (bytes.size() < 2) return {};
  if (bytes[1] != 0) return Refused(ECONNREFUSED, "it refused the user and password");
  return Done(2);
}

std::optional<std::string> SocksConnect(std::string_view name, const IpAddress& literal, uint16_t port) {
  if (name.size() > kMaxSocksText) return std::nullopt;
  std::string bytes{kVersion, kConnectCommand, 0};
  if (!name.empty()) {
    bytes += static_cast<char>(kName);
    bytes += static_cast<char>(name.size());
    bytes += name;
  } else {
    const bool four = literal.is_v4();
    bytes += static_cast<char>(four ? kIpv4 : kIpv6);
    for (size_t i = four ? 12 : 0; i < 16; ++i) bytes += static_cast<char>(literal.bytes()[i]);
  }
  bytes += static_cast<char>(port >> 8);
  bytes += static_cast<char>(port & 0xff);
  return bytes;
}

SocksAnswer ParseSocksConnectAnswer(std::string_view bytes) {
  if (!bytes.empty() && bytes[0] != kVersion) return Malformed("no SOCKS5 version");
  if (bytes.size() < 2) return {};
  if (const uint8_t code = At(bytes, 1); code != 0)
    return code < kRefusals.size() ? Refused(kRefusals[code].error, kRefusals[code].why)
                                   : Malformed("a reply of no known number");
  if (bytes.size() < 3) return {};
  if (bytes[2] != 0) return Malformed("a reserved octet that is not zero");
  if (bytes.size() < 4) return {};
  size_t size = 4 + 2;
  switch (At(bytes, 3)) {
    case kIpv4:
      size += 4;
      break;
    case kIpv6:
      size += 16;
      break;
    case kName:
      if (bytes.size() < 5) return {};
      size += 1 + size_t{At(bytes, 4)};
      break;
    default:
      return Malformed("an address of no known kind");
  }
  return bytes.size() < size ? SocksAnswer{} : Done(size);
}

}  // namespace sluice::proxy
