#pragma once

// Changes of a ruleset as the netlink batch that makes them. Pure: bytes in memory, no socket. Written against
// include/uapi/linux/netfilter/nf_tables.h; the registers and attributes of rules are libnftnl's business.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "nft/ruleset.h"

struct nlmsghdr;

namespace sluice::nft {

/// Bytes an encoded batch may take. The send buffer of a netlink socket holds it without being raised.
inline constexpr size_t kMaxBatchBytes = 128 * 1024;
/// The same for a session, which raises its buffer: about 200,000 elements.
inline constexpr size_t kMaxLargeBatchBytes = 16 * 1024 * 1024;

/// One transaction: all of it happens or none.
struct Batch {
  std::vector<uint8_t> bytes;
  uint32_t first_sequence = 0;       ///< of the batch-begin message
  std::vector<std::string> objects;  ///< what message first_sequence + 1 + i is about, for error texts
  uint32_t acknowledged = 0;         ///< the one sequence number that asks for an answer; 0: there is nothing to do
  size_t generation_at = 0;          ///< where the ruleset's generation stands in `bytes`; 0: it is for any

  /// Another generation than it was built for; only of a batch that is for one.
  void MakeFor(uint32_t generation);
};

/// The batch that adds `table`. kInvalid: an expression out of place; kExhausted: larger than kMaxBatchBytes.
[[nodiscard]] Result<Batch> EncodeAdd(const Table& table, uint32_t first_sequence);

/// What a table already holds. `kKeep` takes an orphan of an owner that has ended over, too.
enum class Existing : uint8_t { kRefuse, kKeep };
/// What deleting an element does that is not there, or has just expired: fail the whole batch, or nothing (Linux 6.3).
enum class Absent : uint8_t { kRefuse, kIgnore };

struct TimedElement {
  Key key;
  std::chrono::milliseconds timeout{0};  ///< 0: for good
};

class BatchBuilder {
 public:
  /// `generation`: the ruleset that the batch is made for; the kernel refuses it (ERESTART) when that has changed.
  explicit BatchBuilder(uint32_t first_sequence, size_t max_bytes = kMaxLargeBatchBytes, std::optional<uint32_t> generation = {});

  void CreateTable(const Table& table, Existing existing);
  void DeleteTable(const Table& table);
  /// Sets, their elements, chains and rules of a table that has none.
  [[nodiscard]] Result<void> Fill(const Table& table);
  /// The same for one that has the sets already, and `chains`: rules and static sets are replaced, chains made and deleted as
  /// needed, what the other sets hold is kept; so is a static set that `before`, what is in force, has the same of.
  [[nodiscard]] Result<void> Refill(const Table& table, std::span<const std::string> chains, const Table* before = nullptr);
  /// `set` is one of elements with a timeout.
  void AddElements(const Table& table, const Set& set, std::span<const TimedElement> elements);
  void DeleteElements(const Table& table, const Set& set, std::span<const Key> keys, Absent absent);

  /// kExhausted: over the bound.
  [[nodiscard]] Result<Batch> Finish();

 private:
  template <class Build>
  void Object(uint16_t type, Family family, uint16_t flags, std::string what, Build build);
  void Named(uint16_t type, const Table& table, const std::string& chain, std::string what);
  void AddSet(const Table& table, const Set& set);
  void AddStatic(const Table& table, const Set& set);
  void DeleteSet(const Table& table, const Set& set);
  void CloseObject();
  void AddChain(const Table& table, const Chain& chain);
  [[nodiscard]] Result<void> AddRules(const Table& table, const Chain& chain);
  template <class Item, class Put>
  void ElementMessages(uint16_t type, uint16_t flags, const Table& table, const Set& set, std::span<const Item> items,
                       std::string what, Put put);
  void End(const nlmsghdr* header);

  static constexpr size_t kMaxMessage = 16 * 1024;  // a rule of these rulesets is under 1 KiB
  alignas(4) std::array<uint8_t, kMaxMessage> message_{};
  Batch batch_;
  uint32_t sequence_;
  size_t max_bytes_;
  size_t last_object_ = 0;
};

}  // namespace sluice::nft
