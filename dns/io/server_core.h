#pragma once

// What the UDP and the TCP side share: one query in, one answer out. Begin answers at once whatever needs no waiting; the rest
// is Finish's. After Stop nothing that the server refers to is touched again.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/complaint.h"
#include "dns/answer.h"
#include "dns/cache.h"
#include "dns/io/server.h"
#include "dns/io/withheld.h"
#include "dns/limiter.h"
#include "dns/query.h"
#include "dns/ready_answer.h"

namespace sluice::dns {

struct ClientInfo {
  policy::Transport transport = policy::Transport::kUdp;
  Endpoint client;
  Endpoint server;
};

/// An allowed query that has to wait for the upstream, or for its leases.
struct Work {
  Query query;
  policy::Transport transport = policy::Transport::kUdp;
  policy::ProcessPtr process;
  uint64_t generation = 0;
  policy::DnsMode mode = policy::DnsMode::kSynthetic;
  LookupPtr hit{};          ///< kReal: known already, only its leases are wanting
  std::string new_under{};  ///< the rule's text, where the name is new under a wildcard
};

using Wire = std::vector<uint8_t>;
using Step = std::variant<Silence, Wire, std::unique_ptr<Work>>;
/// Gets the answer; empty after Stop.
using Done = std::move_only_function<void(Wire)>;

/// As the client can take it.
[[nodiscard]] Wire ToWire(const Message& message, const Query& query, policy::Transport transport);

class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  /// Of `options` the sockets and what concerns floods is not looked at.
  ServerCore(boost::asio::io_context& context, ServerOptions& options, UpstreamClient& upstream, SyntheticPool& pool,
             const policy::CurrentPolicy& policy, policy::EventSink& sink);

  [[nodiscard]] Step Begin(std::span<const uint8_t> bytes, const ClientInfo& client);
  /// The answer to one query too many: SERVFAIL, with a record.
  [[nodiscard]] Step RefuseExcess(std::span<const uint8_t> bytes, const ClientInfo& client);
  /// `done` is called once, maybe from within.
  void Finish(std::unique_ptr<Work> work, Done done);
  /// The kernel's leases may be gone: each is published again before the next answer that counts on it. Any thread.
  void ForgetLeases() { lease_epoch_.fetch_add(1, std::memory_order_relaxed); }
  void NoteLeases(std::vector<CachedEntry>* entries) const;

  void Stop();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  struct Judged {
    policy::NameDecision decision;
    Type as = Type::kA;  ///< the type that the decision speaks of
  };
  using Outcome = std::variant<Message, std::unique_ptr<Work>>;
  /// What a lookup's addresses come to for one client.
  struct TrueAnswer {
    std::vector<IpAddress> addresses;
    uint32_t ttl = 0;
    std::vector<Lease> leases;              ///< to be published before it is told; empty: none, or all are there
    std::chrono::milliseconds lifetime{0};  ///< to the millisecond of the rule's `until`, which is no whole second from now
    uint64_t generation = 0;                ///< that judged
    uint64_t epoch = 0;
    bool lasting = true;  ///< its leases outlive the answer by as long as it may be kept ready
  };
  /// What was last published for a name's family.
  struct Published {
    uint64_t generation = 0;
    uint64_t epoch = 0;
    uint64_t addresses = 0;  ///< which: others of the same name are published by themselves
    SteadyTime until{};
    bool leased = false;  ///< false: there was nothing to publish
  };
  struct Telling;
  /// What was said of a denied name, for a second: a search list asks for the same few again and again.
  struct Advised {
    uint64_t generation = 0;
    policy::ProcessPtr process{};
    policy::Advice advice{};
  };
  /// An answer that a cache gave, as octets; for a second, so that no time in it or in the policy is much out of date.
  struct Ready {
    Wire wire;
    uint64_t generation = 0;
    uint64_t epoch = 0;
    policy::ProcessPtr process{};
    policy::Decision decision{};
    std::string name;
    Type type = Type::kA;
    std::vector<IpAddress> told{};  ///< kReal
  };
  /// What Answer found that may be kept so.
  struct Keepable {
    bool good = false;
    policy::ProcessPtr process{};
    policy::Decision decision{};
    std::vector<IpAddress> told{};
  };

  /// `query` is moved into the Work where there is one.
  [[nodiscard]] Outcome Answer(Query* query, const ClientInfo& client, Keepable* keepable);
  [[nodiscard]] std::optional<Wire> AnswerReady(const ReadyKey& key, std::span<const uint8_t> bytes, const ClientInfo& client);
  [[nodiscard]] std::optional<Message> AnswerLocally(const Query& query, const policy::ProcessPtr& process);
  [[nodiscard]] Judged Judge(const Query& query, const policy::Process* process) const;
  [[nodiscard]] std::optional<Message> RefuseByLimit(const Query& query, const policy::ProcessPtr& process,
                                                     const policy::NameDecision& decision, std::string_view rule_text,
                                                     SteadyTime now);
  [[nodiscard]] std::optional<Message> RefuseOtherResolver(const Query& query, const policy::ProcessPtr& process,
                                                           const policy::NameDecision& decision);
  [[nodiscard]] Message Deny(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision, Type as,
                             std::string detail);
  [[nodiscard]] policy::Advice Advise(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision,
                                      Type as, WallTime now);
  [[nodiscard]] Message DenyByLimit(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision,
                                    const std::string& why, Rcode rcode);
  [[nodiscard]] std::optional<Message> DenyByAlias(const Query& query, const policy::ProcessPtr& process,
                                                   std::span<const std::string> chain);
  /// `kept` gets those of the addresses to which some rule may lead. A message where there are none.
  [[nodiscard]] std::optional<Message> FilterAddresses(const Query& query, const policy::ProcessPtr& process,
                                                       std::span<const IpAddress> addresses, std::vector<IpAddress>* kept);
  [[nodiscard]] Message DeniedForm(const Query& query, std::string_view why) const;
  [[nodiscard]] std::optional<Message> RejudgeAfterWait(const Work& work);
  [[nodiscard]] std::optional<Message> WithoutAddresses(const Query& query, const Lookup& lookup) const;
  [[nodiscard]] Message FromLookup(const Query& query, const policy::ProcessPtr& process, const Lookup& lookup);
  [[nodiscard]] Message Synthetic(const Query& query, uint32_t ttl);
  [[nodiscard]] Message FromUpstream(const Query& query, const policy::ProcessPtr& process,
                                     const Result<UpstreamClient::MessagePtr>& upstream);
  void NoteExistence(const Work& work, bool exists);
  /// Whose words count for names under wildcards; and those of it that let a name pass.
  [[nodiscard]] const policy::Snapshot& Spelling() const { return spelled_by_ != nullptr ? *spelled_by_ : *snapshot_; }
  [[nodiscard]] std::string_view TextOf(const Query& query, const policy::Decision& decision) const;

  // server_core_real.cc: `dns: real`.
  [[nodiscard]] std::variant<Message, TrueAnswer> FromTrueLookup(const Query& query, const policy::ProcessPtr& process,
                                                                 const Lookup& lookup);
  void FindLeases(const Query& query, TrueAnswer* answer);
  [[nodiscard]] Message TellTrue(const Query& query, const TrueAnswer& answer);
  void StartTrue(std::unique_ptr<Work> work, Done done);
  void FinishTrue(std::shared_ptr<Telling> telling);
  void TakePublished(std::shared_ptr<Telling> telling, TrueAnswer answer, Withheld::Outcome outcome, const std::string& why);
  /// False: the sink keeps no record, so nothing may be answered.
  [[nodiscard]] bool Record(const Query& query, const policy::ProcessPtr& process, const policy::Decision& decision,
                            std::string detail);
  [[nodiscard]] bool RecordAllowed(const Ready& ready);
  void Refresh();

  const AttributeClient attribute_;
  Limiter limiter_;
  const policy::SnapshotPtr spelled_by_;  // null: snapshot_
  const std::vector<IpAddress> host_addresses_;
  const DenialForm denial_;
  const Ipv6Egress ipv6_;
  const std::string canary_;
  const std::shared_ptr<NameHistory> history_;
  const std::shared_ptr<Withheld> withheld_;  // null: no leases
  UpstreamClient& upstream_;
  SyntheticPool& pool_;
  const policy::CurrentPolicy& policy_;
  policy::EventSink& sink_;
  TtlCache<Published> published_;
  TtlCache<Ready> ready_;
  TtlCache<Advised> advised_;
  std::atomic<uint64_t> lease_epoch_{0};
  policy::SnapshotPtr snapshot_;
  uint64_t generation_ = 0;
  bool stopped_ = false;
  bool told_of_exhaustion_ = false;
  Pace leases_pace_;  // of what is told where the kernel does not take them
};

}  // namespace sluice::dns
