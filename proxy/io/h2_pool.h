#pragma once

// What one worker knows of HTTP/2 upstreams: the connections that streams share, which origins speak it, and who is dialling, so
// that a hundred streams to a new origin make one connection.

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/keyed_hash.h"
#include "proxy/io/upstream.h"

namespace sluice::proxy {

class H2Upstream;

class H2Pool {
 public:
  H2Pool();
  ~H2Pool();

  /// A connection that takes one more stream, or null.
  [[nodiscard]] std::shared_ptr<H2Upstream> Find(const std::string& key);
  void Add(const std::string& key, std::shared_ptr<H2Upstream> upstream);
  /// Each connection is known from its start to its end.
  void Begun(H2Upstream* upstream) { live_.insert(upstream); }
  void Ended(H2Upstream* upstream) { live_.erase(upstream); }
  /// New streams open new connections: the policy changed, or descriptors are short. Streams under way go on.
  void RetireAll();
  /// Ends all of them now, those that were retired too. For the worker's end, when no stream is left.
  void CloseAll();
  /// Forgets those that take no more.
  void Sweep();
  [[nodiscard]] bool empty() const { return shared_.empty(); }

  enum class Speaks : uint8_t {
    kUnknown,
    kHttp11,
    kH2,      ///< where it has the choice
    kH2Only,  ///< it refused HTTP/1.1
  };
  [[nodiscard]] Speaks Known(const std::string& key) const;
  void Remember(const std::string& key, Speaks speaks);

  /// Somebody dials for a key, and others wait.
  struct Flight {
    bool landed = false;
    std::optional<DialFailure> failure{};  ///< that others would meet as well
    std::vector<Waiter*> waiting{};
  };
  using FlightPtr = std::shared_ptr<Flight>;
  /// The flight under way, or null: then the caller's own begins, and it must call Land.
  [[nodiscard]] FlightPtr Join(const std::string& key);
  void Land(const std::string& key, std::optional<DialFailure> failure);

 private:
  KeyedMap<std::string, std::vector<std::shared_ptr<H2Upstream>>> shared_;
  std::unordered_set<H2Upstream*> live_;
  KeyedMap<std::string, Speaks> known_;
  KeyedMap<std::string, FlightPtr> flights_;
};

}  // namespace sluice::proxy
