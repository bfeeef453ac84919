#pragma once

// Whether the network namespace of this process is a machine's own, where a fence would shut the machine and whoever is logged
// in.

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::supervisor {

/// Why it is taken for a machine's own, as a part of a sentence; nothing where it is not. It is where the kernel began with it
/// (the first namespace, which a virtual machine has, too), and where the system's own service manager has it (a container that
/// was booted like a machine). The first is known by its number, which is none of those that are given out later (Linux 6.18),
/// or by SO_NETNS_COOKIE, which is 1 (Linux 5.14; 6.18 gives it another); before, by process 1 of the first process namespace.
/// Thread-safe.
[[nodiscard]] std::optional<std::string> WhyMachinesNetwork();

/// The same of what was found; pure.
struct NetworkSigns {
  bool first_number = false;             ///< its number is one that the kernel keeps for those it begins with
  std::optional<uint64_t> cookie{};      ///< SO_NETNS_COOKIE; nothing: this kernel has none
  bool with_first_process = false;       ///< process 1, as seen from here, has the same network
  bool first_process_namespace = false;  ///< process 1 is the kernel's own first
  bool booted = false;                   ///< process 1 is a service manager (sd_booted(3))
};
[[nodiscard]] std::optional<std::string> WhyMachinesNetwork(const NetworkSigns& signs);

}  // namespace sluice::supervisor
