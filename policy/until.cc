// Dates and timestamps of `until`.
#include <fmt/format.h>

#include <chrono>

#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

std::unexpected<Error> Bad(std::string_view text) {
  return std::unexpected(
      Error{Code::kInvalid,
            fmt::format("`{}` is neither a date (2027-01-31) nor a timestamp with an offset (2027-01-31T18:00:00Z)", text), 0,
            SourceSpan{"", 1, 1, static_cast<uint32_t>(text.size())}});
}

// Reads `count` digits at `*at`; -1 where they are not there.
int Digits(std::string_view text, size_t* at, size_t count) {
  if (*at + count > text.size()) return -1;
  int value = 0;
  for (size_t i = 0; i < count; ++i) {
    const char c = text[(*at)++];
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

bool Eat(std::string_view text, size_t* at, char c) {
  if (*at >= text.size() || text[*at] != c) return false;
  ++*at;
  return true;
}

}  // namespace

Result<WallTime> ParseUntil(std::string_view text) {
  using namespace std::chrono;
  size_t at = 0;
  const int y = Digits(text, &at, 4);
  const bool dash1 = Eat(text, &at, '-');
  const int m = Digits(text, &at, 2);
  const bool dash2 = Eat(text, &at, '-');
  const int d = Digits(text, &at, 2);
  if (y < 1970 || m < 0 || d < 0 || !dash1 || !dash2) return Bad(text);
  const year_month_day date{year{y}, month{static_cast<unsigned>(m)}, day{static_cast<unsigned>(d)}};
  if (!date.ok()) return Bad(text);
  if (at == text.size()) return WallTime{sys_days{date} + days{1}};
  if (!Eat(text, &at, 'T')) return Bad(text);
  const int hour = Digits(text, &at, 2);
  const bool colon1 = Eat(text, &at, ':');
  const int minute = Digits(text, &at, 2);
  int second = 0;
  if (Eat(text, &at, ':')) second = Digits(text, &at, 2);
  if (hour < 0 || hour > 23 || !colon1 || minute < 0 || minute > 59 || second < 0 || second > 59) return Bad(text);
  const WallTime local = sys_days{date} + hours{hour} + minutes{minute} + seconds{second};
  if (Eat(text, &at, 'Z')) return at == text.size() ? Result<WallTime>(local) : Bad(text);
  const bool east = Eat(text, &at, '+');
  if (!east && !Eat(text, &at, '-')) return Bad(text);
  const int offset_hour = Digits(text, &at, 2);
  const bool colon2 = Eat(text, &at, ':');
  const int offset_minute = Digits(text, &at, 2);
  if (offset_hour < 0 || offset_hour > 23 || !colon2 || offset_minute < 0 || offset_minute > 59 || at != text.size())
    return Bad(text);
  const auto offset = hours{offset_hour} + minutes{offset_minute};
  return east ? local - offset : local + offset;
}

}  // namespace sluice::policy
