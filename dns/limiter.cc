#include "dns/limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

namespace sluice::dns {
namespace {

constexpr size_t kMaxKnownNames = 65536;
constexpr size_t kMaxDomains = 4096;
// What registries of countries put names below.
constexpr std::array<std::string_view, 11> kSecondLevel = {"ac",  "co", "com", "edu", "go", "gov",
                                                           "mil", "ne", "net", "or",  "org"};

// A name written out in the rule's own text is no channel: the author spelled it.
bool IsSpelledOut(std::string_view name, std::string_view rule_text) { return rule_text.find(name) != std::string_view::npos; }

size_t LabelCount(std::string_view name) { return static_cast<size_t>(std::ranges::count(name, '.')) + 1; }

// Labels of the rule's host: of its longest word with a dot, or of the whole text when it has none.
size_t RuleLabels(std::string_view rule_text) {
  size_t most = 1;
  while (!rule_text.empty()) {
    const std::string_view word = rule_text.substr(0, rule_text.find(' '));
    most = std::max(most, LabelCount(word.substr(0, word.find('/'))));
    rule_text.remove_prefix(std::min(rule_text.size(), word.size() + 1));
  }
  return most;
}

}  // namespace

bool TokenBucket::Take(SteadyTime now) {
  if (last_ != SteadyTime{} && now > last_)
    tokens_ = std::min(burst_, tokens_ + rate_ * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

std::optional<std::string> Limiter::JudgeShape(std::string_view name, std::string_view rule_text) const {
  if (IsSpelledOut(name, rule_text)) return std::nullopt;
  if (name.size() > limits_.wildcard_name)
    return fmt::format("a name under a wildcard has at most {} characters", limits_.wildcard_name);
  if (LabelCount(name) > RuleLabels(rule_text) + limits_.wildcard_labels)
    return fmt::format("a name under a wildcard has at most {} labels beyond the rule's", limits_.wildcard_labels);
  for (std::string_view rest = name; !rest.empty();) {
    const size_t length = std::min(rest.find('.'), rest.size());
    if (length > limits_.wildcard_label)
      return fmt::format("a label under a wildcard has at most {} characters", limits_.wildcard_label);
    rest.remove_prefix(std::min(rest.size(), length + 1));
  }
  return std::nullopt;
}

std::optional<std::string> Limiter::JudgeNewName(std::string_view name, std::string_view rule_text, SteadyTime now) {
  if (IsSpelledOut(name, rule_text)) return std::nullopt;
  const size_t hash = std::hash<std::string_view>{}(name);
  if (known_.contains(hash)) return std::nullopt;
  const std::string domain(CountingDomain(name, rule_text));
  auto found = domains_.find(domain);
  if (found == domains_.end()) {
    // Forgetting them all gives each domain a fresh minute's worth: a bounded gift, and it needs 4096 domains.
    if (domains_.size() >= kMaxDomains) domains_.clear();
    found = domains_.emplace(domain, TokenBucket(limits_.new_names_per_minute / 60, limits_.new_names_per_minute)).first;
  }
  if (!found->second.Take(now))
    return fmt::format("more than {} new names a minute under {}", limits_.new_names_per_minute, domain);
  if (known_.size() >= kMaxKnownNames) known_.clear();
  known_.insert(hash);
  return std::nullopt;
}

std::optional<std::string> Limiter::JudgeUpstream(SteadyTime now) {
  if (upstream_.Take(now)) return std::nullopt;
  return fmt::format("more than {} lookups a second", limits_.upstream_per_second);
}

std::string_view CountingDomain(std::string_view name, std::string_view rule_text) {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1))
    if (rule_text.find(name.substr(dot)) != std::string_view::npos) return name.substr(dot + 1);
  const size_t last = name.rfind('.');
  if (last == std::string_view::npos || last == 0) return name;
  const size_t second = name.rfind('.', last - 1);
  if (second == std::string_view::npos || second == 0) return name;
  const bool country = name.size() - last == 3;
  if (!country || std::ranges::find(kSecondLevel, name.substr(second + 1, last - second - 1)) == kSecondLevel.end())
    return name.substr(second + 1);
  const size_t third = name.rfind('.', second - 1);
  return third == std::string_view::npos ? name : name.substr(third + 1);
}

}  // namespace sluice::dns
