#pragma once

// Sluice's values as libnftnl's objects, for nft/encode.h (to be sent) and nft/listing.h (to be compared with what the kernel
// has).

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "nft/ruleset.h"

struct nftnl_table;
struct nftnl_chain;
struct nftnl_set;
struct nftnl_rule;

namespace sluice::nft {

struct ObjectFreer {
  void operator()(nftnl_table* object) const;
  void operator()(nftnl_chain* object) const;
  void operator()(nftnl_set* object) const;
  void operator()(nftnl_rule* object) const;
};
template <class T>
using ObjectPtr = std::unique_ptr<T, ObjectFreer>;

/// NFPROTO_…
[[nodiscard]] uint8_t NetlinkFamily(Family family);

[[nodiscard]] ObjectPtr<nftnl_table> Lower(const Table& table);
[[nodiscard]] ObjectPtr<nftnl_chain> Lower(const Table& table, const Chain& chain);
/// Without its elements.
[[nodiscard]] ObjectPtr<nftnl_set> Lower(const Table& table, const Set& set);
/// kInvalid: an expression out of place; kUnsupported: this libnftnl cannot express it.
[[nodiscard]] Result<ObjectPtr<nftnl_rule>> Lower(const Table& table, const Chain& chain, const Rule& rule);

}  // namespace sluice::nft
