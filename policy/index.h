#pragma once

// Finds the rules that may speak for a host or an address. No allocation; each rule is given at most once per list it is in.

#include "policy/compiled.h"
#include "policy/match.h"

namespace sluice::policy {

enum class Reach : uint8_t {
  kBoth,
  kDenyOnly,  ///< the host matched only as a deny reads it
};

namespace index_internal {

template <class F>
void VisitList(const Snapshot::Compiled& compiled, const RuleList& list, Reach reach, F& f) {
  for (const uint32_t i : list)
    if (reach == Reach::kBoth || !compiled.rules[i].allow) f(i);
}

// `rest` is what stands left of the labels already walked.
template <class F>
void VisitLabels(const Snapshot::Compiled& compiled, const LabelNode& node, std::string_view rest, Reach reach, F& f) {
  if (rest.empty()) {
    VisitList(compiled, node.here, reach, f);
    return;
  }
  VisitList(compiled, node.deep, reach, f);
  const size_t dot = rest.rfind('.');
  const std::string_view label = dot == std::string_view::npos ? rest : rest.substr(dot + 1);
  const std::string_view left = dot == std::string_view::npos ? std::string_view{} : rest.substr(0, dot);
  if (const auto it = node.exact.find(label); it != node.exact.end()) VisitLabels(compiled, *it->second, left, reach, f);
  for (const LabelNode::Edge& edge : node.globs) {
    if (LabelMatches(edge.label, label, true)) {
      VisitLabels(compiled, *edge.node, left, reach, f);
    } else if (LabelMatches(edge.label, label, false)) {
      VisitLabels(compiled, *edge.node, left, Reach::kDenyOnly, f);
    }
  }
}

}  // namespace index_internal

/// f(rule index) for every rule whose host pattern holds the canonical, non-empty `name`.
template <class F>
void ForEachByName(const Snapshot::Compiled& compiled, std::string_view name, F f) {
  if (const auto it = compiled.names.find(name); it != compiled.names.end())
    index_internal::VisitList(compiled, it->second, Reach::kBoth, f);
  if (compiled.has_wildcards) index_internal::VisitLabels(compiled, compiled.wildcards, name, Reach::kBoth, f);
  index_internal::VisitList(compiled, compiled.any, Reach::kBoth, f);
}

/// Whether an allowed host may lie below `name`.
[[nodiscard]] bool IsAncestor(const Snapshot::Compiled& compiled, std::string_view name);

/// f(rule index) for every rule whose target may hold the connection's host or address. An allow of HTTP, git or tls by literal
/// speaks only for connections made to that literal.
template <class F>
void ForEachCandidate(const Snapshot::Compiled& compiled, const ConnectQuery& query, F f) {
  const bool named = !query.host.empty();
  if (named) {
    ForEachByName(compiled, query.host, f);
  } else {
    index_internal::VisitList(compiled, compiled.any, Reach::kBoth, f);
  }
  if (!query.address) {
    if (named) index_internal::VisitList(compiled, compiled.opaque_prefixes, Reach::kBoth, f);
    return;
  }
  for (const unsigned length : compiled.prefix_lengths) {
    if (length < 96 && query.address->is_v4()) continue;
    const Cidr key = query.address->is_v4() ? Cidr::Of(*query.address, length - 96) : Cidr::Of(*query.address, length);
    const auto it = compiled.prefixes.find(key);
    if (it == compiled.prefixes.end()) continue;
    for (const uint32_t i : it->second) {
      const Rule& rule = compiled.rules[i];
      if (named && rule.allow && (IsInner(rule.verb) || rule.verb == Verb::kTls)) continue;
      f(i);
    }
  }
}

}  // namespace sluice::policy
