#pragma once

// Lines for one caller of the administration, as they come: the decisions, or how a run stands.

#include <string>

namespace sluice::app {

class LineReader {
 public:
  virtual ~LineReader() = default;  ///< whom it was opened at outlives it
  /// What waits, lines whole. `*ended`: nothing comes after them. Any thread, never blocks.
  [[nodiscard]] virtual std::string Take(bool* ended) = 0;
};

}  // namespace sluice::app
