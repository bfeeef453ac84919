#pragma once

// What the allows that cover a request lay down for it: which of them is named, the credential, the upstream proxy, the pins.

#include <algorithm>

#include "policy/compiled.h"
#include "policy/layers.h"

namespace sluice::policy {

struct Grant {
  uint32_t rule = kNoIndex;  ///< the first
  uint16_t credential = kNoIndex16;
  uint16_t proxy = kNoIndex16;
  uint32_t pinned = kNoIndex;  ///< an allow with pins
  bool by_name = false;        ///< some allow does not say which addresses it is about: the policy's own proxy may be used
  bool conflict = false;       ///< two allows lay down different things, which the loader refuses

  [[nodiscard]] bool given() const { return rule != kNoIndex; }

  void Add(const Snapshot::Compiled& compiled, uint32_t index) {
    const Rule& allow = compiled.rules[index];
    Grant one{.rule = index, .credential = allow.credential, .proxy = allow.proxy};
    if (!allow.pins.empty()) one.pinned = index;
    one.by_name = compiled.settings.proxy != kNoIndex16 && allow.ip.empty() && !allow.host.cidr;
    Merge(compiled, one);
  }

  void Merge(const Snapshot::Compiled& compiled, const Grant& other) {
    Keep(&rule, other.rule);
    Set(&credential, other.credential);
    Set(&proxy, other.proxy);
    if (pinned != kNoIndex && other.pinned != kNoIndex)
      conflict |= compiled.rules[pinned].pins != compiled.rules[other.pinned].pins;
    Keep(&pinned, other.pinned);
    by_name |= other.by_name;
    conflict |= other.conflict;
  }

  /// Whether `other` would change anything but the rule that is named.
  [[nodiscard]] bool ChangedBy(const Grant& other) const {
    return (other.credential != kNoIndex16 && other.credential != credential) ||
           (other.proxy != kNoIndex16 && other.proxy != proxy) || (other.pinned != kNoIndex && pinned == kNoIndex) ||
           (other.by_name && !by_name);
  }

  [[nodiscard]] uint16_t Via(const Snapshot::Compiled& compiled) const {
    if (proxy != kNoIndex16) return proxy;
    return by_name ? compiled.settings.proxy : kNoIndex16;
  }

 private:
  void Set(uint16_t* slot, uint16_t value) {
    if (value == kNoIndex16) return;
    conflict |= *slot != kNoIndex16 && *slot != value;
    *slot = value;
  }
};

}  // namespace sluice::policy
