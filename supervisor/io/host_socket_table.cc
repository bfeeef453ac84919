#include "supervisor/io/host_socket_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "base/unique_fd.h"
#include "base/wake_timer.h"

namespace sluice::supervisor {
namespace {

std::optional<HostSocketTable::Identity> IdentityOf(int fd) {
  struct stat about{};
  if (fd < 0 || ::fstat(fd, &about) != 0) return std::nullopt;
  return HostSocketTable::Identity{about.st_dev, about.st_ino};
}

HostSocketTable::World RealWorld(int view) {
  if (view < 0) return {};
  return {.look = [view](const std::string& there) { return IdentityOf(OpenBelow(view, there).get()); },
          .now = [] { return SystemClock().Steady(); },
          .rest = [](SteadyTime until) { std::this_thread::sleep_until(until); }};
}

}  // namespace

HostSocketTable::HostSocketTable(std::map<std::string, std::string> sockets, int view)
    : HostSocketTable(std::move(sockets), RealWorld(view)) {}

HostSocketTable::HostSocketTable(std::map<std::string, std::string> sockets, World world)
    : sockets_(std::move(sockets)), world_(std::move(world)), first_(world_.look ? Look() : Known()) {}

const std::string* HostSocketTable::Find(const CalledPlace& place) {
  return Find(place.path, world_.look ? IdentityOf(place.file.get()) : std::nullopt);
}

const std::string* HostSocketTable::Find(const std::string& path, const std::optional<Identity>& identity) {
  if (const auto found = sockets_.find(path); found != sockets_.end()) return &found->second;
  if (!identity || sockets_.empty() || !world_.look) return nullptr;
  if (const std::string* named = In(first_, *identity)) return named;
  const SteadyTime asked = world_.now();
  const std::lock_guard lock(mutex_);
  // One that began after this question answers it too.
  if (looked_ < asked) {
    if (sockets_.size() > kFewHostSockets && world_.now() < next_) world_.rest(next_);
    looked_ = world_.now();
    last_ = Look();
    const SteadyTime ended = world_.now();
    next_ = ended + std::min<SteadyTime::duration>(kHostSocketsRest * (ended - looked_), kWakeInterval);
  }
  return In(last_, *identity);
}

HostSocketTable::Known HostSocketTable::Look() const {
  Known known;
  for (const auto& [there, named] : sockets_)
    if (const auto identity = world_.look(there)) known.emplace(*identity, &named);
  return known;
}

const std::string* HostSocketTable::In(const Known& known, const Identity& identity) {
  const auto found = known.find(identity);
  return found == known.end() ? nullptr : found->second;
}

}  // namespace sluice::supervisor
