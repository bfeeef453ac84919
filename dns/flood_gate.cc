#include "dns/flood_gate.h"

#include <algorithm>

namespace sluice::dns {
namespace {

constexpr std::chrono::seconds kWindow{1};

uint64_t Mixed(uint64_t value) {
  value ^= value >> 32;
  value *= 0x9e3779b97f4a7c15;
  return value ^ (value >> 29);
}

uint64_t KeyOf(policy::Transport transport, const Endpoint& source) {
  uint64_t key = transport == policy::Transport::kTcp ? 1 : 0;
  if (source.address.is_v4()) return (key << 48) | (uint64_t{source.address.v4()} << 16) | source.port;
  for (const uint8_t byte : source.address.bytes()) key = Mixed(key ^ byte) * 31;
  return key ^ source.port;
}

void Refill(double* tokens, SteadyTime last, SteadyTime now, double rate, double burst) {
  if (now > last) *tokens = std::min(burst, *tokens + rate * std::chrono::duration<double>(now - last).count());
}

}  // namespace

FloodGate::FloodGate(FloodLimits limits, GuessSender guess)
    : limits_(limits), guess_(std::move(guess)), sources_(kMaxFloodSources / kWays), processes_(kMaxFloodProcesses / kWays) {
  total_.tokens = limits_.total_burst;
}

FloodGate::Entry& FloodGate::Find(Table* table, uint64_t key, double burst, SteadyTime now) {
  std::unique_ptr<Ways>& ways = (*table)[Mixed(key) % table->size()];
  if (!ways) ways = std::make_unique<Ways>();
  Entry* oldest = &ways->front();
  for (Entry& entry : *ways) {
    if (entry.key == key && entry.last != SteadyTime{}) return entry;
    if (entry.last < oldest->last) oldest = &entry;
  }
  *oldest = {.key = key, .tokens = burst, .last = now};
  return *oldest;
}

FloodGate::Verdict FloodGate::Judge(policy::Transport transport, const Endpoint& source, SteadyTime now) {
  Entry& socket = Find(&sources_, KeyOf(transport, source), limits_.source_burst, now);
  // A port that was silent for a while may be somebody else's by now.
  if (guess_ && (socket.sender == 0 || now - socket.last > kWindow)) socket.sender = guess_(transport, source);
  const bool known = socket.sender != 0;
  const double rate = known ? limits_.process_per_second : limits_.unknown_per_second;
  const double burst = known ? limits_.process_burst : limits_.unknown_burst;
  Refill(&socket.tokens, socket.last, now, limits_.source_per_second, limits_.source_burst);
  Refill(&total_.tokens, total_.last, now, limits_.total_per_second, limits_.total_burst);
  socket.last = total_.last = now;
  bool light = socket.tokens >= limits_.source_burst / 2;
  // Where nothing can say whose sockets they are, each is its own process.
  Entry* process = &socket;
  if (guess_) {
    process = &Find(&processes_, socket.sender, burst, now);
    Refill(&process->tokens, process->last, now, rate, burst);
    process->last = now;
    light &= process->tokens >= burst / 2;
  }
  if (socket.tokens >= 1 && process->tokens >= 1) {
    // Also when all together ask too much: else whoever floods would go on counting as one who asks little.
    socket.tokens -= 1;
    if (guess_) process->tokens -= 1;
    if (total_.tokens >= (light ? 1 : limits_.reserved + 1)) {
      total_.tokens -= 1;
      return Verdict::kServe;
    }
  }
  if (transport == policy::Transport::kUdp) CountDrop(&socket, source.port, now);
  if (process->told != SteadyTime{} && now - process->told < kWindow) return Verdict::kDrop;
  process->told = now;
  return Verdict::kRefuse;
}

void FloodGate::CountDrop(Entry* source, uint16_t port, SteadyTime now) {
  if (now - source->counted >= kWindow) {
    source->counted = now;
    source->dropped = 0;
  }
  if (++source->dropped != kShutAfter) return;
  std::erase_if(shut_, [&](const Shut& shut) { return shut.until <= now || shut.port == port; });
  // Full: what is not shut here is still dropped one by one.
  if (shut_.size() >= kMaxShutPorts) return;
  shut_.push_back({port, now + kShutFor});
  changed_ = true;
}

std::vector<uint16_t> FloodGate::ShutPorts(SteadyTime now) {
  std::erase_if(shut_, [&](const Shut& shut) { return shut.until <= now; });
  changed_ = false;
  std::vector<uint16_t> ports;
  ports.reserve(shut_.size());
  for (const Shut& shut : shut_) ports.push_back(shut.port);
  return ports;
}

}  // namespace sluice::dns
