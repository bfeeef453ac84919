#pragma once

// What every stage of one flow needs: its two ends, how it waits, and how it asks the policy. One worker's thread.

#include <memory>
#include <optional>
#include <string>

#include "policy/event.h"
#include "proxy/denial.h"
#include "proxy/flow.h"
#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/upstream.h"

namespace sluice::proxy {

class Worker;

class FlowContext {
  std::unique_ptr<Stream> down_;

 public:
  /// `met`: the client's end where something was heard on it already, its rest in the prefix; null: flow.downstream is its end.
  FlowContext(Worker& worker, Flow flow, std::unique_ptr<Stream> met = nullptr);

  [[nodiscard]] Worker& worker() const { return worker_; }
  [[nodiscard]] const FlowTarget& target() const { return target_; }
  /// From the next request on, this connection is to another place. Between requests only.
  void Retarget(FlowTarget target) {
    target_ = std::move(target);
    approved_.reset();
    dialled.reset();
  }
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] DialTarget dial_target() const {
    return {target_.host, target_.destination.address, target_.destination.port, target_.process, target_.told};
  }
  /// "a.test" or "1.2.3.4", for people.
  [[nodiscard]] std::string name_text() const;

  Waiter waiter;
  Stream& down;
  bool tls_inspected = false;  ///< the client speaks TLS with us
  std::optional<IpAddress> dialled;

  // Asking.

  /// The query for this connection; `address` absent while it is not known (never for a literal).
  [[nodiscard]] policy::ConnectQuery Query(std::optional<IpAddress> address) const;
  [[nodiscard]] policy::ConnectDecision JudgeConnect(std::optional<IpAddress> address);
  /// Where a proxy looks the name up.
  [[nodiscard]] policy::ConnectDecision JudgeRemote() { return proxy::JudgeRemote(worker_, target_); }
  [[nodiscard]] policy::ConnectDecision JudgeUsing(const Upstream& upstream) {
    return upstream.remote_name ? JudgeRemote() : JudgeConnect(upstream.address);
  }
  /// Whether this flow may use an upstream at that address; remembered while the policy stays.
  [[nodiscard]] bool AddressApproved(const IpAddress& address);

  // Telling.

  [[nodiscard]] policy::EventTarget EventTargetFor(std::optional<IpAddress> address) const;
  /// A decision about the connection itself. False: the record was not kept.
  [[nodiscard]] bool RecordConnect(policy::EventLayer layer, const policy::ConnectDecision& decision,
                                   std::optional<IpAddress> address, std::string detail);
  /// Gives `denial` its id, advice-independent texts and digest.
  void Fill(Denial* denial);

 private:
  Worker& worker_;
  uint64_t id_;
  FlowTarget target_;
  std::optional<IpAddress> approved_;
  uint64_t approved_generation_ = 0;
};

/// Reports a decision about a connection, allowed or denied, with advice and an id where it was denied.
[[nodiscard]] bool RecordConnectDecision(Worker& worker, uint64_t id, const FlowTarget& flow, policy::EventLayer layer,
                                         const policy::ConnectDecision& decision, std::optional<IpAddress> address,
                                         std::string detail);

/// "a=&b=": the keys of a query, values left out.
[[nodiscard]] std::string QueryKeys(std::string_view query);

}  // namespace sluice::proxy
