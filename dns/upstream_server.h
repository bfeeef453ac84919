#pragma once

// Upstream resolvers as people write them: "1.1.1.1", "[2606:4700::1111]:53", "tls://1.1.1.1#one.one.one.one", and domains that
// have resolvers of their own: "cluster.local=10.96.0.10".

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "base/socket_seal.h"

namespace sluice::dns {

inline constexpr uint16_t kDnsPort = 53;
inline constexpr uint16_t kTlsPort = 853;  ///< RFC 7858
inline constexpr size_t kMaxStubDomains = 64;

struct UpstreamServer {
  enum class Kind : uint8_t {
    kPlain,  ///< UDP, and TCP where UDP will not do
    kTls,    ///< DNS over TLS (RFC 7858), always verified
  };
  Endpoint endpoint;
  Kind kind = Kind::kPlain;
  std::string name{};  ///< kTls: the name in its certificate; empty: the address is there

  /// "1.1.1.1:53", "tls://1.1.1.1:853#one.one.one.one".
  [[nodiscard]] std::string ToString() const;
  bool operator==(const UpstreamServer&) const = default;
};

/// A domain, and all below it, that its own servers answer for. The longest that holds a name is asked, and no other.
struct StubDomain {
  std::string domain;  ///< canonical
  std::vector<UpstreamServer> servers;
  bool operator==(const StubDomain&) const = default;
};

struct UpstreamOptions {
  std::vector<UpstreamServer> servers{};    ///< asked in order; empty: the host's resolv.conf (kNotFound when it names none)
  std::chrono::milliseconds timeout{5000};  ///< for one lookup, retries included
  std::vector<StubDomain> stubs{};
  std::vector<std::string> tls_roots{};  ///< PEM files beside the system's roots, for `tls://` servers
  SocketSeal seal{};                     ///< put on every socket before it is connected; empty: on none
};

/// "[tls://]ADDRESS[:PORT][#NAME]"; an IPv6 address with a port stands in brackets. Names are never addresses' stand-ins here:
/// looking one up would need a resolver.
[[nodiscard]] Result<UpstreamServer> ParseUpstreamServer(std::string_view text);
/// "DOMAIN=SERVER[,SERVER…]".
[[nodiscard]] Result<StubDomain> ParseStubDomain(std::string_view text);

}  // namespace sluice::dns
