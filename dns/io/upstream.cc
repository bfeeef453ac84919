#include "dns/io/upstream.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <fstream>
#include <iterator>

#include "dns/io/upstream_core.h"
#include "dns/local_names.h"
#include "dns/resolv_conf.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;

// Of the machine itself, whom nobody is asked for; null for any other name.
LookupPtr OwnLookup(const std::string& name, bool v4 = true, bool v6 = true) {
  if (name != kHostName) return nullptr;
  Lookup lookup{.status = Lookup::Status::kFound, .found = {}, .error = {}};
  lookup.found.ttl = std::chrono::seconds(300);
  if (v4) lookup.found.addresses.push_back(IpAddress::FromV4(0x7f000001));
  if (v6) lookup.found.addresses.push_back(*IpAddress::Parse("::1"));
  return std::make_shared<Lookup>(std::move(lookup));
}

class Client final : public UpstreamClient {
 public:
  explicit Client(std::shared_ptr<UpstreamCore> core) : core_(std::move(core)) {}
  ~Client() override { core_->Stop(); }

  asio::awaitable<Result<Addresses>> Resolve(std::string canonical_name) override {
    return ResolveWith(core_, std::move(canonical_name));
  }
  asio::awaitable<LookupPtr> Look(std::string canonical_name) override { return LookAny(core_, std::move(canonical_name)); }
  LookupPtr Peek(const std::string& canonical_name) override {
    if (auto own = OwnLookup(canonical_name)) return own;
    return core_->Peek(canonical_name);
  }
  void LookBoth(const std::string& canonical_name, OnLookup done) override {
    if (auto hit = Peek(canonical_name)) return done(std::move(hit));
    asio::co_spawn(core_->context(), UpstreamCore::Look(core_, canonical_name),
                   [done = std::move(done)](const std::exception_ptr& failed, LookupPtr found) mutable {
                     if (failed || found == nullptr)
                       found = std::make_shared<Lookup>(Lookup{
                           Lookup::Status::kFailed, {}, {Code::kInternal, "the lookup ended in an exception", 0, std::nullopt}});
                     done(std::move(found));
                   });
  }
  void LookFamily(const std::string& canonical_name, Type type, OnLookup done) override {
    if (auto own = OwnLookup(canonical_name, type == Type::kA, type == Type::kAaaa)) return done(std::move(own));
    core_->LookFamily(canonical_name, type, std::move(done));
  }
  LookupPtr PeekFamily(const std::string& canonical_name, Type type) override {
    if (auto own = OwnLookup(canonical_name, type == Type::kA, type == Type::kAaaa)) return own;
    return core_->PeekFamily(canonical_name, type);
  }
  void Query(const std::string& canonical_name, Type type, OnMessage done) override {
    if (canonical_name == kHostName) return done(Fail(Code::kNotFound, canonical_name + " has addresses alone"));
    core_->Query(canonical_name, type, std::move(done));
  }
  void ForgetAbsence() override { core_->ForgetAbsence(); }
  CachePage Cached(std::string_view after, size_t limit) const override { return core_->Cached(after, limit); }

 private:
  static asio::awaitable<LookupPtr> LookAny(std::shared_ptr<UpstreamCore> core, std::string name) {
    if (auto own = OwnLookup(name)) co_return own;
    co_return co_await UpstreamCore::Look(std::move(core), std::move(name));
  }

  static asio::awaitable<Result<Addresses>> ResolveWith(std::shared_ptr<UpstreamCore> core, std::string name) {
    const LookupPtr lookup = co_await LookAny(core, name);
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

  std::shared_ptr<UpstreamCore> core_;
};

Result<void> Check(const UpstreamOptions& options) {
  if (options.timeout <= std::chrono::milliseconds(0)) return Fail(Code::kInvalid, "the resolver's timeout must be positive");
  if (options.stubs.size() > kMaxStubDomains) return Fail(Code::kInvalid, "too many domains with resolvers of their own");
  for (const StubDomain& stub : options.stubs) {
    if (stub.servers.size() > kMaxServers) return Fail(Code::kInvalid, stub.domain + " has too many resolvers");
    if (stub.servers.empty()) return Fail(Code::kInvalid, stub.domain + " has no resolver");
    const auto same = [&](const StubDomain& other) { return other.domain == stub.domain; };
    if (std::ranges::count_if(options.stubs, same) > 1) return Fail(Code::kInvalid, stub.domain + " is given resolvers twice");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<UpstreamClient>> UpstreamClient::Create(asio::io_context& context, UpstreamOptions options) {
  if (options.servers.empty()) {
    std::ifstream file("/etc/resolv.conf");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    for (const Endpoint& server : ParseResolvConf(text)) options.servers.push_back({server});
    if (options.servers.empty())
      return Fail(Code::kNotFound, "/etc/resolv.conf names no server; give one with --resolver IP[:PORT]");
  }
  if (options.servers.size() > kMaxServers) options.servers.resize(kMaxServers);
  if (auto good = Check(options); !good) return std::unexpected(good.error());
  std::vector<UpstreamServer> all = options.servers;
  for (const StubDomain& stub : options.stubs) all.insert(all.end(), stub.servers.begin(), stub.servers.end());
  auto exchange = Exchange::Create(context, all, options.seal, options.tls_roots);
  if (!exchange) return std::unexpected(exchange.error());
  return std::make_unique<Client>(std::make_shared<UpstreamCore>(context, std::move(options), *std::move(exchange)));
}

}  // namespace sluice::dns
