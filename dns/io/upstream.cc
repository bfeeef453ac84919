#include "dns/io/upstream.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fstream>
#include <iterator>
#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "dns/cache.h"
#include "dns/chain.h"
#include "dns/io/exchange.h"
#include "dns/io/pending.h"
#include "dns/resolv_conf.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxCachedNames = 4096;
constexpr size_t kMaxCachedAnswers = 512;        ///< of other types
constexpr size_t kMaxCachedAnswerOctets = 8192;  ///< larger ones are asked for again
constexpr size_t kMaxOutstanding = 512;          ///< questions, each a socket
constexpr int kWorrying = 1;                     ///< after this round without an answer it is said, before clients give up
constexpr seconds kQuietTime{10};                ///< between two such lines
constexpr int kRounds = 3;                       ///< tries of each server that stays silent
constexpr seconds kMinLifetime{5};
constexpr seconds kMaxLifetime{300};
constexpr seconds kFailureLifetime{2};          ///< RFC 9520 section 3.2: 1 to 300 s
constexpr milliseconds kOtherFamilyGrace{50};  ///< "resolution delay" of RFC 8305 section 3

using Answer = Result<std::shared_ptr<const UpstreamAnswer>>;

struct CachedLookup {
  LookupPtr lookup;
  SteadyTime expires;
};

std::string QueryKey(const std::string& name, Type type) { return fmt::format("{}/{}", static_cast<uint16_t>(type), name); }

LookupPtr FailedLookup(Error error) { return std::make_shared<Lookup>(Lookup{Lookup::Status::kFailed, {}, std::move(error)}); }

// The families of one name put together.
struct Merged {
  Lookup lookup;
  seconds lifetime{0};  ///< 0: not to be kept
};

Merged Merge(const std::optional<AddressAnswer>& v4, const std::optional<AddressAnswer>& v6, Error error) {
  Merged merged;
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

// What coroutines hold: it outlives the client while one of them is still to be resumed.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(asio::io_context& context, UpstreamOptions options) : context_(context), options_(std::move(options)) {}

  void Stop() {
    stopped_ = true;
    const Error error{Code::kIo, "the resolver was shut down", 0, std::nullopt};
    for (const auto& [name, pending] : lookups_) pending->Set(FailedLookup(error));
    for (const auto& [key, pending] : answers_) pending->Set(std::unexpected(error));
  }

  LookupPtr Peek(const std::string& name) {
    const SteadyTime now = SystemClock().Steady();
    const CachedLookup* hit = names_.Get(name, now);
    if (hit == nullptr) return nullptr;
    const auto left = std::max(kMinLifetime, std::chrono::ceil<seconds>(hit->expires - now));
    if (hit->lookup->status != Lookup::Status::kFound || left >= hit->lookup->found.ttl) return hit->lookup;
    // Made anew once a second at most: a copy per hit would cost more than the rest of the answer.
    auto aged = std::make_shared<Lookup>(*hit->lookup);
    aged->found.ttl = left;
    const SteadyTime expires = hit->expires;
    names_.Put(name, {aged, expires}, expires);
    return aged;
  }

  static asio::awaitable<LookupPtr> Look(std::shared_ptr<Core> self, std::string name) {
    if (auto hit = self->Peek(name)) co_return hit;
    if (self->stopped_) co_return FailedLookup({Code::kIo, "the resolver was shut down", 0, std::nullopt});
    auto& slot = self->lookups_[name];
    const bool first = slot == nullptr;
    if (first) slot = std::make_shared<Pending<LookupPtr>>(self->context_);
    const auto pending = slot;
    if (first) asio::co_spawn(self->context_, RunLookup(self, name, pending), asio::detached);
    co_await Pending<LookupPtr>::Wait(pending);
    co_return *pending->value();
  }

  static asio::awaitable<Answer> Ask(std::shared_ptr<Core> self, std::string name, Type type) {
    const std::string key = QueryKey(name, type);
    const auto pending = self->StartAsk(key, name, type);
    co_await Pending<Answer>::Wait(pending);
    co_return *pending->value();
  }

  static asio::awaitable<Answer> AskCached(std::shared_ptr<Core> self, std::string name, Type type) {
    const std::string key = QueryKey(name, type);
    if (const auto* hit = self->cached_answers_.Get(key, SystemClock().Steady())) co_return *hit;
    Answer answer = co_await Ask(self, name, type);
    seconds lifetime = kFailureLifetime;
    if (answer) lifetime = LifetimeOf((*answer)->message);
    if (lifetime.count() > 0 && (!answer || (*answer)->wire.size() <= kMaxCachedAnswerOctets))
      self->cached_answers_.Put(key, answer, SystemClock().Steady() + lifetime);
    co_return answer;
  }

 private:
  static seconds LifetimeOf(const Message& message) {
    if (message.answers.empty()) return seconds(NegativeTtl(message));
    uint32_t ttl = static_cast<uint32_t>(kMaxLifetime.count());
    for (const Record& record : message.answers) ttl = std::min(ttl, record.ttl);
    return std::clamp(seconds(ttl), kMinLifetime, kMaxLifetime);
  }

  // One outstanding question of each name and type: a flood of equal ones gives a guesser no more chances (RFC 5452 section 5).
  std::shared_ptr<Pending<Answer>> StartAsk(const std::string& key, const std::string& name, Type type) {
    auto& slot = answers_[key];
    if (slot != nullptr) return slot;
    slot = std::make_shared<Pending<Answer>>(context_);
    const auto pending = slot;
    const auto wire_name = Name::FromText(name);
    if (!wire_name || stopped_ || answers_.size() > kMaxOutstanding) {
      answers_.erase(key);
      pending->Set(wire_name ? Fail(Code::kExhausted, "too many lookups are outstanding") : Fail(Code::kInvalid, "not a name"));
      return pending;
    }
    asio::co_spawn(context_, RunAsk(shared_from_this(), key, Question{*wire_name, type, kClassIn}, pending), asio::detached);
    return pending;
  }

  static asio::awaitable<void> RunAsk(std::shared_ptr<Core> self, std::string key, Question question,
                                      std::shared_ptr<Pending<Answer>> pending) {
    Answer answer = co_await AskAll(self, std::move(question));
    self->answers_.erase(key);
    pending->Set(std::move(answer));
  }

  // Each server in turn until one has an answer; a server that said "no" is not asked again, a silent one is.
  static asio::awaitable<Answer> AskAll(std::shared_ptr<Core> self, Question question) {
    const auto& servers = self->options_.servers;
    const auto share = self->options_.timeout / (kRounds * static_cast<int>(servers.size()));
    std::vector<bool> refused(servers.size(), false);
    Error last{Code::kTimeout, "no resolver answered", 0, std::nullopt};
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < servers.size(); ++i) {
        if (refused[i]) continue;
        auto answer = co_await AskServer(servers[i], question, SystemClock().Steady() + share);
        if (self->stopped_) co_return Fail(Code::kIo, "the resolver was shut down");
        if (!answer) {
          last = std::move(answer.error());
          refused[i] = last.code != Code::kTimeout && round > 0;
          continue;
        }
        const Rcode rcode = answer->message.header.rcode;
        if (rcode == Rcode::kNoError || rcode == Rcode::kNxDomain)
          co_return std::make_shared<const UpstreamAnswer>(std::move(*answer));
        last = {Code::kProtocol,
                fmt::format("the resolver {} answered with code {}", servers[i].ToString(), static_cast<int>(rcode)), 0,
                std::nullopt};
        refused[i] = true;
      }
      if (round == kWorrying) self->SayUnanswered(last, question.name);
    }
    co_return std::unexpected(std::move(last));
  }

  // All that the workload sees is that names do not resolve.
  void SayUnanswered(const Error& error, const Name& name) {
    if (error.code != Code::kTimeout && error.code != Code::kIo) return;
    const SteadyTime now = SystemClock().Steady();
    if (now < quiet_until_) return;
    quiet_until_ = now + kQuietTime;
    LogWarn("lookup of {}: {}; is that server reachable? --resolver names another", name.ToText(), error.message);
  }

  static std::optional<AddressAnswer> ReadFamily(const std::shared_ptr<Pending<Answer>>& pending, const std::string& name,
                                                 Type type, Error* error) {
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

  // The two questions about one name.
  struct Families {
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

  // Says `ready` once one family has addresses or both were answered.
  static asio::awaitable<void> AwaitFamily(std::shared_ptr<const Families> families, std::shared_ptr<Pending<Answer>> one,
                                           std::shared_ptr<Pending<bool>> ready) {
    co_await Pending<Answer>::Wait(one);
    if (families->answered() || families->lead()) ready->Set(true);
  }

  LookupPtr Learn(const Families& families) {
    Error error{Code::kTimeout, "no resolver answered", 0, std::nullopt};
    const auto v4 = ReadFamily(families.v4, families.name, Type::kA, &error);
    Merged merged = Merge(v4, ReadFamily(families.v6, families.name, Type::kAaaa, &error), std::move(error));
    auto lookup = std::make_shared<const Lookup>(std::move(merged.lookup));
    const SteadyTime now = SystemClock().Steady();
    if (merged.lifetime.count() > 0) names_.Put(families.name, {lookup, now + merged.lifetime}, now + merged.lifetime);
    return lookup;
  }

  // Where one family has addresses the other is waited for no longer than its grace; when it comes it is known to whoever asks then.
  static asio::awaitable<void> RunLookup(std::shared_ptr<Core> self, std::string name,
                                         std::shared_ptr<Pending<LookupPtr>> pending) {
    auto families = std::make_shared<Families>();
    families->name = name;
    families->v4 = self->StartAsk(QueryKey(name, Type::kA), name, Type::kA);
    families->v6 = self->StartAsk(QueryKey(name, Type::kAaaa), name, Type::kAaaa);
    const auto ready = std::make_shared<Pending<bool>>(self->context_);
    asio::co_spawn(self->context_, AwaitFamily(families, families->v4, ready), asio::detached);
    asio::co_spawn(self->context_, AwaitFamily(families, families->v6, ready), asio::detached);
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

  asio::io_context& context_;
  const UpstreamOptions options_;
  bool stopped_ = false;
  SteadyTime quiet_until_{};
  TtlCache<CachedLookup> names_{kMaxCachedNames};
  TtlCache<Answer> cached_answers_{kMaxCachedAnswers};
  std::unordered_map<std::string, std::shared_ptr<Pending<LookupPtr>>> lookups_;
  std::unordered_map<std::string, std::shared_ptr<Pending<Answer>>> answers_;
};

class Client final : public UpstreamClient {
 public:
  Client(asio::io_context& context, UpstreamOptions options) : core_(std::make_shared<Core>(context, std::move(options))) {}
  ~Client() override { core_->Stop(); }

  asio::awaitable<Result<Addresses>> Resolve(std::string canonical_name) override {
    return ResolveWith(core_, std::move(canonical_name));
  }
  asio::awaitable<LookupPtr> Look(std::string canonical_name) override { return Core::Look(core_, std::move(canonical_name)); }
  LookupPtr Peek(const std::string& canonical_name) override { return core_->Peek(canonical_name); }
  asio::awaitable<Result<std::vector<uint8_t>>> Query(std::string canonical_name, uint16_t type) override {
    return QueryWith(core_, std::move(canonical_name), Type{type});
  }

 private:
  static asio::awaitable<Result<Addresses>> ResolveWith(std::shared_ptr<Core> core, std::string name) {
    const LookupPtr lookup = co_await Core::Look(core, name);
    switch (lookup->status) {
      case Lookup::Status::kFound:
        co_return lookup->found;
      case Lookup::Status::kNoAddress:
        co_return Fail(Code::kNotFound, name + " has no address");
      case Lookup::Status::kNoSuchName:
        co_return Fail(Code::kNotFound, name + " does not exist");
      case Lookup::Status::kFailed:
        break;
    }
    co_return std::unexpected(lookup->error);
  }
  static asio::awaitable<Result<std::vector<uint8_t>>> QueryWith(std::shared_ptr<Core> core, std::string name, Type type) {
    const Answer answer = co_await Core::AskCached(core, name, type);
    if (!answer) co_return std::unexpected(answer.error());
    co_return (*answer)->wire;
  }

  std::shared_ptr<Core> core_;
};

}  // namespace

Result<std::unique_ptr<UpstreamClient>> UpstreamClient::Create(asio::io_context& context, UpstreamOptions options) {
  if (options.servers.empty()) {
    std::ifstream file("/etc/resolv.conf");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    options.servers = ParseResolvConf(text);
    if (options.servers.empty())
      return Fail(Code::kNotFound, "/etc/resolv.conf names no server; give one with --resolver IP[:PORT]");
  }
  if (options.servers.size() > kMaxServers) options.servers.resize(kMaxServers);
  if (options.timeout <= milliseconds(0)) return Fail(Code::kInvalid, "the resolver's timeout must be positive");
  return std::make_unique<Client>(context, std::move(options));
}

}  // namespace sluice::dns
