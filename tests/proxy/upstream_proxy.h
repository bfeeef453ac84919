#pragma once

// An upstream proxy for tests: real sockets and TLS, CONNECT or SOCKS5, and as hostile as a test asks for.

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "policy/credential.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {

/// Forwards to 127.0.0.1 at the port that is asked for, whatever the name; what it is to forward by absolute form it answers
/// itself, and shows its own login in the head and trailers of "/back".
class UpstreamProxyServer {
 public:
  enum class Kind : uint8_t { kHttp, kHttps, kSocks5 };
  /// `login`: "user:password" or, for a bearer, the token; empty: none is asked for. `reply`: sent in place of an answer to
  /// CONNECT.
  UpstreamProxyServer(Kind kind, std::string login, std::string reply = "");

  /// As a policy names it "corp", by its literal, or by `host` where that is given.
  [[nodiscard]] policy::UpstreamProxy AsProxy(const std::string& host = "") const;
  [[nodiscard]] uint16_t port() const { return origin_.port(); }
  [[nodiscard]] int accepted() const { return origin_.accepted(); }
  /// Heads of CONNECT and other requests, or "socks NAME:PORT", in the order they came.
  [[nodiscard]] std::vector<std::string> asked();

 private:
  void Serve(Peer peer);
  void ServeSocks(Peer peer);
  void Note(std::string what);
  const Kind kind_;
  const std::string login_;
  const std::string reply_;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  Origin origin_;
};

/// The lines of a policy, below its rules, that send everything through this proxy.
[[nodiscard]] std::string Everything(const policy::UpstreamProxy& proxy);
/// Those that define it alone.
[[nodiscard]] std::string Defined(const policy::UpstreamProxy& proxy);

/// With the secret of its login, if it has one.
[[nodiscard]] EngineOptions WithLogin(EngineOptions options, const policy::UpstreamProxy& proxy);

}  // namespace sluice::proxy::testing
