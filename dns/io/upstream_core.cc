#include "dns/io/upstream_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "dns/chain.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxCachedNames = 4096;
constexpr size_t kMaxCachedFamilies = 8192;      ///< one family of a name, for true addresses
constexpr size_t kMaxCachedAnswers = 512;        ///< of other types
constexpr size_t kMaxCachedAnswerOctets = 8192;  ///< larger ones are asked for again
constexpr int kWorrying = 1;                     ///< after this round without an answer it is said, before clients give up
constexpr seconds kQuietTime{10};                ///< between two such lines
constexpr int kRounds = 3;                       ///< tries of each server that stays silent
constexpr seconds kMinLifetime{5};
constexpr seconds kMaxLifetime{300};
constexpr seconds kFailureLifetime{2};         ///< RFC 9520 section 3.2: 1 to 300 s
constexpr milliseconds kOtherFamilyGrace{50};  ///< "resolution delay" of RFC 8305 section 3

const Error kShutDown{Code::kIo, "the resolver was shut down", 0, std::nullopt};
const Error kUnanswered{Code::kTimeout, "no resolver answered", 0, std::nullopt};

LookupPtr FailedLookup(Error error) { return std::make_shared<Lookup>(Lookup{Lookup::Status::kFailed, {}, std::move(error)}); }

struct Kept {
  Lookup lookup;
  seconds lifetime{0};  ///< 0: not to be kept
};

// The families of one name put together.
Kept Merge(const std::optional<AddressAnswer>& v4, const std::optional<AddressAnswer>& v6, Error error) {
  Kept merged;
  uint32_t ttl = static_cast<uint32_t>(kMaxLifetime.count());
  bool found = false;
  bool no_such_name = false;
  for (const auto* family : {&v4, &v6}) {
    if (!*family) continue;
    const AddressAnswer& answer = **family;
    no_such_name |= answer.no_such_name;
    if (answer.addresses.empty() && found) continue;  // the absence of one family does not shorten the other's life
    if (!answer.addresses.empty() && !found) ttl = static_cast<uint32_t>(kMaxLifetime.count());
    found |= !answer.addresses.empty();
    ttl = std::min(ttl, answer.ttl);
    auto& addresses = merged.lookup.found.addresses;
    addresses.insert(addresses.end(), answer.addresses.begin(), answer.addresses.end());
    for (const std::string& target : answer.targets)
      if (std::ranges::find(merged.lookup.found.chain, target) == merged.lookup.found.chain.end())
        merged.lookup.found.chain.push_back(target);
  }
  if (found) {
    merged.lookup.status = Lookup::Status::kFound;
    merged.lifetime = std::clamp(seconds(ttl), kMinLifetime, v4 && v6 ? kMaxLifetime : kMinLifetime);
    merged.lookup.found.ttl = merged.lifetime;
  } else if (v4 && v6) {
    merged.lookup.status = no_such_name ? Lookup::Status::kNoSuchName : Lookup::Status::kNoAddress;
    merged.lifetime = seconds(ttl);
  } else {
    merged.lookup.error = std::move(error);
    merged.lifetime = kFailureLifetime;
  }
  return merged;
}

// One family by itself. An address of the other family in it (::ffff:a.b.c.d in an AAAA) is none.
Kept OneFamily(const Answer& answer, Type type) {
  Kept kept{.lookup = {}, .lifetime = kFailureLifetime};
  if (!answer) {
    kept.lookup.error = answer.error();
    return kept;
  }
  const Message& message = (*answer)->message;
  auto read = ReadAddresses(message, message.questions.front());  // it answers exactly the question, whatever its spelling
  if (!read) {
    kept.lookup.error = {Code::kProtocol, "the answer's CNAME chain loops or is too long", 0, std::nullopt};
    return kept;
  }
  std::erase_if(read->addresses, [&](const IpAddress& address) { return address.is_v4() != (type == Type::kA); });
  kept.lookup.found.chain = std::move(read->targets);
  if (read->addresses.empty()) {
    kept.lookup.status = read->no_such_name ? Lookup::Status::kNoSuchName : Lookup::Status::kNoAddress;
    kept.lifetime = seconds(std::min(read->ttl, kMaxNegativeTtl));
    return kept;
  }
  kept.lookup.status = Lookup::Status::kFound;
  kept.lookup.found.addresses = std::move(read->addresses);
  kept.lookup.found.ttl = kept.lifetime = std::clamp(seconds(read->ttl), kMinLifetime, kMaxLifetime);
  return kept;
}

seconds LifetimeOf(const Message& message) {
  if (message.answers.empty()) return seconds(NegativeTtl(message));
  uint32_t ttl = static_cast<uint32_t>(kMaxLifetime.count());
  for (const Record& record : message.answers) ttl = std::min(ttl, record.ttl);
  return std::clamp(seconds(ttl), kMinLifetime, kMaxLifetime);
}

std::optional<AddressAnswer> ReadFamily(const std::shared_ptr<Pending<Answer>>& pending, const std::string& name, Type type,
                                        Error* error) {
  if (!pending->value()) return std::nullopt;
  const Answer& answer = *pending->value();
  if (!answer) {
    *error = answer.error();
    return std::nullopt;
  }
  auto read = ReadAddresses((*answer)->message, Question{*Name::FromText(name), type, kClassIn});
  if (!read) *error = {Code::kProtocol, "the answer's CNAME chain loops or is too long", 0, std::nullopt};
  return read;
}

}  // namespace

std::string QueryKey(const std::string& name, Type type) {
  const auto number = static_cast<uint16_t>(type);
  std::string key;
  key.reserve(name.size() + 2);
  key += static_cast<char>(number >> 8);
  key += static_cast<char>(number & 0xff);
  key += name;
  return key;
}

// One question on its way through the servers. Each in turn until one has an answer; a server that said "no" is not asked
// again, a silent one is.
struct UpstreamCore::Asking {
  const std::string key;
  Question question;
  Group* group;
  std::chrono::steady_clock::duration share;
  ServerOrder order;
  // Mostly one waits; those who ask the same meanwhile are further.
  OnAnswer first;
  std::vector<OnAnswer> further{};
  std::array<bool, kMaxServers> refused{};
  size_t next = 0;  // in order, counted through all rounds
  std::optional<Error> last{};

  void Tell(const Answer& answer) {
    first(key, answer);
    for (OnAnswer& done : further) done(key, answer);
  }
};

UpstreamCore::UpstreamCore(asio::io_context& context, UpstreamOptions options, std::shared_ptr<Exchange> exchange)
    : context_(context),
      options_(std::move(options)),
      exchange_(std::move(exchange)),
      names_(kMaxCachedNames),
      families_(kMaxCachedFamilies),
      answers_(kMaxCachedAnswers) {
  groups_.push_back({{}, options_.servers, ServerHealth(options_.servers.size())});
  for (const StubDomain& stub : options_.stubs) groups_.push_back({stub.domain, stub.servers, ServerHealth(stub.servers.size())});
}

void UpstreamCore::Stop() {
  stopped_ = true;
  for (const auto& [name, pending] : lookups_) pending->Set(FailedLookup(kShutDown));
  auto outstanding = std::exchange(outstanding_, {});
  for (const auto& [key, asking] : outstanding) asking->Tell(std::unexpected(kShutDown));
  exchange_->Stop();
}

// Made anew once a second at most: a copy per hit would cost more than the rest of the answer.
LookupPtr UpstreamCore::Aged(TtlCache<CachedLookup>* cache, const std::string& key) {
  const SteadyTime now = SystemClock().Steady();
  const CachedLookup* hit = cache->Get(key, now);
  if (hit == nullptr) return nullptr;
  const auto left = std::max(kMinLifetime, std::chrono::ceil<seconds>(hit->expires - now));
  if (hit->lookup->status != Lookup::Status::kFound || left >= hit->lookup->found.ttl) return hit->lookup;
  auto aged = std::make_shared<Lookup>(*hit->lookup);
  aged->found.ttl = left;
  const SteadyTime expires = hit->expires;
  cache->Put(key, {aged, expires}, expires);
  return aged;
}

LookupPtr UpstreamCore::Peek(const std::string& name) { return Aged(&names_, name); }
LookupPtr UpstreamCore::PeekFamily(const std::string& name, Type type) { return Aged(&families_, QueryKey(name, type)); }

void UpstreamCore::ForgetAbsence() {
  const auto absent = [](const CachedLookup& cached) { return cached.lookup->status != Lookup::Status::kFound; };
  names_.EraseIf(absent);
  families_.EraseIf(absent);
  answers_.EraseIf([](const Answer& answer) { return !answer || (*answer)->message.answers.empty(); });
}

asio::awaitable<LookupPtr> UpstreamCore::Look(std::shared_ptr<UpstreamCore> self, std::string name) {
  if (auto hit = self->Peek(name)) co_return hit;
  if (self->stopped_) co_return FailedLookup(kShutDown);
  auto& slot = self->lookups_[name];
  const bool first = slot == nullptr;
  if (first) slot = std::make_shared<Pending<LookupPtr>>(self->context_);
  const auto pending = slot;
  if (first) asio::co_spawn(self->context_, RunLookup(self, name, pending), asio::detached);
  co_await Pending<LookupPtr>::Wait(pending);
  co_return *pending->value();
}

void UpstreamCore::LookFamily(const std::string& name, Type type, UpstreamClient::OnLookup done) {
  AskFor(QueryKey(name, type),
         [self = shared_from_this(), done = std::move(done)](const std::string& key, const Answer& answer) mutable {
           Kept kept = OneFamily(answer, TypeOfKey(key));
           auto lookup = std::make_shared<const Lookup>(std::move(kept.lookup));
           if (kept.lifetime.count() > 0 && !self->stopped_) {
             const SteadyTime expires = SystemClock().Steady() + kept.lifetime;
             self->families_.Put(key, {lookup, expires}, expires);
           }
           done(std::move(lookup));
         });
}

void UpstreamCore::Query(const std::string& name, Type type, UpstreamClient::OnMessage done) {
  const auto tell = [](UpstreamClient::OnMessage* to, const Answer& answer) {
    if (!answer) return (*to)(std::unexpected(answer.error()));
    (*to)(UpstreamClient::MessagePtr(*answer, &(*answer)->message));
  };
  std::string key = QueryKey(name, type);
  if (const Answer* hit = answers_.Get(key, SystemClock().Steady())) {
    const Answer kept = *hit;
    return tell(&done, kept);
  }
  AskFor(std::move(key),
         [self = shared_from_this(), tell, done = std::move(done)](const std::string& of, const Answer& answer) mutable {
           seconds lifetime = kFailureLifetime;
           if (answer) lifetime = LifetimeOf((*answer)->message);
           const bool small = !answer || (*answer)->octets <= kMaxCachedAnswerOctets;
           if (lifetime.count() > 0 && small && !self->stopped_)
             self->answers_.Put(of, answer, SystemClock().Steady() + lifetime);
           tell(&done, answer);
         });
}

UpstreamCore::Group& UpstreamCore::GroupFor(std::string_view name) {
  Group* best = &groups_.front();
  for (Group& group : groups_) {
    const std::string_view domain = group.domain;
    const bool holds =
        name == domain || (name.size() > domain.size() && name.ends_with(domain) && name[name.size() - domain.size() - 1] == '.');
    if (!domain.empty() && holds && domain.size() > best->domain.size()) best = &group;
  }
  return *best;
}

// One outstanding question of each name and type: a flood of equal ones gives a guesser no more chances (RFC 5452 section 5).
void UpstreamCore::AskFor(std::string key, OnAnswer done) {
  if (const auto found = outstanding_.find(key); found != outstanding_.end()) {
    found->second->further.push_back(std::move(done));
    return;
  }
  const std::string_view name = NameOfKey(key);
  auto wire_name = Name::FromText(name);
  if (stopped_) return done(key, std::unexpected(kShutDown));
  if (!wire_name) return done(key, Fail(Code::kInvalid, "not a name"));
  if (outstanding_.size() >= kMaxOutstanding) return done(key, Fail(Code::kExhausted, "too many lookups are outstanding"));
  Group& group = GroupFor(name);
  const auto share = options_.timeout / (kRounds * static_cast<int>(group.servers.size()));
  Question question{std::move(*wire_name), TypeOfKey(key), kClassIn};
  auto asking =
      std::make_shared<Asking>(std::move(key), std::move(question), &group, share, group.health.Order(), std::move(done));
  outstanding_.emplace(asking->key, asking);
  AskNext(std::move(asking));
}

// Not again what Stop has told.
void UpstreamCore::Finish(Asking& asking, const Answer& answer) {
  if (outstanding_.erase(asking.key) != 0) asking.Tell(answer);
}

void UpstreamCore::AskNext(std::shared_ptr<Asking> asking) {
  if (stopped_) return;
  const size_t count = asking->order.size();
  for (; asking->next < kRounds * count; ++asking->next) {
    if (asking->next == (kWorrying + 1) * count) SayUnanswered(*asking->last, asking->question.name);
    const size_t server = asking->order[asking->next % count];
    if (asking->refused[server]) continue;
    ++asking->next;
    const auto deadline = SystemClock().Steady() + asking->share;
    exchange_->Ask(
        asking->group->servers[server], asking->question, deadline,
        [self = shared_from_this(), asking, server](Result<UpstreamAnswer> got) { self->Take(asking, server, std::move(got)); });
    if (asking->next == 1) Try(asking->group, asking->question, asking->share);
    return;
  }
  Finish(*asking, std::unexpected(asking->last.value_or(kUnanswered)));
}

void UpstreamCore::Take(std::shared_ptr<Asking> asking, size_t server, Result<UpstreamAnswer> got) {
  if (stopped_) return;
  NoteHealth(asking->group, server, got);
  const size_t round = (asking->next - 1) / asking->order.size();
  if (!got) {
    asking->refused[server] = got.error().code != Code::kTimeout && round > 0;
    asking->last = std::move(got.error());
    return AskNext(std::move(asking));
  }
  const Rcode rcode = got->message.header.rcode;
  if (rcode == Rcode::kNoError || rcode == Rcode::kNxDomain)
    return Finish(*asking, std::make_shared<const UpstreamAnswer>(std::move(*got)));
  asking->last = Error{
      Code::kProtocol,
      fmt::format("the resolver {} answered with code {}", asking->group->servers[server].ToString(), static_cast<int>(rcode)), 0,
      std::nullopt};
  asking->refused[server] = true;
  AskNext(std::move(asking));
}

// A server that was left out and has rested is asked the same question beside another; what it says only tells that it is back.
void UpstreamCore::Try(Group* group, const Question& question, std::chrono::steady_clock::duration share) {
  const auto server = group->health.Trial(SystemClock().Steady());
  if (!server) return;
  exchange_->Ask(group->servers[*server], question, SystemClock().Steady() + share,
                 [self = shared_from_this(), group, server = *server](const Result<UpstreamAnswer>& got) {
                   if (!self->stopped_) self->NoteHealth(group, server, got);
                 });
}

void UpstreamCore::NoteHealth(Group* group, size_t server, const Result<UpstreamAnswer>& got) {
  const bool alone = group->servers.size() == 1;
  const SteadyTime now = SystemClock().Steady();
  if (got) {
    if (group->health.Answered(server) && !alone && group->back.Due(now))
      LogInfo("the resolver {} answers again", group->servers[server].ToString());
  } else if (group->health.Silent(server, now) && !alone && group->out.Due(now)) {
    LogWarn("the resolver {} is left out for now: {}", group->servers[server].ToString(), got.error().message);
  }
}

// All that the workload sees is that names do not resolve.
void UpstreamCore::SayUnanswered(const Error& error, const Name& name) {
  // What a server answers is not said.
  const bool of_this_machine =
      error.code == Code::kExhausted || error.code == Code::kPermission || error.code == Code::kUnsupported;
  if (error.code != Code::kTimeout && error.code != Code::kIo && !of_this_machine) return;
  const SteadyTime now = SystemClock().Steady();
  if (now < quiet_until_) return;
  quiet_until_ = now + kQuietTime;
  LogWarn("lookup of {}: {}; is that server reachable? --resolver names another", name.ToText(), error.message);
}

// The two questions about one name.
struct UpstreamCore::Families {
  std::string name;
  std::shared_ptr<Pending<Answer>> v4;
  std::shared_ptr<Pending<Answer>> v6;

  [[nodiscard]] bool answered() const { return v4->value() && v6->value(); }
  [[nodiscard]] static bool Leads(const std::shared_ptr<Pending<Answer>>& family, const std::string& name, Type type) {
    Error ignored;
    const auto read = ReadFamily(family, name, type, &ignored);
    return read && !read->addresses.empty();
  }
  [[nodiscard]] bool lead() const { return Leads(v4, name, Type::kA) || Leads(v6, name, Type::kAaaa); }
};

LookupPtr UpstreamCore::Learn(const Families& families) {
  Error error = kUnanswered;
  const auto v4 = ReadFamily(families.v4, families.name, Type::kA, &error);
  Kept merged = Merge(v4, ReadFamily(families.v6, families.name, Type::kAaaa, &error), std::move(error));
  auto lookup = std::make_shared<const Lookup>(std::move(merged.lookup));
  const SteadyTime now = SystemClock().Steady();
  if (merged.lifetime.count() > 0) names_.Put(families.name, {lookup, now + merged.lifetime}, now + merged.lifetime);
  return lookup;
}

// Where one family has addresses the other is waited for no longer than its grace; when it comes it is known to whoever asks
// then.
asio::awaitable<void> UpstreamCore::RunLookup(std::shared_ptr<UpstreamCore> self, std::string name,
                                              std::shared_ptr<Pending<LookupPtr>> pending) {
  auto families = std::make_shared<Families>();
  families->name = name;
  families->v4 = std::make_shared<Pending<Answer>>(self->context_);
  families->v6 = std::make_shared<Pending<Answer>>(self->context_);
  // Said once one family has addresses, or both were answered.
  const auto ready = std::make_shared<Pending<bool>>(self->context_);
  const auto note = [families, ready](const std::shared_ptr<Pending<Answer>>& family, const Answer& answer) {
    family->Set(answer);
    if (!ready->value() && (families->answered() || families->lead())) ready->Set(true);
  };
  self->Ask(name, Type::kA, [note, family = families->v4](const std::string&, const Answer& answer) { note(family, answer); });
  self->Ask(name, Type::kAaaa, [note, family = families->v6](const std::string&, const Answer& answer) { note(family, answer); });
  co_await Pending<bool>::Wait(ready);
  const auto late = families->v4->value() ? families->v6 : families->v4;
  co_await Pending<Answer>::WaitFor(late, kOtherFamilyGrace);
  const bool whole = families->answered();
  LookupPtr lookup = self->Learn(*families);
  self->lookups_.erase(name);
  pending->Set(std::move(lookup));
  if (whole) co_return;
  co_await Pending<Answer>::Wait(late);
  if (!self->stopped_) (void)self->Learn(*families);
}

}  // namespace sluice::dns
