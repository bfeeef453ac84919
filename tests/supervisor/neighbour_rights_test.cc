// Who is told as one that could go around the fence, and who is not.

#include "supervisor/io/neighbour_rights.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <initializer_list>
#include <string>
#include <thread>

#include "tests/nft/in_namespace.h"

namespace sluice::supervisor {
namespace {

using namespace std::chrono_literals;

bool Hold(std::initializer_list<cap_value_t> held) {
  const cap_t rights = ::cap_init();
  for (const cap_value_t one : held) ::cap_set_flag(rights, CAP_PERMITTED, 1, &one, CAP_SET);
  const bool set = ::cap_set_proc(rights) == 0;
  ::cap_free(rights);
  return set;
}

// A child that has become what `become` makes of it, and what it says of itself; then it does `then`. It ends with this.
class Child {
 public:
  explicit Child(const std::function<std::string()>& become, const std::function<void()>& then = [] {}) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string said = become();
      if (::write(ends[1], said.data(), said.size()) != static_cast<ssize_t>(said.size())) ::_exit(1);
      ::close(ends[1]);
      then();
      while (true) ::pause();
    }
    ::close(ends[1]);
    const UniqueFd reader(ends[0]);
    std::array<char, 256> piece{};
    for (ssize_t got = 0; (got = ::read(reader.get(), piece.data(), piece.size())) > 0;)
      said_.append(piece.data(), static_cast<size_t>(got));
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& said() const { return said_; }

 private:
  pid_t pid_ = -1;
  std::string said_;
};

constexpr const char* kUp = "up";

// As another container's.
Child Neighbour(std::initializer_list<cap_value_t> held) {
  return Child([&] { return ::unshare(CLONE_NEWNS) == 0 && Hold(held) ? kUp : ""; });
}

std::string Of(pid_t process) { return "process " + std::to_string(process) + " ("; }

std::string Told(const NeighbourRights& rights) { return "told: `" + rights.net_admin + "` and `" + rights.net_raw + "`"; }

std::string TryPlain() {
  const Child none = Neighbour({CAP_CHOWN});
  const Child own([] { return Hold({CAP_NET_ADMIN}) ? kUp : ""; });
  if (none.said() != kUp || own.said() != kUp) return "no neighbour";
  if (const auto rights = FindNeighbourRights(); !rights.net_admin.empty() || !rights.net_raw.empty()) return Told(rights);
  const Child raw = Neighbour({CAP_NET_RAW});
  const Child admin = Neighbour({CAP_NET_ADMIN});
  if (raw.said() != kUp || admin.said() != kUp) return "no neighbour";
  const auto rights = FindNeighbourRights();
  return rights.net_admin.starts_with(Of(admin.pid())) && rights.net_raw.starts_with(Of(raw.pid())) ? "" : Told(rights);
}

std::string TryGivenUp() {
  const Child admin = Neighbour({CAP_NET_ADMIN});
  if (admin.said() != kUp) return "no neighbour";
  int rests = 0;
  const auto rights = FindNeighbourRights([&](std::chrono::milliseconds) { return ++rests == 1; });
  if (rests != 1) return "it went on";
  return rights.unseen.empty() ? "as if all had been looked at" : "";
}

TEST(NeighbourRights, AreNotWaitedForWhereTheLookIsGivenUp) { EXPECT_EQ(nft::InNewNamespace(TryGivenUp), ""); }

TEST(NeighbourRights, OfAnotherContainerAreTold) { EXPECT_EQ(nft::InNewNamespace(TryPlain), ""); }

std::string TryThread() {
  const Child threaded([] {
    if (::unshare(CLONE_NEWNS) != 0) return std::string();
    std::promise<long> number;
    std::thread([&] {
      number.set_value(::syscall(SYS_gettid));
      while (true) ::pause();
    }).detach();
    const long thread = number.get_future().get();
    return Hold({}) ? std::to_string(thread) : std::string();
  });
  if (threaded.said().empty()) return "no neighbour";
  const auto rights = FindNeighbourRights();
  const std::string wanted = "thread " + threaded.said() + " (";
  const bool told = rights.net_admin.starts_with(wanted) && rights.net_raw.starts_with(wanted) &&
                    rights.net_admin.ends_with(" of process " + std::to_string(threaded.pid()));
  return told ? "" : Told(rights);
}

TEST(NeighbourRights, OfAThreadThatIsNotTheFirstAreTold) { EXPECT_EQ(nft::InNewNamespace(TryThread), ""); }

// As `runc exec` and `crun exec` do: the runtime's process is in the container with all that it has, and a moment later it is the
// container's own.
std::string TryBecoming() {
  const auto in_container = [] { return ::unshare(CLONE_NEWNS) == 0 ? kUp : ""; };
  const Child becoming(in_container, [] {
    std::this_thread::sleep_for(300ms);
    Hold({});
  });
  if (becoming.said() != kUp) return "no neighbour";
  const auto rights = FindNeighbourRights();
  return rights.net_admin.empty() && rights.net_raw.empty() ? "" : Told(rights);
}

TEST(NeighbourRights, OfOneThatIsAboutToGiveThemUpAreNot) { EXPECT_EQ(nft::InNewNamespace(TryBecoming), ""); }

// Who shares our mounts is none, but those whom it makes are, one after the other, and none of them stays for a second.
std::string TryEverAnother() {
  const Child parent([] { return kUp; },
                     [] {
                       while (true) {
                         if (::fork() == 0) {
                           ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                           ::unshare(CLONE_NEWNS);
                           std::this_thread::sleep_for(600ms);
                           ::_exit(0);
                         }
                         std::this_thread::sleep_for(200ms);
                         while (::waitpid(-1, nullptr, WNOHANG) > 0) {
                         }
                       }
                     });
  std::this_thread::sleep_for(500ms);
  const auto rights = FindNeighbourRights();
  return rights.net_admin.starts_with("process ") && !rights.net_admin.starts_with(Of(parent.pid())) ? "" : Told(rights);
}

TEST(NeighbourRights, OfSomebodyElseEachTimeAreTold) { EXPECT_EQ(nft::InNewNamespace(TryEverAnother), ""); }

// A child's user namespace owns the network that this process has gone over to.
std::string TryOwned() {
  const Child owner([] {
    const bool in = ::unshare(CLONE_NEWUSER) == 0 && nft::WriteTo("/proc/self/setgroups", "deny") &&
                    nft::WriteTo("/proc/self/uid_map", "0 0 1") && nft::WriteTo("/proc/self/gid_map", "0 0 1");
    return in && ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 && Hold({}) ? kUp : "";
  });
  const std::string place = "/proc/" + std::to_string(owner.pid()) + "/ns/";
  const UniqueFd users(::open((place + "user").c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd network(::open((place + "net").c_str(), O_RDONLY | O_CLOEXEC));
  if (owner.said() != kUp || ::setns(network.get(), CLONE_NEWNET) != 0) return "no network";
  const Child below([&] {
    const bool in = ::setns(users.get(), CLONE_NEWUSER) == 0 && ::unshare(CLONE_NEWUSER) == 0 && ::unshare(CLONE_NEWNS) == 0;
    return in && Hold({CAP_NET_ADMIN, CAP_NET_RAW}) ? kUp : "";
  });
  if (below.said() != kUp) return "nobody below";
  if (const auto rights = FindNeighbourRights(); !rights.net_admin.empty() || !rights.net_raw.empty()) return Told(rights);
  {
    const Child inside([&] {
      const bool in = ::setns(users.get(), CLONE_NEWUSER) == 0 && ::unshare(CLONE_NEWNS) == 0;
      return in && Hold({CAP_NET_ADMIN}) ? kUp : "";
    });
    if (inside.said() != kUp) return "nobody inside";
    if (const auto rights = FindNeighbourRights(); !rights.net_admin.starts_with(Of(inside.pid())) || !rights.net_raw.empty())
      return Told(rights);
  }
  // Who made a user namespace has every capability in it.
  const Child maker = Neighbour({});
  if (maker.said() != kUp) return "no neighbour";
  const auto rights = FindNeighbourRights();
  return rights.net_admin.starts_with(Of(maker.pid())) && rights.net_raw == rights.net_admin ? "" : Told(rights);
}

TEST(NeighbourRights, CountWhereTheyAreOverTheNetwork) { EXPECT_EQ(nft::InNewNamespace(TryOwned), ""); }

}  // namespace
}  // namespace sluice::supervisor
