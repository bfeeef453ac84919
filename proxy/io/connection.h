#pragma once

// One flow from acceptance to its end: judged, then relayed, or inspected.

#include <optional>

#include "proxy/client_hello.h"
#include "proxy/io/flow_context.h"
#include "proxy/io/http_session.h"

namespace sluice::proxy {

class Connection {
 public:
  Connection(Worker& worker, Flow flow);

  [[nodiscard]] Task<> Run();
  /// The policy changed: ends the flow if it is no longer allowed what it does. May free this object.
  void Recheck();
  /// Gives back what an idle connection does not need.
  void Trim(SteadyTime now) {
    if (session_) session_->Trim(now);
  }
  /// Ends the flow. May free this object.
  void Cancel() { flow_.waiter.Cancel(); }

 private:
  enum class FirstBytes : uint8_t { kTls, kOther, kClosed, kRefused };

  Task<> RunOpaque(policy::ConnectVerdict verdict, UpstreamPtr prepared);
  Task<> RunRelay(UpstreamPtr upstream);
  Task<> RunInspected(UpstreamPtr prepared);
  Task<FirstBytes> ReadFirstBytes();
  Task<bool> TerminateTls();
  /// Empty when the hello asks for what this connection is to.
  [[nodiscard]] std::string Mismatch(const ClientHello& hello) const;
  void RefuseTls(policy::Reason reason, std::string detail, uint8_t alert);
  void RecordEnd(uint64_t bytes_up, uint64_t bytes_down, std::string error);

  FlowContext flow_;
  policy::ConnectVerdict verdict_ = policy::ConnectVerdict::kDeny;
  std::optional<HttpSession> session_;
  SteadyTime started_;
};

}  // namespace sluice::proxy
