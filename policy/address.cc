#include "policy/address.h"

#include <array>
#include <cstdint>

namespace sluice::policy {
namespace {

struct Entry4 {
  uint32_t base;
  uint8_t length;
  const char* name;
};

// Narrow before wide: the first that holds the address decides. IANA's special-purpose registry (RFC 6890), with the
// metadata services of the large clouds in front.
constexpr Entry4 kV4[] = {
    {0xa9fea9fe, 32, "metadata service"},  // 169.254.169.254
    {0xa9feaa02, 32, "metadata service"},  // 169.254.170.2, credentials of ECS tasks
    {0xa9feaa17, 32, "metadata service"},  // 169.254.170.23, credentials of EKS pods
    {0xa83f8110, 32, "metadata service"},  // 168.63.129.16
    {0x646464c8, 32, "metadata service"},  // 100.100.100.200
    {0xc00000c0, 32, "metadata service"},  // 192.0.0.192
    {0x00000000, 8, "unspecified"},       {0x7f000000, 8, "loopback"},
    {0x0a000000, 8, "private"},           {0xac100000, 12, "private"},
    {0xc0a80000, 16, "private"},          {0x64400000, 10, "carrier-grade NAT"},
    {0xa9fe0000, 16, "link-local"},       {0xc0000000, 24, "protocol assignments"},
    {0xc0000200, 24, "documentation"},    {0xc6336400, 24, "documentation"},
    {0xcb007100, 24, "documentation"},    {0xc0586300, 24, "6to4 relay"},
    {0xc6120000, 15, "benchmark"},        {0xe0000000, 4, "multicast"},
    {0xf0000000, 4, "reserved"},
};

struct Entry6 {
  std::array<uint8_t, 16> base;
  uint8_t length;
  const char* name;
};

constexpr std::array<uint8_t, 16> V6(std::array<uint16_t, 8> groups) {
  std::array<uint8_t, 16> bytes{};
  for (size_t i = 0; i < 8; ++i) {
    bytes[2 * i] = static_cast<uint8_t>(groups[i] >> 8);
    bytes[2 * i + 1] = static_cast<uint8_t>(groups[i]);
  }
  return bytes;
}

constexpr Entry6 kV6[] = {
    {V6({0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254}), 128, "metadata service"},
    {V6({0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023}), 128, "metadata service"},
    {V6({0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254}), 128, "metadata service"},
    {V6({0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe}), 128, "metadata service"},
    {V6({0, 0, 0, 0, 0, 0, 0, 0}), 128, "unspecified"},
    {V6({0, 0, 0, 0, 0, 0, 0, 1}), 128, "loopback"},
    {V6({0, 0, 0, 0, 0, 0, 0, 0}), 96, "IPv4-compatible"},
    {V6({0, 0, 0, 0, 0xffff, 0, 0, 0}), 96, "IPv4-translated"},
    {V6({0x0064, 0xff9b, 0x0001, 0, 0, 0, 0, 0}), 48, "local NAT64"},
    {V6({0x0100, 0, 0, 0, 0, 0, 0, 0}), 64, "discard"},
    {V6({0x2001, 0, 0, 0, 0, 0, 0, 0}), 32, "Teredo"},
    {V6({0x2001, 0x0002, 0, 0, 0, 0, 0, 0}), 48, "benchmark"},
    {V6({0x2001, 0x0db8, 0, 0, 0, 0, 0, 0}), 32, "documentation"},
    {V6({0x3fff, 0, 0, 0, 0, 0, 0, 0}), 20, "documentation"},
    {V6({0x5f00, 0, 0, 0, 0, 0, 0, 0}), 16, "segment routing"},
    {V6({0xfc00, 0, 0, 0, 0, 0, 0, 0}), 7, "private"},
    {V6({0xfe80, 0, 0, 0, 0, 0, 0, 0}), 10, "link-local"},
    {V6({0xfec0, 0, 0, 0, 0, 0, 0, 0}), 10, "site-local"},
    {V6({0xff00, 0, 0, 0, 0, 0, 0, 0}), 8, "multicast"},
};

const Entry4* FindV4(uint32_t address) {
  for (const Entry4& entry : kV4)
    if (((address ^ entry.base) >> (32 - entry.length)) == 0) return &entry;
  return nullptr;
}

bool HasPrefix(const std::array<uint8_t, 16>& bytes, const std::array<uint8_t, 16>& base, unsigned length) {
  for (unsigned i = 0; i < length / 8; ++i)
    if (bytes[i] != base[i]) return false;
  const unsigned rest = length % 8;
  return rest == 0 || ((bytes[length / 8] ^ base[length / 8]) >> (8 - rest)) == 0;
}

uint32_t Word(const std::array<uint8_t, 16>& b, size_t at) {
  return (uint32_t{b[at]} << 24) | (uint32_t{b[at + 1]} << 16) | (uint32_t{b[at + 2]} << 8) | b[at + 3];
}

// The IPv4 address inside a 6to4 (RFC 3056) or NAT64 (RFC 6052) address, and the bits that stand before it.
std::optional<std::pair<uint32_t, unsigned>> Embedded(const std::array<uint8_t, 16>& bytes) {
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return std::pair{Word(bytes, 2), 16u};
  constexpr auto kNat64 = V6({0x0064, 0xff9b, 0, 0, 0, 0, 0, 0});
  if (HasPrefix(bytes, kNat64, 96)) return std::pair{Word(bytes, 12), 96u};
  return std::nullopt;
}

}  // namespace

std::optional<SpecialRange> FindSpecialRange(const IpAddress& address, std::span<const IpAddress> host_addresses) {
  for (const IpAddress& own : host_addresses)
    if (own == address) return SpecialRange{Cidr::Of(address, address.is_v4() ? 32 : 128), "the supervisor's own host"};
  if (address.is_v4()) {
    const Entry4* entry = FindV4(address.v4());
    if (entry == nullptr) return std::nullopt;
    return SpecialRange{Cidr::Of(address, entry->length), entry->name};
  }
  if (const auto embedded = Embedded(address.bytes())) {
    for (const IpAddress& own : host_addresses)
      if (own.is_v4() && own.v4() == embedded->first) return SpecialRange{Cidr::Of(address, 128), "the supervisor's own host"};
    const Entry4* entry = FindV4(embedded->first);
    if (entry == nullptr) return std::nullopt;
    return SpecialRange{Cidr::Of(address, entry->length == 32 ? 128 : embedded->second + entry->length), entry->name};
  }
  for (const Entry6& entry : kV6)
    if (HasPrefix(address.bytes(), entry.base, entry.length)) return SpecialRange{Cidr::Of(address, entry.length), entry.name};
  return std::nullopt;
}

std::optional<IpAddress> FirstAfter(const Cidr& prefix) {
  std::array<uint8_t, 16> bytes = prefix.base().bytes();
  // Add one to the last bit of the prefix; below it all is zero.
  for (unsigned bit = prefix.length128(); bit-- > 0;) {
    const auto mask = static_cast<uint8_t>(0x80u >> (bit % 8));
    bytes[bit / 8] ^= mask;
    if ((bytes[bit / 8] & mask) != 0) return IpAddress::FromV6(bytes);
  }
  return std::nullopt;
}

std::vector<IpAddress> SpecialRangeEdges() {
  std::vector<IpAddress> edges;
  const auto add = [&](const Cidr& prefix) {
    edges.push_back(prefix.base());
    if (const auto after = FirstAfter(prefix)) edges.push_back(*after);
  };
  const auto add_v6 = [&](const std::array<uint8_t, 16>& base, unsigned length) {
    add(Cidr::Of(IpAddress::FromV6(base), length));
  };
  add(Cidr::Of(IpAddress::FromV4(0), 0));
  for (const Entry6& entry : kV6) add_v6(entry.base, entry.length);
  const auto in_6to4 = [](uint32_t v4) {
    return V6({0x2002, static_cast<uint16_t>(v4 >> 16), static_cast<uint16_t>(v4), 0, 0, 0, 0, 0});
  };
  const auto in_nat64 = [](uint32_t v4) {
    return V6({0x0064, 0xff9b, 0, 0, 0, 0, static_cast<uint16_t>(v4 >> 16), static_cast<uint16_t>(v4)});
  };
  add_v6(in_6to4(0), 16);
  add_v6(in_nat64(0), 96);
  for (const Entry4& entry : kV4) {
    add(Cidr::Of(IpAddress::FromV4(entry.base), entry.length));
    add_v6(in_6to4(entry.base), 16u + entry.length);
    add_v6(in_nat64(entry.base), 96u + entry.length);
  }
  return edges;
}

}  // namespace sluice::policy
