#pragma once

// Which policies a file is a part of, so that `prove` looks at those as well whose text did not change. An include lies beside
// who includes it, or below: so they stand in the file's own folder, or in one above it, up to that of the repository.

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sluice::app {

class Includers {
 public:
  /// Paths relative to the work folder where `path` is, sorted; by any number of files between. What cannot be read includes
  /// nothing.
  [[nodiscard]] std::vector<std::string> Of(const std::string& path);

 private:
  struct Policy {
    std::string path;
    std::set<std::string> reads;  ///< what loading it reads beside itself, absolute, by name and without symlinks
  };
  const std::vector<Policy>& In(const std::string& folder);

  std::map<std::string, std::vector<Policy>> folders_;
};

}  // namespace sluice::app
