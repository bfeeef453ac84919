#include "proxy/io/explicit_options.h"

#include <algorithm>

namespace sluice::proxy {
namespace {

bool IsUnspecified(const IpAddress& address) { return address == IpAddress{} || address == IpAddress::FromV4(0); }

bool IsLoopback(const IpAddress& address) {
  static const Cidr kV4 = Cidr::Of(IpAddress::FromV4(0x7f000000), 8);
  static const IpAddress kV6 = *IpAddress::Parse("::1");
  return address == kV6 || (address.is_v4() && kV4.Contains(address));
}

}  // namespace

bool IsOwn(const std::vector<Endpoint>& own, const std::vector<IpAddress>& host_addresses, const Endpoint& dialled) {
  const bool anywhere = IsUnspecified(dialled.address);
  return std::ranges::any_of(own, [&](const Endpoint& listener) {
    if (listener.port != dialled.port) return false;
    if (listener.address == dialled.address || anywhere) return true;
    return IsUnspecified(listener.address) &&
           (IsLoopback(dialled.address) || std::ranges::find(host_addresses, dialled.address) != host_addresses.end());
  });
}

bool ClientCounts::Enter(const IpAddress& address, Place* place) {
  {
    const std::lock_guard lock(mutex_);
    size_t& count = counts_[address];
    if (count >= kMaxClientConnections) return false;
    ++count;
  }
  *place = Place(*this, address);
  return true;
}

void ClientCounts::Leave(const IpAddress& address) {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(address);
  if (found != counts_.end() && --found->second == 0) counts_.erase(found);
}

}  // namespace sluice::proxy
