#pragma once

// Idle keep-alive connections of one worker, and who waits for one to come back. A request that found none dials and waits here
// at once (obtain.cc): it takes what comes first, and its dial then goes on for the pool, within the pool's bounds.
//
// Emptied when the policy changes, since an address may no longer be allowed. One worker's thread.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/keyed_hash.h"
#include "proxy/io/upstream.h"

namespace sluice::proxy {

/// Whether a connection that is there may serve an exchange, by its address: nothing where only a proxy knows it.
using UsableJudge = std::function<bool(std::optional<IpAddress>)>;

class UpstreamPool {
 public:
  ~UpstreamPool() { Clear(); }

  /// The one to take next, or null. Dead ones on the way are dropped.
  [[nodiscard]] Upstream* Peek(const std::string& key);
  /// Takes it where it may be used; null: there is none, or not for this exchange.
  [[nodiscard]] UpstreamPtr Take(const std::string& key, const UsableJudge& usable);
  /// To whoever waits for one longest and may use it; else it is kept, if there is room.
  void Give(const std::string& key, UpstreamPtr upstream, SteadyTime now);
  /// Drops all idle ones of this key: one of them was found dead.
  void Drop(const std::string& key);
  /// Drops what is too old or was closed by its peer.
  void Sweep(SteadyTime now);
  /// Drops all of them, and ends the dials that nobody waits for.
  void Clear();
  /// Whether it holds anything that Sweep, or a deadline, must end.
  [[nodiscard]] bool empty() const { return size_ == 0 && late_.empty(); }

  /// Waits for what Give brings, from its start to its end. `usable` outlives it.
  class Want {
   public:
    Want(UpstreamPool& pool, std::string key, Waiter& waiter, const UsableJudge& usable);
    /// What came and was not taken is given on.
    ~Want();
    Want(const Want&) = delete;
    Want& operator=(const Want&) = delete;
    /// What has come and still lives, or null. The waiter is poked when there may be something.
    [[nodiscard]] UpstreamPtr Take();

   private:
    friend class UpstreamPool;
    void Enlist();
    void Leave();
    UpstreamPool& pool_;
    const std::string key_;
    Waiter& waiter_;
    const UsableJudge& usable_;
    UpstreamPtr got_;
  };

  /// A dial with this waiter goes on, though nobody waits for it, and ends with LateEnded. False: there is no room for what would
  /// come of it.
  [[nodiscard]] bool KeepLate(const std::string& key, Waiter* dial);
  void LateEnded(const Waiter* dial);

 private:
  struct Late {
    std::string key;
    Waiter* dial;
  };
  [[nodiscard]] bool HasRoom(const std::string& key) const;
  void DropOldest();
  KeyedMap<std::string, std::vector<UpstreamPtr>> idle_;
  KeyedMap<std::string, std::vector<Want*>> wants_;
  std::vector<Late> late_;
  size_t size_ = 0;  ///< of idle_
};

}  // namespace sluice::proxy
