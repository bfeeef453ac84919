#include "policy/breadth.h"

#include <libpsl.h>

namespace sluice::policy {
namespace {

// What stands right of the last wildcard label.
std::string FixedTail(const HostPattern& host) {
  std::string tail;
  for (size_t i = host.labels.size(); i-- > 0;) {
    if (!host.labels[i].is_literal()) break;
    tail = host.labels[i].text() + (tail.empty() ? "" : "." + tail);
  }
  return tail;
}

}  // namespace

Breadth BreadthOf(const HostPattern& host) {
  if (host.kind == HostPattern::Kind::kAny) return {HostBreadth::kEverything};
  if (host.kind != HostPattern::Kind::kGlob) return {};
  const std::string tail = FixedTail(host);
  if (tail.empty()) return {HostBreadth::kSuffix, host.text};
  // A single label that is no known suffix is a network's own ("*.internal"): nobody registers below it.
  const bool known = psl_is_public_suffix2(psl_builtin(), tail.c_str(), PSL_TYPE_ANY | PSL_TYPE_NO_STAR_RULE) != 0;
  return known ? Breadth{HostBreadth::kSuffix, tail} : Breadth{};
}

bool IsRegistrableName(std::string_view name) {
  const std::string text(name);
  const char* registrable = psl_registrable_domain(psl_builtin(), text.c_str());
  const char* suffix = psl_unregistrable_domain(psl_builtin(), text.c_str());
  return registrable != nullptr && suffix != nullptr &&
         psl_is_public_suffix2(psl_builtin(), suffix, PSL_TYPE_ANY | PSL_TYPE_NO_STAR_RULE) != 0;
}

}  // namespace sluice::policy
