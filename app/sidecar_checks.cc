#include "app/sidecar_checks.h"

#include <fmt/format.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/service.h"
#include "audit/io/audit_file.h"
#include "base/unique_fd.h"
#include "supervisor/fence_ruleset.h"
#include "supervisor/io/redirect_sockets.h"

namespace sluice::app {
namespace {

struct Wanted {
  std::string flag;
  ListenAddress address;
};

std::vector<Wanted> WantedSockets(const SidecarOptions& options, const AdminAddresses& addresses) {
  std::vector<Wanted> wanted;
  for (const ListenAddress& address : addresses.admin) wanted.push_back({"--admin", address});
  if (addresses.health) wanted.push_back({"--health", *addresses.health});
  if (addresses.front) wanted.push_back({"OPENSANDBOX_EGRESS_HTTP_ADDR", *addresses.front});
  const IpAddress loopback = IpAddress::FromV4(0x7f000001);
  if (options.proxy_port != 0) wanted.push_back({"--proxy-port", {{}, {loopback, options.proxy_port}}});
  if (options.dns_port != 0) wanted.push_back({"--dns-port", {{}, {loopback, options.dns_port}}});
  return wanted;
}

bool Same(const ListenAddress& a, const ListenAddress& b) {
  if (!a.unix_path.empty() || !b.unix_path.empty()) return a.unix_path == b.unix_path;
  if (a.endpoint.port == 0 || a.endpoint.port != b.endpoint.port) return false;
  const auto every = [](const IpAddress& address) { return address.ToString() == "0.0.0.0" || address.ToString() == "::"; };
  return a.endpoint.address == b.endpoint.address || every(a.endpoint.address) || every(b.endpoint.address);
}

Result<void> CheckSockets(const SidecarOptions& options, const AdminAddresses& addresses) {
  const std::vector<Wanted> wanted = WantedSockets(options, addresses);
  for (size_t i = 0; i < wanted.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (Same(wanted[i].address, wanted[j].address))
        return Fail(Code::kInvalid, fmt::format("{} and {} name the same place", wanted[j].flag, wanted[i].flag));
  for (const Wanted& one : wanted) {
    if (auto free = CheckListenAt(one.address); !free) {
      free.error().message = fmt::format("{}: {}", one.flag, free.error().message);
      return free;
    }
  }
  if (options.proxy_port == 0 && options.dns_port == 0) return {};
  // Bound for a moment, to `lo`: nobody is answered there.
  if (auto sockets = supervisor::OpenRedirectSockets(options.proxy_port, options.dns_port); !sockets)
    return std::unexpected(sockets.error());
  return {};
}

// Whatever the workload sends is led there. A network namespace begins with it down.
Result<void> CheckLoopback() {
  const UniqueFd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::string_view("lo").copy(loopback.ifr_name, sizeof loopback.ifr_name - 1);
  if (::ioctl(probe.get(), SIOCGIFFLAGS, &loopback) != 0) return FailErrno("cannot look at `lo`", errno);
  if ((static_cast<unsigned>(loopback.ifr_flags) & IFF_UP) != 0) return {};
  return Fail(Code::kInvalid,
              "`lo` is down in this network namespace, and what the workload sends is led there: `ip link set lo up` first");
}

}  // namespace

Result<void> CheckPlaces(const SidecarOptions& options, const AdminAddresses& addresses) {
  if (auto up = CheckLoopback(); !up) return up;
  if (auto writable = CheckAuthorityPlaces(options.ca_out, options.bundle_out); !writable) return writable;
  if (!options.audit.empty())
    if (auto file = audit::AuditFile::Open(options.audit); !file) return std::unexpected(file.error());
  return CheckSockets(options, addresses);
}

Error LeftShut(Error error) {
  error.message += fmt::format(
      "; the fence stands, and nothing is let out of this network: start the sidecar again, or take the fence away with `nft "
      "delete table inet {}; nft delete table netdev {}`",
      supervisor::kFenceTable, supervisor::kFenceEgressTable);
  return error;
}

}  // namespace sluice::app
