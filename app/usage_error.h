#pragma once

// A command line that cannot be used, in the words of a person. CLI11 tells of it in several ways, and of a misspelt word without
// the one that was meant.

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace sluice::app {

/// One sentence without a final stop. `command` is the first word of the command line; `app` has been asked to parse it, and has
/// every command that there is, or the one that was named.
[[nodiscard]] std::string DescribeUsageError(const CLI::App& app, const CLI::ParseError& error, const std::string& command);

/// Whether there is a command of that name.
[[nodiscard]] bool IsCommand(const CLI::App& app, const std::string& name);

}  // namespace sluice::app
