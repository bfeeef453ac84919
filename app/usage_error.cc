#include "app/usage_error.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <vector>

#include "policy/rule_text.h"

namespace sluice::app {
namespace {

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(sub->get_name());
  return names;
}

// "--policy" and its like; what help does not show is no advice.
std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options([](const CLI::Option* any) { return !any->get_group().empty(); }))
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Unknown(std::string_view kind, std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  return fmt::format("unknown {} `{}`{}", kind, word, policy::DidYouMean(word.substr(0, word.find('=')), candidates));
}

bool IsCommand(const CLI::App& app, const std::string& name) {
  const auto names = CommandNames(app);
  return std::ranges::find(names, name) != names.end();
}

const CLI::App& Asked(const CLI::App& app) {
  const CLI::App* asked = &app;
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
  return *asked;
}

// What no option takes: a misspelt option says more than its value does.
std::string DescribeExtra(const CLI::App& app) {
  const std::vector<std::string> extra = app.remaining(true);
  const CLI::App* const asked = &Asked(app);
  const auto option = std::ranges::find_if(extra, [](const std::string& word) { return word.starts_with('-'); });
  if (option != extra.end()) return Unknown("option", *option, OptionNames(*asked));
  const std::string word = extra.empty() ? "" : extra.front();
  if (asked->get_name() == "run")
    return fmt::format("`{}` is no option; put `--` before the command: sluice run [OPTIONS] -- COMMAND", word);
  if (const auto commands = CommandNames(*asked); !commands.empty()) return Unknown("command", word, commands);
  return fmt::format("`{}` is one argument too many", word);
}

std::string NoNumber(std::string_view value) { return fmt::format("`{}` is no number, or not one that it takes", value); }

// CLI11's "Could not convert: --peer = bob": every option that is converted is a number.
std::string DescribeNumber(std::string_view told) {
  constexpr std::string_view kBefore = "Could not convert: ";
  constexpr std::string_view kBetween = " = ";
  const size_t between = told.find(kBetween);
  if (!told.starts_with(kBefore) || between == std::string_view::npos) return std::string(told);
  return fmt::format("{}: {}", told.substr(kBefore.size(), between - kBefore.size()),
                     NoNumber(told.substr(between + kBetween.size())));
}

// CLI11's "--policy: At Most 1 required but received 2" and "--policy: 1 required FILE missing".
std::string DescribeCount(std::string_view told) {
  constexpr std::string_view kOnce = ": At Most 1 required but received ";
  constexpr std::string_view kMissing = ": 1 required ";
  if (const size_t at = told.find(kOnce); at != std::string_view::npos)
    return fmt::format("{} is given {} times, and is taken once", told.substr(0, at), told.substr(at + kOnce.size()));
  if (const size_t at = told.find(kMissing); at != std::string_view::npos && told.ends_with(" missing")) {
    const std::string_view type = told.substr(at + kMissing.size());
    return fmt::format("{} needs a value: {}", told.substr(0, at),
                       type.substr(0, type.size() - std::string_view(" missing").size()));
  }
  return std::string(told);
}

// CLI11's "files is required", by a name that help shows and nobody writes.
std::string DescribeMissing(const CLI::App& app, const std::string& told) {
  for (const CLI::Option* option : Asked(app).get_options()) {
    if (!option->get_positional() || told != option->get_name() + " is required") continue;
    const std::string type = option->get_type_name();
    return fmt::format("{} is missing: {}", type.substr(0, type.find(":{")), option->get_description());
  }
  return told;
}

}  // namespace

std::string AskedCommand(const CLI::App& app, const std::string& command) {
  if (!IsCommand(app, command)) return "";
  std::string words;
  for (const CLI::App* asked = &app; !asked->get_subcommands().empty();) {
    asked = asked->get_subcommands().front();
    words += (words.empty() ? "" : " ") + asked->get_name();
  }
  return words.empty() ? command : words;
}

std::string CheckNumber(const std::string& value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  return whole && (value.size() == 1 || value.front() != '0') ? "" : NoNumber(value);
}

std::string DescribeUsageError(const CLI::App& app, const CLI::ParseError& error, const std::string& command) {
  if (!command.empty() && !IsCommand(app, command))
    return command.starts_with('-') ? Unknown("option", command, OptionNames(app))
                                    : Unknown("command", command, CommandNames(app));
  const std::string told = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return DescribeExtra(app);
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return DescribeNumber(told);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) return DescribeCount(told);
  if (told != CLI::RequiredError::Subcommand(1).what())
    return dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ? DescribeMissing(app, told) : told;
  return app.remaining(true).empty() ? "no command is named" : DescribeExtra(app);
}

}  // namespace sluice::app
