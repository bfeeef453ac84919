#pragma once

// The spellings of JSON numbers. A deny of one means them all (policy/operation.cc), where globs go by the text.

#include <string_view>

#include "prover/nfa.h"

namespace sluice::prover {

/// Of those that are read as this value the ones whose point stands about where the digits begin or end, where it needs no
/// exponent, or where some glob's zeros or exponent would have it; none where the text is no number in decimals.
[[nodiscard]] Nfa OfNumber(std::string_view number, const std::vector<const policy::Glob*>& globs);
/// What no reader holds: too large, or too small.
[[nodiscard]] Nfa OfNumbersOutOfRange();
/// Whether the text is a JSON number (RFC 8259 section 6).
[[nodiscard]] bool IsJsonNumber(std::string_view text);

}  // namespace sluice::prover
