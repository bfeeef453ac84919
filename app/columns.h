#pragma once

// Columns as other tools count them. A SourceSpan counts octets; SARIF (columnKind) and editors count characters, which differ
// behind any text that is not ASCII.

#include <vector>

#include "app/report.h"

namespace sluice::app {

/// The remarks with columns and lengths in Unicode code points, related places too. Reads the files that they name, each once and
/// at most 1 MiB of it; a place whose line cannot be read, such as one in another revision, keeps its line and loses its column.
[[nodiscard]] std::vector<Remark> WithCharacterColumns(std::vector<Remark> remarks);

}  // namespace sluice::app
