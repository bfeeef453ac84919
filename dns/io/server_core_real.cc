// How ServerCore answers with true addresses (`dns: real`).
#include <algorithm>
#include <utility>

#include "base/keyed_hash.h"
#include "base/log.h"
#include "dns/io/server_core.h"

namespace sluice::dns {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kMostJudged = 3;  ///< times that one answer is judged while the policy keeps changing

std::string FamilyKey(const std::string& name, Type type) {
  std::string key;
  key.reserve(name.size() + 1);
  key += type == Type::kA ? '4' : '6';
  key += name;
  return key;
}
std::string FamilyKey(const Query& query) { return FamilyKey(query.name, query.question.type); }

// Of which addresses, in any order.
uint64_t MarkOf(const std::vector<IpAddress>& addresses) {
  uint64_t mark = 0;
  for (const IpAddress& address : addresses) mark += KeyedHasher{}(address);
  return mark;
}

}  // namespace

struct ServerCore::Telling {
  std::unique_ptr<Work> work;
  Done done;
  LookupPtr lookup;
  int judged = 0;

  void Send(const Message& message) { done(ToWire(message, work->query, work->transport)); }
};

std::variant<Message, ServerCore::TrueAnswer> ServerCore::FromTrueLookup(const Query& query, const policy::ProcessPtr& process,
                                                                         const Lookup& lookup) {
  if (history_ == nullptr)
    return Failed(query, Rcode::kServFail, Ede::kOther, "`dns: real` is not served here, where nothing would know the addresses");
  if (auto denied = DenyByAlias(query, process, lookup.found.chain)) return std::move(*denied);
  if (auto none = WithoutAddresses(query, lookup)) return std::move(*none);
  TrueAnswer answer;
  if (auto filtered = FilterAddresses(query, process, lookup.found.addresses, &answer.addresses)) return std::move(*filtered);
  answer.ttl = std::clamp(static_cast<uint32_t>(lookup.found.ttl.count()), kMinTtl, kMaxTtl);
  FindLeases(query, &answer);
  return answer;
}

// None where the kernel holds them for longer than the client may keep the answer.
void ServerCore::FindLeases(const Query& query, TrueAnswer* answer) {
  if (withheld_ == nullptr) return;
  const SteadyTime now = SystemClock().Steady();
  answer->generation = generation_;
  answer->epoch = lease_epoch_.load(std::memory_order_relaxed);
  const std::string key = FamilyKey(query);
  const Published* published = published_.Get(key, now);
  if (published != nullptr && published->generation == generation_ && published->epoch == answer->epoch &&
      published->addresses == MarkOf(answer->addresses) && published->until - now >= seconds(answer->ttl)) {
    answer->lasting = published->until - now > seconds(answer->ttl) + seconds(1);
    return;
  }
  const WallTime wall = SystemClock().Wall();
  Leases leases = LeasesFor(*snapshot_, query.name, answer->addresses, wall, host_addresses_);
  answer->lifetime = seconds(answer->ttl) + kLeaseGrace;
  if (leases.until) answer->lifetime = std::min(answer->lifetime, std::chrono::floor<milliseconds>(*leases.until - wall));
  if (answer->lifetime.count() > 0) answer->leases = std::move(leases.leases);
  if (answer->leases.empty()) {
    const SteadyTime until = now + seconds(answer->ttl) + kLeaseGrace;
    published_.Put(key, {generation_, answer->epoch, MarkOf(answer->addresses), until, false}, until);
  }
}

void ServerCore::NoteLeases(std::vector<CachedEntry>* entries) const {
  const SteadyTime now = SystemClock().Steady();
  const uint64_t epoch = lease_epoch_.load(std::memory_order_relaxed);
  for (CachedEntry& entry : *entries) {
    for (const Type type : {Type::kA, Type::kAaaa}) {
      if (std::ranges::find(entry.types, TypeText(type)) == entry.types.end()) continue;
      const Published* published = published_.Peek(FamilyKey(entry.name, type), now);
      if (published == nullptr || !published->leased || published->epoch != epoch) continue;
      const auto left = std::chrono::floor<seconds>(published->until - now);
      if (!entry.leases || entry.leases->left < left) entry.leases = {published->generation, left};
    }
  }
}

Message ServerCore::TellTrue(const Query& query, const TrueAnswer& answer) {
  const SteadyTime until = SystemClock().Steady() + kHistoryLifetime;
  for (const IpAddress& address : answer.addresses) history_->Note(query.name, address, until);
  return WithAddresses(query, answer.addresses, answer.ttl);
}

void ServerCore::StartTrue(std::unique_ptr<Work> work, Done done) {
  auto telling = std::make_shared<Telling>(std::move(work), std::move(done));
  if (telling->work->hit != nullptr) {
    telling->lookup = telling->work->hit;
    return FinishTrue(std::move(telling));
  }
  const Query& query = telling->work->query;
  upstream_.LookFamily(query.name, query.question.type, [self = shared_from_this(), telling](LookupPtr found) {
    if (self->stopped_) return telling->done({});
    self->NoteExistence(*telling->work, found->status != Lookup::Status::kNoSuchName);
    telling->lookup = std::move(found);
    self->FinishTrue(telling);
  });
}

void ServerCore::FinishTrue(std::shared_ptr<Telling> telling) {
  const Work& work = *telling->work;
  if (auto message = RejudgeAfterWait(work)) return telling->Send(*message);
  auto outcome = FromTrueLookup(work.query, work.process, *telling->lookup);
  if (const auto* message = std::get_if<Message>(&outcome)) return telling->Send(*message);
  auto answer = std::move(std::get<TrueAnswer>(outcome));
  if (answer.leases.empty()) return telling->Send(TellTrue(work.query, answer));
  std::vector<Lease> leases = std::move(answer.leases);
  const milliseconds lifetime = answer.lifetime;
  withheld_->Add(std::move(leases), lifetime, generation_,
                 [self = shared_from_this(), telling = std::move(telling), answer = std::move(answer)](
                     Withheld::Outcome published, const std::string& why) mutable {
                   self->TakePublished(std::move(telling), std::move(answer), published, why);
                 });
}

void ServerCore::TakePublished(std::shared_ptr<Telling> telling, TrueAnswer answer, Withheld::Outcome outcome,
                               const std::string& why) {
  if (stopped_) return telling->done({});
  const Query& query = telling->work->query;
  switch (outcome) {
    case Withheld::Outcome::kPublished: {
      const SteadyTime until = SystemClock().Steady() + answer.lifetime;
      published_.Put(FamilyKey(query), {answer.generation, answer.epoch, MarkOf(answer.addresses), until, true}, until);
      return telling->Send(TellTrue(query, answer));
    }
    case Withheld::Outcome::kFailed:
      if (leases_pace_.Due(SystemClock().Steady())) LogWarn("resolver: {}; names of opaque rules get SERVFAIL", why);
      return telling->Send(Failed(query, Rcode::kServFail, Ede::kOther, "its addresses could not be let through: " + why));
    case Withheld::Outcome::kPolicyChanged:
      if (++telling->judged < kMostJudged) return FinishTrue(std::move(telling));
      return telling->Send(Failed(query, Rcode::kServFail, Ede::kOther, "the policy keeps changing"));
  }
}

}  // namespace sluice::dns
