#pragma once

// Content-Encoding of request bodies: gzip (RFC 1952) and deflate (RFC 1950) inflated under bounds. What readers take in
// different ways is refused: several members, bytes behind the end, deflate without or with a header that could also be none.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "policy/query.h"

struct z_stream_s;

namespace sluice::proxy {

inline constexpr size_t kMaxInflateRatio = 100;            ///< inflated to compressed, once kInflateFree are inflated
inline constexpr size_t kInflateFree = size_t{64} * 1024;  ///< bytes whose ratio does not matter

enum class Coding : uint8_t { kIdentity, kGzip, kDeflate };

/// By the Content-Encoding fields of a request; nothing where the coding is unknown, or there are several.
[[nodiscard]] std::optional<Coding> CodingOf(std::span<const policy::HeaderView> headers);

/// One compressed stream, inflated in pieces.
class Inflater {
 public:
  enum class State : uint8_t { kMore, kDone, kFaulty };

  /// `coding` is kGzip or kDeflate; more than `max_bytes` of output are a fault.
  Inflater(Coding coding, size_t max_bytes);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Takes from the front of `*in` and gives what that inflates to, at most 16 KiB and valid until the next call. Empty: all was
  /// taken and more is needed, or state() is no longer kMore.
  [[nodiscard]] std::string_view Next(std::string_view* in);
  [[nodiscard]] State state() const { return state_; }
  /// kFaulty: a sentence without its stop (static).
  [[nodiscard]] std::string_view fault() const { return fault_; }

 private:
  void Fail(std::string_view why);

  std::unique_ptr<z_stream_s> stream_;
  std::unique_ptr<char[]> out_;
  size_t max_bytes_;
  size_t taken_ = 0;
  size_t made_ = 0;
  State state_ = State::kMore;
  std::string_view fault_;
};

/// A whole body. The fault's sentence, or nothing: then `*out` is what it inflates to, at most `max_bytes`.
[[nodiscard]] std::optional<std::string> Inflate(Coding coding, std::string_view body, size_t max_bytes, std::string* out);

}  // namespace sluice::proxy
