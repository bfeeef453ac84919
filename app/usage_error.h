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

/// The command whose help says more, with the command within it ("preset show"); empty where none was recognized.
[[nodiscard]] std::string AskedCommand(const CLI::App& app, const std::string& command);

/// For CLI::Option::check on whole numbers: what is wrong with the value, or nothing. CLI11 itself reads -1 as the largest that
/// there is, and 010 as eight.
[[nodiscard]] std::string CheckNumber(const std::string& value);

}  // namespace sluice::app
