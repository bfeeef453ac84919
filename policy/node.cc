#include "policy/node.h"

#include <algorithm>

namespace sluice::policy {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool AllIn(std::string_view text, std::string_view set) { return text.find_first_not_of(set) == std::string_view::npos; }

}  // namespace

// A superset of the core schema of 1.2 and of the type repository of 1.1: integers in four bases, with underscores and in base
// sixty, floats, dates. A word that merely looks like one costs its author two quotes.
bool IsAmbiguousPlain(std::string_view text) {
  static constexpr std::string_view kWords[] = {"",  "~", "null", "true", "false", "yes",  "no",    "on",   "off",
                                                "y", "n", "<<",   "=",    ".inf",  ".nan", "+.inf", "-.inf"};
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  if (std::find(std::begin(kWords), std::end(kWords), lower) != std::end(kWords)) return true;
  std::string_view body = lower;
  if (body.starts_with('+') || body.starts_with('-')) body.remove_prefix(1);
  if (body.empty()) return false;
  if (body.starts_with("0x")) return AllIn(body.substr(2), "0123456789abcdef_");
  if (body.starts_with("0o") || body.starts_with("0b")) return AllIn(body.substr(2), "01234567_");
  if (!IsDigit(body[0]) && !(body[0] == '.' && body.size() > 1 && IsDigit(body[1]))) return false;
  return AllIn(body, "0123456789_.:e+-") || (body.size() > 10 && body[4] == '-' && AllIn(body, "0123456789-:.+tz "));
}

}  // namespace sluice::policy
