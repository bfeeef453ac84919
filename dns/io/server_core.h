#pragma once

// What the UDP and the TCP side share: one query in, one answer out. Begin answers at once whatever needs no waiting; the rest
// is Finish's. After Stop nothing that the server refers to is touched again.

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "dns/answer.h"
#include "dns/io/server.h"
#include "dns/limiter.h"
#include "dns/query.h"

namespace sluice::dns {

struct ClientInfo {
  policy::Transport transport = policy::Transport::kUdp;
  Endpoint client;
  Endpoint server;
};

/// An allowed query that has to wait for the upstream.
struct Work {
  Query query;
  policy::Transport transport = policy::Transport::kUdp;
  policy::ProcessPtr process;
  uint64_t generation = 0;
};

using Wire = std::vector<uint8_t>;
using Step = std::variant<Silence, Wire, std::unique_ptr<Work>>;

class ServerCore {
 public:
  ServerCore(AttributeClient attribute, Limits limits, std::vector<IpAddress> host_addresses, UpstreamClient& upstream,
             SyntheticPool& pool, const policy::CurrentPolicy& policy, policy::EventSink& sink)
      : attribute_(std::move(attribute)),
        limiter_(limits),
        host_addresses_(std::move(host_addresses)),
        upstream_(upstream),
        pool_(pool),
        policy_(policy),
        sink_(sink) {}

  [[nodiscard]] Step Begin(std::span<const uint8_t> bytes, const ClientInfo& client);
  /// The answer to one query too many: SERVFAIL, with a record.
  [[nodiscard]] Step RefuseExcess(std::span<const uint8_t> bytes, const ClientInfo& client);
  /// Empty after Stop.
  static boost::asio::awaitable<Wire> Finish(std::shared_ptr<ServerCore> self, std::unique_ptr<Work> work);

  void Stop() { stopped_ = true; }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  struct Judged {
    policy::NameDecision decision;
    Type as = Type::kA;  ///< the type that the decision speaks of
  };
  using Outcome = std::variant<Message, std::unique_ptr<Work>>;

  [[nodiscard]] Outcome Answer(const Query& query, const ClientInfo& client);
  [[nodiscard]] std::optional<Message> AnswerLocally(const Query& query, const policy::ProcessPtr& process);
  [[nodiscard]] Judged Judge(const Query& query, const policy::Process* process) const;
  [[nodiscard]] std::optional<Message> RefuseByLimit(const Query& query, const policy::ProcessPtr& process,
                                                     const policy::NameDecision& decision, SteadyTime now);
  [[nodiscard]] Message Deny(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision, Type as,
                             std::string detail);
  [[nodiscard]] Message DenyByLimit(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision,
                                    const std::string& why, Rcode rcode);
  [[nodiscard]] std::optional<Message> DenyByAlias(const Query& query, const policy::ProcessPtr& process,
                                                   std::span<const std::string> chain);
  [[nodiscard]] std::optional<Message> FilterAddresses(const Query& query, const policy::ProcessPtr& process,
                                                       std::span<const IpAddress> addresses);
  [[nodiscard]] Message FromLookup(const Query& query, const policy::ProcessPtr& process, const Lookup& lookup);
  [[nodiscard]] Message Synthetic(const Query& query, uint32_t ttl);
  [[nodiscard]] Message FromWire(const Query& query, const policy::ProcessPtr& process, const Result<Wire>& wire);
  /// False: the sink keeps no record, so nothing may be answered.
  [[nodiscard]] bool Record(const Query& query, const policy::ProcessPtr& process, const policy::Decision& decision,
                            std::string detail);
  void Refresh();

  AttributeClient attribute_;
  Limiter limiter_;
  const std::vector<IpAddress> host_addresses_;
  UpstreamClient& upstream_;
  SyntheticPool& pool_;
  const policy::CurrentPolicy& policy_;
  policy::EventSink& sink_;
  policy::SnapshotPtr snapshot_;
  uint64_t generation_ = 0;
  bool stopped_ = false;
  bool told_of_exhaustion_ = false;
};

}  // namespace sluice::dns
