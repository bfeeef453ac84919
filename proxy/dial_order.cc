#include "proxy/dial_order.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

namespace sluice::proxy {
namespace {

void Interleave(std::span<const IpAddress> six, std::span<const IpAddress> four, std::vector<IpAddress>* out) {
  for (size_t i = 0; i < std::max(six.size(), four.size()); ++i) {
    if (i < six.size()) out->push_back(six[i]);
    if (i < four.size()) out->push_back(four[i]);
  }
}

}  // namespace

void FailedAddresses::Add(const IpAddress& address, SteadyTime now) {
  if (until_.size() >= kMaxFailedAddresses && !until_.contains(address)) {
    std::erase_if(until_, [now](const auto& entry) { return entry.second <= now; });
    if (until_.size() >= kMaxFailedAddresses) until_.clear();
  }
  until_[address] = now + kFailedFor;
}

bool FailedAddresses::Contains(const IpAddress& address, SteadyTime now) const {
  const auto found = until_.find(address);
  return found != until_.end() && found->second > now;
}

std::vector<IpAddress> DialOrder(const std::vector<IpAddress>& addresses, const FailedAddresses& failed, SteadyTime now) {
  std::vector<IpAddress> sorted[2][2];  // [failed of late][IPv4]
  for (const IpAddress& address : addresses) {
    auto& list = sorted[failed.Contains(address, now) ? 1 : 0][address.is_v4() ? 1 : 0];
    if (std::ranges::find(list, address) == list.end()) list.push_back(address);
  }
  std::vector<IpAddress> order;
  order.reserve(addresses.size());
  for (const auto& families : sorted) Interleave(families[0], families[1], &order);
  return order;
}

int TellingErrno(const std::vector<int>& errors) {
  static constexpr std::array<int, 5> kRank = {ECONNREFUSED, ECONNRESET, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH};
  for (const int wanted : kRank)
    if (std::ranges::find(errors, wanted) != errors.end()) return wanted;
  return errors.empty() ? 0 : errors.front();
}

}  // namespace sluice::proxy
