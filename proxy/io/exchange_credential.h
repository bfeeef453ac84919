#pragma once

// What a policy's credentials do to one exchange: the head gets the secret that the decision names, stand-ins give way to what
// they stand for, a stand-in that has no business here is found, and what the upstream sends back of a secret is taken out.
//
//   ExchangeCredential credential;                              // lives as long as the exchange's object, reused
//   auto failure = co_await credential.Apply(worker, waiter, {…});
//   if (failure) …answer failure->status, failure->detail…
//   …send credential.head()…; every piece of the body through credential.Body(…) where credential.has_body_work()
//   credential.Redact(&response);                               // fields and reason
//
// Where the policy has no credentials all of this is nothing. One worker's thread.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/decision.h"
#include "policy/snapshot.h"
#include "proxy/buffer.h"
#include "proxy/credential/inject.h"
#include "proxy/credential/redact.h"
#include "proxy/credential/stand_in.h"
#include "proxy/http1.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/task.h"
#include "proxy/websocket_lane.h"

namespace sluice::proxy {

class Worker;
class Waiter;

/// Why an exchange with a credential cannot go on.
struct CredentialFailure {
  uint16_t status = 502;
  policy::Reason reason = policy::Reason::kUpstream;
  std::string detail;  ///< a sentence without its stop
};

class ExchangeCredential {
 public:
  enum class ClientCertificate : uint8_t { kNotUsed, kUsed };
  struct Request {
    policy::SnapshotPtr snapshot;  ///< the one that decided
    uint16_t credential = policy::kNoIndex16;
    const RequestHead* head = nullptr;  ///< outlives the exchange
    Framing framing;
    std::string target;     ///< as it is sent
    std::string_view host;  ///< as it is sent
    /// Whether the connection was made with the client certificate that the decision names.
    ClientCertificate certificate = ClientCertificate::kNotUsed;
  };

  ExchangeCredential();
  ~ExchangeCredential();
  ExchangeCredential(const ExchangeCredential&) = delete;
  ExchangeCredential& operator=(const ExchangeCredential&) = delete;

  /// Forgets the last exchange.
  void Clear();
  /// Fetches what must be fetched and edits the head. Again for another connection of the same exchange: the first edit is
  /// undone.
  [[nodiscard]] Task<std::optional<CredentialFailure>> Apply(Worker& worker, Waiter& waiter, Request request);
  /// Whether Apply may have something to do: the path without credentials ends here.
  [[nodiscard]] static bool Concerns(Worker& worker);

  /// The head differs from the parsed one.
  [[nodiscard]] bool edited() const { return edited_; }
  [[nodiscard]] const OutgoingHead& head() const { return head_; }

  /// After Apply said that the body must be known first: its whole content, for the signature.
  [[nodiscard]] bool needs_body() const { return needs_body_; }
  [[nodiscard]] std::optional<CredentialFailure> Sign(std::string_view body);

  /// Body bytes must pass through Body and Finish before they leave.
  [[nodiscard]] bool has_body_work() const { return body_work_; }
  /// A Content-Length would not hold any more.
  [[nodiscard]] bool changes_length() const { return changes_length_; }
  /// Appends what may leave. A failure: nothing of `piece` may.
  [[nodiscard]] std::optional<CredentialFailure> Body(std::string_view piece, std::string* out);
  void FinishBody(std::string* out);
  /// Trailers of the request, "name: value" lines, as the fields of its head are. A failure: they may not leave.
  [[nodiscard]] std::optional<CredentialFailure> Trailers(std::string* lines);

  /// After Apply, of a WebSocket: what becomes of the text messages that its client sends; empty: nothing. JSON is told by its
  /// first character. While this exchange lasts.
  [[nodiscard]] WebSocketTextEdit TextEdit();
  /// The same of messages that TextEdit leaves alone: they are searched for stand-ins that have no business there. Empty: there
  /// are none.
  [[nodiscard]] WebSocketSearch Search();
  /// What either found, once.
  [[nodiscard]] std::optional<CredentialFailure> TakeAstray() { return std::exchange(astray_, std::nullopt); }

  [[nodiscard]] bool redacts() const { return !redactor_.empty(); }
  /// The upstream's answer has this status: a token that it refuses may have been revoked.
  void Answered(int status, SteadyTime now);
  void Redact(ResponseHead* head);
  /// "name: value" lines.
  void RedactTrailers(std::string* lines);

 private:
  void ReadStandIns(const SecretStore& store, const policy::Credential* named);
  [[nodiscard]] std::optional<CredentialFailure> UseSecret(const policy::Credential& credential);
  [[nodiscard]] std::optional<CredentialFailure> PrepareSignature(const policy::Credential& credential);
  [[nodiscard]] CredentialFailure Failed(std::string_view why, uint16_t status = 502) const;
  [[nodiscard]] CredentialFailure Astray(size_t stand_in) const;

  Request request_;
  std::string name_;  ///< of the credential
  SecretPtr secret_;
  OutgoingHead head_;
  std::string own_field_;                     ///< folded: a field that the workload may not send
  std::vector<std::string> forbidden_;        ///< stand-ins that this exchange must not carry
  std::vector<std::string> forbidden_names_;  ///< their credentials
  std::vector<Swap> swaps_;
  std::unique_ptr<StreamSwapper> swapper_;
  std::unique_ptr<StandInScanner> scanner_;
  Redactor redactor_;
  std::deque<std::string> kept_;  ///< redacted fields of responses
  std::optional<CredentialFailure> astray_;
  SecretStore* store_ = nullptr;
  bool edited_ = false;
  bool needs_body_ = false;
  bool body_work_ = false;
  bool changes_length_ = false;
  struct Pending;
  std::unique_ptr<Pending> pending_;
};

}  // namespace sluice::proxy
