#pragma once

// Addresses cut into intervals on which every rule and the address guard answer the same.

#include <vector>

#include "policy/rule.h"

namespace sluice::prover {

struct AddressInterval {
  IpAddress representative;  ///< an ordinary public one where it holds some, else its first
  bool operator==(const AddressInterval&) const = default;
};

/// In order of preference: public IPv4, other IPv4, IPv6.
[[nodiscard]] std::vector<AddressInterval> CutAddresses(const std::vector<const policy::Rule*>& rules);

}  // namespace sluice::prover
