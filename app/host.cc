#include "app/host.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

namespace sluice::app {

Result<std::vector<IpAddress>> HostAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return FailErrno("cannot list this machine's addresses", errno);
  std::vector<IpAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const size_t length = entry->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_storage) : 16;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    if (const auto endpoint = Endpoint::FromSockaddr(entry->ifa_addr, length < 28 ? length : 28))
      addresses.push_back(endpoint->address);
  }
  freeifaddrs(list);
  return addresses;
}

Result<DescriptorRoom> RoomFor(uint64_t limit) {
  constexpr uint64_t kMost = 1 << 20;
  constexpr int kLeastKept = 64;
  constexpr int kMostKept = 512;
  if (limit < kMinDescriptors)
    return Fail(Code::kExhausted, fmt::format("at most {} descriptors may be open here, and a run needs {}: raise the hard limit "
                                              "(ulimit -Hn, LimitNOFILE=)",
                                              limit, kMinDescriptors));
  const int most = static_cast<int>(std::min(limit, kMost));
  return DescriptorRoom{most, most - std::clamp(most / 8, kLeastKept, kMostKept)};
}

Result<DescriptorRoom> RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return FailErrno("cannot read the limit on descriptors", errno);
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return RoomFor(setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before);
}

}  // namespace sluice::app
