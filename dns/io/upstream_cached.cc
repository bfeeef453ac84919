// What UpstreamClient's caches hold, told in pages.
#include <algorithm>
#include <map>
#include <span>

#include "dns/cached_entry.h"
#include "dns/io/upstream_core.h"

namespace sluice::dns {
namespace {

using std::chrono::seconds;

// The entries with the smallest keys beyond a given one, and no more of them than are asked for.
class Page {
 public:
  Page(std::string_view after, size_t limit) : after_(after), limit_(limit) {}

  /// `fill` is called where the entry belongs to the page so far.
  template <class F>
  void Offer(std::string_view name, std::span<const Type> types, seconds left, F fill) {
    ++count_;
    CachedEntry entry{.name = std::string(name), .types = {}, .status = {}, .left = left};
    for (const Type type : types) entry.types.push_back(TypeText(type));
    std::string key = entry.Key();
    if (key <= after_) return;
    const bool full = kept_.size() == limit_;
    more_ |= full;
    if (full && (limit_ == 0 || key > kept_.rbegin()->first)) return;
    fill(&entry);
    kept_.insert_or_assign(std::move(key), std::move(entry));
    if (kept_.size() > limit_) kept_.erase(std::prev(kept_.end()));
  }
  [[nodiscard]] CachePage Take() {
    CachePage page{.entries = {}, .count = count_, .more = more_};
    for (auto& [key, entry] : kept_) page.entries.push_back(std::move(entry));
    return page;
  }

 private:
  const std::string_view after_;
  const size_t limit_;
  size_t count_ = 0;
  bool more_ = false;
  std::map<std::string, CachedEntry> kept_;
};

std::string_view StatusText(Lookup::Status status) {
  switch (status) {
    case Lookup::Status::kFound:
      return "found";
    case Lookup::Status::kNoAddress:
      return "no_record";
    case Lookup::Status::kNoSuchName:
      return "no_such_name";
    case Lookup::Status::kFailed:
      break;
  }
  return "failed";
}

void Fill(const Lookup& lookup, CachedEntry* entry) {
  entry->status = StatusText(lookup.status);
  entry->addresses = lookup.found.addresses;
  entry->aliases = lookup.found.chain;
}

Lookup::Status StatusOf(const Answer& answer) {
  if (!answer) return Lookup::Status::kFailed;
  const Message& message = (*answer)->message;
  if (message.header.rcode == Rcode::kNxDomain) return Lookup::Status::kNoSuchName;
  return message.answers.empty() ? Lookup::Status::kNoAddress : Lookup::Status::kFound;
}

}  // namespace

CachePage UpstreamCore::Cached(std::string_view after, size_t limit) const {
  const SteadyTime now = SystemClock().Steady();
  const auto left = [now](SteadyTime expires) { return std::chrono::ceil<seconds>(expires - now); };
  Page page(after, limit);
  static constexpr Type kBoth[] = {Type::kA, Type::kAaaa};
  names_.ForEach(now, [&](std::string_view name, const CachedLookup& cached, SteadyTime expires) {
    page.Offer(name, kBoth, left(expires), [&](CachedEntry* entry) { Fill(*cached.lookup, entry); });
  });
  families_.ForEach(now, [&](std::string_view key, const CachedLookup& cached, SteadyTime expires) {
    const Type type = TypeOfKey(key);
    page.Offer(NameOfKey(key), {&type, 1}, left(expires), [&](CachedEntry* entry) { Fill(*cached.lookup, entry); });
  });
  answers_.ForEach(now, [&](std::string_view key, const Answer& answer, SteadyTime expires) {
    const Type type = TypeOfKey(key);
    page.Offer(NameOfKey(key), {&type, 1}, left(expires),
               [&](CachedEntry* entry) { entry->status = StatusText(StatusOf(answer)); });
  });
  return page.Take();
}

}  // namespace sluice::dns
