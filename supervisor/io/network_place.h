#pragma once

// Whether the network namespace of this process is a machine's own, where a fence would shut the machine and whoever is logged
// in.

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::supervisor {

/// Why it is taken for a machine's own, as a part of a sentence; nothing where it is not. It is where the kernel began with it
/// (the first namespace, which a virtual machine has, too: SO_NETNS_COOKIE is 1, Linux 5.14; before, where process 1 of the first
/// process namespace has it), and where the system's own service manager has it (a container that was booted like a machine).
/// Thread-safe.
[[nodiscard]] std::optional<std::string> WhyMachinesNetwork();

/// The same of what was found; pure.
struct NetworkSigns {
  std::optional<uint64_t> cookie{};      ///< SO_NETNS_COOKIE; nothing: this kernel has none
  bool with_first_process = false;       ///< process 1, as seen from here, has the same network
  bool first_process_namespace = false;  ///< process 1 is the kernel's own first
  bool booted = false;                   ///< process 1 is a service manager (sd_booted(3))
};
[[nodiscard]] std::optional<std::string> WhyMachinesNetwork(const NetworkSigns& signs);

}  // namespace sluice::supervisor
