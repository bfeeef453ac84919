#pragma once

// TLS on both sides: an authority that makes certificates for the names a sandbox is allowed to see inside, and a client
// that verifies the real ones. Keys live in memory only.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace sluice::proxy {

inline constexpr size_t kMaxLeaves = 4096;            ///< server contexts kept, one per name
inline constexpr size_t kMaxUpstreamSessions = 1024;  ///< resumable sessions kept toward upstreams

/// One per sandbox. Any thread.
class TlsAuthority {
 public:
  static Result<std::unique_ptr<TlsAuthority>> Create();
  virtual ~TlsAuthority() = default;
  [[nodiscard]] virtual const std::string& pem() const = 0;
  /// A server context with a certificate for `name`, or for `literal` when the name is empty. Null when one cannot be made.
  [[nodiscard]] virtual std::shared_ptr<ssl_ctx_st> ContextFor(const std::string& name, const IpAddress& literal) = 0;
};

/// One per engine. Any thread.
class TlsClient {
 public:
  /// System roots, read at the first use, and `ca_files`, read now: one that cannot be read is an error.
  static Result<std::unique_ptr<TlsClient>> Create(const std::vector<std::string>& ca_files);
  virtual ~TlsClient() = default;
  /// Null when it cannot be set up.
  [[nodiscard]] virtual ssl_ctx_st* context() = 0;
  /// Sets SNI, the name or address that the certificate must show, and a session to resume under `key`.
  [[nodiscard]] virtual bool Prepare(ssl_st* ssl, const std::string& name, const IpAddress& literal, const std::string& key) = 0;
};

/// The protocols of HTTP that one handshake offers, or chooses from.
enum class AlpnOffer : uint8_t {
  kHttp11,       ///< HTTP/1.1 alone
  kHttp11First,  ///< HTTP/2 only where the peer has nothing else; servers
  kH2First,
};
/// Before the handshake. Without it HTTP/1.1 alone is offered.
[[nodiscard]] bool OfferAlpn(ssl_st* ssl, AlpnOffer offer);
/// After it: HTTP/2 was chosen.
[[nodiscard]] bool ChoseH2(ssl_st* ssl);

/// After a handshake that failed: the peer speaks none of what was offered.
[[nodiscard]] bool RefusedAlpn();

/// Why a handshake toward an upstream failed: the failed check of its certificate, or OpenSSL's words.
[[nodiscard]] std::string DescribeHandshakeFailure(ssl_st* ssl);
/// Whether it was the certificate.
[[nodiscard]] bool CertificateWasRefused(ssl_st* ssl);

}  // namespace sluice::proxy
