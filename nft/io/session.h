#pragma once

// The one netlink socket to nftables that lives as long as its owner: tables made with Hold::kOwnedPersistent belong to it, and
// closing a socket after changes is slow. Each call is one transaction or one dump, and blocks for as long as the kernel takes
// (kAnswerTimeoutSeconds at most). One thread at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "nft/encode.h"
#include "nft/listing.h"
#include "nft/ruleset.h"

namespace sluice::nft {

/// Answers that the kernel could not queue (ENOBUFS), or a dump that changed under it, are asked for again this often.
inline constexpr int kReadAttempts = 8;

class Session {
 public:
  /// In the network namespace of the calling thread. kUnsupported: no nftables in this kernel.
  static Result<std::unique_ptr<Session>> Open();
  virtual ~Session() = default;

  /// For the next batch.
  [[nodiscard]] virtual uint32_t NextSequence() = 0;
  /// All of the batch or nothing. sys_errno of an error tells which: EEXIST, EBUSY, ENFILE (a set is full), EPERM, ERESTART (the
  /// ruleset changed since the batch's generation), EMSGSIZE; ENOBUFS: the answer was lost, read back what holds.
  [[nodiscard]] virtual Result<void> Commit(const Batch& batch) = 0;

  /// Changes with every commit of anybody in this namespace.
  [[nodiscard]] virtual Result<uint32_t> Generation() = 0;
  /// The table as it stands, of one generation.
  [[nodiscard]] Result<Listing> Read(const Table& table) {
    return Read(table, [this] { return Generation(); });
  }
  /// The same by another measure: `epoch`, asked before and after, moves with every change but those that the listing cannot
  /// show.
  [[nodiscard]] virtual Result<Listing> Read(const Table& table, const std::function<Result<uint32_t>()>& epoch) = 0;
  /// The elements of one set, of one generation where it holds still, else of the last try: time alone changes what it holds.
  [[nodiscard]] virtual Result<std::vector<HeldElement>> Elements(const Table& table, const Set& set) = 0;

  /// Of everybody's tables in this namespace, of whichever family.
  [[nodiscard]] virtual Result<std::vector<ChainName>> Chains() = 0;

  /// What a second element of the same key does.
  struct Traits {
    bool readd_updates_timeout = false;  ///< Linux 6.12; before it is ignored
    bool destroys = false;               ///< deletes that do not mind absence, Linux 6.3
    bool owned_persistent = false;       ///< Linux 6.9
  };
  /// Tried out on a table of its own, which is gone when this returns.
  [[nodiscard]] virtual Result<Traits> Probe() = 0;

  /// The port by which Listing::owner names this socket.
  [[nodiscard]] virtual uint32_t port() const = 0;
};

/// Tells of changes that anybody commits to tables of this namespace.
class Notices {
 public:
  static Result<std::unique_ptr<Notices>> Open();
  virtual ~Notices() = default;
  /// Readable when there is something to drain.
  [[nodiscard]] virtual int fd() const = 0;
  /// Takes what is there. Whether a table, chain, rule or set of one of these names was touched by another socket than
  /// `own_port`, or so much was lost that it may have been. Does not block.
  [[nodiscard]] virtual bool Drain(const std::vector<std::string>& tables, uint32_t own_port) = 0;
};

}  // namespace sluice::nft
