#pragma once

// Walks a tree of the host without following links, and hands each entry to a visitor.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::supervisor {

struct FolderEntry {
  int folder;  ///< descriptor of the folder that holds it
  const std::string& folder_path;
  std::string_view name;  ///< null-terminated
  uint8_t type;           ///< DT_*, DT_UNKNOWN only where it is gone meanwhile
  [[nodiscard]] std::string path() const { return folder_path + "/" + std::string(name); }
};

enum class Descend : uint8_t { kNo, kYes };

class FolderWalk {
 public:
  /// kYes is heeded for folders only.
  using Visitor = std::function<Result<Descend>(const FolderEntry&)>;
  /// `what`: the trees walked, for the message when there are more than kMaxScannedEntries entries in them.
  FolderWalk(std::string what, Visitor visitor) : what_(std::move(what)), visitor_(std::move(visitor)), buffer_(64 * 1024) {}

  /// kExhausted where a bound of launch_facts.h is reached, over all walks of this object. A folder that cannot be read or is
  /// gone is passed over: what this user cannot read or enter, the workload cannot either.
  [[nodiscard]] Result<void> Walk(const std::string& root);

 private:
  Result<void> ReadFolder(const std::string& folder, std::vector<std::string>& pending);
  Result<void> See(const FolderEntry& entry, std::vector<std::string>& pending);

  const std::string what_;
  const Visitor visitor_;
  std::vector<char> buffer_;
  size_t seen_ = 0;
};

}  // namespace sluice::supervisor
