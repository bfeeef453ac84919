#pragma once

// Events as JSON Lines. docs/audit.md lists the fields. Every line is printable ASCII; secrets are redacted here and nowhere
// later.

#include <map>
#include <string>

#include "audit/fold.h"
#include "policy/event.h"

namespace sluice::audit {

/// What every record of one sandbox carries. Made once.
class RecordFormat {
 public:
  RecordFormat(const std::string& sandbox, const std::map<std::string, std::string>& labels);

  /// Appends one line, its newline included.
  void Append(std::string* out, const policy::DecisionEvent& event) const;
  void Append(std::string* out, const Repeated& repeated) const;
  void Append(std::string* out, const policy::ExchangeEvent& event) const;

 private:
  void AppendDecision(std::string* out, const policy::DecisionEvent& event, const Repeated* repeated) const;

  std::string common_;  // ,"sandbox":"…","labels":{…}
};

/// "dns", "connect", "tls", "request", "unix", "udp", "syscall".
/// In the place of a method: a connection that came in by a published port, which nobody decided.
inline constexpr std::string_view kPublishMethod = "publish";

[[nodiscard]] std::string_view LayerText(policy::EventLayer layer);

}  // namespace sluice::audit
