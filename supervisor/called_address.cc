#include "supervisor/called_address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

namespace sluice::supervisor {
namespace {

CalledAddress ReadUnix(std::span<const uint8_t> bytes) {
  constexpr size_t kPathOffset = offsetof(sockaddr_un, sun_path);
  if (bytes.size() > sizeof(sockaddr_un)) return {AddressKind::kMalformed, AF_UNIX, {}, {}};
  const auto rest = bytes.subspan(std::min(kPathOffset, bytes.size()));
  if (rest.empty() || rest.front() == 0) return {AddressKind::kUnixAbstract, AF_UNIX, {}, {}};
  const auto end = std::ranges::find(rest, uint8_t{0});
  return {AddressKind::kUnixPath, AF_UNIX, {}, std::string(rest.begin(), end)};
}

}  // namespace

CalledAddress ReadCalledAddress(std::span<const uint8_t> bytes) {
  sa_family_t family = 0;
  if (bytes.size() < sizeof family || bytes.size() > kMaxSockaddr) return {};
  std::memcpy(&family, bytes.data(), sizeof family);
  switch (family) {
    case AF_UNSPEC:
      return {AddressKind::kUnspecified, family, {}, {}};
    case AF_UNIX:
      return ReadUnix(bytes);
    case AF_INET:
    case AF_INET6: {
      sockaddr_storage storage{};
      std::memcpy(&storage, bytes.data(), bytes.size());
      const auto endpoint = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&storage), bytes.size());
      if (!endpoint) return {AddressKind::kMalformed, family, {}, {}};
      return {AddressKind::kInet, family, *endpoint, {}};
    }
    default:
      return {AddressKind::kOther, family, {}, {}};
  }
}

std::string NormalPath(std::string_view directory, std::string_view path) {
  std::string joined;
  if (!path.starts_with('/')) {
    joined = directory;
    joined += '/';
  }
  joined += path;
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin < joined.size();) {
    const size_t end = std::min(joined.find('/', begin), joined.size());
    const std::string_view part = std::string_view(joined).substr(begin, end - begin);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    begin = end + 1;
  }
  std::string out;
  for (const std::string_view part : parts) {
    out += '/';
    out += part;
  }
  return out.empty() ? "/" : out;
}

bool IsBelow(std::string_view path, std::span<const std::string> trees) {
  return std::ranges::any_of(trees, [&](const std::string& tree) {
    std::string_view root = tree;
    while (root.size() > 1 && root.ends_with('/')) root.remove_suffix(1);
    if (root.empty()) return false;
    if (root == "/") return true;
    return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
  });
}

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
