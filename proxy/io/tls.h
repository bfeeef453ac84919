#pragma once

// TLS on both sides: an authority that makes certificates for the names a sandbox is allowed to see inside, and a client
// that verifies the real ones. Keys live in memory only.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "proxy/spki.h"

struct ssl_ctx_st;
struct ssl_st;

namespace sluice::proxy {

struct MirroredNames;

inline constexpr size_t kMaxLeaves = 4096;            ///< server contexts kept, one per name and mirrored certificate
inline constexpr size_t kMaxUpstreamSessions = 1024;  ///< resumable sessions kept toward upstreams

/// One per sandbox. Any thread.
class TlsAuthority {
 public:
  static Result<std::unique_ptr<TlsAuthority>> Create();
  /// One of the user's own. `certificates` is PEM: what signs comes first, then what vouches for it, if anything. Refused: what
  /// is no authority (CA:TRUE, keyCertSign), out of its time, weak (RSA below 2048 bits, P-192 and the like), or of another key.
  /// `warnings`: what is unwise, a sentence each. No message repeats anything of the key.
  static Result<std::unique_ptr<TlsAuthority>> FromPem(const std::string& certificates, std::string_view key,
                                                       std::vector<std::string>* warnings);
  virtual ~TlsAuthority() = default;
  /// Its certificate, for an own one with those that came with it. Never a key.
  [[nodiscard]] virtual const std::string& pem() const = 0;
  /// A server context with a certificate for `name`, or for `literal` when the name is empty: with that as its only name, or with
  /// the subject and names of `mirrored`. Null when one cannot be made.
  [[nodiscard]] virtual std::shared_ptr<ssl_ctx_st> ContextFor(const std::string& name, const IpAddress& literal,
                                                               const MirroredNames* mirrored) = 0;
};

/// The protocols of HTTP that one handshake offers, or chooses from.
enum class AlpnOffer : uint8_t {
  kHttp11,       ///< HTTP/1.1 alone
  kHttp11First,  ///< HTTP/2 only where the peer has nothing else; servers
  kH2First,
};

/// One handshake toward an upstream: what its certificate must show, and what it is shown.
struct TlsOffer {
  std::string name{};  ///< for SNI and the certificate; empty: `literal`
  IpAddress literal{};
  AlpnOffer alpn = AlpnOffer::kHttp11;
  std::vector<SpkiPin> pins{};  ///< one of which the verified chain must hold; empty: none is asked for
  std::string certificate{};    ///< PEM, own certificate first, chain and key, in any order of kinds; empty: none is shown
  std::string roots_file{};     ///< PEM; the only roots; empty: the system's and the client's
  std::string session_key{};    ///< under which a session is kept and resumed; all of the above must be told apart by it
};

/// One per engine. Any thread.
class TlsClient {
 public:
  /// Trusts the system's roots, read at the first use, and those of `ca_files`, read from now on by a thread of its own.
  static std::unique_ptr<TlsClient> Begin(std::vector<std::string> ca_files);
  virtual ~TlsClient() = default;
  /// Waits until `ca_files` are read. kInvalid: one cannot be.
  [[nodiscard]] virtual Result<void> Ready() = 0;
  /// Null when it cannot be set up.
  [[nodiscard]] virtual ssl_ctx_st* context() = 0;
  /// Before the handshake of a session of context(). The message of an error repeats nothing of a certificate or key.
  [[nodiscard]] virtual Result<void> Prepare(ssl_st* ssl, const TlsOffer& offer) = 0;
};

/// Before the handshake. Without it HTTP/1.1 alone is offered.
[[nodiscard]] bool OfferAlpn(ssl_st* ssl, AlpnOffer offer);
/// After it: HTTP/2 was chosen.
[[nodiscard]] bool ChoseH2(ssl_st* ssl);
/// After a handshake that failed: the peer speaks none of what was offered.
[[nodiscard]] bool RefusedAlpn();

/// Why a handshake toward an upstream failed: the failed check of its certificate, or OpenSSL's words. For a chain without a
/// pinned key, that says which key the server showed.
[[nodiscard]] std::string DescribeHandshakeFailure(ssl_st* ssl);
/// Whether it was the certificate.
[[nodiscard]] bool CertificateWasRefused(ssl_st* ssl);

}  // namespace sluice::proxy
