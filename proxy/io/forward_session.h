#pragma once

// Requests in absolute form (RFC 9112 section 3.2.2) on one connection of a client of the explicit proxy: each names its own
// host, is judged anew as cleartext HTTP to that host, and goes to an upstream connection of that host's own. One worker's
// thread.

#include <memory>
#include <optional>

#include "policy/query.h"
#include "proxy/flow.h"
#include "proxy/io/client_tokens.h"
#include "proxy/io/explicit_options.h"
#include "proxy/io/flow_context.h"
#include "proxy/io/http_session.h"
#include "proxy/io/request_gate.h"

namespace sluice::proxy {

class ForwardSession final : private RequestGate {
 public:
  /// `flow.target.process` is who the client is before it shows a token. `met`: as FlowContext's.
  ForwardSession(Worker& worker, Flow flow, std::unique_ptr<Stream> met);

  [[nodiscard]] Task<> Run() { return session_.Run(); }
  /// As Connection's.
  [[nodiscard]] bool StillAllowed() {
    if (shown_ != nullptr && !tokens_->Get()->Knows(shown_)) return false;
    return !asked_ || session_.StillAllowed();
  }
  void CutOff() { session_.CutOff(); }
  void Trim(SteadyTime now) { session_.Trim(now); }
  void Cancel() { flow_.waiter.Cancel(); }
  /// Between requests.
  [[nodiscard]] bool idle() const { return session_.idle(); }

 private:
  [[nodiscard]] Fault CheckToken(const RequestHead& head);
  [[nodiscard]] Fault Admit(RequestHead* head, const FlowTarget& now, std::optional<FlowTarget>* elsewhere) override;

  const policy::ProcessPtr process_;
  std::shared_ptr<const CurrentTokens> tokens_;  ///< null: none is asked for
  policy::ProcessPtr shown_;                     ///< the token of the request before
  policy::ProcessPtr who_;                       ///< process_ with that token's name
  FlowContext flow_;
  HttpSession session_;
  bool asked_ = false;  ///< a request has come
};

/// `process` with the name and labels of the token's client `shown`. Either may be null.
[[nodiscard]] policy::ProcessPtr WithToken(const policy::ProcessPtr& process, const policy::ProcessPtr& shown);

}  // namespace sluice::proxy
