#include "prover/modelled.h"

#include <fmt/format.h>

namespace sluice::prover {
namespace {

std::string_view Unmodelled(const policy::Rule& rule) {
  using policy::Verb;
  const Verb verb = rule.verb;
  if (verb == Verb::kWs || verb == Verb::kGrpc || verb == Verb::kGraphql || verb == Verb::kJsonRpc || verb == Verb::kMcp)
    return policy::VerbText(verb);
  if (policy::ReadsPush(rule)) return "refs";
  if (rule.lfs) return "lfs";
  if (!rule.json.empty()) return "json";
  if (!rule.with.empty()) return "with";
  if (!rule.via.empty()) return "via";
  return rule.pins.empty() ? "" : "pins";
}

}  // namespace

std::string WhyNotModelled(const policy::Rule& rule) {
  const std::string_view word = Unmodelled(rule);
  if (word.empty()) return "";
  const std::string place = rule.span.line == 0 ? "" : fmt::format(" ({})", policy::PlaceText(rule.span, rule.origin));
  return fmt::format("`{}`{} uses `{}`, which is not compared yet", policy::CompactText(rule), place, word);
}

std::string WhyNotModelled(const policy::Snapshot& policy) {
  if (!policy.settings().via.empty()) return "`settings: via` is not compared yet";
  for (const policy::Rule& rule : policy.compiled().rules)
    if (std::string why = WhyNotModelled(rule); !why.empty()) return why;
  return "";
}

}  // namespace sluice::prover
