// What was probably meant: optimal string alignment distance, small and bounded.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxWord = 32;

size_t Distance(std::string_view a, std::string_view b) {
  std::array<std::array<size_t, kMaxWord + 1>, kMaxWord + 1> d{};
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kMaxWord) return {};
  std::string_view best;
  size_t best_distance = word.size() <= 4 ? 2 : 3;  // one slip in a short word, two in a longer one
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kMaxWord) continue;
    const size_t distance = Distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view best = Nearest(word, candidates);
  return best.empty() ? "" : fmt::format("; did you mean `{}`?", best);
}

}  // namespace sluice::policy
