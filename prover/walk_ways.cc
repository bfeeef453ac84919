// Where a policy lets out what the other does too, but another way: with a credential, through an upstream proxy, to a key. What
// is gained is then the request together with the way (exact point 19).

#include <algorithm>
#include <set>

#include "prover/walk.h"

namespace sluice::prover {
namespace {

using policy::Rule;
using policy::RuleRef;
using policy::Scheme;

const SchemeReach& Over(const CellReach& reach, Scheme scheme) { return reach.schemes[static_cast<size_t>(scheme)]; }

void SortUnique(std::vector<InnerId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// The judged allows that pass the test, without their connection.
template <class Test>
std::vector<InnerId> Those(const Side& side, const SchemeReach& reach, Test test) {
  std::vector<InnerId> ids;
  for (const uint32_t i : reach.judged_allows)
    if (test(i)) ids.push_back(side.inner[i]);
  SortUnique(&ids);
  return ids;
}

std::vector<InnerId> Both(std::vector<InnerId> a, const std::vector<InnerId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  SortUnique(&a);
  return a;
}

// Which judged allows send what they cover through `proxy`, 0 being none, and which send some of it elsewhere all the same.
struct Routed {
  std::vector<InnerId> allows;
  std::vector<InnerId> excepts;
};

Routed RoutedBy(const Side& side, const SchemeReach& reach, uint32_t proxy) {
  const uint32_t settings = side.ways.settings_proxy();
  const auto named = [&](uint32_t i) { return side.ways.of(i).proxy; };
  const auto by_settings = [&](uint32_t i) { return named(i) == 0 && side.ways.of(i).by_name; };
  Routed routed;
  if (proxy == 0) {
    routed.allows = Those(side, reach, [&](uint32_t i) { return named(i) == 0 && !by_settings(i); });
    routed.excepts = Those(side, reach, [&](uint32_t i) { return named(i) != 0 || by_settings(i); });
    return routed;
  }
  routed.allows = Those(side, reach, [&](uint32_t i) { return named(i) == proxy || (proxy == settings && by_settings(i)); });
  if (proxy == settings) routed.excepts = Those(side, reach, [&](uint32_t i) { return named(i) != 0 && named(i) != proxy; });
  return routed;
}

bool PinsWithin(const std::vector<policy::Pin>& inner, const std::vector<policy::Pin>& outer) {
  return !inner.empty() && std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

}  // namespace

void Walk::WayGains(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner) {
  OpaqueVia(cell, reach, winner);
  for (const Scheme scheme : {Scheme::kHttps, Scheme::kHttp}) {
    if (!Over(reach[winner], scheme).judged) continue;
    const Asked asked{cell, winner, scheme};
    // None goes over cleartext.
    if (scheme == Scheme::kHttps) CredentialGains(alive, asked, reach);
    ViaGains(alive, asked, reach);
    PinGains(alive, asked, reach);
  }
}

// R(P) holds a request with a credential where some allow that has it covers the request: with beats without.
void Walk::CredentialGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  std::set<uint32_t> credentials;
  for (const uint32_t i : here.judged_allows) credentials.insert(mine.ways.of(i).credential);
  credentials.erase(0);
  for (const uint32_t credential : credentials) {
    RequestProblem problem;
    problem.head_allows = Those(mine, here, [&](uint32_t i) { return mine.ways.of(i).credential == credential; });
    problem.head_denies = here.judged_denies;
    problem.base_allows = Those(other, there, [&](uint32_t i) { return other.ways.of(i).credential == credential; });
    problem.base_denies = there.judged_denies;
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kCredential;
    like.way_name = mine.ways.CredentialName(credential);
    Solve(alive, asked, problem, like);
  }
}

void Walk::ViaGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  std::set<uint32_t> proxies{0, mine.ways.settings_proxy()};
  for (const uint32_t i : here.judged_allows) proxies.insert(mine.ways.of(i).proxy);
  if (proxies.size() == 1 && !other.ways.any_proxy()) return;
  // What the other side does not look into goes the way of its connection.
  const CellReach& whole = reach[1 - asked.winner];
  const bool passed = asked.scheme == Scheme::kHttps ? whole.tls : whole.tcp;
  if (!there.judged && !passed) return;
  for (const uint32_t proxy : proxies) {
    const Routed gained = RoutedBy(mine, here, proxy);
    Routed had = RoutedBy(other, there, proxy);
    if (!there.judged && ViaOfBytes(asked.cell, 1 - asked.winner) == proxy) had.allows = {kUniversal};
    RequestProblem problem;
    problem.head_allows = gained.allows;
    // What the other side denies is gained as traffic, and said there.
    problem.head_denies = Both(here.judged_denies, there.judged_denies);
    problem.accepted = gained.excepts;
    problem.base_allows = had.allows;
    problem.base_excepts = had.excepts;
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kVia;
    like.way_name = mine.ways.ProxyName(proxy);
    Solve(alive, asked, problem, like);
  }
}

void Walk::PinGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  std::set<std::vector<policy::Pin>> pinned;
  for (const uint32_t i : there.judged_allows)
    if (!other.rules()[i].pins.empty()) pinned.insert(other.rules()[i].pins);
  for (const auto& pins : pinned) {
    RequestProblem problem;
    problem.head_allows = Those(mine, here, [](uint32_t) { return true; });
    problem.head_denies = Both(here.judged_denies, there.judged_denies);
    problem.accepted = Those(mine, here, [&](uint32_t i) { return PinsWithin(mine.rules()[i].pins, pins); });
    problem.base_allows = {kUniversal};
    problem.base_excepts = Those(other, there, [&](uint32_t i) { return other.rules()[i].pins == pins; });
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kUnpinned;
    Solve(alive, asked, problem, like);
  }
}

uint32_t Walk::ViaOfBytes(const Cell& cell, size_t side) const {
  policy::ConnectQuery query;
  query.process = cell.known ? &*cell.known : nullptr;
  query.host = cell.host;
  query.address = cell.address;
  query.port = cell.port;
  query.now = cell.now;
  return sides_[side]->ways.ProxyNumber(sides_[side]->snapshot->DecideConnect(query).decision.via);
}

// Of connections that both let pass unread.
void Walk::OpaqueVia(const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner) {
  const CellReach& mine = reach[winner];
  const CellReach& other = reach[1 - winner];
  const bool tcp = mine.tcp && other.tcp;
  if (!tcp && !(mine.tls && other.tls)) return;
  if (ViaOfBytes(cell, winner) == ViaOfBytes(cell, 1 - winner)) return;
  Witness witness = WitnessAt(cell, tcp ? Layer::kTcp : Layer::kTls);
  witness.way = Way::kVia;
  const RuleNumbers& by = mine.tcp_rules.empty() ? mine.tls_rules : mine.tcp_rules;
  for (const uint32_t i : by) Found(winner, RuleRef{i}, cell, witness);
}

}  // namespace sluice::prover
