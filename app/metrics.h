#pragma once

// What a sidecar counts, as Prometheus text (exposition format 0.0.4).

#include <cstdint>
#include <string>
#include <vector>

#include "policy/event.h"
#include "supervisor/io/fence.h"

namespace sluice::app {

/// Decisions of one kind.
struct DecisionCount {
  policy::EventLayer layer = policy::EventLayer::kConnect;
  bool allowed = false;
  policy::Reason reason = policy::Reason::kInternal;
  uint64_t count = 0;
};

struct MetricsView {
  std::string version;
  std::string policy_digest;
  uint64_t policy_revision = 0;
  size_t policy_rules = 0;
  bool ready = false;
  size_t open_connections = 0;
  uint64_t uptime_seconds = 0;
  uint64_t exchanges = 0;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  size_t stream_readers = 0;
  uint64_t stream_dropped = 0;
  size_t told_addresses = 0;  ///< that the resolver remembers
  std::vector<DecisionCount> decisions{};
  std::vector<supervisor::FenceCounter> fence{};
  size_t set_v4 = 0;  ///< elements of the dynamic sets
  size_t set_v6 = 0;
};

[[nodiscard]] std::string PrometheusText(const MetricsView& view);

}  // namespace sluice::app
