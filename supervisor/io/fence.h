#pragma once

// The fence in force: installs the tables of supervisor/fence_ruleset.h in this process's network namespace, keeps them there,
// and fills the dynamic sets. Needs CAP_NET_ADMIN over the namespace and nothing else.
//
//   auto fence = Fence::Install(ClosedPlan(plan));  // all is dropped from here on, read back and compared
//   … listen …
//   (*fence)->Replace(plan);
//   (*fence)->Publish(elements, 65s);               // in the kernel when it returns: now the DNS answer may leave
//   (*fence)->Replace(narrower);                    // flows it no longer allows are cut before it returns
//   (*fence)->Release();                            // the rules stay in force, for the next process to adopt

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/fence_ruleset.h"

namespace sluice::supervisor {

/// That a publication waits for a change of the rules.
inline constexpr std::chrono::seconds kMaxPublishWait{1};

struct FenceCounter {
  std::string name;  ///< of the rule: "dropped", "refused"
  uint64_t packets = 0;
  uint64_t bytes = 0;
};

/// What was found on watching.
struct FenceChange {
  std::string what;       ///< a sentence for people
  bool restored = false;  ///< the rules are in force again as planned
};

class Fence {
 public:
  /// Puts the plan in force in one transaction and reads it back; before anything listens that is a ClosedPlan. Tables that a
  /// former process left are adopted, their dynamic sets kept where they are of the same kind; the first Replace judges what they
  /// let out, and where none succeeds, Release ends it. Blocks, under a second.
  /// kPermission without CAP_NET_ADMIN; kUnsupported names the feature that the kernel lacks; kInternal when what was read back
  /// differs.
  static Result<std::unique_ptr<Fence>> Install(const FencePlan& plan);
  /// Whose tables stand in this network namespace, looked at and left as they are.
  enum class Standing : uint8_t {
    kNone,
    kLeft,  ///< of a process that has ended; or of one that lives, where the kernel knows no owners
    kHeld,  ///< of another process that lives
  };
  [[nodiscard]] static Result<Standing> Stands();
  /// As Release.
  virtual ~Fence() = default;

  /// One transaction: the rules and static sets of `plan`, the dynamic sets kept. A raised generation cuts the flows that are no
  /// longer allowed (conntrack entries and sockets) before it returns. An error leaves the old rules in force. Any thread.
  /// `still`: what is allowed though its element has run out; flows to there go on. May be empty.
  using StillAllowed = std::function<bool(const FenceElement&)>;
  [[nodiscard]] virtual Result<void> Replace(const FencePlan& plan, const StillAllowed& still) = 0;
  [[nodiscard]] Result<void> Replace(const FencePlan& plan) { return Replace(plan, {}); }

  /// The elements are in the kernel when it returns, each for the longer of what it had left and `lifetime`. kExhausted: the set
  /// is full. Any thread; one batch and one answer, about 10 µs. What it returns is how long it waited before that for a
  /// transaction of a Replace or a Withdraw; kTimeout: longer than kMaxPublishWait.
  [[nodiscard]] virtual Result<std::chrono::steady_clock::duration> Publish(std::span<const FenceElement> elements,
                                                                            std::chrono::milliseconds lifetime) = 0;

  /// Takes out the elements that `gone` names and cuts the flows they carried, unless a static allow still passes them. What is
  /// published meanwhile stays. Any thread; `gone` runs on it.
  [[nodiscard]] virtual Result<void> Withdraw(const std::function<bool(const FenceElement&)>& gone) = 0;

  /// What the kernel holds is what was planned: rules, chains, policies, devices, static sets. kInternal tells the first
  /// difference. Any thread.
  [[nodiscard]] virtual Result<void> Check() = 0;

  /// From now on foreign changes are put right and new devices taken in, on a thread of the fence's own, which also calls
  /// `on_change`. Once.
  [[nodiscard]] virtual Result<void> Watch(std::function<void(const FenceChange&)> on_change) = 0;

  /// Of the rules that count, summed by name since the rules were last replaced. Any thread.
  [[nodiscard]] virtual Result<std::vector<FenceCounter>> Counters() = 0;

  /// What the dynamic sets hold, with the time each has left. Any thread.
  struct Held {
    FenceElement element;
    std::chrono::milliseconds left{0};
  };
  [[nodiscard]] virtual Result<std::vector<Held>> Elements() = 0;

  [[nodiscard]] virtual FenceHold hold() const = 0;
  /// What this kernel or this pod cannot give, a sentence each, for readiness and `doctor`.
  [[nodiscard]] virtual std::vector<std::string> Weaknesses() const = 0;
  /// Whether one of them lets out whoever holds CAP_NET_RAW (xdp_guard.h).
  [[nodiscard]] virtual bool OpenToNetRaw() const = 0;

  /// Ends the watching and closes the sockets; the rules stay in force. What was adopted and never judged ends first.
  virtual void Release() = 0;
};

}  // namespace sluice::supervisor
