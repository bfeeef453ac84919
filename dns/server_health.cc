#include "dns/server_health.h"

#include <algorithm>

namespace sluice::dns {

ServerOrder ServerHealth::Order() const {
  ServerOrder order;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (!servers_[i].down) order.Add(i);
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].down) order.Add(i);
  return order;
}

std::optional<size_t> ServerHealth::Trial(SteadyTime now) {
  // With all of them down there is none to stand in: they are asked anyway.
  if (std::ranges::all_of(servers_, &State::down)) return std::nullopt;
  for (size_t i = 0; i < servers_.size(); ++i) {
    State& server = servers_[i];
    if (!server.down || now < server.again) continue;
    server.trying = true;
    server.again = now + server.rest;
    return i;
  }
  return std::nullopt;
}

bool ServerHealth::Answered(size_t server) {
  const bool was_down = servers_[server].down;
  servers_[server] = {};
  return was_down;
}

bool ServerHealth::Silent(size_t server, SteadyTime now) {
  State& state = servers_[server];
  if (state.down) {
    // Other questions than the trial, such as those under way when it went down, say nothing new.
    if (!state.trying) return false;
    state.trying = false;
    state.rest = std::min(state.rest * 2, kLongestRest);
    state.again = now + state.rest;
    return false;
  }
  if (++state.silences < kSilencesUntilDown) return false;
  state.down = true;
  state.rest = kFirstRest;
  state.again = now + state.rest;
  return true;
}

}  // namespace sluice::dns
