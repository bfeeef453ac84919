#pragma once

// One request judged and recorded, whatever protocol carried it: its authority and path checked, the policy asked with the
// address that would be used and again with each address that is dialled, a decision recorded before its effect, a denial
// made for whoever was refused. HTTP/1.1 uses one object for the requests of a connection in turn, HTTP/2 one for each stream.
//
//   judge.Begin(number);
//   …fill judge.request and judge.framing…
//   if (Fault fault = judge.Understand()) return Refuse(judge.DenialFor(fault));
//   switch (judge.Decide(candidate)) …                       // kNeedsBody: see ReadBody
//   …forward judge.request to judge.ForUpstream(), with judge.edits…
//   judge.RecordExchange(error, status);
//
// One worker's thread; the flow outlives it.

#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/target.h"
#include "proxy/body/body_reader.h"
#include "proxy/denial.h"
#include "proxy/forward.h"
#include "proxy/http1.h"
#include "proxy/io/exchange_credential.h"
#include "proxy/io/flow_context.h"
#include "proxy/io/websocket_relay.h"
#include "proxy/websocket_handshake.h"
#include "proxy/websocket_lane.h"

namespace sluice::proxy {

class ExchangeJudge {
 public:
  ExchangeJudge(FlowContext& flow, policy::Scheme scheme);
  ~ExchangeJudge() { Rest(); }
  ExchangeJudge(const ExchangeJudge&) = delete;
  ExchangeJudge& operator=(const ExchangeJudge&) = delete;

  /// The flow is to another place from this request on. Between Begin and Understand.
  void Retarget();

  /// No upstream proxy reads these requests: they are tunnelled. Before the first Begin.
  void TunnelOnly() { tunnels_ = true; }

  /// A new request, the `number`-th of its connection. Forgets the last one.
  void Begin(uint64_t number);
  /// The request is done with, and another may come: gives back what its body took.
  void Rest();

  // What the transport fills in before Understand: the head (its views must live until the next Begin) and the framing.
  RequestHead request;
  Framing framing;

  /// Everything that can be wrong with a request before the policy is asked; on success the policy can be.
  [[nodiscard]] Fault Understand();

  enum class Verdict : uint8_t {
    kForward,    ///< allowed and recorded
    kDeny,       ///< refused: Refusal() says how
    kNeedsBody,  ///< decision().body_needed says which readings: ReadBody, then DecideOnBody
  };
  /// Asks with the address of the connection that would be used, where there is one, so that `ip` keys are judged on what is
  /// dialled; records what was allowed.
  [[nodiscard]] Verdict Decide(std::optional<IpAddress> candidate);
  /// After kDeny.
  [[nodiscard]] Denial Refusal();

  // Reading the body, after kNeedsBody. While it lasts nothing is sent upstream:
  //
  //   do {
  //     judge.ReadBody();
  //     while (judge.wants_body() && …there is more of it…) if (Fault fault = judge.FeedBody(bytes)) return Refuse(…);
  //   } while ((verdict = judge.DecideOnBody()) == Verdict::kNeedsBody);
  //
  // Then judge.held() is the beginning of the body that is forwarded.

  /// Begins to read it in the ways that decision() needs, or begins again with what is held.
  void ReadBody();
  /// The readings need more bytes.
  [[nodiscard]] bool wants_body() const { return reader_ != nullptr && reader_->state() == BodyReader::State::kMore; }
  /// The next bytes of the body; refused where too many are held.
  [[nodiscard]] Fault FeedBody(std::string_view bytes);
  /// When no more is wanted, or the body is over. kNeedsBody: a policy that came meanwhile reads it in other ways.
  [[nodiscard]] Verdict DecideOnBody();
  /// Bytes of the body that were read, for the judgement or for a signature, and are to be forwarded before the rest.
  [[nodiscard]] std::string_view held() const {
    return collected_           ? std::string_view(*collected_)
           : reader_ != nullptr ? std::string_view(reader_->held())
                                : std::string_view{};
  }
  void ReleaseHeld();

  // Asking again, once allowed.

  [[nodiscard]] policy::Decision Ask(std::optional<IpAddress> address) const;
  /// Whether this exchange may use a connection to that address; nothing where only a proxy knows it.
  [[nodiscard]] bool Usable(std::optional<IpAddress> address);
  /// For Dial: the connection and this request are both judged. The judge must outlive the dialling.
  [[nodiscard]] AddressJudge ForDialling();
  /// Whether the policy now in force allows what this exchange does or last did.
  [[nodiscard]] bool StillAllowed(std::optional<IpAddress> address);

  // Toward the upstream.

  /// Once allowed, with the way that the decision lays down.
  [[nodiscard]] const DialTarget& dial() const { return dial_; }
  [[nodiscard]] policy::Scheme scheme() const { return scheme_; }
  [[nodiscard]] const std::string& host_field() const { return host_field_; }
  /// Connections that may carry this exchange share it. Before the decision: what an exchange without `via`, client
  /// certificate and pins uses.
  [[nodiscard]] const std::string& pool_key() const { return pool_key_; }
  /// The canonical target with the edited query.
  [[nodiscard]] std::string ForUpstream() const;
  /// Whether UseCredential has something to do: the policy has credentials, or there are stand-ins.
  [[nodiscard]] bool uses_credentials() const;
  /// Once the connection is there and before anything is sent: edits the head with the credential that the decision for this
  /// address names. A denial (its exchange is recorded): nothing may be sent. The judge outlives it.
  [[nodiscard]] Task<std::optional<Denial>> UseCredential(Waiter& waiter, std::optional<IpAddress> address);
  /// Null where UseCredential was not needed.
  [[nodiscard]] ExchangeCredential* credential() const { return credential_.get(); }

  // Where credential()->needs_body(), for a signature over it. Afterwards held() is all of it.

  /// The next bytes, behind what is held. A denial: there are too many.
  [[nodiscard]] std::optional<Denial> CollectBody(std::string_view bytes);
  /// Once it is whole: searches it and signs. Its framing is a length from now on.
  [[nodiscard]] std::optional<Denial> SignBody();

  // The body on its way to the upstream, what is held first. Where !changes_body() its bytes may also leave as they are, counted
  // by CountUp.

  [[nodiscard]] bool changes_body() const { return credential_ != nullptr && credential_->has_body_work(); }
  /// As it leaves: another than it came with where a credential changes its length. After UseCredential and SignBody.
  [[nodiscard]] Framing FramingOut() const;
  enum class BodyPart : uint8_t { kInside, kLast };
  /// What leaves in place of the next piece, until the next call. A fault: nothing of the piece does.
  [[nodiscard]] std::expected<std::string_view, Fault> PassBody(std::string_view piece, BodyPart part);
  /// The trailers behind the last piece, "name: value" lines: changed in place, or refused.
  [[nodiscard]] Fault PassTrailers(std::string* lines);
  /// Takes those away whose names some rule looks at in a head: a server may put trailers among the header fields.
  void DropJudgedTrailers(std::string* lines) const;
  [[nodiscard]] Fault CountUp(uint64_t bytes);

  // The response on its way to the client.

  /// Takes secrets out of a head, and refuses a final one that announces too much.
  [[nodiscard]] Fault PassResponseHead(ResponseHead* head, const Framing& response_framing);
  void RedactTrailers(std::string* lines);
  [[nodiscard]] Fault CountDown(uint64_t bytes);
  /// What is changed in the head before it leaves. Set between the decision and forwarding.
  HeadEdits edits;
  /// Where the request asks for a WebSocket, before it is asked for: `websocket`, and what that does not allow to offer.
  void PrepareWebSocket(WebSocketOffer* offer);
  /// What is done to the messages that a WebSocket's client sends. Such a WebSocket is not compressed.
  WebSocketHooks websocket;

  // Waiting.

  /// What an exchange under way waits for.
  enum class Awaited : uint8_t {
    kRequestTaken,   ///< by the upstream
    kResponseTaken,  ///< by the client
    kRequestBody,
    kResponseHead,  ///< its end
    kResponse,
  };
  [[nodiscard]] SteadyTime Deadline(Awaited awaited) const;
  /// The same while the request's body goes on, and no later than more of it must have.
  [[nodiscard]] SteadyTime CarryDeadline(Awaited awaited);
  /// After it.
  [[nodiscard]] Fault TimedOut(Awaited awaited) const;

  // Telling.

  [[nodiscard]] Denial DenialFor(const Fault& fault) const;
  /// A credential that cannot be used; ends the exchange in the record.
  [[nodiscard]] Denial DenialFor(CredentialFailure failure);
  /// A failed upstream; ends the exchange in the record.
  [[nodiscard]] Denial DenialFor(DialFailure failure);
  /// An exchange that failed before the client was answered: what PassBody and its kin refused, or how the upstream was lost
  /// (status 0: it went away). Ends it in the record.
  [[nodiscard]] Denial DenialForLost(const Fault& fault);
  /// Gives the denial its target, id and texts, and records it.
  void RecordDenial(Denial* denial);
  /// `status`: what the client was sent, 0 for nothing.
  void RecordExchange(std::string_view error, int status);
  /// A WebSocket that has ended; a stand-in that ended it is a refusal of its own.
  void RecordWebSocket(const WebSocketOutcome& outcome, int status);
  /// An exchange that failed when the client had its answer, or was gone.
  void RecordCut(std::string_view error, int status);

  [[nodiscard]] const policy::Decision& decision() const { return decision_; }
  [[nodiscard]] const policy::CanonicalTarget& target() const { return target_; }
  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] bool understood() const { return understood_; }
  [[nodiscard]] bool has_body() const {
    return framing.kind == BodyKind::kChunked || (framing.kind == BodyKind::kLength && framing.length != 0);
  }
  /// Sending it twice does no more than sending it once, and nothing of it is lost by then.
  [[nodiscard]] bool may_repeat() const;
  /// What the request asks its connection or stream to become.
  policy::Upgrade upgrade = policy::Upgrade::kNone;
  /// Of the connection under way, for the record.
  std::optional<IpAddress> upstream_address;
  SteadyTime started{};
  uint64_t bytes_up = 0;  ///< of bodies
  uint64_t bytes_down = 0;
  uint16_t close_code = 0;  ///< of a WebSocket

 private:
  Fault CheckAuthority(std::string_view authority, bool* names_this) const;
  Fault UnderstandTarget(std::string_view* path) const;
  [[nodiscard]] policy::RequestQuery Query(std::optional<IpAddress> address) const;
  [[nodiscard]] policy::EventTarget EventTargetNow() const;
  void TakeEdits();
  [[nodiscard]] bool Hold(size_t bytes, size_t* counted);
  void LetGo(size_t* counted);
  void ReleaseReadings();
  [[nodiscard]] Denial Refused(CredentialFailure failure) const;
  /// That of decision_; none where a policy has come that counts otherwise.
  [[nodiscard]] policy::RuleRef RuleNow() const;
  [[nodiscard]] bool RecordDecision(const policy::Decision& decision, const Denial* denial);
  [[nodiscard]] bool RefusesPush(const Denial& denial) const;
  void AnswerPush(Denial* denial) const;

  void DecideFor(std::optional<IpAddress> candidate);
  void DecideWithWay(std::optional<IpAddress> candidate);
  void ForgetWay();
  void ChooseWay();
  /// Whether what is reached in the present way is reached as this decision wants it.
  [[nodiscard]] bool TakesSameWay(const policy::Decision& decision) const;
  /// Only a proxy will know the address.
  [[nodiscard]] bool is_remote() const { return dial_.via != nullptr && !dial_.name.empty(); }

  FlowContext& flow_;
  const policy::Scheme scheme_;
  DialTarget dial_;
  std::string pool_key_;
  std::string host_field_;

  std::unique_ptr<ExchangeCredential> credential_;
  policy::CanonicalTarget target_;
  std::vector<policy::HeaderView> views_;
  uint64_t number_ = 0;
  bool understood_ = false;  ///< request and target_ are complete: the policy can be asked again
  bool unrecorded_ = false;  ///< allowed, but the record was not kept
  bool tunnels_ = false;
  policy::Decision decision_;
  std::optional<IpAddress> decided_for_;  ///< the address that decision_ was made with
  uint64_t decided_generation_ = 0;
  policy::SnapshotPtr decided_by_;  ///< what decision_ counts into

  // The body, where the policy needs it.
  std::optional<IpAddress> candidate_;
  policy::BodyKinds body_kinds_ = 0;    ///< asked of reader_
  std::unique_ptr<BodyReader> reader_;  ///< from ReadBody until what it holds is forwarded
  bool reading_body_ = false;           ///< not all of the body is known, or any more
  bool body_too_large_ = false;
  bool crowded_ = false;  ///< no room for what the body says
  std::string push_capabilities_;
  policy::RequestBody body_;
  const policy::RequestBody* readings_ = nullptr;  ///< body_, once it was read
  std::vector<std::string> asked_;                 ///< of it, for records
  std::optional<std::string> collected_;           ///< in place of what reader_ holds, for a signature
  size_t counted_held_ = 0;                        ///< bytes of held() in the worker's count
  size_t counted_readings_ = 0;                    ///< and of body_
  std::optional<SteadyTime> pace_since_;           ///< while the body is waited for, or to be taken
  uint64_t paced_ = 0;                             ///< of bytes_up
  std::string passed_;                             ///< PassBody's
  std::optional<CredentialFailure> astray_;        ///< why PassBody refused
};

}  // namespace sluice::proxy
