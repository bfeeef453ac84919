#include "supervisor/io/neighbour_rights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/small_file.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLookAgain{1};
constexpr int kLooks = 4;
constexpr uint64_t kAdmin = uint64_t{1} << CAP_NET_ADMIN;
constexpr uint64_t kRaw = uint64_t{1} << CAP_NET_RAW;

using Id = std::pair<dev_t, ino_t>;  ///< of a namespace

std::optional<Id> IdOf(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  return Id{about.st_dev, about.st_ino};
}

// A user namespace whose capabilities count over a network.
struct Users {
  Id id;
  std::optional<uid_t>
      owns_next{};  ///< who in it has them without any: whoever made the one below it, by which the network is held
};

// The owner of our network, and what is above it as far as that is told to us.
std::vector<Users> UsersOverNetwork() {
  std::vector<Users> all;
  const UniqueFd network(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  UniqueFd users(network ? ::ioctl(network.get(), NS_GET_USERNS) : -1);
  std::optional<uid_t> owns_next;
  while (users) {
    struct stat about{};
    if (::fstat(users.get(), &about) != 0) break;
    all.push_back({{about.st_dev, about.st_ino}, owns_next});
    uid_t owner = 0;
    owns_next = ::ioctl(users.get(), NS_GET_OWNER_UID, &owner) == 0 ? std::optional(owner) : std::nullopt;
    users.Reset(::ioctl(users.get(), NS_GET_PARENT));
  }
  // Nothing is told of one above our own.
  const auto own = IdOf("/proc/self/ns/user");
  if (own && all.empty()) all.push_back({*own});
  return all;
}

struct Place {
  Id network;
  Id mounts;
  std::vector<Users> users;
};

std::optional<Place> OwnPlace() {
  const auto network = IdOf("/proc/self/ns/net");
  const auto mounts = IdOf("/proc/self/ns/mnt");
  if (!network || !mounts) return std::nullopt;
  return Place{*network, *mounts, UsersOverNetwork()};
}

// Process, thread and when it began.
using Task = std::tuple<pid_t, pid_t, uint64_t>;
struct Holder {
  std::string who;
  uint64_t rights = 0;
};
using Holders = std::map<Task, Holder>;

std::optional<pid_t> NumberOf(const fs::path& folder) {
  const std::string name = folder.filename().string();
  pid_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// What the status of one in `users` gives it over the network.
uint64_t RightsOf(const Users& users, const ProcStatus& status, std::string_view text) {
  if (users.owns_next == status.uid) return kAdmin | kRaw;
  return PermittedCapabilities(text) & (kAdmin | kRaw);
}

void LookAtThread(const Place& place, const fs::path& folder, pid_t process, pid_t thread, Holders* holders) {
  const std::string path = folder.string();
  if (IdOf(path + "/ns/net") != place.network || IdOf(path + "/ns/mnt") == place.mounts) return;
  const auto id = IdOf(path + "/ns/user");
  const auto users = std::ranges::find_if(place.users, [&](const Users& one) { return id == one.id; });
  if (users == place.users.end()) return;
  const auto text = ReadSmallFile(path + "/status");
  const auto stat = ReadSmallFile(path + "/stat");
  const auto status = text ? ParseProcStatus(*text) : std::nullopt;
  const auto began = stat ? ParseStartTime(*stat) : std::nullopt;
  if (!status || !began) return;
  const uint64_t rights = RightsOf(*users, *status, *text);
  if (rights == 0) return;
  const std::string who = process == thread ? fmt::format("process {} ({})", process, status->name)
                                            : fmt::format("thread {} ({}) of process {}", thread, status->name, process);
  holders->emplace(Task{process, thread, *began}, Holder{who, rights});
}

// Who has gone meanwhile has nothing.
Holders Look(const Place& place, std::error_code* error) {
  Holders holders;
  for (fs::directory_iterator at("/proc", *error), end; !*error && at != end; at.increment(*error)) {
    const auto process = NumberOf(at->path());
    if (!process) continue;
    std::error_code gone;
    for (fs::directory_iterator in(at->path() / "task", gone), last; !gone && in != last; in.increment(gone))
      if (const auto thread = NumberOf(in->path())) LookAtThread(place, in->path(), *process, *thread, &holders);
    if (gone && SystemError("", gone.value()).code == Code::kExhausted) {
      *error = gone;
      break;
    }
  }
  return holders;
}

// Who has a right at both looks; empty: nobody has it now. Nothing: others have it than before.
std::optional<std::string> Confirmed(uint64_t right, const Holders& before, const Holders& now) {
  std::optional<std::string> settled("");
  for (const auto& [task, holder] : now) {
    if ((holder.rights & right) == 0) continue;
    const auto then = before.find(task);
    if (then != before.end() && (then->second.rights & right) != 0) return holder.who;
    settled.reset();
  }
  return settled;
}

}  // namespace

// A name cannot begin a line: the kernel escapes its newlines.
uint64_t PermittedCapabilities(std::string_view status) {
  constexpr std::string_view kLine = "\nCapPrm:\t";
  const size_t at = status.find(kLine);
  uint64_t held = 0;
  if (at == std::string_view::npos) return held;
  const std::string_view digits = status.substr(at + kLine.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), held, 16);
  return held;
}

NeighbourRights FindNeighbourRights() {
  return FindNeighbourRights([](std::chrono::milliseconds longest) {
    std::this_thread::sleep_for(longest);
    return false;
  });
}

NeighbourRights FindNeighbourRights(const std::function<bool(std::chrono::milliseconds)>& rest) {
  NeighbourRights rights;
  const auto place = OwnPlace();
  if (!place) return rights;
  std::vector<std::pair<uint64_t, std::string*>> open = {{kAdmin, &rights.net_admin}, {kRaw, &rights.net_raw}};
  Holders before;
  for (int looks = 0; looks < kLooks && !open.empty(); ++looks) {
    if (looks > 0 && rest(kLookAgain)) {
      rights.unseen = "who else is in this network was not looked at to the end";
      return rights;
    }
    std::error_code error;
    Holders now = Look(*place, &error);
    if (error) {
      rights.unseen = fmt::format("who else is in this network cannot be looked at: {}", error.message());
      return rights;
    }
    std::erase_if(open, [&](const auto& one) {
      const auto who = Confirmed(one.first, before, now);
      if (who) *one.second = *who;
      return who.has_value();
    });
    before = std::move(now);
  }
  // Somebody else each time is somebody all the time.
  for (const auto& [right, who] : open)
    for (const auto& [task, holder] : before)
      if ((holder.rights & right) != 0) *who = holder.who;
  return rights;
}

}  // namespace sluice::supervisor
