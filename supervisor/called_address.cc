#include "supervisor/called_address.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::supervisor {
namespace {

// Linux's numbers and layout, which are the same on every machine: the header that has them is for those who do I/O.
constexpr uint16_t kUnspec = 0, kUnix = 1, kInet = 2, kInet6 = 10;
constexpr size_t kFamilySize = 2;         // sa_family_t
constexpr size_t kMaxUnixSockaddr = 110;  // sizeof(sockaddr_un)

CalledAddress ReadUnix(std::span<const uint8_t> bytes) {
  if (bytes.size() > kMaxUnixSockaddr) return {AddressKind::kMalformed, kUnix, {}, {}};
  const auto rest = bytes.subspan(kFamilySize);
  if (rest.empty() || rest.front() == 0) return {AddressKind::kUnixAbstract, kUnix, {}, {}};
  const auto end = std::ranges::find(rest, uint8_t{0});
  return {AddressKind::kUnixPath, kUnix, {}, std::string(rest.begin(), end)};
}

}  // namespace

CalledAddress ReadCalledAddress(std::span<const uint8_t> bytes) {
  uint16_t family = 0;
  if (bytes.size() < kFamilySize || bytes.size() > kMaxSockaddr) return {};
  std::memcpy(&family, bytes.data(), kFamilySize);
  switch (family) {
    case kUnspec:
      return {AddressKind::kUnspecified, family, {}, {}};
    case kUnix:
      return ReadUnix(bytes);
    case kInet:
    case kInet6: {
      alignas(8) std::array<uint8_t, kMaxSockaddr> storage{};
      std::ranges::copy(bytes, storage.begin());
      const auto endpoint = Endpoint::FromSockaddr(reinterpret_cast<const ::sockaddr*>(storage.data()), bytes.size());
      if (!endpoint) return {AddressKind::kMalformed, family, {}, {}};
      return {AddressKind::kInet, family, *endpoint, {}};
    }
    default:
      return {AddressKind::kOther, family, {}, {}};
  }
}

size_t LongestTree(std::string_view path, std::span<const std::string> trees) {
  size_t longest = 0;
  for (const std::string& tree : trees) {
    std::string_view root = tree;
    while (root.size() > 1 && root.ends_with('/')) root.remove_suffix(1);
    const bool inside =
        root == "/" || (!root.empty() && path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/'));
    if (inside) longest = std::max(longest, root.size());
  }
  return longest;
}

bool IsBelow(std::string_view path, std::span<const std::string> trees) { return LongestTree(path, trees) != 0; }

bool OwnAddresses::Contains(const IpAddress& address) const {
  if (address.is_v4()) {
    if (address.v4() >> 24 == 127 || address.v4() == 0) return true;
  } else {
    constexpr IpAddress kAny;
    std::array<uint8_t, 16> loopback{};
    loopback[15] = 1;
    if (address == kAny || address == IpAddress::FromV6(loopback)) return true;
  }
  return std::ranges::find(of_lo_, address) != of_lo_.end();
}

}  // namespace sluice::supervisor
