#pragma once

// What the engine's tests stand on: real loopback sockets, real OpenSSL peers, a resolver that answers every name with
// 127.0.0.1, and a sink that keeps what it is told. Everything binds port zero and ends with the object.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "policy/event.h"
#include "proxy/io/engine.h"
#include "proxy/io/secret_store.h"

struct ssl_st;
struct ssl_ctx_st;

namespace sluice::proxy::testing {

/// A blocking connection, plain or TLS, with a ten-second limit on each read.
class Peer {
 public:
  Peer() = default;
  Peer(UniqueFd fd, ssl_st* ssl) : fd_(std::move(fd)), ssl_(ssl) {}
  Peer(Peer&& other) noexcept;
  Peer& operator=(Peer&& other) noexcept;
  ~Peer();

  bool Write(std::string_view bytes);
  /// Some bytes; empty at the end or on an error.
  std::string ReadSome();
  /// Up to and including `mark`; what follows stays. Empty when the connection ended first.
  std::string ReadUntil(std::string_view mark);
  std::string ReadExactly(size_t n);
  std::string ReadToEnd();
  /// A response or request: head, and the body by its Content-Length or chunks (decoded).
  struct Message {
    std::string head;
    std::string body;
    std::string trailers;
    [[nodiscard]] std::string Field(std::string_view lower_name) const;
    [[nodiscard]] std::string FirstLine() const { return head.substr(0, head.find("\r\n")); }
  };
  enum class Body : uint8_t { kByHead, kNone };
  Message ReadMessage(Body body = Body::kByHead);
  void CloseWrite();
  void Reset();  ///< closes with RST
  void Close();
  /// TLS picked up an earlier session.
  [[nodiscard]] bool resumed() const;
  /// What ALPN chose; empty: nothing.
  [[nodiscard]] std::string alpn() const;
  [[nodiscard]] bool ok() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The last read ended in a reset rather than a FIN.
  [[nodiscard]] bool was_reset() const { return was_reset_; }

 private:
  UniqueFd fd_;
  ssl_st* ssl_ = nullptr;
  std::string pending_;
  bool was_reset_ = false;
};

/// A certificate authority of the test's own and what it signs.
class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();
  [[nodiscard]] const std::string& file() const { return file_; }
  /// A server context for these alternative names ("DNS:a.test", "IP:127.0.0.1"). `alpn`: one protocol that it insists on.
  [[nodiscard]] std::shared_ptr<ssl_ctx_st> ServerContext(const std::string& alternatives, const std::string& alpn = "") const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string file_;
};

/// Accepts on 127.0.0.1 and runs `serve` in a thread for each connection.
class Origin {
 public:
  Origin(std::shared_ptr<ssl_ctx_st> tls, std::function<void(Peer)> serve);
  ~Origin();
  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] int accepted() const { return accepted_.load(); }

 private:
  void Run();
  std::shared_ptr<ssl_ctx_st> tls_;
  std::function<void(Peer)> serve_;
  uint16_t port_ = 0;  // before the listener, which fills it
  UniqueFd listener_;
  std::atomic<int> accepted_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::thread> serving_;
  std::vector<int> open_;
  std::thread thread_;
};

/// Answers A with 127.0.0.1 (or what `answers` holds), everything else with no data; "missing.test" does not exist.
class TestResolver {
 public:
  TestResolver();
  ~TestResolver();
  [[nodiscard]] Endpoint endpoint() const { return {IpAddress::FromV4(0x7f000001), port_}; }
  void Answer(const std::string& name, uint32_t v4);
  [[nodiscard]] int questions() const { return questions_.load(); }

 private:
  void Run();
  std::string Reply(std::string_view question);
  UniqueFd fd_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::map<std::string, uint32_t> answers_;
  std::atomic<int> questions_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class KeepingSink final : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent event) noexcept override;
  bool Record(policy::ExchangeEvent event) noexcept override;
  std::string NextDenialId() override;
  [[nodiscard]] std::vector<policy::DecisionEvent> decisions();
  /// Waits until there are that many.
  [[nodiscard]] std::vector<policy::ExchangeEvent> exchanges(size_t at_least);
  std::atomic<bool> full{false};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<policy::DecisionEvent> decisions_;
  std::vector<policy::ExchangeEvent> exchanges_;
  std::atomic<int> ids_{0};
};

/// One engine under a policy written as YAML rules.
class Testbed {
 public:
  /// `rules`: the lines below "rules:". Fails the test where they do not load.
  explicit Testbed(const std::string& rules, EngineOptions options = {});
  ~Testbed();

  enum class Speak : uint8_t { kTls, kPlain };
  /// A flow to host:port; the client's end, TLS handshake done (not ok() where it failed). `sni` defaults to the host.
  Peer Connect(const std::string& host, uint16_t port, Speak speak = Speak::kTls, std::string sni = "");
  /// What later TLS clients offer, the first liked best; none: no ALPN.
  void OfferAlpn(const std::vector<std::string>& protocols);
  /// A flow to a literal address.
  Peer ConnectLiteral(IpAddress address, uint16_t port, Speak speak = Speak::kTls);
  /// The client's end of a bare TCP flow.
  UniqueFd ConnectRaw(FlowTarget target, uint64_t id = 0);
  /// Makes a bare flow's end speak.
  Peer Speaking(UniqueFd fd, Speak speak, const std::string& sni);
  void SetPolicy(const std::string& rules);
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] KeepingSink& sink() { return sink_; }
  [[nodiscard]] TestResolver& resolver() { return resolver_; }
  [[nodiscard]] policy::ProcessPtr process() const { return process_; }
  [[nodiscard]] uint64_t last_id() const { return next_id_ - 1; }

 private:
  static policy::SnapshotPtr Load(const std::string& rules);
  TestResolver resolver_;
  KeepingSink sink_;
  policy::ProcessPtr process_;
  std::unique_ptr<policy::CurrentPolicy> policy_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<ssl_ctx_st> client_;
  uint64_t next_id_ = 1;
};

/// What the credentials of a policy of these rules are made of, from variables that are set for it.
[[nodiscard]] std::shared_ptr<SecretStore> SecretsOf(const std::string& rules,
                                                     const std::vector<std::pair<const char*, const char*>>& variables);

/// The authority that signs every test's origins.
[[nodiscard]] TestAuthority& SharedAuthority();

/// A rule line that lets `verb_target` reach 127.0.0.1: "  - allow: …\n    ip: [127.0.0.1/32]\n".
[[nodiscard]] std::string LoopbackRule(const std::string& verb_target);

using Speak = Testbed::Speak;

inline constexpr IpAddress kLoopback = IpAddress::FromV4(0x7f000001);

/// An origin's conversation: answers every request with 200 and "first line|body", until the client leaves.
void Echo(Peer peer);

/// A GET of a.test:port with these further field lines.
[[nodiscard]] std::string Get(const std::string& path, uint16_t port, const std::string& fields = "");

/// An origin for a.test under TLS, and an engine whose one rule is made for its port.
struct OneOrigin {
  explicit OneOrigin(std::function<void(Peer)> serve, const std::string& verb = "http");
  Peer Connect() { return bed.Connect("a.test", origin.port()); }
  Origin origin;
  Testbed bed;
};

}  // namespace sluice::proxy::testing
