#pragma once

// The rules that have a say in one request by its body: collected while the candidates are walked, then asked whether the body
// can still change the answer, or what it says of the body. Nothing here allocates; what does not fit is looked up again.

#include <array>
#include <optional>

#include "policy/grant.h"
#include "policy/index.h"
#include "policy/operation.h"

namespace sluice::policy {

class BodyRules {
 public:
  BodyRules(const Snapshot::Compiled& compiled, const RequestQuery& request, const ConnectionView& connection,
            const RequestView& view)
      : compiled_(compiled), request_(request), connection_(connection), view_(view) {}

  void AddAllow(uint32_t index, BodyKinds reading) { Add(&allows_, index, reading); }
  void AddDeny(uint32_t index, BodyKinds reading) { Add(&denies_, index, reading); }

  /// The readings without which nothing can be said; 0: the answer is that of the allows and denies which look at no body.
  [[nodiscard]] BodyKinds Needed(const Grant& plain) const;
  /// The first deny that holds for the body, or kNoIndex.
  [[nodiscard]] uint32_t Denying(const RequestBody& body) const;
  /// What the allows lay down, those by body and `plain`; not given() where some item of the body is allowed by none.
  [[nodiscard]] Grant Granting(const Grant& plain, const RequestBody& body) const;

 private:
  static constexpr size_t kRoom = 64;
  struct Entry {
    uint32_t index;
    BodyKinds reading;
  };
  struct List {
    std::array<Entry, kRoom> entries;
    size_t count = 0;     ///< of all, also those without a place
    BodyKinds kinds = 0;  ///< readings of all of them
    bool in(BodyKinds reading) const { return (kinds & reading) != 0; }
  };

  static void Add(List* list, uint32_t index, BodyKinds reading) {
    if (list->count < kRoom) list->entries[list->count] = {index, reading};
    ++list->count;
    list->kinds |= reading;
  }

  template <class F>
  void ForEachAllow(F f) const;
  template <class F>
  void ForEachDeny(F f) const;
  template <class Item>
  void GrantItems(BodyKinds reading, const Grant& plain, const std::optional<BodyReading<Item>>& items, Grant* total) const;
  void GrantJson(const Grant& plain, const RequestBody& body, Grant* total) const;
  [[nodiscard]] bool IsDead(const Entry& allow) const;

  const Snapshot::Compiled& compiled_;
  const RequestQuery& request_;
  const ConnectionView& connection_;
  const RequestView& view_;
  List allows_;
  List denies_;
};

}  // namespace sluice::policy
