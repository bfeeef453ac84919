#pragma once

// What a table consists of, as lines that can be compared: from a plan (Plan), or from what the kernel answered (Listing).
// Counters, handles and the elements of sets with timeouts are left out, so that equal lines mean equal rules. Messages are taken
// as untrusted bytes: one that does not parse is a line of its own, which no plan has.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nft/ruleset.h"

namespace sluice::nft {

struct RuleCounter {
  std::string name;  ///< the rule's comment
  uint64_t packets = 0;
  uint64_t bytes = 0;
};

struct Listing {
  /// "table …", "chain …", "rule CHAIN N: …", "set …", "element SET …", sorted but for the order of a chain's rules.
  std::vector<std::string> lines;
  std::vector<RuleCounter> counters;
  std::vector<std::string> chains;  ///< names
  bool exists = false;
  uint32_t owner = 0;  ///< netlink port of the owning socket; 0: none

  /// A 64-bit hash of the lines, for logs.
  [[nodiscard]] uint64_t Hash() const;
};

/// As the kernel would list `table` if it was in force.
[[nodiscard]] Listing Plan(const Table& table);

/// The first line that one has and the other lacks, as a sentence; empty where they are equal.
[[nodiscard]] std::string Difference(const Listing& planned, const Listing& found);

/// Takes netlink messages of dumps (NEWTABLE, NEWCHAIN, NEWRULE, NEWSET, NEWSETELEM) about one table; others are passed over.
class ListingReader {
 public:
  explicit ListingReader(const Table& of) : of_(of) {}
  /// Any bytes.
  void Feed(std::span<const uint8_t> messages);
  /// Sorts; once, at the end.
  [[nodiscard]] Listing Take();

 private:
  void Message(std::span<const uint8_t> message);

  const Table& of_;
  Listing listing_;
  std::vector<std::pair<std::string, size_t>> rules_of_;  ///< chain and how many rules of it were seen
};

/// One element of a dump of a set with timeouts.
struct HeldElement {
  Key key;
  std::chrono::milliseconds timeout{0};  ///< 0: for good
  std::chrono::milliseconds left{0};
};
struct ChainName {
  std::string table;
  std::string chain;
};
/// The names in NEWCHAIN messages, of whichever table; what does not parse is passed over. Any bytes.
void ReadChainNames(std::span<const uint8_t> messages, std::vector<ChainName>* into);

/// The elements in NEWSETELEM messages about `set` of `table`; what does not parse is passed over. Any bytes.
void ReadElements(std::span<const uint8_t> messages, const Table& table, const std::string& set, std::vector<HeldElement>* into);

}  // namespace sluice::nft
