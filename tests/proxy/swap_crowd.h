#pragma once

// A policy swapped under a crowd of open exchanges, for the test that says what must come of it and for the benchmark that says
// how long it takes. Clients have them as streams of HTTP/2, in connections of which each keeps half of its own.

#include <openssl/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "policy/event.h"
#include "policy/snapshot.h"
#include "proxy/io/engine.h"
#include "tests/proxy/forked_origin.h"
#include "tests/proxy/h2_peer.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {

inline constexpr size_t kMostExchanges = 10'000;
inline constexpr size_t kStreams = 100;  ///< of one connection
inline constexpr unsigned kSwapWorkers = 2;

using Milliseconds = std::chrono::duration<double, std::milli>;

[[nodiscard]] constexpr bool IsKept(size_t i) { return i % 2 == 0; }
[[nodiscard]] size_t OpenDescriptors();
[[nodiscard]] double ResidentMiB();
/// As many exchanges as there may be open files, where that is less than the most: an upstream connection for each.
[[nodiscard]] size_t RoomForConnections();
/// Whether it comes to hold within half a minute.
[[nodiscard]] bool Eventually(const std::function<bool()>& condition);

/// Keeps what ends, and can forget it.
class EndsSink final : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent /*event*/) noexcept override { return true; }
  bool Record(policy::ExchangeEvent event) noexcept override;
  std::string NextDenialId() override { return "d-1"; }
  [[nodiscard]] std::vector<policy::ExchangeEvent> Take();
  [[nodiscard]] size_t count();

 private:
  std::mutex mutex_;
  std::vector<policy::ExchangeEvent> ends_;
};

/// An engine under rules for what an origin holds open.
class SwapBed {
 public:
  enum class Over : uint8_t { kClear, kTls };
  /// `places`: how many different requests there are.
  SwapBed(uint16_t port, Over over, size_t places);
  [[nodiscard]] Peer Connect();
  void AllowAll() { (void)Set(all_); }
  /// When it was in force.
  std::chrono::steady_clock::time_point AllowKept() { return Set(kept_); }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] EndsSink& sink() { return sink_; }
  [[nodiscard]] FieldList Asking(size_t i) const;
  [[nodiscard]] size_t places() const { return places_; }

 private:
  [[nodiscard]] std::string Rule(std::string_view what) const;
  std::chrono::steady_clock::time_point Set(const policy::SnapshotPtr& snapshot);

  const uint16_t port_;
  const Over over_;
  const size_t places_;
  const policy::SnapshotPtr kept_;
  const policy::SnapshotPtr all_;
  TestResolver resolver_;
  EndsSink sink_;
  policy::CurrentPolicy policy_;
  const std::shared_ptr<SSL_CTX> client_;
  uint64_t ids_ = 0;
  std::unique_ptr<Engine> engine_;
};

/// Clients of so many connections, each with kStreams requests under way.
class Crowd {
 public:
  Crowd(SwapBed& bed, size_t connections);
  /// Every exchange has begun.
  [[nodiscard]] bool whole() const { return whole_; }
  [[nodiscard]] size_t size() const { return ids_.size(); }
  [[nodiscard]] H2Client& client(size_t c) { return *clients_[c]; }
  [[nodiscard]] const H2Message& message(size_t i) { return clients_[i / kStreams]->messages[ids_[i]]; }
  /// Reads whatever comes, from all of them at once, until it holds of each exchange. What holds once holds for good.
  [[nodiscard]] bool Until(const std::function<bool(size_t i, const H2Message&)>& holds);
  /// Those that did not end as they should: the kept ones whole, the others reset with what had come.
  [[nodiscard]] size_t Wrong();

 private:
  std::vector<std::unique_ptr<H2Client>> clients_;
  std::vector<int32_t> ids_;
  bool whole_ = false;
};

/// What came of one change. Times are from the policy's being in force.
struct Swapped {
  bool whole = false;      ///< every exchange was open before, and all that was waited for came
  Milliseconds seen{};     ///< until the clients had seen the end of all that were revoked
  Milliseconds starved{};  ///< of which the thread that had the least had no processor; 0 on a machine that does nothing else
  Milliseconds told{};     ///< until the last of those was told to the sink, which comes after all are closed
  Rejudging judged{};
  size_t wrong = 0;          ///< exchanges that did not end as they should
  size_t untold = 0;         ///< exchanges that were not told once, as they ended, with the rule that had allowed them
  size_t upstream_left = 0;  ///< exchanges that the origin had open afterwards
  size_t descriptors = 0;    ///< that the crowd took, its clients' included
  double resident = 0;       ///< MiB of this process with all of them open, its clients' included
  std::string again{};       ///< the status of a request that is revoked
};

/// Opens the crowd, swaps the policy and lets the rest end.
[[nodiscard]] Swapped SwapUnderACrowd(SwapBed& bed, ForkedOrigin& origin, size_t exchanges);

/// Back to the state at the start: everything allowed, nothing open. False: something stays open.
[[nodiscard]] bool Rest(SwapBed& bed, ForkedOrigin& origin);

}  // namespace sluice::proxy::testing
