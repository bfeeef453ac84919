#include "dns/io/port_filter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <vector>

#include "dns/flood_gate.h"

namespace sluice::dns {

static_assert(kMaxShutPorts < 255, "a jump reaches no further");

bool DropFromPorts(int udp, std::span<const uint16_t> ports) {
  if (ports.size() > kMaxShutPorts) ports = ports.first(kMaxShutPorts);
  if (ports.empty()) {
    const int none = 0;
    return setsockopt(udp, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none) == 0;
  }
  // A UDP socket's filter sees the datagram from its own header on: the source port stands first.
  std::vector<sock_filter> program = {{BPF_LD | BPF_H | BPF_ABS, 0, 0, 0}};
  for (size_t i = 0; i < ports.size(); ++i) {
    const auto to_drop = static_cast<uint8_t>(ports.size() - i);
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, to_drop, 0, ports[i]});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, 0xffffffff});
  program.push_back({BPF_RET | BPF_K, 0, 0, 0});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(udp, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

}  // namespace sluice::dns
