#pragma once

// What a certificate for the workload takes from the upstream's own, for clients that compare more than the name they dialled.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/keyed_hash.h"

struct ssl_st;

namespace sluice::proxy {

inline constexpr size_t kMaxMirrored = 4096;         ///< upstreams whose names are kept; over it all are learnt anew
inline constexpr size_t kMaxMirroredSubject = 4096;  ///< octets of a subject; over it the usual one is shown

/// Of one verified certificate of an upstream.
struct MirroredNames {
  std::string subject{};             ///< its X.501 name in DER
  std::vector<std::string> names{};  ///< its alternative names that cover the asked one, as OpenSSL writes them: "DNS:*.a.test"
};
using MirroredPtr = std::shared_ptr<const MirroredNames>;

/// After a verified handshake with the upstream of that name, or of that address where the name is empty. Null where the
/// certificate has nothing that can be shown for it.
[[nodiscard]] MirroredPtr MirroredFrom(const ssl_st* ssl, const std::string& name, const IpAddress& literal);

/// What the last verified handshake of each way to an upstream showed. Any thread.
class MirrorCache {
 public:
  /// Null: none yet.
  [[nodiscard]] MirroredPtr Find(const std::string& key) const;
  void Remember(const std::string& key, MirroredPtr mirrored);

 private:
  mutable std::mutex mutex_;
  KeyedMap<std::string, MirroredPtr> kept_;
};

}  // namespace sluice::proxy
