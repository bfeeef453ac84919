#pragma once

// The file that records are appended to. What it refuses: anything through a link, pipes, folders; and, once open, writing to a
// file that no name leads to any more. One thread at a time.

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::audit {

class AuditFile {
 public:
  /// 0600, appended to. A last line that a crash has cut short is ended first.
  static Result<AuditFile> Open(std::string path);

  /// Whole lines, in full or an error that a person can act on. May wait for a disk or a terminal.
  [[nodiscard]] Result<void> Append(std::string_view lines);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  AuditFile(std::string path, UniqueFd file, bool regular) : path_(std::move(path)), file_(std::move(file)), regular_(regular) {}
  [[nodiscard]] Result<void> CheckName();

  std::string path_;
  UniqueFd file_;
  bool regular_;
  bool told_of_move_ = false;
};

}  // namespace sluice::audit
