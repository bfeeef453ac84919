#include "supervisor/io/fence.h"

#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cerrno>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fault.h"
#include "base/keyed_hash.h"
#include "base/log.h"
#include "base/stop_event.h"
#include "base/unique_fd.h"
#include "nft/io/kernel_peer.h"
#include "nft/io/session.h"
#include "supervisor/fence_element.h"
#include "supervisor/io/flow_purge.h"
#include "supervisor/io/network_devices.h"
#include "supervisor/io/xdp_guard.h"

namespace sluice::supervisor {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRaceAttempts = 8;  ///< of a change that somebody else's change overtook
constexpr int kMaxWithdrawAttempts = 4;
constexpr milliseconds kTellAgain{500};         ///< where the devices cannot be told
constexpr milliseconds kDebounce{20};           ///< a foreign batch is many notices
constexpr size_t kDynamicSets = 2;              ///< dyn4 and dyn6 come first
constexpr std::chrono::seconds kBridge{10};     // an element for flows that get their mark within milliseconds
constexpr std::chrono::seconds kClockSlack{2};  // the kernel's clock of timeouts against ours, on a busy machine
constexpr size_t kDeletedAtOnce = 4096;         // elements, some milliseconds

// Of one address each port has a place of its own; which addresses there are, servers choose.
struct ElementHash {
  size_t operator()(const FenceElement& element) const noexcept {
    return KeyedHasher{}(element.address) ^ static_cast<size_t>(element.port << 8 | static_cast<int>(element.protocol));
  }
};

// Two locks, so that publishing waits for no longer than one transaction takes: `changes_` is held by whoever changes, reads back
// or purges, `mutex_` inside it for each commit.
class KernelFence final : public Fence {
 public:
  KernelFence(std::array<std::unique_ptr<nft::Session>, 3> sessions, std::unique_ptr<FlowPurger> purger)
      : session_(std::move(sessions[0])),
        reader_(std::move(sessions[1])),
        observer_(std::move(sessions[2])),
        purger_(std::move(purger)) {}
  ~KernelFence() override { Release(); }

  Result<void> Start(const FencePlan& plan) {
    const std::lock_guard change(changes_);
    const auto traits = session_->Probe();
    if (!traits) return std::unexpected(traits.error());
    traits_ = *traits;
    traits_.owned_persistent = traits_.owned_persistent && plan.hold == FenceHold::kOwnedPersistent;
    FencePlan first = plan;
    if (first.layout == FenceLayout::kShared) {
      auto devices = NetworkDevices();
      if (!devices) return std::unexpected(devices.error());
      first.devices = *std::move(devices);
    }
    if (auto taken = Take(std::move(first)); !taken) return taken;
    if (auto adopted = Adopt(); !adopted) return adopted;
    if (plan_.layout == FenceLayout::kShared) xdp_.Guard(plan_.devices, TakenQueue::kWaitedFor);
    return {};
  }

  Result<void> Replace(const FencePlan& plan, const StillAllowed& still) override {
    const std::lock_guard change(changes_);
    FencePlan before = plan_;
    FencePlan next = plan;
    next.devices = before.devices;
    if (auto taken = Take(std::move(next)); !taken) return taken;
    const bool raised = GenerationMark(plan_) != GenerationMark(before);
    std::vector<Flow> kept;
    auto applied = raised ? EndDisallowed(still, &kept) : Result<void>();
    if (applied) applied = Bridge(kept);
    if (applied) applied = Apply();
    if (applied && plan_.dns_port != before.dns_port) applied = purger_->ForgetLookups();
    if (applied && raised) applied = purger_->Mark(plan_.mark_mask, GenerationMark(plan_), kept);
    // Those that began until then.
    if (applied && raised) applied = EndDisallowed(still, &kept);
    if (applied && raised) applied = purger_->Mark(plan_.mark_mask, GenerationMark(plan_), kept);
    if (applied) applied = Compare();
    if (!applied) {
      in_force_.clear();
      if (auto taken = Take(std::move(before)); !taken) return taken;
    }
    if (applied) unjudged_.reset();
    return applied;
  }

  // What is cut waits neither for the rules nor for their reading back.
  Result<void> EndDisallowed(const StillAllowed& still, std::vector<Flow>* kept) {
    auto flows = purger_->Flows(plan_.mark_mask);
    if (!flows) return std::unexpected(flows.error());
    const auto rest = std::ranges::partition(
        *flows, [&](const Flow& flow) { return !AllowedNow(*flow.to) && (!still || Denied(*flow.to) || !still(*flow.to)); });
    kept->assign(std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
    flows->erase(rest.begin(), rest.end());
    return Said(purger_->End(*flows, plan_.seal));
  }

  // A flow lives longer than its element. Until it has the new generation's mark, an element stands for it again.
  Result<void> Bridge(std::span<const Flow> kept) {
    std::vector<FenceElement> places;
    for (const Flow& flow : kept)
      if (!AllowedNow(*flow.to)) places.push_back(*flow.to);
    std::ranges::sort(places);
    const auto [first, last] = std::ranges::unique(places);
    places.erase(first, last);
    if (places.empty()) return {};
    const std::lock_guard lock(mutex_);
    return PublishHeld(places, kBridge);
  }

  Result<SteadyClock::duration> Publish(std::span<const FenceElement> elements, std::chrono::milliseconds lifetime) override {
    const auto begin = SteadyClock::now();
    const std::unique_lock lock(mutex_, kMaxPublishWait);
    if (!lock) return Fail(Code::kTimeout, "the kernel's rules are being replaced, and that takes too long");
    const auto waited = SteadyClock::now() - begin;
    if (auto published = PublishHeld(elements, lifetime); !published) return std::unexpected(published.error());
    return waited;
  }

  // Under mutex_.
  Result<void> PublishHeld(std::span<const FenceElement> elements, std::chrono::milliseconds lifetime) {
    const auto now = SteadyClock::now();
    std::array<std::vector<nft::TimedElement>, kDynamicSets> adding;
    std::array<std::vector<nft::Key>, kDynamicSets> replacing;
    for (const FenceElement& element : elements) {
      const auto held = held_.find(element);
      const bool there = held != held_.end() && held->second.until > now;
      const auto until = there ? std::max(held->second.until, now + lifetime) : now + lifetime;
      const size_t set = element.address.is_v4() ? 0 : 1;
      const nft::Key key = KeyOf(element);
      // Before Linux 6.12 a second add is ignored: the element goes and comes back in one batch.
      if (there && !traits_.readd_updates_timeout) replacing[set].push_back(key);
      adding[set].push_back({key, std::chrono::ceil<milliseconds>(until - now)});
    }
    if (auto written = Write(adding, replacing); !written) {
      // Whether the kernel has them is not known.
      unsure_ = true;
      return written;
    }
    ++publications_;
    for (const FenceElement& element : elements) {
      Lease& lease = held_[element];
      lease = {std::max(lease.until, now + lifetime), publications_};
    }
    if (held_.size() > 2 * static_cast<size_t>(kFenceElements))
      boost::unordered::erase_if(held_, [&](const auto& held) { return held.second.until <= now; });
    return {};
  }

  // What is published meanwhile was judged by whoever withdraws, and stays.
  Result<void> Withdraw(const std::function<bool(const FenceElement&)>& gone) override {
    const std::lock_guard change(changes_);
    const auto known = KnownElements();
    if (!known) return std::unexpected(known.error());
    std::vector<FenceElement> all = known->elements;
    std::erase_if(all, [&](const FenceElement& element) { return !gone(element); });
    return TakeOut(all, known->publications);
  }

  struct Known {
    std::vector<FenceElement> elements;  ///< sorted
    uint64_t publications = 0;           ///< as of when
  };
  // What the dynamic sets hold: as this process knows, and where others can write them, or one answer was lost, as the kernel
  // says.
  Result<Known> KnownElements() {
    Known known;
    bool ask = !traits_.owned_persistent;
    {
      const std::lock_guard lock(mutex_);
      const auto past = SteadyClock::now() - kClockSlack;
      known.publications = publications_;
      known.elements.reserve(held_.size());
      for (const auto& [element, lease] : held_)
        if (lease.until > past) known.elements.push_back(element);
      ask = ask || std::exchange(unsure_, false);
    }
    if (ask) {
      const auto found = ReadHeld(*reader_);
      if (!found) return std::unexpected(found.error());
      for (const Held& held : *found) known.elements.push_back(held.element);
    }
    std::ranges::sort(known.elements);
    const auto [first, last] = std::ranges::unique(known.elements);
    known.elements.erase(first, last);
    return known;
  }

  // Sorted elements leave the sets, but for those published after that many publications; then their flows are cut.
  Result<void> TakeOut(std::span<const FenceElement> elements, uint64_t publications) {
    std::vector<FenceElement> withdrawn;
    while (!elements.empty()) {
      const auto some = elements.first(std::min(elements.size(), kDeletedAtOnce));
      elements = elements.subspan(some.size());
      const std::lock_guard lock(mutex_);
      std::vector<FenceElement> old;
      for (const FenceElement& element : some) {
        const auto held = held_.find(element);
        if (held == held_.end() || held->second.published <= publications) old.push_back(element);
      }
      if (auto deleted = DeleteHeld(old); !deleted) return deleted;
      withdrawn.insert(withdrawn.end(), old.begin(), old.end());
    }
    return CutFlowsTo(withdrawn);
  }

  // Under mutex_.
  Result<void> DeleteHeld(std::span<const FenceElement> elements) {
    const auto keys_of = [](std::span<const FenceElement> these) {
      std::array<std::vector<nft::Key>, kDynamicSets> keys;
      for (const FenceElement& element : these) keys[element.address.is_v4() ? 0 : 1].push_back(KeyOf(element));
      return keys;
    };
    auto deleted = Delete(keys_of(elements));
    // Some ran out meanwhile, on a kernel that minds.
    for (int attempt = 0; !deleted && deleted.error().sys_errno == ENOENT && attempt < kMaxWithdrawAttempts; ++attempt) {
      const auto found = ReadHeld(*session_);
      if (!found) return std::unexpected(found.error());
      std::vector<FenceElement> there;
      for (const Held& held : *found)
        if (std::ranges::binary_search(elements, held.element)) there.push_back(held.element);
      deleted = Delete(keys_of(there));
    }
    if (!deleted) return deleted;
    for (const FenceElement& element : elements) held_.erase(element);
    return {};
  }

  // Sorted elements that are gone.
  Result<void> CutFlowsTo(const std::vector<FenceElement>& gone) {
    if (gone.empty()) return {};
    auto flows = purger_->Flows(plan_.mark_mask);
    if (!flows) return std::unexpected(flows.error());
    std::erase_if(*flows,
                  [&](const Flow& flow) { return !std::ranges::binary_search(gone, *flow.to) || static_.Contain(*flow.to); });
    return Said(purger_->End(*flows, plan_.seal));
  }

  Result<void> Check() override {
    const std::lock_guard change(changes_);
    return ReadBack();
  }

  Result<void> Watch(std::function<void(const FenceChange&)> on_change) override {
    auto notices = nft::Notices::Open();
    if (!notices) return std::unexpected(notices.error());
    notices_ = std::move(*notices);
    const auto open = [] { return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE); };
    links_ = UniqueFd(Faulty("fence.links", open));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!links_ || ::bind(links_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        !nft::HearKernelAlone(links_.get()))
      return FailErrno("cannot watch the devices of this namespace", errno);
    if (Faulty("fence.stop", [&] { return stop_.Open(); }) != 0) return FailErrno("cannot make an event descriptor", errno);
    on_change_ = std::move(on_change);
    watcher_ = std::thread([this] { Look(); });
    return {};
  }

  // By a session of its own: who looks keeps nobody waiting.
  Result<std::vector<FenceCounter>> Counters() override {
    const std::lock_guard lock(observing_);
    std::map<std::string, FenceCounter> sums;
    for (const auto& [family, name] :
         {std::pair(nft::Family::kInet, kFenceTable), std::pair(nft::Family::kNetdev, kFenceEgressTable)}) {
      const auto listing = observer_->Read(nft::Table{family, name, {}});
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
    const std::lock_guard lock(observing_);
    return ReadHeld(*observer_);
  }

  FenceHold hold() const override { return traits_.owned_persistent ? FenceHold::kOwnedPersistent : FenceHold::kPlain; }

  std::vector<std::string> Weaknesses() const override {
    const std::lock_guard change(changes_);
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

  bool OpenToNetRaw() const override {
    const std::lock_guard change(changes_);
    return !xdp_.Weaknesses().empty();
  }

  void Release() override {
    if (watcher_.joinable()) {
      stop_.Call();
      watcher_.join();
    }
    EndUnjudged();
    const std::lock_guard change(changes_);
    const std::lock_guard lock(mutex_);
    const std::lock_guard observing(observing_);
    notices_.reset();
    links_.Reset();
    session_.reset();
    reader_.reset();
    observer_.reset();
  }

 private:
  // From here on it is what is planned. An error changes nothing.
  Result<void> Take(FencePlan plan) {
    auto tables = CheckedFenceRuleset(plan);
    if (!tables) return std::unexpected(tables.error());
    plan_ = std::move(plan);
    tables_ = *std::move(tables);
    static_ = StaticAllows(plan_);
    if (traits_.owned_persistent)
      for (nft::Table& table : tables_) table.hold = nft::Hold::kOwnedPersistent;
    return {};
  }

  bool Denied(const FenceElement& to) const {
    return std::ranges::any_of(plan_.deny, [&](const Cidr& prefix) { return prefix.Contains(to.address); });
  }
  bool AllowedNow(const FenceElement& to) const {
    if (static_.Contain(to)) return true;
    if (Denied(to)) return false;
    const std::lock_guard lock(mutex_);
    const auto held = held_.find(to);
    return held != held_.end() && held->second.until > SteadyClock::now();
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
  Result<void> Apply() {
    for (int attempt = 0;; ++attempt) {
      // What is this process's alone, and was read back, is known.
      auto applied = in_force_.empty() ? ApplyOnce() : ApplyOver();
      if (applied) break;
      in_force_.clear();
      const int error = applied.error().sys_errno;
      const bool again = error == ERESTART || error == ENOENT || error == ENODEV || error == ENOBUFS || error == EEXIST;
      if (!again || attempt == kRaceAttempts) return applied;
      if (error == ENODEV || error == ENOENT) {
        FencePlan plan = plan_;
        auto devices = NetworkDevices();
        if (!devices) return std::unexpected(devices.error());
        plan.devices = *std::move(devices);
        if (auto taken = Take(std::move(plan)); !taken) return taken;
      }
    }
    in_force_.clear();
    if (traits_.owned_persistent) in_force_ = tables_;
    return {};
  }

  // Rules that are not as planned are read before they are changed.
  Result<void> ReadBack() {
    auto compared = Compare();
    if (!compared) in_force_.clear();
    return compared;
  }

  Result<void> ApplyOver() {
    nft::BatchBuilder builder(NextSequence(), nft::kMaxLargeBatchBytes);
    for (size_t i = 0; i < tables_.size(); ++i) {
      std::vector<std::string> chains;
      for (const nft::Chain& chain : in_force_[i].chains) chains.push_back(chain.name);
      builder.CreateTable(tables_[i], nft::Existing::kKeep);
      if (auto told = builder.Refill(tables_[i], chains, &in_force_[i]); !told) return told;
    }
    return CommitRules(builder, std::nullopt);
  }

  Result<void> ApplyOnce() {
    const auto epoch = Epoch();
    if (!epoch) return std::unexpected(epoch.error());
    nft::BatchBuilder builder(NextSequence(), nft::kMaxLargeBatchBytes, *epoch);
    for (const nft::Table& table : tables_) {
      const auto found = ReadTable(table);
      if (!found) return std::unexpected(found.error());
      if (nft::Difference(nft::Plan(table), *found).empty() && OwnedByUs(*found)) continue;
      if (auto told = Tell(builder, table, *found); !told) return told;
    }
    return CommitRules(builder, *epoch);
  }

  uint32_t NextSequence() {
    const std::lock_guard lock(mutex_);
    return session_->NextSequence();
  }
  // Refused where somebody else changed anything since `epoch`.
  Result<void> CommitRules(nft::BatchBuilder& builder, std::optional<uint32_t> epoch) {
    auto batch = builder.Finish();
    if (!batch) return std::unexpected(batch.error());
    const std::lock_guard lock(mutex_);
    if (epoch) batch->MakeFor(*epoch + element_commits_);
    return session_->Commit(*batch);
  }

  // Moves with every commit but those of elements from here, which no listing shows.
  Result<uint32_t> Epoch() {
    const std::lock_guard lock(mutex_);
    const auto generation = reader_->Generation();
    if (!generation) return generation;
    return *generation - element_commits_;
  }
  Result<nft::Listing> ReadTable(const nft::Table& table) {
    auto found = reader_->Read(table, [this] { return Epoch(); });
    if (found || found.error().code != Code::kTimeout) return found;
    const std::lock_guard lock(mutex_);
    return reader_->Read(table);
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
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [element, lease] : held_)
        if (lease.until > now)
          left[element.address.is_v4() ? 0 : 1].push_back({KeyOf(element), std::chrono::ceil<milliseconds>(lease.until - now)});
    }
    for (size_t i = 0; i < kDynamicSets; ++i) builder.AddElements(table, table.sets[i], left[i]);
    return {};
  }

  // What a former process published goes on for as long as it had left, and what it passed goes on until it is judged.
  Result<void> Adopt() {
    const auto found = ReadHeld(*reader_);
    if (!found) return std::unexpected(found.error());
    {
      const std::lock_guard lock(mutex_);
      const auto now = SteadyClock::now();
      for (const Held& held : *found) held_[held.element] = {now + held.left, 0};
    }
    if (auto bridged = BridgeFormer(); !bridged) LogWarn("fence: flows of before may end: {}", bridged.error().message);
    // Rules that could not be put in force may be those of a process that lives, and so may the flows.
    if (auto applied = Apply(); !applied) return applied;
    unjudged_ = publications_;
    return ReadBack();
  }

  // What was adopted, and no Replace has judged: nobody has said that it may go on.
  void EndUnjudged() {
    std::unique_lock change(changes_);
    const auto publications = std::exchange(unjudged_, std::nullopt);
    if (!publications) return;
    const auto known = KnownElements();
    auto ended = known ? TakeOut(known->elements, *publications) : std::unexpected(known.error());
    FencePlan plan = plan_;
    change.unlock();
    ++plan.generation;
    if (auto replaced = Replace(plan, {}); ended) ended = replaced;
    if (!ended) LogError("fence: flows of before may go on: {}", ended.error().message);
  }

  // Flows that outlived their elements have the mark of a generation that nobody knows any more.
  Result<void> BridgeFormer() {
    if (plan_.layout != FenceLayout::kShared) return {};
    const auto former = ReadTable(tables_.front());
    if (!former) return std::unexpected(former.error());
    if (!former->exists || !SameKind(tables_.front(), *former)) return {};
    auto flows = purger_->Flows(plan_.mark_mask);
    if (!flows) return std::unexpected(flows.error());
    std::erase_if(*flows, [&](const Flow& flow) { return !flow.to || Denied(*flow.to); });
    return Bridge(*flows);
  }

  Result<void> Compare() {
    for (const nft::Table& table : tables_) {
      const auto found = ReadTable(table);
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
    const std::lock_guard lock(mutex_);
    const auto found = ReadHeld(*session_);
    if (!found) return std::unexpected(found.error());
    const auto now = SteadyClock::now();
    std::array<std::vector<nft::Key>, kDynamicSets> foreign;
    std::vector<FenceElement> there;
    std::vector<FenceElement> strange;
    for (const Held& held : *found) {
      const auto ours = held_.find(held.element);
      // One that would outlive what was published would pass later what nobody allows then.
      const bool longer = ours != held_.end() && now + held.left > ours->second.until + kClockSlack;
      if (!longer && ours != held_.end()) {
        there.push_back(held.element);
        continue;
      }
      foreign[held.element.address.is_v4() ? 0 : 1].push_back(KeyOf(held.element));
      if (ours == held_.end()) strange.push_back(held.element);
    }
    std::ranges::sort(there);
    std::array<std::vector<nft::TimedElement>, kDynamicSets> missing;
    for (const auto& [element, lease] : held_)
      if (lease.until > now + kClockSlack && !std::ranges::binary_search(there, element))
        missing[element.address.is_v4() ? 0 : 1].push_back({KeyOf(element), std::chrono::ceil<milliseconds>(lease.until - now)});
    const auto empty = [](const auto& sets) { return std::ranges::all_of(sets, [](const auto& set) { return set.empty(); }); };
    if (empty(foreign) && empty(missing)) return false;
    if (auto deleted = empty(foreign) ? Result<void>() : Delete(foreign); !deleted) return std::unexpected(deleted.error());
    if (auto added = empty(missing) ? Result<void>() : Write(missing, {}); !added) return std::unexpected(added.error());
    std::ranges::sort(strange);
    const auto cut = CutFlowsTo(strange);
    return cut ? Result<bool>(true) : std::unexpected(cut.error());
  }

  static Result<std::vector<Held>> ReadHeld(nft::Session& session) {
    std::vector<Held> all;
    for (size_t i = 0; i < kDynamicSets; ++i) {
      const auto elements = session.Elements(Frame(), Frame().sets[i]);
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
    const auto found = ReadHeld(*session_);
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

  // Of elements. Under mutex_.
  template <class Fill>
  Result<void> Send(Fill fill) {
    nft::BatchBuilder builder(session_->NextSequence());
    fill(builder);
    const auto batch = builder.Finish();
    if (!batch) return std::unexpected(batch.error());
    auto committed = session_->Commit(*batch);
    if (committed && batch->acknowledged != 0) ++element_commits_;
    return committed;
  }

  // The watcher's thread.
  void Look() {
    const std::vector<std::string> names = {kFenceTable, kFenceEgressTable};
    PutRight();  // what changed before anybody was told of changes: a device that came meanwhile has no rules
    while (true) {
      std::array<pollfd, 3> ready{{{stop_.fd(), POLLIN, 0}, {notices_->fd(), POLLIN, 0}, {links_.get(), POLLIN, 0}}};
      // Where it cannot wait, it looks all the same, after each pause.
      (void)Faulty("fence.wait",
                   [&] { return ::poll(ready.data(), ready.size(), devices_told_ ? -1 : static_cast<int>(kTellAgain.count())); });
      if (stop_.Rest(kDebounce)) return;
      const bool touched = notices_->Drain(names, session_->port());
      const bool linked = DrainLinks();
      if (touched || linked || (!devices_told_ && SteadyClock::now() >= tell_again_)) PutRight();
    }
  }

  bool DrainLinks() {
    std::array<char, 16 * 1024> buffer{};
    bool any = false;
    while (true) {
      const ssize_t got = Faulty("fence.link", [&] { return ::recv(links_.get(), buffer.data(), buffer.size(), 0); });
      if (got < 0 && errno == ENOBUFS) {
        any = true;
        continue;
      }
      // What cannot be read may be of a new device.
      if (got < 0 && errno != EAGAIN && errno != EINTR) return true;
      if (got <= 0) return any;
      any = true;
    }
  }

  void PutRight() {
    FenceChange change;
    {
      const std::lock_guard changing(changes_);
      const auto found =
          plan_.layout == FenceLayout::kShared ? NetworkDevices() : Result<std::vector<std::string>>(plan_.devices);
      const bool told_before = std::exchange(devices_told_, found.has_value());
      tell_again_ = SteadyClock::now() + kTellAgain;
      // Until they are told again, those of before stay fenced.
      const std::vector<std::string>& devices = found ? *found : plan_.devices;
      const bool new_devices = devices != plan_.devices;
      const auto held = Compare();
      if (held && !new_devices && told_before && !found) {
        change.what = found.error().message + "; a new one would not be fenced";
      } else if (held && !new_devices) {
        const auto mended = MendElements();
        if (mended && !*mended) return;
        change.restored = mended.has_value();
        change.what = "somebody else changed what dyn4 or dyn6 holds";
        if (!mended) change.what += "; it cannot be put right: " + mended.error().message;
      } else {
        change.what = new_devices ? "the devices of this namespace changed" : held.error().message;
        in_force_.clear();
        FencePlan plan = plan_;
        plan.devices = devices;
        auto applied = Take(std::move(plan));
        if (applied) applied = Apply();
        if (applied) applied = ReadBack();
        // A table that was left as it is may hold other elements than were published.
        if (applied)
          if (auto mended = MendElements(); !mended) applied = std::unexpected(mended.error());
        change.restored = applied.has_value();
        if (!applied) change.what += "; it cannot be put right: " + applied.error().message;
        if (plan_.layout == FenceLayout::kShared) xdp_.Guard(plan_.devices, TakenQueue::kTold);
      }
    }
    on_change_(change);
  }

  struct Lease {
    SteadyClock::time_point until{};
    uint64_t published = 0;  ///< which publication was the last
  };

  // Who changes the rules; before mutex_. What is not under mutex_ is under this.
  mutable std::mutex changes_;
  // The writer's socket and what was published.
  mutable std::timed_mutex mutex_;
  std::mutex observing_;
  std::unique_ptr<nft::Session> session_;   ///< whose the tables are; under mutex_
  std::unique_ptr<nft::Session> reader_;    ///< dumps take long
  std::unique_ptr<nft::Session> observer_;  ///< under observing_
  std::unique_ptr<FlowPurger> purger_;
  nft::Session::Traits traits_;
  FencePlan plan_;
  std::vector<nft::Table> tables_;                                    ///< of plan_
  StaticAllows static_;                                               ///< of plan_
  std::vector<nft::Table> in_force_;                                  ///< where they are nobody else's; empty: to be read first
  boost::unordered_flat_map<FenceElement, Lease, ElementHash> held_;  ///< published, at most 2 * kFenceElements; under mutex_
  uint64_t publications_ = 0;                                         ///< under mutex_
  uint32_t element_commits_ = 0;                                      ///< under mutex_
  bool unsure_ = false;                                               ///< the kernel may hold more than held_; under mutex_
  std::optional<uint64_t> unjudged_;                                  ///< publications_ as of the adoption, until a Replace
  XdpGuard xdp_;
  bool destroys_ = true;
  std::unique_ptr<nft::Notices> notices_;
  UniqueFd links_;
  bool devices_told_ = true;              ///< the watcher's, as the next
  SteadyClock::time_point tell_again_{};  ///< where they were not
  StopEvent stop_;
  std::function<void(const FenceChange&)> on_change_;
  std::thread watcher_;
};

}  // namespace

Result<std::unique_ptr<Fence>> Fence::Install(const FencePlan& plan) {
  std::array<std::unique_ptr<nft::Session>, 3> sessions;
  for (auto& session : sessions) {
    auto opened = nft::Session::Open();
    if (!opened) return std::unexpected(opened.error());
    session = *std::move(opened);
  }
  auto purger = FlowPurger::Open();
  if (!purger) return std::unexpected(purger.error());
  auto fence = std::make_unique<KernelFence>(std::move(sessions), std::move(*purger));
  if (auto started = fence->Start(plan); !started) return std::unexpected(started.error());
  return fence;
}

}  // namespace sluice::supervisor
