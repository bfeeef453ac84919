#include "base/ip.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>

namespace sluice {
namespace {

// inet_pton(AF_INET) refuses everything but four decimal numbers, and glibc's also refuses leading zeros.
bool ParseBytes(std::string_view text, std::array<uint8_t, 16>* out) {
  char buffer[INET6_ADDRSTRLEN + 1];
  if (text.empty() || text.size() >= sizeof buffer || text.find('\0') != std::string_view::npos) return false;
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  in_addr v4{};
  if (inet_pton(AF_INET, buffer, &v4) == 1) {
    *out = IpAddress::FromV4(ntohl(v4.s_addr)).bytes();
    return true;
  }
  return inet_pton(AF_INET6, buffer, out->data()) == 1;
}

IpAddress Masked(const IpAddress& address, unsigned length) {
  std::array<uint8_t, 16> bytes = address.bytes();
  for (unsigned i = 0; i < 16; ++i) {
    const unsigned first = i * 8;
    if (first >= length) {
      bytes[i] = 0;
    } else if (length - first < 8) {
      bytes[i] = static_cast<uint8_t>(bytes[i] & (0xffu << (8 - (length - first))));
    }
  }
  return IpAddress::FromV6(bytes);
}

}  // namespace

std::optional<IpAddress> IpAddress::Parse(std::string_view text) {
  std::array<uint8_t, 16> bytes{};
  if (!ParseBytes(text, &bytes)) return std::nullopt;
  return FromV6(bytes);
}

std::string IpAddress::ToString() const {
  char buffer[INET6_ADDRSTRLEN];
  if (is_v4()) return fmt::format("{}.{}.{}.{}", bytes_[12], bytes_[13], bytes_[14], bytes_[15]);
  inet_ntop(AF_INET6, bytes_.data(), buffer, sizeof buffer);
  return buffer;
}

std::optional<Cidr> Cidr::Parse(std::string_view text) {
  const size_t slash = text.find('/');
  const auto address = IpAddress::Parse(text.substr(0, slash));
  if (!address) return std::nullopt;
  // The text's own family decides what a length means: ::ffff:1.2.3.4/104 counts 128 bits.
  const bool v4_text = text.substr(0, slash).find(':') == std::string_view::npos;
  unsigned length = v4_text ? 32 : 128;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || digits.size() > 3 || error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
    if (value > length) return std::nullopt;
    length = value;
  }
  Cidr cidr;
  cidr.length_ = v4_text ? length + 96 : length;
  cidr.base_ = Masked(*address, cidr.length_);
  if (cidr.base_ != *address) return std::nullopt;
  return cidr;
}

Cidr Cidr::Of(IpAddress base, unsigned length) {
  Cidr cidr;
  cidr.length_ = base.is_v4() ? length + 96 : length;
  cidr.base_ = Masked(base, cidr.length_);
  return cidr;
}

bool Cidr::Contains(const IpAddress& address) const { return Masked(address, length_) == base_; }

bool Cidr::Contains(const Cidr& inner) const { return inner.length_ >= length_ && Contains(inner.base_); }

std::string Cidr::ToString() const { return fmt::format("{}/{}", base_.ToString(), is_v4() ? length_ - 96 : length_); }

std::optional<Endpoint> Endpoint::FromSockaddr(const ::sockaddr* address, size_t length) {
  if (length < sizeof(sa_family_t)) return std::nullopt;
  sa_family_t family = 0;
  std::memcpy(&family, address, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    return Endpoint{IpAddress::FromV4(ntohl(in.sin_addr.s_addr)), ntohs(in.sin_port)};
  }
  // 24 is SIN6_LEN_RFC2133: the kernel takes an IPv6 address without its scope.
  if (family == AF_INET6 && length >= 24) {
    sockaddr_in6 in6{};
    std::memcpy(&in6, address, length < sizeof in6 ? length : sizeof in6);
    std::array<uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), &in6.sin6_addr, bytes.size());
    return Endpoint{IpAddress::FromV6(bytes), ntohs(in6.sin6_port)};
  }
  return std::nullopt;
}

size_t Endpoint::ToSockaddr(::sockaddr_storage* out) const {
  if (!address.is_v4()) return ToSockaddr6(out);
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(address.v4());
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &in, sizeof in);
  return sizeof in;
}

size_t Endpoint::ToSockaddr6(::sockaddr_storage* out) const {
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  std::memcpy(&in6.sin6_addr, address.bytes().data(), 16);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &in6, sizeof in6);
  return sizeof in6;
}

std::string Endpoint::ToString() const {
  return address.is_v4() ? fmt::format("{}:{}", address.ToString(), port) : fmt::format("[{}]:{}", address.ToString(), port);
}

}  // namespace sluice
