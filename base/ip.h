#pragma once

// IP addresses, prefixes and endpoints as values. An IPv4-mapped IPv6 address and its IPv4 form are the same value, so
// that no rule can be passed by spelling an address the other way (RFC 4291 section 2.5.5.2).

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

struct sockaddr;
struct sockaddr_storage;

namespace sluice {

class IpAddress {
 public:
  /// ::, the unspecified IPv6 address.
  constexpr IpAddress() = default;

  /// From four bytes in host order: 0x7f000001 is 127.0.0.1.
  static constexpr IpAddress FromV4(uint32_t host_order) {
    IpAddress a;
    a.bytes_[10] = a.bytes_[11] = 0xff;
    a.bytes_[12] = static_cast<uint8_t>(host_order >> 24);
    a.bytes_[13] = static_cast<uint8_t>(host_order >> 16);
    a.bytes_[14] = static_cast<uint8_t>(host_order >> 8);
    a.bytes_[15] = static_cast<uint8_t>(host_order);
    return a;
  }
  /// From sixteen bytes in network order; ::ffff:a.b.c.d becomes the IPv4 address.
  static constexpr IpAddress FromV6(const std::array<uint8_t, 16>& bytes) {
    IpAddress a;
    a.bytes_ = bytes;
    return a;
  }
  /// Strict dotted quad (no octal, hexadecimal or short forms) or RFC 4291 text without brackets or a zone.
  static std::optional<IpAddress> Parse(std::string_view text);

  [[nodiscard]] constexpr bool is_v4() const {
    for (size_t i = 0; i < 10; ++i)
      if (bytes_[i] != 0) return false;
    return bytes_[10] == 0xff && bytes_[11] == 0xff;
  }
  /// Only for is_v4(): the address in host order.
  [[nodiscard]] constexpr uint32_t v4() const {
    return (uint32_t{bytes_[12]} << 24) | (uint32_t{bytes_[13]} << 16) | (uint32_t{bytes_[14]} << 8) | bytes_[15];
  }
  /// Sixteen bytes in network order, IPv4 in its mapped form.
  [[nodiscard]] constexpr const std::array<uint8_t, 16>& bytes() const { return bytes_; }

  /// Canonical text: dotted quad, or RFC 5952.
  [[nodiscard]] std::string ToString() const;

  auto operator<=>(const IpAddress&) const = default;

 private:
  std::array<uint8_t, 16> bytes_{};
};

/// An address prefix. Bits below the length are zero by construction.
class Cidr {
 public:
  /// "10.0.0.0/8", "fd00::/8", or a bare address (a full-length prefix). Host bits set, or a length out of range: nothing.
  static std::optional<Cidr> Parse(std::string_view text);
  /// length counts from the address's own family: at most 32 for IPv4, 128 for IPv6. Host bits are cleared.
  static Cidr Of(IpAddress base, unsigned length);

  [[nodiscard]] bool Contains(const IpAddress& address) const;
  /// Whether every address of `inner` lies in this prefix.
  [[nodiscard]] bool Contains(const Cidr& inner) const;
  [[nodiscard]] const IpAddress& base() const { return base_; }
  /// Bits of the 128-bit form: an IPv4 /8 is 104.
  [[nodiscard]] unsigned length128() const { return length_; }
  [[nodiscard]] bool is_v4() const { return base_.is_v4() && length_ >= 96; }
  [[nodiscard]] std::string ToString() const;

  auto operator<=>(const Cidr&) const = default;

 private:
  IpAddress base_;
  unsigned length_ = 0;
};

/// An address and a port (host order).
struct Endpoint {
  IpAddress address;
  uint16_t port = 0;

  /// From a kernel sockaddr of `length` bytes; anything but a complete AF_INET or AF_INET6 one: nothing.
  static std::optional<Endpoint> FromSockaddr(const ::sockaddr* address, size_t length);
  /// Fills `out` with AF_INET for IPv4 and AF_INET6 otherwise; returns the length to pass to the kernel.
  size_t ToSockaddr(::sockaddr_storage* out) const;
  /// The same as AF_INET6 always, for dual-stack sockets (IPv4 in its mapped form).
  size_t ToSockaddr6(::sockaddr_storage* out) const;
  /// "1.2.3.4:443", "[::1]:443".
  [[nodiscard]] std::string ToString() const;

  auto operator<=>(const Endpoint&) const = default;
};

struct IpHash {
  size_t operator()(const IpAddress& a) const noexcept {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(a.bytes().data()), a.bytes().size()});
  }
};

}  // namespace sluice
