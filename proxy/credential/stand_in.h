#pragma once

// Stand-ins: what the workload holds in place of a secret of `send: placeholder`. A stand-in is replaced on its way out where the
// decision names its credential, and refused wherever else it shows up: it is worth nothing to whoever gets it, but who sends it
// astray has been misled, or is the attacker.
//
//   std::string text = MakeStandIn(prefix, secret.size());        // "sk-8rF…", into the workload's environment
//   const std::array swaps = {Swap{text, secret}};
//   StreamSwapper body(SwapsFor(swaps, BodyForm::kJson));
//   body.Push(piece, &out); … body.Finish(&out);

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/credential/inject.h"

namespace sluice::proxy {

inline constexpr size_t kStandInRandom = 24;     ///< random letters and digits of a stand-in, at least: 142 bits
inline constexpr size_t kMaxStandInBytes = 512;  ///< a secret that is longer has a stand-in that is shorter

/// `prefix`, then letters and digits taken from `random`, which holds at least kMaxStandInBytes unpredictable octets. As long as
/// the secret where that leaves room for kStandInRandom, so that bodies keep their length. `prefix` has unreserved characters
/// only.
[[nodiscard]] std::string MakeStandIn(std::string_view prefix, size_t secret_bytes, std::span<const uint8_t> random);

/// Whether a stand-in may begin so: unreserved characters (RFC 3986), which no encoding touches, and at most 64 of them.
[[nodiscard]] bool IsStandInPrefix(std::string_view prefix);

/// How secrets of this one's kind begin, where that is widely known ("sk-", "ghp_"): clients check it. Empty where it is not.
[[nodiscard]] std::string_view UsualPrefix(std::string_view secret);

/// One text in place of another.
struct Swap {
  std::string from;  ///< the stand-in, never empty
  std::string to;
};

/// What a body is, as far as putting a secret into it goes.
enum class BodyForm : uint8_t {
  kOther,     ///< nothing is replaced
  kVerbatim,  ///< multipart/form-data, text/plain
  kForm,      ///< application/x-www-form-urlencoded
  kJson,      ///< application/json, +json and their line-by-line kin
};
[[nodiscard]] BodyForm BodyFormOf(std::string_view content_type);

/// `to` in the spelling that the form needs. kOther: none at all.
[[nodiscard]] std::vector<Swap> SwapsFor(std::span<const Swap> swaps, BodyForm form);

/// Whether every `to` is as long as its `from`, so that a body keeps its length.
[[nodiscard]] bool KeepsLength(std::span<const Swap> swaps);

/// `text` with every stand-in replaced: leftmost first, of two that begin together the longer.
[[nodiscard]] std::string SwapAll(std::string_view text, std::span<const Swap> swaps);

/// The same over a text that comes in pieces of any size. Holds back less than one stand-in.
class StreamSwapper {
 public:
  explicit StreamSwapper(std::vector<Swap> swaps) : swaps_(std::move(swaps)) {}
  ~StreamSwapper();
  StreamSwapper(StreamSwapper&&) noexcept = default;
  StreamSwapper& operator=(StreamSwapper&&) noexcept = default;
  /// Appends to `*out` all that is settled.
  void Push(std::string_view piece, std::string* out);
  /// The end of the text: the rest, and the swapper begins anew.
  void Finish(std::string* out);
  [[nodiscard]] size_t held() const { return held_.size(); }

 private:
  std::vector<Swap> swaps_;
  std::string held_;
};

/// Replaces in field values, in Basic credentials (decoded, and encoded again), in path and query (percent-encoded). Returns
/// whether any stood there.
bool SwapHead(std::span<const Swap> swaps, OutgoingHead* head);

/// Looks for stand-ins in a body in pieces. Nothing is ever copied but less than one stand-in of what came last.
class StandInScanner {
 public:
  explicit StandInScanner(std::span<const std::string> stand_ins) : stand_ins_(stand_ins) {}
  /// Index of a stand-in that ends in `piece`.
  [[nodiscard]] std::optional<size_t> Push(std::string_view piece);

 private:
  std::span<const std::string> stand_ins_;
  std::string tail_;
};

/// Index of a stand-in that stands in the head: in a value as it is, percent-decoded, or in base64 behind a scheme's name; in
/// path or query as they are or decoded.
[[nodiscard]] std::optional<size_t> FindStandIn(std::span<const std::string> stand_ins, std::span<const Field> fields,
                                                std::string_view target);

}  // namespace sluice::proxy
