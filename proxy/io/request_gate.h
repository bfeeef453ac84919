#pragma once

// Where each request of a connection goes, for connections that are not made to one place: asked before a request is judged.

#include <optional>

#include "proxy/flow.h"
#include "proxy/http1.h"

namespace sluice::proxy {

class RequestGate {
 public:
  virtual ~RequestGate() = default;
  /// A fault refuses the request. `*elsewhere` is set where it is for another place, or of another client, than `now`. May take
  /// fields of the head out of what is forwarded.
  [[nodiscard]] virtual Fault Admit(RequestHead* head, const FlowTarget& now, std::optional<FlowTarget>* elsewhere) = 0;
};

}  // namespace sluice::proxy
