#include "prover/modelled.h"

#include <fmt/format.h>

namespace sluice::prover {

std::string WhyNotModelled(const policy::Rule& rule) {
  if (!rule.lfs) return "";
  const std::string place = rule.span.line == 0 ? "" : fmt::format(" ({})", policy::PlaceText(rule.span, rule.origin));
  return fmt::format("`{}`{} uses `lfs`, which is not compared yet", policy::CompactText(rule), place);
}

std::string WhyNotModelled(const policy::Snapshot& policy) {
  const auto& compiled = policy.compiled();
  for (const policy::Rule& rule : compiled.rules) {
    if (std::string why = WhyNotModelled(rule); !why.empty()) return why;
    // What is let through for the record alone goes its own way.
    if (policy.mode() == policy::Mode::kAudit && (!rule.via.empty() || !rule.pins.empty()))
      return "`via` and `pins` under `mode: audit` are not compared";
  }
  if (policy.mode() == policy::Mode::kAudit && !policy.settings().via.empty())
    return "`settings: via` under `mode: audit` is not compared";
  return "";
}

}  // namespace sluice::prover
