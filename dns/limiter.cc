#include "dns/limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

namespace sluice::dns {
namespace {

constexpr double kPlainBits = 48;  // that a name of a dozen letters has
constexpr double kBitsOfOne = 40;  // beyond these each such part counts as one more name
constexpr double kMostWeight = 4;
constexpr std::chrono::minutes kHalfLife{1};
// What registries of countries put names below.
constexpr std::array<std::string_view, 11> kSecondLevel = {"ac",  "co", "com", "edu", "go", "gov",
                                                           "mil", "ne", "net", "or",  "org"};

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

// n times log2(n), for what a label can count.
double Weighed(size_t n) {
  static const auto kTable = [] {
    std::array<double, 256> table{};
    for (size_t i = 2; i < table.size(); ++i) table[i] = static_cast<double>(i) * std::log2(static_cast<double>(i));
    return table;
  }();
  return kTable[std::min<size_t>(n, 255)];
}

// Shannon's entropy of the label's characters, in bits, times their number.
double Bits(std::string_view label) {
  std::array<uint8_t, 256> counts{};
  for (const char c : label) ++counts[static_cast<unsigned char>(c)];
  double bits = Weighed(label.size());
  for (const char c : label) bits -= Weighed(std::exchange(counts[static_cast<unsigned char>(c)], uint8_t{0}));
  return bits;
}

}  // namespace

bool IsSpelledOut(std::string_view name, std::string_view rule_text) { return rule_text.find(name) != std::string_view::npos; }

bool Limiter::IsNew(std::string_view name, std::string_view rule_text) const {
  return !IsSpelledOut(name, rule_text) && !known_.contains(KeyedHash(name));
}

bool TokenBucket::Take(SteadyTime now, double cost) {
  if (last_ != SteadyTime{} && now > last_)
    tokens_ = std::min(burst_, tokens_ + rate_ * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (tokens_ < cost) return false;
  tokens_ -= cost;
  return true;
}

double NameWeight(std::string_view name, std::string_view domain) {
  if (name.size() > domain.size()) name.remove_suffix(domain.size());
  double bits = 0;
  while (!name.empty()) {
    const std::string_view label = name.substr(0, name.find('.'));
    bits += Bits(label);
    name.remove_prefix(std::min(name.size(), label.size() + 1));
  }
  return std::clamp(1 + std::ceil((bits - kPlainBits) / kBitsOfOne), 1.0, kMostWeight);
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
  const uint64_t hash = KeyedHash(name);
  if (known_.contains(hash)) return std::nullopt;
  const std::string_view under = CountingDomain(name, rule_text);
  if (!TakeNewName(name, under, now))
    return fmt::format("more than {} new names a minute under {}", limits_.new_names_per_minute, under);
  if (known_.size() >= kMaxKnownNames) known_.clear();
  known_.insert(hash);
  return std::nullopt;
}

// One that another resolver let pass is known.
bool Limiter::TakeNewName(std::string_view name, std::string_view domain, SteadyTime now) {
  const double ration = limits_.new_names_per_minute;
  const double weight = std::min(NameWeight(name, domain), ration);
  if (shared_ == nullptr) return Find(domain).ration.Take(now, weight);
  const uint64_t hash = shared_->Hash(name);
  if (shared_->IsKnown(hash)) return true;
  if (!shared_->Find(domain).ration.Take(ration / 60, ration, now, weight)) return false;
  shared_->Learn(hash);
  return true;
}

bool Limiter::TakeUpstream(SteadyTime now) {
  if (shared_ == nullptr) return upstream_.Take(now);
  return shared_->upstream().Take(limits_.upstream_per_second, limits_.upstream_burst, now);
}

SharedShare::Counts Limiter::Existence(std::string_view domain, SteadyTime now) {
  if (shared_ != nullptr) return shared_->Find(domain).absence.Read(now);
  Domain& own = Find(domain);
  Age(&own, now);
  return {own.seen, own.absent};
}

std::optional<std::string> Limiter::JudgeAbsence(std::string_view name, std::string_view rule_text, SteadyTime now) {
  if (!IsNew(name, rule_text)) return std::nullopt;
  const std::string_view under = CountingDomain(name, rule_text);
  const auto [seen, absent] = Existence(under, now);
  if (absent < limits_.absent_names || absent <= limits_.absent_share * seen) return std::nullopt;
  return fmt::format("most names asked for under {} do not exist, so new ones wait for a minute", under);
}

Limiter::Domain& Limiter::Find(std::string_view domain) {
  const auto found = domains_.find(domain);
  if (found != domains_.end()) return found->second;
  // Forgetting them all gives each domain a fresh minute's worth: a bounded gift, and it needs 4096 domains.
  if (domains_.size() >= kMaxDomains) domains_.clear();
  const double ration = limits_.new_names_per_minute;
  return domains_.emplace(std::string(domain), Domain{TokenBucket(ration / 60, ration)}).first->second;
}

void Limiter::Age(Domain* domain, SteadyTime now) {
  if (domain->halved == SteadyTime{}) domain->halved = now;
  const auto passed = (now - domain->halved) / kHalfLife;
  if (passed <= 0) return;
  const double factor = std::pow(0.5, static_cast<double>(std::min<int64_t>(passed, 64)));
  domain->seen *= factor;
  domain->absent *= factor;
  domain->halved += passed * kHalfLife;
}

void Limiter::NoteExistence(std::string_view name, std::string_view rule_text, bool exists, SteadyTime now) {
  if (IsSpelledOut(name, rule_text)) return;
  const std::string_view under = CountingDomain(name, rule_text);
  if (shared_ != nullptr) return shared_->Find(under).absence.Add(!exists, now);
  Domain& domain = Find(under);
  Age(&domain, now);
  domain.seen += 1;
  domain.absent += exists ? 0 : 1;
}

// A client too many is one whom nobody asked for lately, or one of a crowd: forgetting all gives each a fresh burst, and the
// bound of all clients together stays.
std::optional<std::string> Limiter::JudgeUpstream(Client client, SteadyTime now) {
  auto found = clients_.find(client);
  if (found == clients_.end()) {
    if (clients_.size() >= kMaxClients) clients_.clear();
    found = clients_.emplace(client, TokenBucket(limits_.client_per_second, limits_.client_burst)).first;
  }
  if (!found->second.Take(now)) return fmt::format("more than {} lookups a second by one client", limits_.client_per_second);
  if (TakeUpstream(now)) return std::nullopt;
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
