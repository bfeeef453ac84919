#pragma once

// Fairness among those who ask, judged before a query is parsed: a bucket for each socket (its transport, source address and
// port), one for each process where it is known whose socket it is, and one for all. The last part of the last is kept for those
// who have asked little lately, so that a process that floods, through one socket or through thousands, leaves room for the
// others. Tables are bounded, and take memory for who has asked: whoever was seen longest ago is forgotten first. Time is a
// parameter.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/query.h"

namespace sluice::dns {

inline constexpr size_t kMaxFloodSources = 4096;
inline constexpr size_t kMaxFloodProcesses = 1024;
/// Ports that the kernel is told to drop at a time.
inline constexpr size_t kMaxShutPorts = 128;
/// Datagrams of one socket dropped within a second before its port is shut.
inline constexpr unsigned kShutAfter = 500;
inline constexpr std::chrono::milliseconds kShutFor{1000};

struct FloodLimits {
  double source_per_second = 1000;  ///< of one socket
  double source_burst = 500;
  double process_per_second = 2000;
  double process_burst = 1000;
  double unknown_per_second = 20;  ///< of all whose process is not known: finding it costs a search of every descriptor
  double unknown_burst = 50;
  double total_per_second = 10'000;
  double total_burst = 2000;
  double reserved = 500;  ///< of total_burst: for sockets and processes with half of their own bursts left
};

/// Whose socket sends from there, as any number that two processes do not share; 0: unknown. Need not be certain. Cheap.
using GuessSender = std::function<uint64_t(policy::Transport transport, const Endpoint& source)>;

/// One thread.
class FloodGate {
 public:
  enum class Verdict : uint8_t {
    kServe,
    kRefuse,  ///< too many: to be told and recorded; once a second for each process
    kDrop,    ///< too many, and told already
  };

  explicit FloodGate(FloodLimits limits, GuessSender guess = {});
  [[nodiscard]] Verdict Judge(policy::Transport transport, const Endpoint& source, SteadyTime now);
  /// UDP source ports whose datagrams are not worth receiving now.
  [[nodiscard]] std::vector<uint16_t> ShutPorts(SteadyTime now);
  /// ShutPorts has more to say than when it was last asked.
  [[nodiscard]] bool changed() const { return changed_; }

 private:
  struct Entry {
    uint64_t key = 0;
    double tokens = 0;
    SteadyTime last{};
    SteadyTime told{};     ///< a refusal was sent
    SteadyTime counted{};  ///< when `dropped` began
    uint64_t sender = 0;   ///< as guessed
    unsigned dropped = 0;
  };
  struct Shut {
    uint16_t port = 0;
    SteadyTime until{};
  };
  static constexpr size_t kWays = 8;  // entries that one key may stand in
  using Ways = std::array<Entry, kWays>;
  // Of kMax… entries in all.
  using Table = std::vector<std::unique_ptr<Ways>>;
  [[nodiscard]] static Entry& Find(Table* table, uint64_t key, double burst, SteadyTime now);
  void CountDrop(Entry* source, uint16_t port, SteadyTime now);

  const FloodLimits limits_;
  const GuessSender guess_;
  Table sources_;
  Table processes_;
  Entry total_;
  std::vector<Shut> shut_;
  bool changed_ = false;
};

}  // namespace sluice::dns
