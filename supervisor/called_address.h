#pragma once

// What a sockaddr means to the kernel, as far as a decision needs it, and the paths of UNIX sockets as the file system
// would read them. Pure.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"

namespace sluice::supervisor {

/// sizeof(struct sockaddr_storage): a longer address is EINVAL before anything is read.
inline constexpr size_t kMaxSockaddr = 128;

enum class AddressKind : uint8_t {
  kMalformed,     ///< too short for its family: no socket accepts it
  kUnspecified,   ///< AF_UNSPEC: dissolves an association
  kInet,          ///< AF_INET or AF_INET6, complete
  kUnixPath,      ///< names a file
  kUnixAbstract,  ///< abstract or unnamed: stays in the network namespace
  kOther,         ///< any other family
};

struct CalledAddress {
  AddressKind kind = AddressKind::kMalformed;
  uint16_t family = 0;
  Endpoint endpoint;  ///< kInet
  std::string path;   ///< kUnixPath, as written
};

[[nodiscard]] CalledAddress ReadCalledAddress(std::span<const uint8_t> bytes);

/// Whether a normal path is one of the trees or below one.
[[nodiscard]] bool IsBelow(std::string_view path, std::span<const std::string> trees);

/// Length of the longest of the trees that a normal path is in; 0: in none.
[[nodiscard]] size_t LongestTree(std::string_view path, std::span<const std::string> trees);

/// Addresses that are the workload's own: 127.0.0.0/8, ::1, the unspecified ones (the kernel takes them for loopback), and
/// those given to lo.
class OwnAddresses {
 public:
  OwnAddresses() = default;
  explicit OwnAddresses(std::vector<IpAddress> of_lo) : of_lo_(std::move(of_lo)) {}
  [[nodiscard]] bool Contains(const IpAddress& address) const;

 private:
  std::vector<IpAddress> of_lo_;
};

}  // namespace sluice::supervisor
