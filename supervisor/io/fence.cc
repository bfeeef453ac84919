#include "supervisor/io/fence.h"

#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/unique_fd.h"
#include "nft/io/session.h"
#include "supervisor/io/flow_purge.h"
#include "supervisor/io/xdp_guard.h"

namespace sluice::supervisor {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRaceAttempts = 8;  ///< of a change that somebody else's change overtook
constexpr int kMaxWithdrawAttempts = 4;
constexpr int kDebounceMs = 20;                 ///< a foreign batch is many notices
constexpr size_t kDynamicSets = 2;              ///< dyn4 and dyn6 come first
constexpr std::chrono::seconds kBridge{10};     // an element for flows that get their mark within milliseconds
constexpr std::chrono::seconds kClockSlack{2};  // the kernel's clock of timeouts against ours, on a busy machine

// Every device that is there, but lo.
std::vector<std::string> Devices() {
  std::vector<std::string> names;
  struct if_nameindex* all = ::if_nameindex();
  for (const struct if_nameindex* one = all; one != nullptr && one->if_index != 0; ++one)
    if (std::string_view(one->if_name) != "lo") names.emplace_back(one->if_name);
  if (all != nullptr) ::if_freenameindex(all);
  std::ranges::sort(names);
  return names;
}

nft::Key KeyOf(const FenceElement& element) {
  return nft::Key().Address(element.address).Protocol(static_cast<uint8_t>(element.protocol)).Port(element.port);
}

std::optional<FenceElement> ElementOf(const nft::Key& key) {
  const std::span<const uint8_t> bytes = key.bytes();
  const size_t address = bytes.size() == 12 ? 4 : bytes.size() == 24 ? 16 : 0;
  if (address == 0) return std::nullopt;
  std::array<uint8_t, 16> all{};
  if (address == 4) all[10] = all[11] = 0xff;
  std::ranges::copy(bytes.first(address), all.end() - static_cast<std::ptrdiff_t>(address));
  const uint8_t* rest = bytes.data() + address;
  return FenceElement{IpAddress::FromV6(all), static_cast<nft::Protocol>(rest[0]), static_cast<uint16_t>(rest[4] << 8 | rest[5])};
}

class KernelFence final : public Fence {
 public:
  KernelFence(std::unique_ptr<nft::Session> session, std::unique_ptr<FlowPurger> purger)
      : session_(std::move(session)), purger_(std::move(purger)) {}
  ~KernelFence() override { Release(); }

  Result<void> Start(const FencePlan& plan) {
    const std::lock_guard lock(mutex_);
    const auto traits = session_->Probe();
    if (!traits) return std::unexpected(traits.error());
    traits_ = *traits;
    traits_.owned_persistent = traits_.owned_persistent && plan.hold == FenceHold::kOwnedPersistent;
    plan_ = plan;
    if (plan_.layout == FenceLayout::kShared) plan_.devices = Devices();
    if (auto adopted = Adopt(); !adopted) return adopted;
    if (plan_.layout == FenceLayout::kShared) xdp_.Guard(plan_.devices);
    return {};
  }

  Result<void> Replace(const FencePlan& plan, const StillAllowed& still) override {
    const std::lock_guard lock(mutex_);
    const FencePlan before = plan_;
    plan_ = plan;
    plan_.devices = before.devices;
    const bool raised = GenerationMark(plan_) != GenerationMark(before);
    auto applied = raised && still ? Bridge(still) : Result<void>();
    if (applied) applied = ApplyAll();
    if (!applied) {
      plan_ = before;
      return applied;
    }
    if (!raised) return {};
    const auto allowed = [&](const FenceElement& to) { return AllowedNow(to); };
    if (auto marked = purger_->Remark(plan_.mark_mask, GenerationMark(plan_), allowed); !marked) return marked;
    return Said(purger_->Purge(plan_.mark_mask, plan_.seal, [&](const FenceElement& to) { return !allowed(to); }));
  }

  // A flow lives longer than its element. Until it has the new generation's mark, an element stands for it again.
  Result<void> Bridge(const StillAllowed& still) {
    const auto places = purger_->Places(plan_.mark_mask, [&](const FenceElement& to) { return !AllowedNow(to) && still(to); });
    return places ? PublishHeld(*places, kBridge) : Result<void>(std::unexpected(places.error()));
  }

  Result<void> Publish(std::span<const FenceElement> elements, std::chrono::seconds lifetime) override {
    const std::lock_guard lock(mutex_);
    return PublishHeld(elements, lifetime);
  }

  Result<void> PublishHeld(std::span<const FenceElement> elements, std::chrono::seconds lifetime) {
    const auto now = SteadyClock::now();
    std::array<std::vector<nft::TimedElement>, kDynamicSets> adding;
    std::array<std::vector<nft::Key>, kDynamicSets> replacing;
    for (const FenceElement& element : elements) {
      const auto held = held_.find(element);
      const bool there = held != held_.end() && held->second > now;
      const auto until = there ? std::max(held->second, now + lifetime) : now + lifetime;
      const size_t set = element.address.is_v4() ? 0 : 1;
      const nft::Key key = KeyOf(element);
      // Before Linux 6.12 a second add is ignored: the element goes and comes back in one batch.
      if (there && !traits_.readd_updates_timeout) replacing[set].push_back(key);
      adding[set].push_back({key, std::chrono::ceil<milliseconds>(until - now)});
    }
    if (auto written = Write(adding, replacing); !written) return written;
    for (const FenceElement& element : elements) {
      auto& until = held_[element];
      until = std::max(until, now + lifetime);
    }
    if (held_.size() > 2 * static_cast<size_t>(kFenceElements))
      std::erase_if(held_, [&](const auto& held) { return held.second <= now; });
    return {};
  }

  Result<void> Withdraw(const std::function<bool(const FenceElement&)>& gone) override {
    const std::lock_guard lock(mutex_);
    std::vector<FenceElement> withdrawn;
    for (int attempt = 0;; ++attempt) {
      std::array<std::vector<nft::Key>, kDynamicSets> keys;
      const auto found = ReadHeld();
      if (!found) return std::unexpected(found.error());
      for (const Held& held : *found)
        if (gone(held.element)) {
          keys[held.element.address.is_v4() ? 0 : 1].push_back(KeyOf(held.element));
          withdrawn.push_back(held.element);
        }
      auto deleted = Delete(keys);
      if (deleted) break;
      // One of them ran out meanwhile, on a kernel that minds.
      if (deleted.error().sys_errno != ENOENT || attempt == kMaxWithdrawAttempts) return deleted;
    }
    std::erase_if(held_, [&](const auto& held) { return gone(held.first); });
    if (withdrawn.empty()) return {};
    std::ranges::sort(withdrawn);
    return CutFlowsTo(withdrawn);
  }

  // Sorted elements that are gone.
  Result<void> CutFlowsTo(const std::vector<FenceElement>& gone) {
    if (gone.empty()) return {};
    return Said(purger_->Purge(plan_.mark_mask, plan_.seal, [&](const FenceElement& to) {
      return std::ranges::binary_search(gone, to) && !StaticallyAllowed(plan_, to);
    }));
  }

  Result<void> Check() override {
    const std::lock_guard lock(mutex_);
    return Compare();
  }

  Result<void> Watch(std::function<void(const FenceChange&)> on_change) override {
    auto notices = nft::Notices::Open();
    if (!notices) return std::unexpected(notices.error());
    notices_ = std::move(*notices);
    links_ = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!links_ || ::bind(links_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return FailErrno("cannot watch the devices of this namespace", errno);
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_) return FailErrno("cannot make an event descriptor", errno);
    on_change_ = std::move(on_change);
    watcher_ = std::thread([this] { Look(); });
    return {};
  }

  Result<std::vector<FenceCounter>> Counters() override {
    const std::lock_guard lock(mutex_);
    std::map<std::string, FenceCounter> sums;
    for (const nft::Table& table : Tables()) {
      const auto listing = session_->Read(table);
      if (!listing) return std::unexpected(listing.error());
      for (const nft::RuleCounter& counter : listing->counters) {
        FenceCounter& sum = sums[counter.name];
        sum.name = counter.name;
        sum.packets += counter.packets;
        sum.bytes += counter.bytes;
      }
    }
    std::vector<FenceCounter> counters;
    for (auto& [name, counter] : sums) counters.push_back(std::move(counter));
    return counters;
  }

  Result<std::vector<Held>> Elements() override {
    const std::lock_guard lock(mutex_);
    return ReadHeld();
  }

  FenceHold hold() const override { return traits_.owned_persistent ? FenceHold::kOwnedPersistent : FenceHold::kPlain; }

  std::vector<std::string> Weaknesses() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all = xdp_.Weaknesses();
    if (!traits_.owned_persistent)
      all.emplace_back(
          "this kernel (before Linux 6.9) cannot keep a table for its owner: whoever has CAP_NET_ADMIN here can flush the fence, "
          "and it is put back after that");
    if (!destroys_)
      all.emplace_back(
          "this kernel cannot destroy sockets (CONFIG_INET_DIAG_DESTROY): a flow that is no longer allowed ends with its next "
          "packet");
    return all;
  }

  void Release() override {
    if (watcher_.joinable()) {
      const uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
      watcher_.join();
    }
    const std::lock_guard lock(mutex_);
    notices_.reset();
    links_.Reset();
    session_.reset();
  }

 private:
  std::vector<nft::Table> Tables() const {
    std::vector<nft::Table> tables = FenceRuleset(plan_);
    if (traits_.owned_persistent)
      for (nft::Table& table : tables) table.hold = nft::Hold::kOwnedPersistent;
    return tables;
  }

  bool AllowedNow(const FenceElement& to) const {
    const auto held = held_.find(to);
    if (held != held_.end() && held->second > SteadyClock::now() &&
        std::ranges::none_of(plan_.deny, [&](const Cidr& prefix) { return prefix.Contains(to.address); }))
      return true;
    return StaticallyAllowed(plan_, to);
  }

  Result<void> Said(const Result<Purged>& purged) {
    if (!purged) return std::unexpected(purged.error());
    destroys_ = destroys_ && purged->destroys;
    return {};
  }

  // What a table has that is of another kind than planned cannot be kept: it is made anew, with what its dynamic sets held.
  static bool SameKind(const nft::Table& table, const nft::Listing& found) {
    const nft::Listing planned = nft::Plan(table);
    const auto kinds = [](const nft::Listing& listing, bool sets_only) {
      std::vector<std::string> lines;
      for (const std::string& line : listing.lines)
        if (line.starts_with("set ") || (!sets_only && line.starts_with("table "))) lines.push_back(line);
      return lines;
    };
    if (kinds(planned, false) != kinds(found, false)) return false;
    // Chains may be missing or too many; one that is there must be as planned.
    for (const std::string& line : found.lines) {
      if (!line.starts_with("chain ")) continue;
      const std::string name = line.substr(6, line.find(' ', 6) - 6);
      const bool wanted = std::ranges::find(table.chains, name, &nft::Chain::name) != table.chains.end();
      if (wanted && std::ranges::find(planned.lines, line) == planned.lines.end()) return false;
    }
    return std::ranges::none_of(found.lines, [](const std::string& line) { return line.starts_with("unreadable"); });
  }

  // One transaction over all tables; done again where somebody else's change came between.
  Result<void> ApplyAll() {
    for (int attempt = 0;; ++attempt) {
      auto applied = ApplyOnce();
      if (applied) break;
      const int error = applied.error().sys_errno;
      const bool again = error == ERESTART || error == ENOENT || error == ENODEV || error == ENOBUFS;
      if (!again || attempt == kRaceAttempts) return applied;
      if (error == ENODEV || error == ENOENT) plan_.devices = Devices();
    }
    return Compare();
  }

  Result<void> ApplyOnce() {
    const auto generation = session_->Generation();
    if (!generation) return std::unexpected(generation.error());
    nft::BatchBuilder builder(session_->NextSequence(), nft::kMaxLargeBatchBytes, *generation);
    for (const nft::Table& table : Tables()) {
      const auto found = session_->Read(table);
      if (!found) return std::unexpected(found.error());
      if (nft::Difference(nft::Plan(table), *found).empty() && OwnedByUs(*found)) continue;
      if (auto told = Tell(builder, table, *found); !told) return told;
    }
    const auto batch = builder.Finish();
    if (!batch) return std::unexpected(batch.error());
    return session_->Commit(*batch);
  }

  bool OwnedByUs(const nft::Listing& found) const { return !traits_.owned_persistent || found.owner == session_->port(); }

  Result<void> Tell(nft::BatchBuilder& builder, const nft::Table& table, const nft::Listing& found) {
    if (!found.exists) {
      builder.CreateTable(table, nft::Existing::kRefuse);
      if (auto filled = builder.Fill(table); !filled) return filled;
      return Restore(builder, table);
    }
    if (SameKind(table, found)) {
      builder.CreateTable(table, nft::Existing::kKeep);
      return builder.Refill(table, found.chains);
    }
    if (traits_.owned_persistent && found.owner == 0 && FlagsOwned(found)) builder.CreateTable(table, nft::Existing::kKeep);
    builder.DeleteTable(table);
    builder.CreateTable(table, nft::Existing::kRefuse);
    if (auto filled = builder.Fill(table); !filled) return filled;
    return Restore(builder, table);
  }

  static bool FlagsOwned(const nft::Listing& found) {
    return std::ranges::any_of(found.lines,
                               [](const std::string& line) { return line.starts_with("table ") && line.ends_with("0x6"); });
  }

  // The dynamic sets as this process knows them.
  Result<void> Restore(nft::BatchBuilder& builder, const nft::Table& table) {
    if (table.sets.size() < kDynamicSets) return {};
    const auto now = SteadyClock::now();
    std::array<std::vector<nft::TimedElement>, kDynamicSets> left;
    for (const auto& [element, until] : held_)
      if (until > now)
        left[element.address.is_v4() ? 0 : 1].push_back({KeyOf(element), std::chrono::ceil<milliseconds>(until - now)});
    for (size_t i = 0; i < kDynamicSets; ++i) builder.AddElements(table, table.sets[i], left[i]);
    return {};
  }

  // What a former process published goes on for as long as it had left.
  Result<void> Adopt() {
    const auto found = ReadHeld();
    if (!found) return std::unexpected(found.error());
    const auto now = SteadyClock::now();
    for (const Held& held : *found) held_[held.element] = now + held.left;
    return ApplyAll();
  }

  Result<void> Compare() {
    for (const nft::Table& table : Tables()) {
      const auto found = session_->Read(table);
      if (!found) return std::unexpected(found.error());
      if (!found->exists) return Fail(Code::kInternal, fmt::format("table {} is gone", nft::NameOf(table)));
      if (const std::string difference = nft::Difference(nft::Plan(table), *found); !difference.empty())
        return Fail(Code::kInternal, fmt::format("table {} is not as planned: {}", nft::NameOf(table), difference));
      if (!OwnedByUs(*found)) return Fail(Code::kInternal, fmt::format("table {} is another process's", nft::NameOf(table)));
    }
    return {};
  }

  // Elements that nobody here published go, those that are missing come back. True: there were such.
  Result<bool> MendElements() {
    if (plan_.layout != FenceLayout::kShared) return false;
    const auto found = ReadHeld();
    if (!found) return std::unexpected(found.error());
    const auto now = SteadyClock::now();
    std::array<std::vector<nft::Key>, kDynamicSets> foreign;
    std::vector<FenceElement> there;
    std::vector<FenceElement> strange;
    for (const Held& held : *found) {
      const auto ours = held_.find(held.element);
      // One that would outlive what was published would pass later what nobody allows then.
      const bool longer = ours != held_.end() && now + held.left > ours->second + kClockSlack;
      if (!longer && ours != held_.end()) {
        there.push_back(held.element);
        continue;
      }
      foreign[held.element.address.is_v4() ? 0 : 1].push_back(KeyOf(held.element));
      if (ours == held_.end()) strange.push_back(held.element);
    }
    std::ranges::sort(there);
    std::array<std::vector<nft::TimedElement>, kDynamicSets> missing;
    for (const auto& [element, until] : held_)
      if (until > now + kClockSlack && !std::ranges::binary_search(there, element))
        missing[element.address.is_v4() ? 0 : 1].push_back({KeyOf(element), std::chrono::ceil<milliseconds>(until - now)});
    const auto empty = [](const auto& sets) { return std::ranges::all_of(sets, [](const auto& set) { return set.empty(); }); };
    if (empty(foreign) && empty(missing)) return false;
    if (auto deleted = empty(foreign) ? Result<void>() : Delete(foreign); !deleted) return std::unexpected(deleted.error());
    if (auto added = empty(missing) ? Result<void>() : Write(missing, {}); !added) return std::unexpected(added.error());
    std::ranges::sort(strange);
    const auto cut = CutFlowsTo(strange);
    return cut ? Result<bool>(true) : std::unexpected(cut.error());
  }

  Result<std::vector<Held>> ReadHeld() {
    std::vector<Held> all;
    const nft::Table table = Tables().front();
    for (size_t i = 0; i < kDynamicSets && i < table.sets.size(); ++i) {
      const auto elements = session_->Elements(table, table.sets[i]);
      if (!elements) return std::unexpected(elements.error());
      for (const nft::HeldElement& held : *elements)
        if (const auto element = ElementOf(held.key)) all.push_back({*element, held.left});
    }
    return all;
  }

  // A table with its names and nothing else, which is what elements need.
  static const nft::Table& Frame() {
    static const nft::Table frame = FenceRuleset(FencePlan{}).front();
    return frame;
  }

  Result<void> Write(const std::array<std::vector<nft::TimedElement>, kDynamicSets>& adding,
                     const std::array<std::vector<nft::Key>, kDynamicSets>& replacing) {
    const nft::Table& table = Frame();
    const nft::Absent absent = traits_.destroys ? nft::Absent::kIgnore : nft::Absent::kRefuse;
    auto committed = Send([&](nft::BatchBuilder& builder) {
      for (size_t i = 0; i < kDynamicSets; ++i) {
        builder.DeleteElements(table, table.sets[i], replacing[i], absent);
        builder.AddElements(table, table.sets[i], adding[i]);
      }
    });
    if (committed || committed.error().sys_errno != ENOENT) return ConfirmLost(committed, adding);
    // What was to be replaced has just ended by itself.
    return Send([&](nft::BatchBuilder& builder) {
      for (size_t i = 0; i < kDynamicSets; ++i) builder.AddElements(table, table.sets[i], adding[i]);
    });
  }

  // The kernel may have done it and lost the answer: what it holds decides.
  Result<void> ConfirmLost(const Result<void>& committed,
                           const std::array<std::vector<nft::TimedElement>, kDynamicSets>& adding) {
    if (committed || committed.error().sys_errno != ENOBUFS) return committed;
    const auto found = ReadHeld();
    if (!found) return std::unexpected(found.error());
    std::vector<nft::Key> there;
    for (const Held& held : *found) there.push_back(KeyOf(held.element));
    std::ranges::sort(there);
    for (const auto& set : adding)
      for (const nft::TimedElement& element : set)
        if (!std::ranges::binary_search(there, element.key)) return committed;
    return {};
  }

  Result<void> Delete(const std::array<std::vector<nft::Key>, kDynamicSets>& keys) {
    const nft::Absent absent = traits_.destroys ? nft::Absent::kIgnore : nft::Absent::kRefuse;
    return Send([&](nft::BatchBuilder& builder) {
      for (size_t i = 0; i < kDynamicSets; ++i) builder.DeleteElements(Frame(), Frame().sets[i], keys[i], absent);
    });
  }

  template <class Fill>
  Result<void> Send(Fill fill) {
    nft::BatchBuilder builder(session_->NextSequence());
    fill(builder);
    const auto batch = builder.Finish();
    if (!batch) return std::unexpected(batch.error());
    return session_->Commit(*batch);
  }

  // The watcher's thread.
  void Look() {
    const std::vector<std::string> names = {kFenceTable, kFenceEgressTable};
    while (true) {
      std::array<pollfd, 3> ready{{{stop_.get(), POLLIN, 0}, {notices_->fd(), POLLIN, 0}, {links_.get(), POLLIN, 0}}};
      if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
      if ((ready[0].revents & POLLIN) != 0) return;
      if (::poll(ready.data(), 1, kDebounceMs) > 0) return;
      const bool touched = notices_->Drain(names, session_->port());
      const bool linked = DrainLinks();
      if (touched || linked) PutRight();
    }
  }

  bool DrainLinks() {
    std::array<char, 16 * 1024> buffer{};
    bool any = false;
    while (true) {
      const ssize_t got = ::recv(links_.get(), buffer.data(), buffer.size(), 0);
      if (got < 0 && errno == ENOBUFS) {
        any = true;
        continue;
      }
      if (got <= 0) return any;
      any = true;
    }
  }

  void PutRight() {
    FenceChange change;
    {
      const std::lock_guard lock(mutex_);
      const std::vector<std::string> devices = plan_.layout == FenceLayout::kShared ? Devices() : plan_.devices;
      const bool new_devices = devices != plan_.devices;
      const auto held = Compare();
      if (held && !new_devices) {
        const auto mended = MendElements();
        if (mended && !*mended) return;
        change.restored = mended.has_value();
        change.what = "somebody else changed what dyn4 or dyn6 holds";
        if (!mended) change.what += "; it cannot be put right: " + mended.error().message;
      } else {
        change.what = new_devices ? "the devices of this namespace changed" : held.error().message;
        plan_.devices = devices;
        auto applied = ApplyAll();
        // A table that was left as it is may hold other elements than were published.
        if (applied)
          if (auto mended = MendElements(); !mended) applied = std::unexpected(mended.error());
        change.restored = applied.has_value();
        if (!applied) change.what += "; it cannot be put right: " + applied.error().message;
        if (plan_.layout == FenceLayout::kShared) xdp_.Guard(plan_.devices);
      }
    }
    on_change_(change);
  }

  mutable std::mutex mutex_;
  std::unique_ptr<nft::Session> session_;
  std::unique_ptr<FlowPurger> purger_;
  nft::Session::Traits traits_;
  FencePlan plan_;
  std::map<FenceElement, SteadyClock::time_point> held_;  ///< what was published, and until when; at most 2 * kFenceElements
  XdpGuard xdp_;
  bool destroys_ = true;
  std::unique_ptr<nft::Notices> notices_;
  UniqueFd links_;
  UniqueFd stop_;
  std::function<void(const FenceChange&)> on_change_;
  std::thread watcher_;
};

}  // namespace

Result<std::unique_ptr<Fence>> Fence::Install(const FencePlan& plan) {
  auto session = nft::Session::Open();
  if (!session) return std::unexpected(session.error());
  auto purger = FlowPurger::Open();
  if (!purger) return std::unexpected(purger.error());
  auto fence = std::make_unique<KernelFence>(std::move(*session), std::move(*purger));
  if (auto started = fence->Start(plan); !started) return std::unexpected(started.error());
  return fence;
}

}  // namespace sluice::supervisor
