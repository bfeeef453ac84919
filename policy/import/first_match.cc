#include "policy/import/first_match.h"

#include <fmt/format.h>

namespace sluice::policy {
namespace {

constexpr size_t kMaxComparisons = 4'000'000;

Result<void> AddDeny(const std::vector<FirstMatchEntry>& entries, size_t index, std::string_view tool, ImportBuilder* out) {
  const FirstMatchEntry& deny = entries[index];
  const FirstMatchEntry* earlier = nullptr;
  for (size_t i = 0; i < index; ++i) {
    const FirstMatchEntry& allow = entries[i];
    if (allow.effect != Effect::kAllow || !HostsMeet(allow.host, deny.host)) continue;
    if (HostCovers(allow.host, deny.host)) {
      out->Say(RemarkKind::kNothing, fmt::format("the entry of line {} allows all of this first", allow.at->span.line),
               deny.at->span);
      return {};
    }
    earlier = &allow;
  }
  bool decides = false;
  for (size_t i = index + 1; i < entries.size(); ++i)
    decides |= entries[i].effect == Effect::kAllow && HostsMeet(entries[i].host, deny.host);
  if (!decides) {
    out->Say(RemarkKind::kNothing, "nothing behind this allows what it denies, so it decides nothing", deny.at->span);
    return {};
  }
  if (earlier != nullptr)
    out->Say(RemarkKind::kNarrower,
             fmt::format("in {} the entry of line {} comes first and wins where both match; here the deny wins", tool,
                         earlier->at->span.line),
             deny.at->span);
  const bool by_name = deny.host.kind == HostPattern::Kind::kName || deny.host.kind == HostPattern::Kind::kGlob;
  return out->Grant({.effect = Effect::kDeny, .verb = by_name ? "dns" : "tcp", .host = HostText(deny.host)}, *deny.at);
}

}  // namespace

Result<void> AddFirstMatch(const std::vector<FirstMatchEntry>& entries, std::string_view tool, ImportBuilder* out) {
  size_t denies = 0;
  for (const FirstMatchEntry& entry : entries) denies += entry.effect == Effect::kDeny;
  if (denies * entries.size() > kMaxComparisons)
    return std::unexpected(Error{Code::kExhausted, "too many entries to tell which one comes first", 0, entries[0].at->span});
  for (size_t i = 0; i < entries.size(); ++i) {
    const FirstMatchEntry& entry = entries[i];
    if (entry.effect == Effect::kDeny) {
      if (auto added = AddDeny(entries, i, tool, out); !added) return added;
      continue;
    }
    if (entry.host.kind == HostPattern::Kind::kGlob && entry.host.deep)
      out->Say(RemarkKind::kNote, fmt::format("any depth below {0}, not {0} itself", entry.host.text.substr(3)), entry.at->span);
    if (auto added = out->Grant({.verb = "tcp", .host = HostText(entry.host), .ports = std::string(kAllPorts)}, *entry.at);
        !added)
      return added;
  }
  return {};
}

}  // namespace sluice::policy
