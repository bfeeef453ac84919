#pragma once

// A secret in memory: never copied, never printed, overwritten when it is let go. What is made of it (a field's value, an encoded
// form) is a plain string of one exchange, which its owner wipes.
//
//   SecretPtr secret = std::make_shared<const Secret>(std::move(text));   // `text` is left empty
//   use(secret->Reveal());

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::proxy {

inline constexpr size_t kMaxSecretOctets = 64 * 1024;  ///< one secret, wherever it comes from

/// Overwrites what `text` holds, in a way that no compiler leaves out, and empties it.
void Wipe(std::string* text) noexcept;

class Secret {
 public:
  Secret() = default;
  /// Takes the bytes; the argument is wiped.
  explicit Secret(std::string&& bytes);
  ~Secret() { Wipe(&bytes_); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  Secret(Secret&&) = delete;
  Secret& operator=(Secret&&) = delete;

  /// The bytes, for as long as this lives. Grep for this name to find whoever reads a secret.
  [[nodiscard]] std::string_view Reveal() const { return bytes_; }

 private:
  std::string bytes_;
};
using SecretPtr = std::shared_ptr<const Secret>;

/// Whether `secret` may stand in a request: not empty, within kMaxSecretOctets, no line end, NUL or other control character, no
/// blank at either end. kInvalid; the message goes behind "the secret of NAME" and says nothing of the bytes.
[[nodiscard]] Result<void> CheckSecretText(std::string_view secret);

}  // namespace sluice::proxy
