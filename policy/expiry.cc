#include "policy/expiry.h"

#include "policy/compiled.h"

namespace sluice::policy {

std::optional<WallTime> NextExpiry(const Snapshot& snapshot, WallTime now) {
  std::optional<WallTime> next;
  for (const Rule& rule : snapshot.compiled().rules) {
    if (rule.until && *rule.until > now && (!next || *rule.until < *next)) next = rule.until;
  }
  return next;
}

}  // namespace sluice::policy
