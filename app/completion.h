#pragma once

// Shell completion scripts, built in from packaging/completions/.

#include <string>

namespace sluice::app {

/// "bash", "zsh" or "fish": prints the script; returns the exit code.
[[nodiscard]] int PrintCompletion(const std::string& shell);

}  // namespace sluice::app
