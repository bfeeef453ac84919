#pragma once

// What `sluice doctor` judges a machine by, as values.

#include <cstdint>
#include <optional>
#include <string>

#include "app/doctor/place.h"
#include "supervisor/service_mesh.h"

namespace sluice::app {

/// cgroup 2, as far as it is this process's to use.
struct CgroupFacts {
  bool unified = false;       ///< /sys/fs/cgroup is cgroup 2
  std::string path{};         ///< of this process, below /sys/fs/cgroup
  bool writable = false;      ///< groups may be made below it: delegated, or root's
  std::string controllers{};  ///< "cpu memory pids"
  std::optional<uint64_t> pids_max{};
  std::optional<uint64_t> pids_now{};
};

struct MachineFacts {
  PlaceFacts place{};
  int landlock_abi = 0;
  CgroupFacts cgroup{};
  uint64_t descriptors_hard = 0;              ///< RLIMIT_NOFILE
  std::optional<uint64_t> processes_limit{};  ///< RLIMIT_NPROC, where it counts
  std::optional<uint64_t> threads_max{};      ///< kernel.threads-max
  std::optional<uint64_t> conntrack_max{};    ///< net.netfilter.nf_conntrack_max
  std::optional<supervisor::ServiceMesh> mesh{};
};

}  // namespace sluice::app
