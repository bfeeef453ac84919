#pragma once

// `credentials:` and `proxies:` of a policy, as data: what is sent, where it may go, and where the secret is found. Secrets
// themselves are never in a policy, nor in anything made from one; the proxy reads them from their source.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "policy/rule.h"

namespace sluice::policy {

/// Where a secret is found. Read by the supervisor, in its own place and with its own rights.
struct SecretSource {
  enum class Kind : uint8_t {
    kEnvironment,  ///< `env NAME`: a variable of the supervisor's environment, which the workload's never has
    kFile,         ///< `file /path`: its content without the last line end; read again when it changes
    kCommand,      ///< `command "a b c"`: standard output of a command without a shell, without the last line end
    kSystemd,      ///< `systemd NAME`: $CREDENTIALS_DIRECTORY/NAME
    kOauth,        ///< OAuth 2.0 client credentials (RFC 6749 section 4.4)
  };
  Kind kind = Kind::kEnvironment;
  std::string text;                    ///< the variable, the path, the name; for kOauth the token URL
  std::vector<std::string> command{};  ///< kCommand: program and arguments
  std::string client_id{};             ///< kOauth
  std::string scope{};                 ///< kOauth; may be empty
  /// kOauth: where the client's own secret is; for SigV4 the secret beside the key id, where that stands apart. At most one.
  std::vector<SecretSource> secret{};
};

/// How a credential is put into a request.
struct CredentialUse {
  enum class Kind : uint8_t {
    kBearer,       ///< Authorization: Bearer …
    kBasic,        ///< Authorization: Basic, of `text` as the user; empty: the secret is "user:password"
    kHeader,       ///< the field `text`, with `prefix` before the value
    kQuery,        ///< the query parameter `text`
    kPlaceholder,  ///< the workload has a stand-in in its variable `text`; it is replaced wherever the request carries it
    kSigV4,        ///< AWS Signature Version 4: the workload's signature is replaced; the secret is "id:key[:session token]"
    kClientCertificate,  ///< TLS client certificate; the secret is PEM, certificate chain and key
  };
  Kind kind = Kind::kBearer;
  std::string text{};
  std::string prefix{};
  std::string region{};   ///< kSigV4; empty: as the workload signed
  std::string service{};  ///< kSigV4; the same
};

/// A place that a credential may be sent to: what an `http` allow of this text would cover.
struct CredentialScope {
  HostPattern host{};
  std::vector<PortRange> ports{};  ///< never empty: 443 where none is written
  std::vector<Glob> paths{};       ///< empty is every path
  std::string text{};
};

struct Credential {
  std::string name;
  SecretSource from{};
  CredentialUse send{};
  std::vector<CredentialScope> to{};
  SourceSpan span{};
};

/// An upstream proxy that rules name by `via`, or the whole policy by `settings: { via: NAME }`.
struct UpstreamProxy {
  enum class Kind : uint8_t { kHttp, kHttps, kSocks5 };
  std::string name;
  Kind kind = Kind::kHttp;
  std::string host;                    ///< canonical; empty for a literal
  std::optional<IpAddress> address{};  ///< the literal
  uint16_t port = 0;
  std::optional<SecretSource> basic{};   ///< "user:password"
  std::optional<SecretSource> bearer{};  ///< HTTP proxies only
  std::string ca_file{};                 ///< PEM roots for this proxy alone; absolute
  struct Except {                        ///< reached without the proxy
    std::optional<HostPattern> host{};   ///< a name, a glob, or an address or prefix
    std::vector<PortRange> ports{};      ///< empty is every port
  };
  std::vector<Except> except{};
  SourceSpan span{};
};

/// Everything that bears on the meaning, in one spelling: names and sources. For the digest.
[[nodiscard]] std::string CanonicalText(const Credential& credential);
[[nodiscard]] std::string CanonicalText(const UpstreamProxy& proxy);

}  // namespace sluice::policy
