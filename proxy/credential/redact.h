#pragma once

// Keeps a secret that an upstream sends back out of what the workload reads: header and trailer fields and the reason phrase,
// where the secret stands as it is, percent-encoded or in base64. Bodies are not looked at (docs/credentials.md).

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/http1.h"

namespace sluice::proxy {

inline constexpr size_t kMinRedacted = 4;  ///< a shorter secret is not looked for: it would be found in everything
inline constexpr std::string_view kRedacted = "[redacted]";

class Redactor {
 public:
  Redactor() = default;
  ~Redactor();
  Redactor(const Redactor&) = delete;
  Redactor& operator=(const Redactor&) = delete;
  Redactor(Redactor&&) noexcept = default;
  Redactor& operator=(Redactor&&) noexcept = default;

  /// Looks for this, too: a secret, or a form of it that no decoding leads back to (a signature's key has none).
  void Add(std::string_view secret);
  [[nodiscard]] bool empty() const { return secrets_.empty(); }

  /// What the workload may read in place of `text`; absent where that is `text` itself. What stands there as it is gives way to
  /// kRedacted; where only a decoding shows it, the whole text does.
  [[nodiscard]] std::optional<std::string> Redact(std::string_view text) const;

 private:
  std::vector<std::string> secrets_;
  std::vector<std::string> cores_;  ///< base64 of each at the three places it may begin, without what its neighbours change
};

/// Reason and fields of a response; `*kept` holds what the head's views point into from then on.
void RedactHead(const Redactor& redactor, ResponseHead* head, std::deque<std::string>* kept);
/// "name: value" lines.
void RedactLines(const Redactor& redactor, std::string* lines);

}  // namespace sluice::proxy
