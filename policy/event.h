#pragma once

// What every room reports and audit/ writes. One DecisionEvent per decision, one ExchangeEvent per finished exchange.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/snapshot.h"

namespace sluice::policy {

enum class EventLayer : uint8_t { kDns, kConnect, kTls, kRequest, kUnix, kUdp, kSyscall };

/// What was asked for. Fields that the layer does not know are empty.
struct EventTarget {
  std::string host;                    ///< name, or empty
  std::optional<IpAddress> address{};  ///< literal asked for, or address dialled
  uint16_t port = 0;
  std::string scheme;  ///< "https", "http"
  std::string method;  ///< HTTP method, or RR type for lookups
  std::string path;    ///< canonical path without the query; a socket path for kUnix
  std::string query;   ///< keys only: "a=&b=" (values never leave the data path)
  /// What the body asked for, where it was read: "graphql mutation createIssue", "update refs/heads/main". Bounded; no values.
  std::vector<std::string> asked{};
  std::string via{};  ///< the upstream proxy that is used, by its name in the policy
};

struct DecisionEvent {
  WallTime time{};
  uint64_t connection = 0;  ///< 0 before there is one
  uint64_t request = 0;     ///< counts from 1 on its connection
  EventLayer layer = EventLayer::kConnect;
  EventTarget target;
  ProcessPtr process;
  Decision decision;
  Advice advice;          ///< only for denials (and audit_only)
  SnapshotPtr snapshot;   ///< what decided
  std::string detail;     ///< for a person, such as "SNI is b.test, the connection is to a.test"
  std::string denial_id;  ///< "d-7": the same in the body, the reason phrase, stderr and here; set by the producer for denials
};

struct ExchangeEvent {
  WallTime time{};  ///< end
  uint64_t connection = 0;
  uint64_t request = 0;  ///< 0 for an opaque relay
  EventTarget target;
  ProcessPtr process;
  RuleRef rule = RuleRef::kNone;
  SnapshotPtr snapshot;
  int status = 0;         ///< HTTP status sent downstream; 0 for a relay
  uint64_t bytes_up = 0;  ///< body or relay bytes toward the upstream
  uint64_t bytes_down = 0;
  uint16_t close_code = 0;  ///< of a WebSocket: of its first close frame, 1005 for one without a code, 1006 where there was none
  std::chrono::microseconds duration{};
  std::string error;  ///< what ended it early; empty when it ended well
};

/// Where events go. Any thread; never blocks. False: the record could not be kept, and what it describes must be refused.
class EventSink {
 public:
  virtual ~EventSink() = default;
  [[nodiscard]] virtual bool Record(DecisionEvent event) noexcept = 0;
  [[nodiscard]] virtual bool Record(ExchangeEvent event) noexcept = 0;
  /// The next "d-N" of this sandbox.
  [[nodiscard]] virtual std::string NextDenialId() = 0;
};

/// The policy in force, swapped whole. Any thread. A hot path keeps its own SnapshotPtr and asks again when generation() moves.
class CurrentPolicy {
 public:
  explicit CurrentPolicy(SnapshotPtr first) : snapshot_(std::move(first)) {}
  [[nodiscard]] SnapshotPtr Get() const {
    const std::lock_guard lock(mutex_);
    return snapshot_;
  }
  void Set(SnapshotPtr next) {
    const std::lock_guard no_act(acts_);
    {
      const std::lock_guard lock(mutex_);
      snapshot_.swap(next);
    }
    generation_.fetch_add(1, std::memory_order_acq_rel);
  }
  /// While it is held, Set waits. For acts that must not come after the policy that allowed them: hold it, see that generation()
  /// is still the one that was judged by, act, let go. For some milliseconds at most.
  [[nodiscard]] std::unique_lock<std::mutex> Hold() const { return std::unique_lock(acts_); }
  /// Rises with each Set: a cheap test of "has it changed".
  [[nodiscard]] uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex acts_;  // before mutex_
  mutable std::mutex mutex_;
  SnapshotPtr snapshot_;
  std::atomic<uint64_t> generation_{1};
};

}  // namespace sluice::policy
