#include "prover/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "prover/nfa_builder.h"

namespace sluice::prover {
namespace {

const ByteSet& Digits() {
  static const ByteSet kDigits = [] {
    ByteSet set;
    for (char c = '0'; c <= '9'; ++c) set |= ByteOf(c);
    return set;
  }();
  return kDigits;
}

NodeId AddOptional(NfaBuilder* builder, NodeId from, const ByteSet& on) {
  const NodeId next = AddByte(builder, from, on);
  builder->Epsilon(from, next);
  return next;
}

// A number's digits without zeros at the ends, and the power of ten that stands after them.
struct Decimal {
  bool negative = false;
  std::string digits{};  ///< none: zero
  int64_t power = 0;
};

std::optional<Decimal> ReadDecimal(std::string_view text) {
  Decimal out{.negative = text.starts_with('-')};
  if (out.negative) text.remove_prefix(1);
  const size_t mark = text.find_first_of("eE");
  std::string_view mantissa = text.substr(0, mark);
  if (mark != std::string_view::npos) {
    std::string_view exponent = text.substr(mark + 1);
    if (exponent.starts_with('+')) exponent.remove_prefix(1);
    const auto [end, error] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), out.power);
    if (error != std::errc{} || end != exponent.data() + exponent.size()) return std::nullopt;
  }
  const size_t point = mantissa.find('.');
  for (size_t i = 0; i < mantissa.size(); ++i) {
    if (i == point) continue;
    if (mantissa[i] < '0' || mantissa[i] > '9') return std::nullopt;
    if (point != std::string_view::npos && i > point) --out.power;
    if (!out.digits.empty() || mantissa[i] != '0') out.digits += mantissa[i];
  }
  while (out.digits.ends_with('0')) {
    out.digits.pop_back();
    ++out.power;
  }
  return out;
}

// Accepts the number there with this exponent behind it; with none where it is 0, and with `nothing` in its place then.
void AcceptWithExponent(NfaBuilder* builder, NodeId from, int64_t exponent, const ByteSet& nothing) {
  const NodeId mark = AddByte(builder, from, ByteOf('e') | ByteOf('E'));
  if (exponent == 0) {
    builder->Accept(from);
    const NodeId signed_mark = AddOptional(builder, mark, ByteOf('+') | ByteOf('-'));
    builder->Accept(AddStar(builder, AddByte(builder, signed_mark, nothing), nothing));
    return;
  }
  const NodeId sign = exponent > 0 ? AddOptional(builder, mark, ByteOf('+')) : AddByte(builder, mark, ByteOf('-'));
  const std::string digits = std::to_string(std::abs(exponent));
  builder->Accept(AddText(builder, AddStar(builder, sign, ByteOf('0')), digits, Case::kExact));
}

constexpr int64_t kFarthest = 400;  // of the point from where the digits begin

// Where globs may have the point stand: behind zeros, or by an exponent of theirs.
struct Wanted {
  int64_t zeros = 0;  ///< in a row
  std::set<int64_t> exponents{};
};

Wanted WantedBy(const std::vector<const policy::Glob*>& globs) {
  Wanted wanted;
  for (const policy::Glob* glob : globs) {
    for (const policy::Glob::Token& token : glob->tokens()) {
      const std::string_view text = token.literal;
      for (size_t at = text.find('0'); at < text.size(); at = text.find('0', at)) {
        const size_t after = std::min(text.find_first_not_of('0', at), text.size());
        wanted.zeros = std::max(wanted.zeros, static_cast<int64_t>(after - at));
        at = after;
      }
      for (size_t at = text.find_first_of("eE"); at < text.size(); at = text.find_first_of("eE", at + 1)) {
        std::string_view exponent = text.substr(at + 1);
        if (exponent.starts_with('+')) exponent.remove_prefix(1);
        int64_t value = 0;
        if (std::from_chars(exponent.data(), exponent.data() + exponent.size(), value).ec == std::errc{})
          wanted.exponents.insert(value);
      }
    }
  }
  wanted.zeros = std::min(wanted.zeros, kFarthest);
  return wanted;
}

// How many digits stand before the point: about none, about all that the number needs, about as many as need no exponent, or as
// globs want it. So many in a row have exponents that end in each digit.
std::set<int64_t> PlacesOfPoint(int64_t digits, int64_t plain, const Wanted& wanted) {
  constexpr int64_t kAway = 3;
  std::set<int64_t> places;
  const auto add = [&](int64_t about, int64_t away) {
    if (std::abs(about) > kFarthest) return;
    for (int64_t before = about - away; before <= about + away; ++before) places.insert(before);
  };
  add(0, kAway + wanted.zeros);
  add(digits, kAway + wanted.zeros);
  add(plain, 1);
  for (const int64_t exponent : wanted.exponents) add(plain - std::clamp(exponent, -2 * kFarthest, 2 * kFarthest), 0);
  return places;
}

// The least and the greatest of numbers between which all are read as one: as many digits each, the first of them no zero, and
// the power of ten that the first one stands for.
struct Between {
  std::string least;
  std::string greatest;
  int64_t power = 0;
};

constexpr int kBoundDigits = 19;

Between BoundOf(long double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*Le", kBoundDigits - 1, value);
  const std::string_view whole(text.data());
  const size_t mark = whole.find('e');
  Between out;
  out.least = std::string(whole.substr(0, 1)) + std::string(whole.substr(2, mark - 2));
  out.greatest = out.least;
  out.power = std::atoi(text.data() + mark + 1);
  return out;
}

// What lies nearer to a positive value than to its neighbours, but for the outermost of that.
std::vector<Between> Nearest(double value) {
  constexpr long double kPart = 0.45L;
  const long double exact = value;
  const double next = std::nextafter(value, std::numeric_limits<double>::infinity());
  const long double above = std::isinf(next) ? 0 : static_cast<long double>(next) - exact;
  const Between least = BoundOf(exact - (exact - std::nextafter(value, 0.0)) * kPart);
  const Between greatest = BoundOf(exact + above * kPart);
  if (least.power == greatest.power) return {{least.least, greatest.greatest, least.power}};
  return {{least.least, std::string(kBoundDigits, '9'), least.power},
          {"1" + std::string(kBoundDigits - 1, '0'), greatest.greatest, greatest.power}};
}

// The digits of all numbers between two, with the point behind so many of them, or with none behind the last.
class Digitals {
 public:
  Digitals(NfaBuilder* builder, const Between& between, int64_t before)
      : builder_(builder), between_(between), before_(static_cast<size_t>(std::max(before, int64_t{0}))), end_(builder->Add()) {}

  /// Where the number ends; `from` is where its first digit may stand.
  NodeId Add(NodeId from, bool pointed) {
    builder_->Epsilon(from, Visit({0, true, true, pointed ? Point::kFresh : Point::kNone}));
    for (size_t i = 0; i < queue_.size(); ++i) Leave(queue_[i]);
    return end_;
  }

 private:
  enum class Point : uint8_t { kNone, kFresh, kPassed };
  struct State {
    size_t digits = 0;
    bool at_least = false;  ///< they are those of the least number so far
    bool at_most = false;   ///< and those of the greatest
    Point point = Point::kNone;
    auto operator<=>(const State&) const = default;
  };

  static char DigitAt(const std::string& digits, size_t at) { return at < digits.size() ? digits[at] : '0'; }

  NodeId Visit(State state) {
    if (state.point != Point::kNone) state.digits = std::min(state.digits, std::max(between_.least.size(), before_));
    const auto [at, fresh] = nodes_.try_emplace(state, 0);
    if (fresh) {
      at->second = builder_->Add();
      queue_.push_back(state);
    }
    return at->second;
  }

  void Leave(State state) {
    const NodeId here = nodes_.at(state);
    const bool whole = state.point == Point::kNone && state.digits == before_;
    if (whole || state.point == Point::kPassed) {
      const size_t known = std::min(state.digits, between_.least.size());
      if (!state.at_least || between_.least.find_first_not_of('0', known) == std::string::npos) builder_->Epsilon(here, end_);
    }
    if (whole) {
      State pointed = state;
      pointed.point = Point::kFresh;
      builder_->Edge(here, ByteOf('.'), Visit(pointed));
      return;
    }
    const char least = state.at_least ? DigitAt(between_.least, state.digits) : '0';
    const char most = state.at_most ? DigitAt(between_.greatest, state.digits) : '9';
    std::map<NodeId, ByteSet> moves;
    for (char digit = least; digit <= most; ++digit) {
      const State next{state.digits + 1, state.at_least && digit == least, state.at_most && digit == most,
                       state.point == Point::kNone ? Point::kNone : Point::kPassed};
      moves[Visit(next)] |= ByteOf(digit);
    }
    for (const auto& [to, on] : moves) builder_->Edge(here, on, to);
  }

  NfaBuilder* builder_;
  const Between& between_;
  size_t before_;
  NodeId end_;
  std::map<State, NodeId> nodes_;
  std::vector<State> queue_;
};

}  // namespace

Nfa OfNumber(std::string_view number, const std::vector<const policy::Glob*>& globs) {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  const auto decimal = ReadDecimal(number);
  if (!decimal) return builder.Finish(start);
  if (decimal->digits.empty()) {
    const NodeId zero = AddByte(&builder, AddOptional(&builder, start, ByteOf('-')), ByteOf('0'));
    AcceptWithExponent(&builder, zero, 0, Digits());
    const NodeId fraction = AddByte(&builder, AddByte(&builder, zero, ByteOf('.')), ByteOf('0'));
    AcceptWithExponent(&builder, AddStar(&builder, fraction, ByteOf('0')), 0, Digits());
    return builder.Finish(start);
  }
  double value = 0;
  const auto [end_of_text, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{}) return builder.Finish(start);
  const NodeId sign = decimal->negative ? AddByte(&builder, start, ByteOf('-')) : start;
  const auto size = static_cast<int64_t>(decimal->digits.size());
  const Wanted wanted = WantedBy(globs);
  for (const Between& between : Nearest(std::abs(value))) {
    for (const int64_t before : PlacesOfPoint(size, between.power + 1, wanted)) {
      NodeId from = sign;
      if (before <= 0) from = AddText(&builder, from, "0." + std::string(static_cast<size_t>(-before), '0'), Case::kExact);
      const NodeId end = Digitals(&builder, between, before).Add(from, before <= 0);
      AcceptWithExponent(&builder, end, between.power + 1 - before, ByteOf('0'));
    }
  }
  return builder.Finish(start);
}

Nfa OfNumbersOutOfRange() {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  const ByteSet first = Digits() & ~ByteOf('0');
  const NodeId whole = AddByte(&builder, AddOptional(&builder, start, ByteOf('-')), first);
  const NodeId fraction = AddStar(&builder, AddByte(&builder, AddByte(&builder, whole, ByteOf('.')), Digits()), Digits());
  const NodeId mantissa = builder.Add();
  builder.Epsilon(whole, mantissa);
  builder.Epsilon(fraction, mantissa);
  // Four digits are more than a double has room for.
  NodeId exponent = AddOptional(&builder, AddByte(&builder, mantissa, ByteOf('e') | ByteOf('E')), ByteOf('+') | ByteOf('-'));
  exponent = AddByte(&builder, exponent, first);
  for (int i = 0; i < 3; ++i) exponent = AddByte(&builder, exponent, Digits());
  builder.Accept(AddStar(&builder, exponent, Digits()));
  return builder.Finish(start);
}

bool IsJsonNumber(std::string_view text) {
  const auto digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  const auto skip = [&](std::string_view any_of) {
    const bool there = !text.empty() && any_of.find(text.front()) != std::string_view::npos;
    if (there) text.remove_prefix(1);
    return there;
  };
  skip("-");
  if (!skip("0") && digits() == 0) return false;
  if (skip(".") && digits() == 0) return false;
  if (skip("eE")) {
    skip("+-");
    if (digits() == 0) return false;
  }
  return text.empty();
}

}  // namespace sluice::prover
