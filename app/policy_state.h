#pragma once

// The last policy that the API or a bundle put in force, on disk, so that a restart does not go back to an older one.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace sluice::app {

struct StoredPolicy {
  std::string text{};
  std::string name{};        ///< as errors and ids call it
  std::string source{};      ///< "the admin API", "https://…"
  std::string entity_tag{};  ///< of a bundle
  uint64_t serial = 0;       ///< of a bundle: never goes back
  std::string signature{};   ///< of a bundle, in base64
  std::string over{};        ///< digest of the operator's own policy at the time; empty where there was none
  bool operator==(const StoredPolicy&) const = default;
};

/// The folder of --state: made where it is missing (0700). kInvalid: others may write it, or it is another's.
[[nodiscard]] Result<void> PrepareStateFolder(const std::string& folder);

class PolicyState {
 public:
  /// As PrepareStateFolder.
  static Result<PolicyState> Open(const std::string& folder);

  /// Nothing where there is none. A file that is damaged (its digest does not fit) is kInvalid.
  [[nodiscard]] Result<std::optional<StoredPolicy>> Load() const;
  /// In place whole or not at all, and on the disk when it returns.
  [[nodiscard]] Result<void> Store(const StoredPolicy& policy) const;
  [[nodiscard]] Result<void> Forget() const;

 private:
  explicit PolicyState(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

/// The file's text, and back. kInvalid: no such file, or a damaged one.
[[nodiscard]] std::string StoredText(const StoredPolicy& policy);
[[nodiscard]] Result<StoredPolicy> ParseStored(std::string_view text);

}  // namespace sluice::app
