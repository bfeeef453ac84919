#include "audit/fold.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace sluice::audit {
namespace {

void CountOne(Repeated* repeated, const policy::DecisionEvent& event) {
  if (repeated->count++ == 0) {
    repeated->event = event;
    repeated->first = event.time;
  }
  repeated->event.time = event.time;
  repeated->last_id = event.denial_id;
}

// Fields are told apart by their lengths: they are the workload's.
std::string KeyOf(const Owner& owner, const policy::DecisionEvent& event) {
  const policy::EventTarget& target = event.target;
  std::string key = fmt::format("{} {} {} {} {} {} {} {}", owner.pid, owner.start, static_cast<int>(event.layer),
                                static_cast<int>(event.decision.reason), static_cast<int64_t>(event.decision.rule), target.port,
                                event.snapshot == nullptr ? std::string() : event.snapshot->digest(),
                                target.address ? target.address->ToString() : std::string());
  for (const std::string* part : {&target.host, &target.scheme, &target.method, &target.path, &target.query})
    key += fmt::format(" {}:{}", part->size(), *part);
  if (event.process != nullptr) key += fmt::format(" {}:{}", event.process->client.size(), event.process->client);
  for (const std::string& words : target.asked) key += fmt::format(" {}:{}", words.size(), words);
  return key;
}

}  // namespace

Owner OwnerOf(const policy::ProcessPtr& process) {
  return process == nullptr ? Owner{} : Owner{process->pid, process->start_time};
}

DenialFold::Fate DenialFold::Offer(const policy::DecisionEvent& event, SteadyTime now) {
  const Owner owner = OwnerOf(event.process);
  std::string key = KeyOf(owner, event);
  if (const auto found = index_.find(key); found != index_.end()) {
    Entry& entry = *found->second;
    if (entry.recorded < kFoldAfter) {
      ++entry.recorded;
      return Fate::kRecord;
    }
    CountOne(&entry.repeated, event);
    return Fate::kCounted;
  }
  const auto of_owner = entries_of_.find(owner);
  if (entries_.size() >= kMaxFolded || (of_owner != entries_of_.end() && of_owner->second >= kMaxFoldedOfProcess))
    return Fate::kRecord;
  entries_.push_back({.key = key, .owner = owner, .opened = now});
  index_.emplace(std::move(key), std::prev(entries_.end()));
  ++entries_of_[owner];
  return Fate::kRecord;
}

void DenialFold::AddUnrecorded(const policy::DecisionEvent& event) {
  Owner owner = OwnerOf(event.process);
  if (!crowded_.contains(owner) && crowded_.size() >= kMaxCrowdedProcesses) owner = {};
  Repeated& repeated = crowded_[owner];
  CountOne(&repeated, event);
  if (repeated.count != 1) return;
  if (owner == Owner{}) repeated.event.process = nullptr;
  repeated.event.target = {};
  repeated.event.advice = {};
  repeated.event.decision = {.allowed = false, .reason = policy::Reason::kLimit};
  repeated.event.detail = "refused faster than it could be recorded: of these, only the number is known";
}

std::vector<Repeated> DenialFold::Collect(SteadyTime now, Due due) {
  std::vector<Repeated> out;
  while (!entries_.empty() && (due == Due::kAll || now - entries_.front().opened >= kFoldWindow)) Close(entries_.begin(), &out);
  for (auto& [owner, repeated] : crowded_) out.push_back(std::move(repeated));
  crowded_.clear();
  return out;
}

void DenialFold::Close(std::list<Entry>::iterator at, std::vector<Repeated>* out) {
  if (const auto of_owner = entries_of_.find(at->owner); of_owner != entries_of_.end() && --of_owner->second == 0)
    entries_of_.erase(of_owner);
  if (at->repeated.count != 0) out->push_back(std::move(at->repeated));
  index_.erase(at->key);
  entries_.erase(at);
}

}  // namespace sluice::audit
