#include "dns/io/server_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "base/keyed_hash.h"
#include "base/log.h"
#include "dns/chain.h"
#include "dns/encrypted_dns.h"
#include "dns/local_names.h"
#include "dns/spelled.h"

namespace sluice::dns {
namespace {

using policy::NameVerdict;
using policy::Reason;

constexpr size_t kMaxReady = 1024;  ///< answers kept as octets
constexpr std::chrono::seconds kReadyLifetime{1};
constexpr size_t kMaxPublished = 8192;  ///< families of names whose leases are known to be in the kernel

constexpr std::string_view kUnrecorded = "the decision could not be recorded, so it is refused";

// Types whose data is read field by field; any other gets NODATA, however its name is judged.
bool IsRelayed(Type type) {
  switch (type) {
    case Type::kCname:
    case Type::kHttps:
    case Type::kSvcb:
    case Type::kTxt:
    case Type::kMx:
    case Type::kSrv:
    case Type::kNs:
    case Type::kSoa:
    case Type::kPtr:
      return true;
    default:
      return false;
  }
}

bool IsAddress(Type type) { return type == Type::kA || type == Type::kAaaa; }

// Whose ration of lookups is used: the process's, where it is known.
Limiter::Client ClientKey(const ClientInfo& client, const policy::ProcessPtr& process) {
  if (process != nullptr && process->pid != 0) return static_cast<uint64_t>(process->pid) | uint64_t{1} << 63;
  return KeyedHasher{}(client.client.address) & ~(uint64_t{1} << 63);
}

Message Unrecorded(const Query& query) { return Failed(query, Rcode::kServFail, Ede::kOther, kUnrecorded); }

}  // namespace

Wire ToWire(const Message& message, const Query& query, policy::Transport transport) {
  return EncodeWithin(message, transport == policy::Transport::kUdp ? UdpLimit(query.edns) : kMaxMessageOctets);
}

ServerCore::ServerCore(boost::asio::io_context& context, ServerOptions& options, UpstreamClient& upstream, SyntheticPool& pool,
                       const policy::CurrentPolicy& policy, policy::EventSink& sink)
    : attribute_(std::move(options.attribute)),
      limiter_(options.limits, std::move(options.rations)),
      spelled_by_(std::move(options.spelled_by)),
      host_addresses_(std::move(options.host_addresses)),
      denial_(options.denial),
      ipv6_(options.ipv6),
      canary_(std::move(options.canary)),
      history_(std::move(options.history)),
      withheld_(options.publish ? std::make_shared<Withheld>(context, policy, std::move(options.publish)) : nullptr),
      upstream_(upstream),
      pool_(pool),
      policy_(policy),
      sink_(sink),
      published_(kMaxPublished),
      ready_(kMaxReady),
      advised_(kMaxReady) {}

void ServerCore::Stop() {
  stopped_ = true;
  if (withheld_) withheld_->Stop();
}

// What was absent or failed is asked anew after a change: whoever changes a policy mostly changes something else too.
void ServerCore::Refresh() {
  const uint64_t generation = policy_.generation();
  if (snapshot_ != nullptr && generation == generation_) return;
  if (snapshot_ != nullptr) upstream_.ForgetAbsence();
  snapshot_ = policy_.Get();
  generation_ = generation;
}

Step ServerCore::Begin(std::span<const uint8_t> bytes, const ClientInfo& client) {
  if (stopped_) return Silence{};
  Refresh();
  ReadyKey key;
  const bool plain = client.transport == policy::Transport::kUdp && key.Read(bytes);
  if (plain)
    if (auto wire = AnswerReady(key, bytes, client)) return std::move(*wire);
  auto read = ReadQuery(bytes);
  if (std::holds_alternative<Silence>(read)) return Silence{};
  if (auto* refusal = std::get_if<Refusal>(&read)) {
    if (refusal->asked) {
      const auto process = attribute_(client.transport, client.client, client.server);
      const policy::Decision denied{false, Reason::kProtocol, policy::RuleRef::kNone, false};
      if (!Record(*refusal->asked, process, denied, "zone transfers and classes other than IN are never served"))
        refusal->response.header.rcode = Rcode::kServFail;
    }
    return Encode(refusal->response);
  }
  auto& query = std::get<Query>(read);
  Keepable keepable;
  auto outcome = Answer(&query, client, &keepable);
  if (auto* work = std::get_if<std::unique_ptr<Work>>(&outcome)) return std::move(*work);
  Wire wire = ToWire(std::get<Message>(outcome), query, client.transport);
  if (plain && keepable.good) {
    Ready ready{wire,
                generation_,
                lease_epoch_.load(std::memory_order_relaxed),
                std::move(keepable.process),
                keepable.decision,
                query.name,
                query.question.type,
                std::move(keepable.told)};
    ready_.Put(key.text(), std::move(ready), SystemClock().Steady() + kReadyLifetime);
  }
  return wire;
}

// Only for the same process as before, under the same policy, and recorded as any other.
std::optional<Wire> ServerCore::AnswerReady(const ReadyKey& key, std::span<const uint8_t> bytes, const ClientInfo& client) {
  const SteadyTime now = SystemClock().Steady();
  const Ready* ready = ready_.Get(key.text(), now);
  if (ready == nullptr || ready->generation != generation_ || ready->epoch != lease_epoch_.load(std::memory_order_relaxed))
    return std::nullopt;
  if (attribute_(client.transport, client.client, client.server) != ready->process) return std::nullopt;
  if (!RecordAllowed(*ready)) return std::nullopt;  // the long way tells of it
  for (const IpAddress& address : ready->told) history_->Note(ready->name, address, now + kHistoryLifetime);
  return Retell(ready->wire, bytes, key.name_octets());
}

bool ServerCore::RecordAllowed(const Ready& ready) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.layer = policy::EventLayer::kDns;
  event.target.host = ready.name;
  event.target.method = TypeText(ready.type);
  event.process = ready.process;
  event.decision = ready.decision;
  event.snapshot = snapshot_;
  return sink_.Record(std::move(event));
}

Step ServerCore::RefuseExcess(std::span<const uint8_t> bytes, const ClientInfo& client) {
  if (stopped_) return Silence{};
  const auto read = ReadQuery(bytes);
  const auto* query = std::get_if<Query>(&read);
  if (query == nullptr) return Silence{};
  Refresh();
  const auto process = attribute_(client.transport, client.client, client.server);
  return ToWire(
      DenyByLimit(*query, process, {}, "too many lookups at once; those over the limit get no answer", Rcode::kServFail), *query,
      client.transport);
}

ServerCore::Outcome ServerCore::Answer(Query* asked, const ClientInfo& client, Keepable* keepable) {
  const Query& query = *asked;
  const auto process = attribute_(client.transport, client.client, client.server);
  if (auto message = AnswerLocally(query, process)) return std::move(*message);
  const Judged judged = Judge(query, process.get());
  if (judged.decision.verdict != NameVerdict::kAllow) return Deny(query, process, judged.decision, judged.as, {});
  const policy::NameDecision& decision = judged.decision;
  const std::string_view rule_text = TextOf(query, decision.decision);
  const bool audit_only = decision.decision.audit_only;
  const bool bounded = !audit_only && !IsSpelled(Spelling(), query.name);
  const bool is_new = bounded && limiter_.IsNew(query.name, rule_text);
  const SteadyTime now = SystemClock().Steady();
  if (bounded)
    if (auto message = RefuseByLimit(query, process, decision, rule_text, now)) return std::move(*message);
  const Type type = query.question.type;
  // Not granted for itself, yet the name is: no such record, rather than a denial for every browser's HTTPS question.
  const bool other = judged.as != type;
  const bool asks = !other && (IsAddress(type) || IsRelayed(type)) && (type != Type::kAaaa || ipv6_ == Ipv6Egress::kPresent);
  // Looked up by whoever it is sent to, it is not looked up here, where the question may not be meant to be seen.
  const bool remote = asks && IsAddress(type) && snapshot_->IsLookedUpByProxy(query.name);
  const bool real = snapshot_->settings().dns == policy::DnsMode::kReal;
  LookupPtr hit;
  if (asks && !remote && IsAddress(type)) hit = real ? upstream_.PeekFamily(query.name, type) : upstream_.Peek(query.name);
  if (asks && !remote && hit == nullptr && !audit_only) {
    if (auto why = limiter_.JudgeUpstream(ClientKey(client, process), now))
      return DenyByLimit(query, process, decision, *why, Rcode::kServFail);
  }
  if (!Record(query, process, decision.decision, {})) return Unrecorded(query);
  if (type == Type::kAny) return MinimalAny(query);
  if (!asks) return NoData(query, {});
  if (remote) return Synthetic(query, kLocalTtl);
  if (hit != nullptr && !real) {
    Message message = FromLookup(query, process, *hit);
    if (!message.answers.empty() && !audit_only) *keepable = {true, process, decision.decision, {}};
    return message;
  }
  if (hit != nullptr) {
    auto answer = FromTrueLookup(query, process, *hit);
    if (auto* message = std::get_if<Message>(&answer)) return std::move(*message);
    auto& found = std::get<TrueAnswer>(answer);
    if (found.leases.empty()) {
      Message message = TellTrue(query, found);
      if (!message.answers.empty() && !audit_only && found.lasting)
        *keepable = {true, process, decision.decision, std::move(found.addresses)};
      return message;
    }
  }
  return std::make_unique<Work>(Work{std::move(*asked), client.transport, process, generation_, snapshot_->settings().dns,
                                     std::move(hit), is_new ? std::string(rule_text) : std::string()});
}

std::optional<Message> ServerCore::AnswerLocally(const Query& query, const policy::ProcessPtr& process) {
  const policy::Decision allowed{true, Reason::kAllowed, policy::RuleRef::kNone, false};
  static const IpAddress kLoopback[] = {*IpAddress::Parse("127.0.0.1"), *IpAddress::Parse("::1")};
  if (!canary_.empty() && query.name == canary_) return WithAddresses(query, kLoopback, kLocalTtl);
  std::optional<Message> message;
  if (query.question.name.is_root()) {
    message = NoData(query, {});
  } else if (IsLocalhost(query.name)) {
    message = IsAddress(query.question.type) ? WithAddresses(query, kLoopback, kLocalTtl) : NoData(query, {});
  } else if (const auto address = ReverseName(query.name)) {
    const bool loopback = *address == *IpAddress::Parse("127.0.0.1") || *address == *IpAddress::Parse("::1");
    if (!loopback && !pool_.InRange(*address)) return std::nullopt;
    const auto name = loopback ? std::optional<std::string>("localhost") : pool_.NameOf(*address);
    const auto target = name ? Name::FromText(*name) : std::nullopt;
    if (!target) {
      message = NoSuchName(query);
    } else {
      message = query.question.type == Type::kPtr ? WithName(query, *target, kLocalTtl) : NoData(query, {});
    }
  }
  if (message && !Record(query, process, allowed, "answered by the resolver itself")) return Unrecorded(query);
  return message;
}

ServerCore::Judged ServerCore::Judge(const Query& query, const policy::Process* process) const {
  if (!query.host_name) return {{NameVerdict::kDeny, {false, Reason::kDns, policy::RuleRef::kNone, false}}, query.question.type};
  const auto decide = [&](Type type) {
    return snapshot_->DecideName(
        {.process = process, .name = query.name, .type = static_cast<uint16_t>(type), .now = SystemClock().Wall()});
  };
  const Type type = query.question.type;
  if (type == Type::kAny) return {decide(Type::kA), Type::kA};
  const policy::NameDecision own = decide(type);
  const bool service = type == Type::kHttps || type == Type::kSvcb;
  if (own.verdict == NameVerdict::kAllow || !service || own.decision.reason == Reason::kDenyRule) return {own, type};
  const policy::NameDecision plain = decide(Type::kA);
  return plain.verdict == NameVerdict::kAllow ? Judged{plain, Type::kA} : Judged{own, type};
}

std::string_view ServerCore::TextOf(const Query& query, const policy::Decision& decision) const {
  policy::RuleRef ref = decision.rule;
  if (spelled_by_ != nullptr)
    ref = spelled_by_->DecideName({.name = query.name, .type = static_cast<uint16_t>(Type::kA), .now = SystemClock().Wall()})
              .decision.rule;
  const policy::RuleInfo* rule = Spelling().rule(ref);
  if (rule != nullptr) return rule->text;
  return spelled_by_ != nullptr ? "**" : "";  // nobody spelled any of it
}

std::optional<Message> ServerCore::RefuseByLimit(const Query& query, const policy::ProcessPtr& process,
                                                 const policy::NameDecision& decision, std::string_view rule_text,
                                                 SteadyTime now) {
  if (auto message = RefuseOtherResolver(query, process, decision)) return message;
  if (auto why = limiter_.JudgeShape(query.name, rule_text)) return DenyByLimit(query, process, decision, *why, Rcode::kNxDomain);
  if (auto why = limiter_.JudgeAbsence(query.name, rule_text, now))
    return DenyByLimit(query, process, decision, *why, Rcode::kNxDomain);
  if (auto why = limiter_.JudgeNewName(query.name, rule_text, now))
    return DenyByLimit(query, process, decision, *why, Rcode::kServFail);
  return std::nullopt;
}

std::optional<Message> ServerCore::RefuseOtherResolver(const Query& query, const policy::ProcessPtr& process,
                                                       const policy::NameDecision& decision) {
  const OtherResolverName other = FindOtherResolver(query.name);
  if (other.kind == OtherResolver::kNone || IsSpelledUnder(Spelling(), query.name, other.domain)) return std::nullopt;
  const std::string why =
      fmt::format("{} leads past this resolver; a wildcard does not mean it, a rule must spell it", query.name);
  if (!Record(query, process, {false, Reason::kDns, decision.decision.rule, false}, why)) return Unrecorded(query);
  return other.kind == OtherResolver::kDiscovery ? NoData(query, why) : DeniedForm(query, why);
}

Message ServerCore::DeniedForm(const Query& query, std::string_view why) const {
  return denial_ == DenialForm::kRefused ? Refused(query, why) : Denied(query, why);
}

bool ServerCore::Record(const Query& query, const policy::ProcessPtr& process, const policy::Decision& decision,
                        std::string detail) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.layer = policy::EventLayer::kDns;
  event.target.host = query.name;
  event.target.method = TypeText(query.question.type);
  event.process = process;
  event.decision = decision;
  event.snapshot = snapshot_;
  event.detail = std::move(detail);
  if (!decision.allowed || decision.audit_only) event.denial_id = sink_.NextDenialId();
  if (decision.audit_only) {
    const auto type = static_cast<uint16_t>(query.question.type);
    event.advice = snapshot_->AdviseName({.process = process.get(), .name = query.name, .type = type, .now = event.time},
                                         {policy::NameVerdict::kDeny, decision});
  }
  return sink_.Record(std::move(event));
}

Message ServerCore::Deny(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision, Type as,
                         std::string detail) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.layer = policy::EventLayer::kDns;
  event.target.host = query.name;
  event.target.method = TypeText(query.question.type);
  event.process = process;
  event.decision = decision.decision;
  event.snapshot = snapshot_;
  event.denial_id = sink_.NextDenialId();
  if (query.host_name) {
    event.advice = Advise(query, process, decision, as, event.time);
  } else {
    detail = "not a host name";
  }
  std::string why =
      event.advice.explanation.empty() ? fmt::format("{} is not in the policy", query.name) : event.advice.explanation;
  if (!detail.empty()) why += "; " + detail;
  if (!event.advice.suggest.empty()) why += "; to allow it: " + event.advice.suggest;
  why += fmt::format(" ({})", event.denial_id);
  event.detail = std::move(detail);
  if (!sink_.Record(std::move(event))) return Unrecorded(query);
  return decision.verdict == NameVerdict::kAncestor ? NoData(query, why) : DeniedForm(query, why);
}

policy::Advice ServerCore::Advise(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision,
                                  Type as, WallTime now) {
  const auto type = static_cast<uint16_t>(as);
  std::string key = query.name;
  key += static_cast<char>(type >> 8);
  key += static_cast<char>(type & 0xff);
  const SteadyTime steady = SystemClock().Steady();
  const Advised* known = advised_.Get(key, steady);
  if (known != nullptr && known->generation == generation_ && known->process == process) return known->advice;
  policy::Advice advice =
      snapshot_->AdviseName({.process = process.get(), .name = query.name, .type = type, .now = now}, decision);
  advised_.Put(key, {generation_, process, advice}, steady + kReadyLifetime);
  return advice;
}

Message ServerCore::DenyByLimit(const Query& query, const policy::ProcessPtr& process, const policy::NameDecision& decision,
                                const std::string& why, Rcode rcode) {
  const policy::Decision denied{false, Reason::kLimit, decision.decision.rule, false};
  if (!Record(query, process, denied, why)) return Unrecorded(query);
  // A rate passes, a shape does not: only the latter is said to be final.
  return rcode == Rcode::kNxDomain ? DeniedForm(query, why) : Failed(query, rcode, Ede::kProhibited, why);
}

// A deny of a name holds for the names that lead to it.
std::optional<Message> ServerCore::DenyByAlias(const Query& query, const policy::ProcessPtr& process,
                                               std::span<const std::string> chain) {
  for (const std::string& target : chain) {
    const auto decision = snapshot_->DecideName({.process = process.get(),
                                                 .name = target,
                                                 .type = static_cast<uint16_t>(query.question.type),
                                                 .now = SystemClock().Wall()});
    if (decision.decision.reason == Reason::kDenyRule && !decision.decision.audit_only)
      return Deny(query, process, decision, query.question.type,
                  fmt::format("it is an alias of {}, which a rule denies", target));
  }
  return std::nullopt;
}

// A name that leads nowhere but where no rule may go is told so now: a client says "cannot resolve" rather than failing in a
// connect. What is dialled is judged again then, so a later answer opens nothing.
std::optional<Message> ServerCore::FilterAddresses(const Query& query, const policy::ProcessPtr& process,
                                                   std::span<const IpAddress> addresses, std::vector<IpAddress>* kept) {
  policy::ConnectQuery asked{
      .process = process.get(), .host = query.name, .now = SystemClock().Wall(), .host_addresses = host_addresses_};
  for (const IpAddress& address : addresses) {
    asked.address = address;
    if (snapshot_->DecideAnswer(asked).allowed) kept->push_back(address);
  }
  if (!kept->empty()) return std::nullopt;
  asked.address = addresses.front();
  const policy::Decision decision = snapshot_->DecideAnswer(asked);
  policy::DecisionEvent event;
  event.time = asked.now;
  event.layer = policy::EventLayer::kDns;
  event.target.host = query.name;
  event.target.address = asked.address;
  event.target.method = TypeText(query.question.type);
  event.process = process;
  event.decision = decision;
  event.advice = snapshot_->AdviseAnswer(asked);
  event.snapshot = snapshot_;
  event.denial_id = sink_.NextDenialId();
  const std::string why = fmt::format("{} ({})", event.advice.explanation, event.denial_id);
  if (!sink_.Record(std::move(event))) return Unrecorded(query);
  return Filtered(query, why);
}

std::optional<Message> ServerCore::WithoutAddresses(const Query& query, const Lookup& lookup) const {
  switch (lookup.status) {
    case Lookup::Status::kFailed:
      return Failed(query, Rcode::kServFail, Ede::kNoReachableAuthority, lookup.error.message);
    case Lookup::Status::kNoSuchName:
      return NoSuchName(query);
    case Lookup::Status::kNoAddress:
      return NoData(query, {});
    case Lookup::Status::kFound:
      return std::nullopt;
  }
  return Failed(query, Rcode::kServFail, Ede::kOther, {});
}

Message ServerCore::FromLookup(const Query& query, const policy::ProcessPtr& process, const Lookup& lookup) {
  if (auto denied = DenyByAlias(query, process, lookup.found.chain)) return std::move(*denied);
  if (auto none = WithoutAddresses(query, lookup)) return std::move(*none);
  std::vector<IpAddress> kept;
  if (auto filtered = FilterAddresses(query, process, lookup.found.addresses, &kept)) return std::move(*filtered);
  return Synthetic(query, static_cast<uint32_t>(lookup.found.ttl.count()));
}

Message ServerCore::Synthetic(const Query& query, uint32_t ttl) {
  const Family family = query.question.type == Type::kA ? Family::kV4 : Family::kV6;
  const auto address = pool_.AddressFor(query.name, family);
  if (!address) {
    if (!std::exchange(told_of_exhaustion_, true)) LogWarn("resolver: {}; new names get SERVFAIL", address.error().message);
    return Failed(query, Rcode::kServFail, Ede::kOther, address.error().message);
  }
  return WithAddresses(query, std::span(&*address, 1), ttl);
}

Message ServerCore::FromUpstream(const Query& query, const policy::ProcessPtr& process,
                                 const Result<UpstreamClient::MessagePtr>& got) {
  if (!got) return Failed(query, Rcode::kServFail, Ede::kNoReachableAuthority, got.error().message);
  const Message& upstream = **got;
  if (const auto chain = EndOfChain(upstream, query.question.name)) {
    if (auto denied = DenyByAlias(query, process, chain->targets)) return std::move(*denied);
  }
  if (upstream.header.rcode == Rcode::kNxDomain) return NoSuchName(query);
  return Relayed(query, upstream, [&](const std::string& target, std::optional<uint16_t> port) {
    const WallTime now = SystemClock().Wall();
    const auto name = snapshot_->DecideName({.process = process.get(), .name = target, .type = 1, .now = now});
    if (name.verdict != NameVerdict::kAllow) return TargetVerdict::kForbidden;
    if (port && !snapshot_->DecideConnect({.process = process.get(), .host = target, .port = *port, .now = now}).allowed())
      return TargetVerdict::kForbidden;
    return TargetVerdict::kAllowed;
  });
}

// A denial where the policy has changed during the wait and does not allow the question any more.
std::optional<Message> ServerCore::RejudgeAfterWait(const Work& work) {
  Refresh();
  if (generation_ == work.generation) return std::nullopt;
  const Judged judged = Judge(work.query, work.process.get());
  if (judged.decision.verdict != NameVerdict::kAllow || judged.as != work.query.question.type)
    return Deny(work.query, work.process, judged.decision, judged.as, "the policy changed meanwhile");
  if (snapshot_->settings().dns != work.mode)
    return Failed(work.query, Rcode::kServFail, Ede::kOther, "the policy changed meanwhile");
  return std::nullopt;
}

void ServerCore::NoteExistence(const Work& work, bool exists) {
  if (!work.new_under.empty()) limiter_.NoteExistence(work.query.name, work.new_under, exists, SystemClock().Steady());
}

void ServerCore::Finish(std::unique_ptr<Work> work, Done done) {
  const Type type = work->query.question.type;
  if (work->mode == policy::DnsMode::kReal && IsAddress(type)) return StartTrue(std::move(work), std::move(done));
  const std::string name = work->query.name;
  if (!IsAddress(type)) {
    upstream_.Query(name, type,
                    [self = shared_from_this(), work = std::move(work),
                     done = std::move(done)](const Result<UpstreamClient::MessagePtr>& got) mutable {
                      if (self->stopped_) return done({});
                      if (got) self->NoteExistence(*work, (*got)->header.rcode != Rcode::kNxDomain);
                      auto message = self->RejudgeAfterWait(*work);
                      if (!message) message = self->FromUpstream(work->query, work->process, got);
                      done(ToWire(*message, work->query, work->transport));
                    });
    return;
  }
  upstream_.LookBoth(name,
                     [self = shared_from_this(), work = std::move(work), done = std::move(done)](const LookupPtr& found) mutable {
                       if (self->stopped_) return done({});
                       self->NoteExistence(*work, found->status != Lookup::Status::kNoSuchName);
                       auto message = self->RejudgeAfterWait(*work);
                       if (!message) message = self->FromLookup(work->query, work->process, *found);
                       done(ToWire(*message, work->query, work->transport));
                     });
}

}  // namespace sluice::dns
