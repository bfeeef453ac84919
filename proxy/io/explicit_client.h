#pragma once

// A client of the explicit proxy from its first byte: the PROXY header where one is wanted, TLS to the proxy itself, who it is,
// what it asks for. What it then carries is a Connection like any other, or a ForwardSession for absolute-form requests. One
// worker's thread.
//
// What a client sends ahead of an answer is kept: the next message begins with it, or the connection inside.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/wake_timer.h"
#include "proxy/client.h"
#include "proxy/connect_request.h"
#include "proxy/denial.h"
#include "proxy/flow.h"
#include "proxy/io/connection.h"
#include "proxy/io/explicit_options.h"
#include "proxy/io/forward_session.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"

namespace sluice::proxy {

class ExplicitClient {
 public:
  /// `stage`: what a client of this connection did already.
  enum class Stage : uint8_t { kNew, kBehindTls };
  ExplicitClient(Worker& worker, Client client, Stage stage);

  [[nodiscard]] Task<> Run();
  /// As Connection's.
  [[nodiscard]] bool StillAllowed();
  void CutOff();
  void Trim(SteadyTime now);
  void Cancel();
  /// The proxy is about to stop: ends the client if nothing of it is under way. May free this object.
  void Drain();

 private:
  enum class Read : uint8_t { kMore, kClosed, kLate };
  enum class Next : uint8_t { kAgain, kEnd };

  // Bytes.
  Task<Read> More(SteadyTime deadline);
  [[nodiscard]] std::string_view seen() const { return in_.view(); }
  Task<bool> Flush();
  Task<> FlushAndLinger();

  // Stages.
  Task<bool> ReadProxyHeader();
  [[nodiscard]] bool Enter();
  Task<> RunTls();
  Task<> RunSocks();
  Task<bool> SocksAuthenticate();
  Task<> RunHttp();
  Task<Next> HandleConnect(std::string head_bytes);
  /// Judges, records and where it must dials; nothing where the tunnel may begin.
  struct Refusal {
    policy::ConnectDecision decision;
    std::optional<IpAddress> address;
    uint16_t status = 403;
    int error = 0;  ///< as connect(2) would give it
    std::string detail;
    std::string_view proxy_error = "http_request_denied";
  };
  Task<std::optional<Refusal>> Approve(FlowTarget target);
  Task<> RunTunnel(FlowTarget target);
  Task<> RunForward();
  [[nodiscard]] Flow FlowTo(FlowTarget target) const;
  [[nodiscard]] std::unique_ptr<Stream> HandOver();

  // Who, and what it is told.
  [[nodiscard]] policy::ProcessPtr Who(const policy::ProcessPtr& shown) const;
  [[nodiscard]] FlowTarget TargetFor(const ProxyTarget& place) const;
  Denial Deny(const FlowTarget& target, Refusal refusal, std::string_view method);
  void Note(policy::Reason reason, std::string detail);
  Task<> RefuseFault(const RequestHead* head, Fault fault);

  std::optional<BriefCloses> brief_;  ///< last: what a client on a UNIX socket sends, where the kernel cannot refuse descriptors
  Worker& worker_;
  const uint64_t id_;
  const Stage stage_;
  std::optional<Endpoint> source_;
  policy::ProcessPtr process_;  ///< whose socket, or null
  policy::ProcessPtr who_;      ///< with what it showed us; never null once it was let in
  policy::ProcessPtr shown_;    ///< whose token that was, or null
  ClientCounts::Place place_;
  std::unique_ptr<Stream> down_ = std::make_unique<Stream>();  ///< null: handed over
  Waiter waiter_;
  Buffer in_;
  Buffer out_;
  bool under_way_ = false;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ForwardSession> forward_;
};

/// A refusal that no rule is the cause of.
[[nodiscard]] policy::ConnectDecision DeniedFor(policy::Reason reason);
/// 407 (RFC 9110 section 15.5.8).
void AppendChallenge(Buffer* out, Keep keep);

}  // namespace sluice::proxy
