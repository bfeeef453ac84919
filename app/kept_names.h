#pragma once

// What the next sidecar of a workload must know of the names that this one told addresses for, on disk, since the workload lives
// longer: whose a synthetic address is, and for which names a true one was told. Without it an element that the kernel still
// holds would be nobody's, and a synthetic address could become another name's.
//
//   auto names = NameStore::Open(folder);              // before any thread
//   dns::SyntheticPool pool(0, (*names)->place());
//   (*names)->Restore(pool, history);                  // from here on what is new is written
//
// Lookups wait for nothing: a thread of the store's own writes, some milliseconds later. What a crash loses of that is only
// missing: how many synthetic addresses were given is in memory that the file shares with the process.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "dns/name_history.h"
#include "dns/synthetic.h"

namespace sluice::app {

/// Of the file with the names. When it is full it is written anew with the newest half of them.
inline constexpr size_t kMaxKeptNameBytes = 8u << 20;
/// Not yet written; more is not kept.
inline constexpr size_t kMaxUnwrittenNameBytes = 1u << 20;

struct KeptNames {
  struct Told {
    IpAddress address;
    std::string name;
    WallTime until{};
    bool operator==(const Told&) const = default;
  };
  std::vector<std::string> given;  ///< names with a synthetic address, in the order of the addresses; empty where it is not known
  std::vector<Told> told;          ///< true addresses, the one told longest ago first
};

/// The file's lines, each with its checksum.
[[nodiscard]] std::string GivenLine(uint32_t nth, std::string_view name);
[[nodiscard]] std::string ToldLine(const KeptNames::Told& told);
/// What lines say that is not past at `now`; the later of two counts. A line that is damaged says nothing. `given`: the number of
/// addresses that were given.
[[nodiscard]] KeptNames ParseKeptNames(std::string_view text, uint32_t given, WallTime now);
/// The lines again, the newest within so many bytes.
[[nodiscard]] std::string KeptNamesText(const KeptNames& names, size_t most);

class NameStore {
 public:
  /// In a folder that PrepareStateFolder found fit. Reads what is there; what is damaged is told in the log and begun anew.
  /// kInvalid: the files are another's, or others may write them. kExhausted: another sidecar has them.
  static Result<std::unique_ptr<NameStore>> Open(const std::string& folder);
  /// Writes what is left.
  ~NameStore();
  NameStore(const NameStore&) = delete;
  NameStore& operator=(const NameStore&) = delete;

  [[nodiscard]] dns::SyntheticPlace place() const;
  /// Gives them what was kept, and keeps what they are asked for from here on; both end before the store. Once. Starts a thread.
  void Restore(dns::SyntheticPool& pool, dns::NameHistory& history);

 private:
  struct Shared;
  NameStore(std::string folder, UniqueFd shared_file, Shared* shared, KeptNames kept);
  void Keep(const std::string& line);
  void Write();
  [[nodiscard]] Result<void> Append(const std::string& lines);
  [[nodiscard]] Result<void> Shorten();

  const std::string folder_;
  const UniqueFd shared_file_;
  Shared* const shared_;
  KeptNames kept_;  ///< until Restore
  UniqueFd file_;   ///< the thread's, from Restore on
  size_t size_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string unwritten_;
  bool lost_ = false;  ///< some did not fit
  bool ending_ = false;
  std::thread writer_;
};

}  // namespace sluice::app
