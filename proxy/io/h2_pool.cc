#include "proxy/io/h2_pool.h"

#include <algorithm>

#include "proxy/io/h2_upstream.h"
#include "proxy/io/limits.h"

namespace sluice::proxy {

H2Pool::H2Pool() = default;
H2Pool::~H2Pool() = default;

std::shared_ptr<H2Upstream> H2Pool::Find(const std::string& key) {
  const auto found = shared_.find(key);
  if (found == shared_.end()) return nullptr;
  for (const auto& upstream : found->second)
    if (upstream->Takes()) return upstream;
  return nullptr;
}

void H2Pool::Add(const std::string& key, std::shared_ptr<H2Upstream> upstream) { shared_[key].push_back(std::move(upstream)); }

void H2Pool::RetireAll() {
  // Retiring may free a connection, and with it what it refers to.
  const auto retiring = std::move(shared_);
  shared_.clear();
  for (const auto& [key, list] : retiring)
    for (const auto& upstream : list) upstream->Retire();
}

void H2Pool::CloseAll() {
  shared_.clear();
  while (!live_.empty()) {
    H2Upstream* const upstream = *live_.begin();
    live_.erase(live_.begin());
    upstream->Close();
  }
}

void H2Pool::Sweep() {
  for (auto it = shared_.begin(); it != shared_.end();) {
    std::erase_if(it->second, [](const auto& upstream) { return upstream->idle() && !upstream->Takes(); });
    it = it->second.empty() ? shared_.erase(it) : std::next(it);
  }
}

H2Pool::Speaks H2Pool::Known(const std::string& key) const {
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : Speaks::kUnknown;
}

void H2Pool::Remember(const std::string& key, Speaks speaks) {
  // It costs one negotiation to learn it again.
  if (known_.size() >= kMaxKnownProtocols) known_.clear();
  known_[key] = speaks;
}

H2Pool::FlightPtr H2Pool::Join(const std::string& key) {
  FlightPtr& flight = flights_[key];
  if (flight != nullptr) return flight;
  flight = std::make_shared<Flight>();
  return nullptr;
}

void H2Pool::Land(const std::string& key, std::optional<DialFailure> failure) {
  const auto found = flights_.find(key);
  if (found == flights_.end()) return;
  const FlightPtr flight = found->second;
  flights_.erase(found);
  flight->landed = true;
  flight->failure = std::move(failure);
  for (Waiter* waiter : flight->waiting) waiter->Poke();
  flight->waiting.clear();
}

}  // namespace sluice::proxy
