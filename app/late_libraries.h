#pragma once

// OpenSSL, nghttp2, zlib, libidn2 and libpsl are shared libraries, so that their repairs reach Sluice without a new build, and
// resolving their symbols was the longest part of a start. The program is linked with a table of what it calls of them
// (late_calls.txt) instead, and the first call loads the library. Tests, libsluice and builds with sanitizers are linked
// as usual; there nothing is to be done here.

#include <string_view>

#include "base/result.h"

namespace sluice::app {

/// Loads all of them, so that one that is missing is an error now. Any thread; again costs nothing.
[[nodiscard]] Result<void> LoadLateLibraries();
/// The same of one: "libcrypto.so".
[[nodiscard]] Result<void> LoadLateLibrary(std::string_view name);

}  // namespace sluice::app
