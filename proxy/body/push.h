#pragma once

// The commands of a git push: pkt-lines up to the first flush packet, as git-receive-pack reads them. What follows (push options,
// the pack) is not looked at and not held.
//
//   PushReader reader;
//   while (reader.state() == PushReader::State::kMore) reader.Feed(next piece of the body);
//   policy::BodyReading<policy::RefUpdate> reading = reader.Take();

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "policy/body.h"

namespace sluice::proxy {

inline constexpr size_t kMaxPushCommands = 10'000;
inline constexpr size_t kMaxPushBytes = size_t{1024} * 1024;  ///< pkt-lines before the flush, together

/// Refuses signed pushes (push-cert), names that git would not take, and lines that receivers read in different ways.
class PushReader {
 public:
  enum class State : uint8_t {
    kMore,    ///< the flush packet has not been seen
    kDone,    ///< it has
    kFaulty,  ///< the commands cannot be read
  };

  /// Takes the body in pieces of any size and gives back how many of these bytes were looked at: all of them while kMore; up to
  /// the end of the flush packet when that makes it kDone.
  size_t Feed(std::string_view bytes);
  /// The body is over. What was not done by then is a fault.
  void Finish();

  [[nodiscard]] State state() const { return state_; }
  /// Once it is kDone or kFaulty. A push without commands, as git sends one to learn whether it may, has no items.
  [[nodiscard]] policy::BodyReading<policy::RefUpdate> Take();
  /// What the client asked for beside its first command, words parted by spaces: "report-status side-band-64k …".
  [[nodiscard]] std::string_view capabilities() const { return capabilities_; }

 private:
  void Fail(std::string_view why);
  void Length();
  void Line(std::string_view line);
  void Command(std::string_view line);
  bool TakeId(std::string_view* rest, bool* zero);

  State state_ = State::kMore;
  std::string held_;   // the packet being read: its length, then its payload
  size_t wanted_ = 4;  // bytes of it
  size_t total_ = 0;
  size_t id_digits_ = 0;  // 0 until the first id: 40 (SHA-1) or 64 (SHA-256)
  std::string capabilities_;
  policy::BodyReading<policy::RefUpdate> reading_;
};

/// Whether git takes this for the full name of a ref ("refs/heads/main"), by the rules of git-check-ref-format.
[[nodiscard]] bool IsRefName(std::string_view name);

}  // namespace sluice::proxy
