#pragma once

// An ordinary process of a fenced namespace that tries what must not work: made before any thread, without capabilities and
// without the seal. Nothing is reported ready before it was refused (supervisor/canary.h).

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

/// What came of one attempt.
enum class Sight : uint8_t {
  kNoRoute,     ///< the namespace has no way there: nothing to be refused
  kRefused,     ///< an error at once
  kCaptured,    ///< TCP: accepted here and reset
  kAnswered,    ///< a lookup of the canary's own name or a connection, by whoever alone knows that name
  kUnanswered,  ///< nothing came back in time: it may have left
  kLeft,        ///< somebody else answered
};
[[nodiscard]] const char* SightText(Sight sight);

struct CanaryReport {
  Sight tcp4 = Sight::kUnanswered;
  Sight tcp6 = Sight::kUnanswered;
  Sight udp4 = Sight::kUnanswered;
  Sight udp6 = Sight::kUnanswered;
  Sight lookup = Sight::kUnanswered;
  Sight connect = Sight::kUnanswered;  ///< to where the proxy itself answers
  int lookup_error = 0;                ///< the errno of a lookup that was refused

  /// What must be refused was, over every family that has a route.
  [[nodiscard]] bool Refused() const;
  /// The resolver answers whoever asks any server, and the proxy whoever dials an address that there is a route to.
  [[nodiscard]] bool Answered() const {
    return lookup == Sight::kAnswered && (connect == Sight::kAnswered || connect == Sight::kNoRoute);
  }
  /// "tcp4 captured, udp6 no route, ...".
  [[nodiscard]] std::string Text() const;
};

class CanaryProbe {
 public:
  /// Forks. Before any thread exists, and before anything secret was read.
  static Result<CanaryProbe> Begin();
  /// The name that it looks up, drawn at random: an answer can only be our resolver's.
  [[nodiscard]] const std::string& name() const { return name_; }
  CanaryProbe(CanaryProbe&& other) noexcept;
  CanaryProbe& operator=(CanaryProbe&&) = delete;
  ~CanaryProbe();

  /// One round of attempts, at most a few seconds. One thread at a time. kInternal when the process is gone.
  [[nodiscard]] Result<CanaryReport> Look();

 private:
  CanaryProbe(std::string name, UniqueFd channel, pid_t pid) : name_(std::move(name)), channel_(std::move(channel)), pid_(pid) {}
  std::string name_;
  UniqueFd channel_;
  pid_t pid_;
  uint8_t round_ = 0;  ///< of the request that was made last
};

}  // namespace sluice::app
