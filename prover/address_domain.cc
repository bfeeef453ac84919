#include "prover/address_domain.h"

#include <algorithm>

#include "policy/address.h"

namespace sluice::prover {
namespace {

// Public ones that read well.
const IpAddress kOrdinary = IpAddress::FromV4(0x01010101);
const IpAddress kOrdinaryV6 = IpAddress::FromV6({0x26});

int Preference(const IpAddress& address) {
  if (address == kOrdinary) return -1;
  const bool special = policy::FindSpecialRange(address, {}).has_value();
  return (special ? 2 : 0) + (address.is_v4() ? 0 : 4) - (address == kOrdinaryV6 ? 1 : 0);
}

bool NamesAddresses(const policy::Rule& rule) {
  // A deny of A lookups alone closes IPv4 and leaves IPv6.
  return !rule.ip.empty() || rule.host.cidr || (rule.verb == policy::Verb::kDns && !rule.allow && !rule.types.empty());
}

}  // namespace

std::vector<AddressInterval> CutAddresses(const std::vector<const policy::Rule*>& rules) {
  static const std::vector<IpAddress> kSpecial = policy::SpecialRangeEdges();
  // Without a word on addresses special ones are refused on all sides, and public ones are alike.
  if (std::none_of(rules.begin(), rules.end(), [](const policy::Rule* r) { return NamesAddresses(*r); })) return {{kOrdinary}};
  std::vector<IpAddress> edges = kSpecial;
  edges.emplace_back();  // ::, the first of all
  const auto add = [&](const Cidr& prefix) {
    edges.push_back(prefix.base());
    if (const auto after = policy::FirstAfter(prefix)) edges.push_back(*after);
  };
  for (const policy::Rule* rule : rules) {
    if (rule->host.cidr) add(*rule->host.cidr);
    for (const Cidr& prefix : rule->ip) add(prefix);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<AddressInterval> intervals;
  for (size_t i = 0; i < edges.size(); ++i) {
    IpAddress representative = edges[i];
    for (const IpAddress& ordinary : {kOrdinary, kOrdinaryV6})
      if (edges[i] <= ordinary && (i + 1 == edges.size() || ordinary < edges[i + 1])) representative = ordinary;
    intervals.push_back({representative});
  }
  std::vector<std::pair<int, IpAddress>> order;
  for (const AddressInterval& interval : intervals)
    order.emplace_back(Preference(interval.representative), interval.representative);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) intervals[i].representative = order[i].second;
  return intervals;
}

}  // namespace sluice::prover
