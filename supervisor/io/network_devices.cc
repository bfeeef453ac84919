#include "supervisor/io/network_devices.h"

#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace sluice::supervisor {

Result<std::vector<std::string>> NetworkDevices() {
  std::vector<std::string> names;
  struct if_nameindex* all = ::if_nameindex();
  if (all == nullptr) return FailErrno("the devices of this namespace cannot be told", errno);
  for (const struct if_nameindex* one = all; one->if_index != 0; ++one)
    if (std::string_view(one->if_name) != "lo") names.emplace_back(one->if_name);
  ::if_freenameindex(all);
  std::ranges::sort(names);
  return names;
}

}  // namespace sluice::supervisor
