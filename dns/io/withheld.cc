#include "dns/io/withheld.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/clock.h"
#include "dns/io/server.h"

namespace sluice::dns {

void Withheld::Add(std::vector<Lease> leases, std::chrono::milliseconds lifetime, uint64_t generation, Release release) {
  entries_.push_back({std::move(leases), lifetime, generation, std::move(release)});
  if (std::exchange(posted_, true)) return;
  boost::asio::post(context_, [self = shared_from_this()] {
    if (!self->stopped_) self->Flush();
  });
}

void Withheld::Stop() {
  stopped_ = true;
  entries_.clear();
}

// One commit for each lifetime that occurs: mostly one or two.
std::string Withheld::PublishAll(std::span<Entry> entries, uint64_t generation) {
  std::ranges::sort(entries, {}, &Entry::lifetime);
  const SteadyTime begin = SystemClock().Steady();
  std::chrono::steady_clock::duration waited{};
  std::vector<Lease> together;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].generation == generation) together.insert(together.end(), entries[i].leases.begin(), entries[i].leases.end());
    const bool last = i + 1 == entries.size() || entries[i + 1].lifetime != entries[i].lifetime;
    if (!last || together.empty()) continue;
    std::ranges::sort(together);
    const auto [first, end] = std::ranges::unique(together);
    together.erase(first, end);
    const auto taken = publish_(together, entries[i].lifetime);
    if (!taken) return taken.error().message;
    waited += *taken;
    together.clear();
  }
  if (SystemClock().Steady() - begin - waited > kPublishLimit) return "the kernel took too long over the addresses";
  return {};
}

void Withheld::Flush() {
  posted_ = false;
  auto entries = std::exchange(entries_, {});
  std::string why;
  {
    const auto hold = policy_.Hold();
    const uint64_t generation = policy_.generation();
    why = PublishAll(entries, generation);
    for (Entry& entry : entries)
      if (entry.generation == generation) entry.outcome = why.empty() ? Outcome::kPublished : Outcome::kFailed;
  }
  for (Entry& entry : entries) {
    if (stopped_) return;
    entry.release(entry.outcome, why);
  }
}

}  // namespace sluice::dns
