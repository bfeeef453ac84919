#include "dns/spelled.h"

#include <algorithm>

#include "policy/index.h"

namespace sluice::dns {

bool IsSpelled(const policy::Snapshot& snapshot, std::string_view canonical_name) {
  const auto& compiled = snapshot.compiled();
  const auto found = compiled.names.find(canonical_name);
  return found != compiled.names.end() && std::ranges::any_of(found->second, [&](uint32_t i) { return compiled.rules[i].allow; });
}

bool IsSpelledUnder(const policy::Snapshot& snapshot, std::string_view canonical_name, std::string_view domain) {
  const auto& compiled = snapshot.compiled();
  bool spelled = false;
  policy::ForEachByName(compiled, canonical_name, [&](uint32_t i) {
    const policy::Rule& rule = compiled.rules[i];
    spelled |= rule.allow && rule.host.text.ends_with(domain);
  });
  return spelled;
}

}  // namespace sluice::dns
