#pragma once

// The spellings of JSON numbers. A deny of one means them all (policy/operation.cc), where globs go by the text.

#include <string_view>

#include "prover/nfa.h"

namespace sluice::prover {

/// Of those of this value the ones whose point stands by its digits or within them; none where the text is no number in decimals.
[[nodiscard]] Nfa OfNumber(std::string_view number);
/// What no reader holds: too large, or too small.
[[nodiscard]] Nfa OfNumbersOutOfRange();
/// Whether the text is a JSON number (RFC 8259 section 6).
[[nodiscard]] bool IsJsonNumber(std::string_view text);

}  // namespace sluice::prover
