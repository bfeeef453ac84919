#pragma once

// One flow from acceptance to its end: judged, then relayed, or inspected.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/client_hello.h"
#include "proxy/io/flow_context.h"
#include "proxy/io/h2_connection.h"
#include "proxy/io/http_session.h"
#include "proxy/io/tls.h"

namespace sluice::proxy {

/// Of a connection that is closed for it, in the records.
inline constexpr const char* kNotWatched = "the kernel had no room to watch one more connection";

class Connection {
 public:
  /// `met`: as FlowContext's.
  Connection(Worker& worker, Flow flow, std::unique_ptr<Stream> met = nullptr);

  [[nodiscard]] Task<> Run();
  /// The policy changed: whether it allows what the flow does. Streams of HTTP/2 that it does not are ended from the reactor's
  /// loop.
  [[nodiscard]] bool StillAllowed();
  /// Where it does not: closes the client's socket now, unless the protocol has a last word; Cancel must follow.
  void CutOff();
  /// Gives back what an idle connection does not need.
  void Trim(SteadyTime now) {
    if (session_) session_->Trim(now);
    if (h2_) h2_->Trim(now);
  }
  /// Ends the flow. May free this object.
  void Cancel() { flow_.waiter.Cancel(); }

 private:
  enum class FirstBytes : uint8_t { kTls, kOther, kClosed, kRefused };

  Task<> RunJudged();
  /// Of several names for one address, the one that the client means.
  Task<bool> ChooseName();
  Task<> RunOpaque(policy::ConnectVerdict verdict, UpstreamPtr prepared);
  Task<> RunRelay(UpstreamPtr upstream);
  Task<> RunInspected(UpstreamPtr prepared);
  Task<FirstBytes> ReadFirstBytes();
  /// What they say, if that is clear; nothing: more are needed.
  std::optional<FirstBytes> ClassifyFirst(std::string_view bytes);
  /// What the client is offered: what the upstream speaks, which is asked where it is not known.
  Task<AlpnOffer> ChooseOffer(UpstreamPtr* prepared);
  /// What the client's certificate is to show of the upstream's, which is met where none was yet. Null: nothing of it.
  Task<MirroredPtr> ChooseNames(UpstreamPtr* prepared);
  /// A connection to the upstream before any request is known; an HTTP/1.1 one is left in `prepared`.
  Task<DialResult<MirroredPtr>> Meet(DialTarget target, std::string key, UpstreamPtr* prepared);
  Task<bool> TerminateTls(AlpnOffer offer, MirroredPtr mirrored);
  /// Empty when the hello asks for what this connection is to.
  [[nodiscard]] std::string Mismatch(const ClientHello& hello) const;
  /// Whether the client hides the name that it asks for, where nobody looks inside: then it is refused.
  bool RefuseHiddenName();
  void RefuseTls(policy::Reason reason, std::string detail, uint8_t alert);
  [[nodiscard]] bool StillOpaque();
  void RecordEnd(uint64_t bytes_up, uint64_t bytes_down, std::string error);

  std::vector<std::string> names_;  ///< Flow::names, until one was chosen
  FlowContext flow_;
  policy::ConnectVerdict verdict_ = policy::ConnectVerdict::kDeny;
  std::string via_;                  ///< of an opaque connection: its upstream proxy's name
  std::optional<std::string> way_;   ///< once it is opaque: WayKey
  std::optional<FirstBytes> first_;  ///< once they were read
  bool offers_h2_ = false;           ///< the client's hello does
  bool has_ech_ = false;             ///< and this, or its GREASE
  bool has_esni_ = false;
  std::optional<HttpSession> session_;
  std::optional<H2Connection> h2_;
  SteadyTime started_;
};

}  // namespace sluice::proxy
