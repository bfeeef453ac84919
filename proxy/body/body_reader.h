#pragma once

// The readings of a request's body that a policy asked for (policy::Decision::body_needed). Bytes are fed as they come and kept,
// since what was judged is what is forwarded; no more of them than the readings need: a push up to its flush packet, everything
// else whole under kMaxJudgedBody.
//
//   BodyReader reader(decision.body_needed, {.method = "POST", .headers = views, .query = target.query, .length = 812});
//   while (reader.state() == BodyReader::State::kMore) …reader.Feed(bytes), or reader.Finish() at the body's end…
//   policy::RequestBody body = reader.Take();     // ask the policy again; then forward reader.held() and the rest of the body

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "policy/body.h"
#include "policy/query.h"
#include "proxy/body/content_type.h"
#include "proxy/body/inflate.h"
#include "proxy/body/push.h"

namespace sluice::proxy {

/// Bytes of a body that is judged whole, as sent and again as inflated.
inline constexpr size_t kMaxJudgedBody = size_t{8} * 1024 * 1024;

/// What a body is read by. Views must outlive the constructor only.
struct BodyContext {
  std::string_view method;
  std::span<const policy::HeaderView> headers;
  std::string_view query;            ///< as sent, without '?'
  std::optional<uint64_t> length{};  ///< bytes of the body, 0 for none; absent: not known
};

class BodyReader {
 public:
  enum class State : uint8_t { kMore, kEnough };

  /// What the head decides is decided here: it may be enough at once.
  BodyReader(policy::BodyKinds kinds, const BodyContext& context);

  /// All bytes are kept in held(), also those behind what was needed. Only while kMore.
  State Feed(std::string_view bytes);
  /// Begins with what another reader of the same body holds. First of all.
  State Resume(BodyReader&& other);
  /// The body is over.
  State Finish();
  [[nodiscard]] State state() const { return state_; }

  /// The bytes fed so far, to be forwarded first.
  [[nodiscard]] const std::string& held() const { return held_; }
  [[nodiscard]] std::string TakeHeld() { return std::exchange(held_, {}); }
  /// Once kEnough.
  [[nodiscard]] policy::RequestBody Take() { return std::move(body_); }
  /// A reading failed because the body is over a bound: 413 rather than 403.
  [[nodiscard]] bool too_large() const { return too_large_; }
  /// What the client of a push asked for, in words parted by spaces; empty where none was read.
  [[nodiscard]] std::string_view push_capabilities() const { return push_ ? push_->capabilities() : std::string_view{}; }

 private:
  void Plan(policy::BodyKinds kinds, const BodyContext& context);
  void PlanGraphql(const BodyContext& context);
  void PlanPush(const BodyContext& context);
  void FailWhole(std::string_view why);
  void FailKind(policy::BodyKind kind, std::string_view why);
  void FeedPush(std::string_view bytes);
  void SettlePush();
  void ReadWhole();
  void ReadKinds(std::string_view text);
  State Settle();

  ContentKind content_ = ContentKind::kNone;
  std::optional<Coding> coding_;
  policy::BodyKinds whole_ = 0;  // pending, and in need of the whole body
  std::optional<PushReader> push_;
  bool push_pending_ = false;
  std::unique_ptr<Inflater> push_inflater_;
  std::string held_;
  policy::RequestBody body_;
  bool too_large_ = false;
  State state_ = State::kMore;
};

/// Bytes that readings take in memory, about.
[[nodiscard]] size_t MemoryOf(const policy::RequestBody& body);

/// The readings of a body that is there whole.
[[nodiscard]] policy::RequestBody ReadBody(policy::BodyKinds kinds, const BodyContext& context, std::string_view body);

}  // namespace sluice::proxy
