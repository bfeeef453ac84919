#include "app/metrics.h"

#include <fmt/format.h>

#include "audit/record.h"

namespace sluice::app {
namespace {

std::string LabelValue(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

void Head(std::string* out, std::string_view name, std::string_view type, std::string_view help) {
  *out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class T>
void One(std::string* out, std::string_view name, std::string_view type, std::string_view help, T value) {
  Head(out, name, type, help);
  *out += fmt::format("{} {}\n", name, value);
}

}  // namespace

std::string PrometheusText(const MetricsView& view) {
  std::string out;
  Head(&out, "sluice_build_info", "gauge", "The version that runs.");
  out += fmt::format("sluice_build_info{{version=\"{}\"}} 1\n", LabelValue(view.version));
  One(&out, "sluice_ready", "gauge", "1 where every readiness check holds.", view.ready ? 1 : 0);
  One(&out, "sluice_uptime_seconds", "counter", "Since the sidecar started.", view.uptime_seconds);
  Head(&out, "sluice_policy_info", "gauge", "The policy in force, by its digest.");
  out += fmt::format("sluice_policy_info{{digest=\"{}\"}} 1\n", LabelValue(view.policy_digest));
  One(&out, "sluice_policy_revision", "gauge", "Rises with each policy put in force.", view.policy_revision);
  One(&out, "sluice_policy_rules", "gauge", "Rules of the policy in force.", view.policy_rules);
  Head(&out, "sluice_decisions_total", "counter", "Decisions by layer, verdict and reason.");
  for (const DecisionCount& count : view.decisions)
    out += fmt::format("sluice_decisions_total{{layer=\"{}\",verdict=\"{}\",reason=\"{}\"}} {}\n", audit::LayerText(count.layer),
                       count.allowed ? "allowed" : "denied", policy::ReasonText(count.reason), count.count);
  uint64_t lookups = 0;
  for (const DecisionCount& count : view.decisions) lookups += count.layer == policy::EventLayer::kDns ? count.count : 0;
  One(&out, "sluice_lookups_total", "counter", "Names that were asked for and judged.", lookups);
  One(&out, "sluice_told_addresses", "gauge", "Addresses whose names the resolver remembers.", view.told_addresses);
  One(&out, "sluice_open_connections", "gauge", "Connections that have not ended.", view.open_connections);
  One(&out, "sluice_exchanges_total", "counter", "Finished exchanges and relays.", view.exchanges);
  Head(&out, "sluice_transferred_bytes_total", "counter", "Bytes of bodies and relays.");
  out += fmt::format("sluice_transferred_bytes_total{{direction=\"up\"}} {}\n", view.bytes_up);
  out += fmt::format("sluice_transferred_bytes_total{{direction=\"down\"}} {}\n", view.bytes_down);
  // Gauges: the kernel counts from zero again with each set of rules.
  Head(&out, "sluice_fence_packets", "gauge", "Packets by the fence's rule, since the rules were last replaced.");
  for (const auto& counter : view.fence)
    out += fmt::format("sluice_fence_packets{{rule=\"{}\"}} {}\n", LabelValue(counter.name), counter.packets);
  Head(&out, "sluice_fence_bytes", "gauge", "Bytes by the fence's rule, since the rules were last replaced.");
  for (const auto& counter : view.fence)
    out += fmt::format("sluice_fence_bytes{{rule=\"{}\"}} {}\n", LabelValue(counter.name), counter.bytes);
  Head(&out, "sluice_fence_set_elements", "gauge", "Elements of the dynamic sets.");
  out += fmt::format("sluice_fence_set_elements{{family=\"ipv4\"}} {}\n", view.set_v4);
  out += fmt::format("sluice_fence_set_elements{{family=\"ipv6\"}} {}\n", view.set_v6);
  One(&out, "sluice_stream_readers", "gauge", "Readers of the decisions stream.", view.stream_readers);
  One(&out, "sluice_stream_dropped_total", "counter", "Readers that were cut off for reading too slowly.", view.stream_dropped);
  return out;
}

}  // namespace sluice::app
