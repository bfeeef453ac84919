#pragma once

// What UpstreamClient is made of: caches, coalescing, and which server to ask. It outlives the client while something is still to
// be resumed.

#include <boost/asio/awaitable.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/complaint.h"
#include "base/keyed_hash.h"
#include "dns/cache.h"
#include "dns/io/exchange.h"
#include "dns/io/pending.h"
#include "dns/io/upstream.h"
#include "dns/server_health.h"

namespace sluice::dns {

inline constexpr size_t kMaxOutstanding = 512;  ///< questions, each a socket

using AnswerPtr = std::shared_ptr<const UpstreamAnswer>;
using Answer = Result<AnswerPtr>;
/// Told the question's key too.
using OnAnswer = std::move_only_function<void(const std::string& key, const Answer&)>;

/// What tells a question from all others, at little cost: the type's two octets, then the name.
[[nodiscard]] std::string QueryKey(const std::string& name, Type type);
[[nodiscard]] inline Type TypeOfKey(std::string_view key) {
  return Type{static_cast<uint16_t>(static_cast<uint8_t>(key[0]) << 8 | static_cast<uint8_t>(key[1]))};
}
[[nodiscard]] inline std::string_view NameOfKey(std::string_view key) { return key.substr(2); }

class UpstreamCore : public std::enable_shared_from_this<UpstreamCore> {
 public:
  UpstreamCore(boost::asio::io_context& context, UpstreamOptions options, std::shared_ptr<Exchange> exchange);
  void Stop();
  [[nodiscard]] boost::asio::io_context& context() { return context_; }

  [[nodiscard]] LookupPtr Peek(const std::string& name);
  static boost::asio::awaitable<LookupPtr> Look(std::shared_ptr<UpstreamCore> self, std::string name);
  [[nodiscard]] LookupPtr PeekFamily(const std::string& name, Type type);
  void LookFamily(const std::string& name, Type type, UpstreamClient::OnLookup done);
  void Query(const std::string& name, Type type, UpstreamClient::OnMessage done);
  void ForgetAbsence();
  [[nodiscard]] CachePage Cached(std::string_view after, size_t limit) const;

 private:
  struct CachedLookup {
    LookupPtr lookup;
    SteadyTime expires;
  };
  // Servers that answer for the same names.
  struct Group {
    std::string domain;  // empty: of all names that no other has
    std::vector<UpstreamServer> servers;
    ServerHealth health;
    Pace out{};  // whose names nobody answers, the workload chooses
    Pace back{};
  };
  struct Asking;

  [[nodiscard]] LookupPtr Aged(TtlCache<CachedLookup>* cache, const std::string& key);
  [[nodiscard]] Group& GroupFor(std::string_view name);
  void Ask(const std::string& name, Type type, OnAnswer done) { AskFor(QueryKey(name, type), std::move(done)); }
  void AskFor(std::string key, OnAnswer done);
  void Finish(Asking& asking, const Answer& answer);
  void AskNext(std::shared_ptr<Asking> asking);
  void Take(std::shared_ptr<Asking> asking, size_t server, Result<UpstreamAnswer> got);
  void Try(Group* group, const Question& question, std::chrono::steady_clock::duration share);
  void NoteHealth(Group* group, size_t server, const Result<UpstreamAnswer>& got);
  void SayUnanswered(const Error& error, const Name& name);
  struct Families;
  LookupPtr Learn(const Families& families);
  static boost::asio::awaitable<void> RunLookup(std::shared_ptr<UpstreamCore> self, std::string name,
                                                std::shared_ptr<Pending<LookupPtr>> pending);

  boost::asio::io_context& context_;
  const UpstreamOptions options_;
  std::shared_ptr<Exchange> exchange_;
  std::vector<Group> groups_;  // never grows; the one without a domain first
  bool stopped_ = false;
  SteadyTime quiet_until_{};
  TtlCache<CachedLookup> names_;
  TtlCache<CachedLookup> families_;
  TtlCache<Answer> answers_;
  KeyedMap<std::string, std::shared_ptr<Pending<LookupPtr>>> lookups_;
  boost::unordered_flat_map<std::string_view, std::shared_ptr<Asking>, KeyedHasher> outstanding_;  // by their keys
};

}  // namespace sluice::dns
