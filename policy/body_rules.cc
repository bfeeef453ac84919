#include "policy/body_rules.h"

namespace sluice::policy {

// f(Entry). The second walk, for what found no place, asks the same questions as the first did.
template <class F>
void BodyRules::ForEachAllow(F f) const {
  if (allows_.count <= kRoom) {
    for (size_t i = 0; i < allows_.count; ++i) f(allows_.entries[i]);
    return;
  }
  ForEachCandidate(compiled_, request_.connection, [&](uint32_t i) {
    const Rule& rule = compiled_.rules[i];
    if (!rule.allow || !IsInner(rule.verb) || !ReadsBody(rule)) return;
    if (!AllowCoversConnection(rule, connection_) || !view_.AllowCovers(rule)) return;
    if (const BodyKinds reading = view_.AllowReading(rule); reading != 0) f(Entry{i, reading});
  });
}

template <class F>
void BodyRules::ForEachDeny(F f) const {
  if (denies_.count <= kRoom) {
    for (size_t i = 0; i < denies_.count; ++i) f(denies_.entries[i]);
    return;
  }
  const ConnectQuery& query = request_.connection;
  ForEachCandidate(compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_.rules[i];
    if (rule.allow || !IsInner(rule.verb) || !ReadsBody(rule)) return;
    if (!CoversPort(rule, query.port) || !DenyCoversProcess(rule, query.process) || !DenyCoversAddress(rule, connection_)) return;
    if (const auto reading = view_.DenyReading(rule); reading && *reading != 0) f(Entry{i, *reading});
  });
}

// Whether some deny takes all that the allow gives, so that no body is allowed by it.
bool BodyRules::IsDead(const Entry& allow) const {
  bool dead = false;
  ForEachDeny([&](const Entry& deny) {
    dead = dead || (deny.reading == allow.reading &&
                    DenyCoversAllow(compiled_.rules[deny.index], compiled_.rules[allow.index], allow.reading));
  });
  return dead;
}

BodyKinds BodyRules::Needed(const Grant& plain) const {
  BodyKinds alive = 0;
  if (allows_.count != 0) {
    ForEachAllow([&](const Entry& allow) {
      if ((alive & allow.reading) != 0) return;
      Grant one;
      one.Add(compiled_, allow.index);
      if ((!plain.given() || plain.ChangedBy(one)) && !IsDead(allow)) alive |= allow.reading;
    });
  }
  if (!plain.given() && alive == 0) return 0;
  return alive | denies_.kinds;
}

uint32_t BodyRules::Denying(const RequestBody& body) const {
  uint32_t found = kNoIndex;
  ForEachDeny([&](const Entry& deny) {
    if (deny.index < found && DenyCoversBody(compiled_.rules[deny.index], deny.reading, body)) found = deny.index;
  });
  return found;
}

// Each item is allowed by some rule. A credential goes with the request where each item may have it: else what one rule lets be
// done with it would be done for the others too.
template <class Item>
void BodyRules::GrantItems(BodyKinds reading, const Grant& plain, const std::optional<BodyReading<Item>>& items,
                           Grant* total) const {
  if (!allows_.in(reading) || !items || !items->readable()) return;
  Grant whole;
  if (items->items.empty()) {
    // git pushes nothing to learn whether it may push; nothing else that asks for nothing is readable.
    if (reading == kBodyPush)
      ForEachAllow([&](const Entry& allow) {
        if (allow.reading == reading) whole.Add(compiled_, allow.index);
      });
    if (whole.given()) total->Merge(compiled_, whole);
    return;
  }
  uint16_t common = kNoIndex16;
  bool first = true;
  for (const Item& item : items->items) {
    Grant one = plain;
    ForEachAllow([&](const Entry& allow) {
      if (allow.reading == reading && AllowCoversItem(compiled_.rules[allow.index], item)) one.Add(compiled_, allow.index);
    });
    if (!one.given()) return;
    common = first || one.credential == common ? one.credential : kNoIndex16;
    first = false;
    one.credential = kNoIndex16;
    whole.Merge(compiled_, one);
  }
  whole.credential = common;
  total->Merge(compiled_, whole);
}

void BodyRules::GrantJson(const Grant& plain, const RequestBody& body, Grant* total) const {
  if (!allows_.in(kBodyJson) || !body.json || !body.json->readable()) return;
  Grant whole = plain;
  ForEachAllow([&](const Entry& allow) {
    if (allow.reading == kBodyJson && AllowCoversJson(compiled_.rules[allow.index], body.json->items))
      whole.Add(compiled_, allow.index);
  });
  if (whole.given()) total->Merge(compiled_, whole);
}

Grant BodyRules::Granting(const Grant& plain, const RequestBody& body) const {
  Grant total = plain;
  if (allows_.count == 0) return total;
  GrantItems(kBodyGraphql, plain, body.graphql, &total);
  GrantItems(kBodyRpc, plain, body.rpc, &total);
  GrantItems(kBodyPush, plain, body.push, &total);
  GrantItems(kBodyLfs, plain, body.lfs, &total);
  GrantJson(plain, body, &total);
  return total;
}

}  // namespace sluice::policy
