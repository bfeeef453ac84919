#pragma once

// How an engine takes clients of `sluice proxy`, and what all its workers know of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/ip.h"
#include "base/keyed_hash.h"
#include "policy/query.h"
#include "proxy/io/client_tokens.h"

namespace sluice::proxy {

class ListenerTls;

inline constexpr size_t kMaxClientConnections = 4096;  ///< of one client address

/// The tokens in force, swapped whole. Any thread.
class CurrentTokens {
 public:
  explicit CurrentTokens(TokenTable first) : table_(std::make_shared<const TokenTable>(std::move(first))) {}
  [[nodiscard]] std::shared_ptr<const TokenTable> Get() const {
    const std::lock_guard lock(mutex_);
    return table_;
  }
  /// Who is in both tables is still known; whoever is not has to be cut off (Engine::PolicyChanged).
  void Set(TokenTable next) {
    next.TakeOver(*Get());
    auto fresh = std::make_shared<const TokenTable>(std::move(next));
    const std::lock_guard lock(mutex_);
    table_.swap(fresh);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const TokenTable> table_;
};

enum class ProxyProtocol : uint8_t { kNone, kRequired };

struct ExplicitOptions {
  ProxyProtocol proxy_protocol = ProxyProtocol::kNone;
  std::vector<Cidr> proxy_protocol_from;          ///< whose word is taken; nobody else may connect then
  std::shared_ptr<ListenerTls> tls{};             ///< null: clients speak to the proxy in the clear
  std::shared_ptr<const CurrentTokens> tokens{};  ///< null: none is asked for
  std::vector<Endpoint> own{};                    ///< where it listens, so that it never dials itself
};

/// Whether dialling this would reach the proxy itself. A listener on an unspecified address is reached at each of
/// `host_addresses`, and each is reached by dialling the unspecified address.
[[nodiscard]] bool IsOwn(const std::vector<Endpoint>& own, const std::vector<IpAddress>& host_addresses, const Endpoint& dialled);

/// How many connections each client address has. Any thread.
class ClientCounts {
 public:
  /// One connection's place; gives it back when it ends.
  class Place {
   public:
    Place() = default;
    Place(ClientCounts& counts, const IpAddress& address) : counts_(&counts), address_(address) {}
    Place(Place&& other) noexcept : counts_(std::exchange(other.counts_, nullptr)), address_(other.address_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(counts_, other.counts_);
      std::swap(address_, other.address_);
      return *this;
    }
    ~Place() {
      if (counts_ != nullptr) counts_->Leave(address_);
    }

   private:
    ClientCounts* counts_ = nullptr;
    IpAddress address_;
  };
  /// False: that address has kMaxClientConnections already.
  [[nodiscard]] bool Enter(const IpAddress& address, Place* place);

 private:
  void Leave(const IpAddress& address);
  std::mutex mutex_;
  KeyedMap<IpAddress, size_t> counts_;
};

}  // namespace sluice::proxy
