#include "prover/numbers.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
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

// How many of `size` digits stand before the point: about none of them, or about all.
std::vector<int64_t> PlacesOfPoint(int64_t size) {
  constexpr int64_t kAway = 2;
  std::vector<int64_t> places;
  for (int64_t before = -kAway; before <= size + kAway; ++before)
    if (before <= kAway || before >= size - kAway) places.push_back(before);
  return places;
}

}  // namespace

Nfa OfNumber(std::string_view number) {
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
  const NodeId sign = decimal->negative ? AddByte(&builder, start, ByteOf('-')) : start;
  const std::string& digits = decimal->digits;
  const auto size = static_cast<int64_t>(digits.size());
  const auto zeros = [](int64_t count) { return std::string(static_cast<size_t>(std::max(count, int64_t{0})), '0'); };
  for (const int64_t before : PlacesOfPoint(size)) {
    const auto taken = static_cast<size_t>(std::clamp(before, int64_t{0}, size));
    const std::string whole = before <= 0 ? "0" : digits.substr(0, taken) + zeros(before - size);
    const std::string fraction = zeros(-before) + digits.substr(taken);
    const int64_t exponent = decimal->power + size - before;
    const NodeId end = AddText(&builder, sign, whole, Case::kExact);
    if (fraction.empty()) AcceptWithExponent(&builder, end, exponent, ByteOf('0'));
    const NodeId point = AddByte(&builder, end, ByteOf('.'));
    const NodeId after = AddText(&builder, point, fraction.empty() ? "0" : fraction, Case::kExact);
    AcceptWithExponent(&builder, AddStar(&builder, after, ByteOf('0')), exponent, ByteOf('0'));
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
