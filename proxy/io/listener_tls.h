#pragma once

// TLS between clients and the explicit proxy itself, with a certificate of the user's: what `--listen-tls-cert` and `--client-ca`
// ask for. Not to be taken for the sandbox's authority (tls.h), which speaks for the hosts that clients go to.

#include <memory>
#include <string>

#include "base/result.h"
#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"

struct ssl_ctx_st;
struct ssl_st;

namespace sluice::proxy {

struct ListenerTlsFiles {
  std::string certificate;  ///< PEM, the chain after it
  std::string key;          ///< PEM
  std::string client_ca;    ///< PEM; a client must show a certificate of these. Empty: none is asked for
};

/// One per engine. Any thread.
class ListenerTls {
 public:
  /// Errors name the file.
  static Result<std::shared_ptr<ListenerTls>> Create(const ListenerTlsFiles& files);
  [[nodiscard]] ssl_ctx_st* context() const { return context_.get(); }

 private:
  explicit ListenerTls(std::shared_ptr<ssl_ctx_st> context) : context_(std::move(context)) {}
  std::shared_ptr<ssl_ctx_st> context_;
};

/// Who a verified client is: the first DNS name, URI or mail address of its certificate, else its common name; printable, at most
/// 128 bytes. Empty where it showed none.
[[nodiscard]] std::string PeerName(ssl_st* ssl);

/// Carries bytes between a stream under TLS and a plain one until both ends have closed, one fails, or nothing moved for
/// kRelayIdle.
[[nodiscard]] Task<> Shuttle(Reactor& reactor, Waiter& waiter, Stream& tls, Stream& plain);

}  // namespace sluice::proxy
