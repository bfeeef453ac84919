// The pieces of the notifier that can be tried without a workload: on loopback, in this process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/pinned_closer.h"
#include "base/wake_timer.h"
#include "supervisor/io/capture_gate.h"
#include "supervisor/io/in_flight.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/receive_turns.h"
#include "supervisor/io/socket_facts.h"

namespace sluice::supervisor {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

struct Listener {
  UniqueFd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_in name{};
  explicit Listener(int backlog = 64) {
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof name;
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
    EXPECT_EQ(listen(fd.get(), backlog), 0);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length);
  }
  [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&name); }
  [[nodiscard]] Endpoint endpoint() const { return *Endpoint::FromSockaddr(address(), sizeof name); }
};

UniqueFd Tcp(int flags = 0) { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)); }

// ---- WakeTimer ----

TEST(WakeTimer, EndsAConnectThatWouldNotReturn) {
  const Listener full(0);
  const UniqueFd first = Tcp();
  ASSERT_EQ(ConnectInPlace(first.get(), full.address(), sizeof full.name), 0);
  WakeTimer timer;
  ASSERT_TRUE(timer.Open());
  timer.Arm();
  const auto begin = Steady::now();
  const UniqueFd second = Tcp();
  EXPECT_EQ(ConnectInPlace(second.get(), full.address(), sizeof full.name), EINTR);
  EXPECT_LT(Steady::now() - begin, 500ms);
}

TEST(WakeTimer, IsSilentWhenDisarmed) {
  WakeTimer timer;
  ASSERT_TRUE(timer.Open());
  timer.Arm();
  timer.Disarm();
  EXPECT_EQ(poll(nullptr, 0, 50), 0);
  timer.Arm();
  EXPECT_EQ(poll(nullptr, 0, 500), -1) << "armed again";
}

TEST(WakeTimer, DoesAtEachTickWhatItIsToldUntilItIsTold) {
  WakeTimer timer;
  ASSERT_TRUE(timer.Open());
  std::atomic<int> ticks{0};
  WakeTimer::AtEachTick([](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &ticks);
  timer.Arm();
  while (ticks < 2) poll(nullptr, 0, 1000);
  WakeTimer::AtEachTick(nullptr, nullptr);
  const int before = ticks;
  EXPECT_EQ(poll(nullptr, 0, 1000), -1) << "a tick";
  EXPECT_EQ(ticks, before);
}

// ---- ReceiveTurns ----

TEST(ReceiveTurns, CallsOneAndOnlyWhenNobodyWaits) {
  ReceiveTurns turns;
  std::atomic<int> resting{0};
  std::atomic<int> called{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      ++resting;
      turns.Rest();
      ++called;
    });
  }
  while (resting != 2) std::this_thread::yield();
  turns.Enter();
  turns.CallAnother();
  EXPECT_EQ(turns.Leave(), ReceiveTurns::Left::kNobody);
  EXPECT_EQ(called, 0) << "somebody waited";
  // Until one was far enough on its way to rest.
  while (called == 0) turns.CallAnother();
  turns.Close();
  threads.clear();
  EXPECT_EQ(called, 2);
}

TEST(ReceiveTurns, TellsWhoWaitsStill) {
  ReceiveTurns turns;
  turns.Enter();
  turns.Enter();
  EXPECT_EQ(turns.Leave(), ReceiveTurns::Left::kOthers);
  EXPECT_EQ(turns.Leave(), ReceiveTurns::Left::kNobody);
}

TEST(ReceiveTurns, LetsNobodyRestOnceClosed) {
  ReceiveTurns turns;
  turns.Close();
  for (int i = 0; i < 3; ++i) turns.Rest();
}

// ---- PinnedCloser ----

// A connection whose sender has more to send than its peer takes, and lingers.
struct Lingering {
  Listener listener;
  UniqueFd sender = Tcp();
  UniqueFd receiver;
  Lingering() {
    EXPECT_EQ(ConnectInPlace(sender.get(), listener.address(), sizeof listener.name), 0);
    receiver.Reset(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string block(1 << 16, 'x');
    while (send(sender.get(), block.data(), block.size(), MSG_DONTWAIT) > 0) {
    }
    const linger wait{1, 20};
    setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  }
};

TEST(PinnedCloser, NeverKeepsItsCallerWaiting) {
  Lingering lingering;
  PinnedCloser closer;
  const auto begin = Steady::now();
  closer.Drop(std::move(lingering.sender), PinnedCloser::Kind::kFresh);
  EXPECT_LT(Steady::now() - begin, 5s) << "SO_LINGER was 20 s";
}

TEST(PinnedCloser, IsNotHeldUpByManyThatLinger) {
  std::vector<std::unique_ptr<Lingering>> all;
  for (int i = 0; i < 20; ++i) all.push_back(std::make_unique<Lingering>());
  const auto begin = Steady::now();
  {
    PinnedCloser closer;
    for (auto& one : all) closer.Drop(std::move(one->sender), PinnedCloser::Kind::kUnknown);
  }
  EXPECT_LT(Steady::now() - begin, 10s) << "each alone would take 20 s";
}

TEST(PinnedCloser, ClosesAtOnceWhatCannotLinger) {
  PinnedCloser closer;
  UniqueFd fd = Tcp();
  const int number = fd.get();
  closer.Drop(std::move(fd), PinnedCloser::Kind::kFresh);
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

// ---- CaptureGate ----

struct Seen : CaptureGate::Sink {
  void Matched(Attempt attempt, const Endpoint& source, UniqueFd accepted) override {
    const std::lock_guard lock(mutex);
    matched.emplace_back(attempt.approved.id, source);
    kept.push_back(std::move(accepted));
  }
  void Lost(Attempt attempt, int error) override {
    const std::lock_guard lock(mutex);
    lost.emplace_back(attempt.approved.id, error);
  }
  void Stray(const FlowTuple& tuple) override {
    const std::lock_guard lock(mutex);
    strays.push_back(tuple);
  }
  std::mutex mutex;
  std::vector<std::pair<uint64_t, Endpoint>> matched;
  std::vector<std::pair<uint64_t, int>> lost;
  std::vector<FlowTuple> strays;
  std::vector<UniqueFd> kept;
};

Attempt AttemptOf(uint64_t id) {
  Attempt out;
  out.approved.id = id;
  return out;
}

TEST(CaptureGate, GivesAConnectionToItsApproval) {
  const Listener listener;
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  const UniqueFd client = Tcp();
  ASSERT_EQ(ConnectInPlace(client.get(), listener.address(), sizeof listener.name), 0);
  EXPECT_FALSE(gate.Admit(AttemptOf(5), {LocalEnd(client.get()), listener.endpoint()}));
  ASSERT_EQ(seen.matched.size(), 1U);
  EXPECT_EQ(seen.matched[0].first, 5U);
  EXPECT_EQ(seen.matched[0].second, LocalEnd(client.get()));
}

TEST(CaptureGate, LeavesAResetConnectionOut) {
  const Listener listener;
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  Endpoint source;
  UniqueFd second;
  // Another program may take the port in between: then the next one.
  for (int bound = -1, tries = 0; bound != 0; ++tries) {
    ASSERT_LT(tries, 20);
    UniqueFd first = Tcp();
    ASSERT_EQ(ConnectInPlace(first.get(), listener.address(), sizeof listener.name), 0);
    source = LocalEnd(first.get());
    ASSERT_EQ(send(first.get(), "A", 1, 0), 1);
    ASSERT_EQ(Dissolve(first.get()), 0);
    first.Reset();
    // Somebody else comes from the same port.
    second = Tcp();
    sockaddr_storage local{};
    const size_t length = source.ToSockaddr(&local);
    bound = bind(second.get(), reinterpret_cast<sockaddr*>(&local), static_cast<socklen_t>(length));
  }
  ASSERT_EQ(ConnectInPlace(second.get(), listener.address(), sizeof listener.name), 0);
  ASSERT_EQ(send(second.get(), "B", 1, 0), 1);
  EXPECT_FALSE(gate.Admit(AttemptOf(2), {source, listener.endpoint()}));
  ASSERT_EQ(seen.kept.size(), 1U);
  char byte = 0;
  ASSERT_EQ(recv(seen.kept[0].get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'B') << "the bytes of the one before must not be taken for the approved one's";
}

TEST(CaptureGate, LeavesAConnectionOutThatWasResetAfterItWasAccepted) {
  const Listener listener;
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  UniqueFd first = Tcp();
  ASSERT_EQ(ConnectInPlace(first.get(), listener.address(), sizeof listener.name), 0);
  const Endpoint source = LocalEnd(first.get());
  gate.Sweep();
  EXPECT_EQ(gate.waiting(), 1U) << "accepted, not approved yet";
  ASSERT_EQ(Dissolve(first.get()), 0);
  gate.Admit(AttemptOf(2), {source, listener.endpoint()});
  EXPECT_TRUE(seen.matched.empty());
  EXPECT_EQ(gate.waiting(), 1U) << "the approval waits for its own";
}

TEST(CaptureGate, GivesUpAnApprovalWhoseConnectionNeverComes) {
  const Listener listener;
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  EXPECT_TRUE(gate.Admit(AttemptOf(7), {{IpAddress::FromV4(0x7f000001), 1}, listener.endpoint()}));
  gate.Sweep();
  EXPECT_TRUE(seen.lost.empty()) << "not yet";
  std::this_thread::sleep_for(kApprovalWait + 50ms);
  gate.Sweep();
  ASSERT_EQ(seen.lost.size(), 1U);
  EXPECT_EQ(seen.lost[0], std::pair(uint64_t{7}, ETIMEDOUT));
  EXPECT_EQ(gate.waiting(), 0U);
}

TEST(CaptureGate, ResetsAConnectionWithoutApproval) {
  const Listener listener;
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  const UniqueFd client = Tcp();
  ASSERT_EQ(ConnectInPlace(client.get(), listener.address(), sizeof listener.name), 0);
  gate.Sweep();
  EXPECT_EQ(gate.waiting(), 1U);
  std::this_thread::sleep_for(kApprovalWait + 50ms);
  gate.Sweep();
  ASSERT_EQ(seen.strays.size(), 1U);
  EXPECT_EQ(seen.strays[0].source, LocalEnd(client.get()));
  char byte = 0;
  EXPECT_EQ(recv(client.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(CaptureGate, GivesNobodyAnothersApprovalWhenTheQueueIsFull) {
  const Listener listener(0);  // room for one
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  std::vector<UniqueFd> strays;
  // One fills the queue; what the others send is dropped until there is room.
  for (int i = 0; i < 4; ++i) {
    strays.push_back(Tcp(SOCK_NONBLOCK));
    (void)ConnectInPlace(strays.back().get(), listener.address(), sizeof listener.name);
  }
  const UniqueFd mine = Tcp(SOCK_NONBLOCK);
  ASSERT_EQ(ConnectInPlace(mine.get(), listener.address(), sizeof listener.name), EINPROGRESS);
  const Endpoint source = LocalEnd(mine.get());
  EXPECT_TRUE(gate.Admit(AttemptOf(7), {source, listener.endpoint()})) << "it waits: its connection is not in the queue";
  EXPECT_TRUE(seen.matched.empty());
  const auto begin = Steady::now();
  while (gate.waiting() != 0 && Steady::now() - begin < 20s) {
    std::this_thread::sleep_for(10ms);
    gate.Sweep();
  }
  EXPECT_EQ(gate.waiting(), 0U);
  // It came with the next SYN, or was given up: never matched with one of the others.
  ASSERT_EQ(seen.matched.size() + seen.lost.size(), 1U);
  for (const auto& [id, from] : seen.matched) EXPECT_EQ(std::pair(id, from), std::pair(uint64_t{7}, source));
  for (const auto& [id, error] : seen.lost) EXPECT_EQ(std::pair(id, error), std::pair(uint64_t{7}, ETIMEDOUT));
  EXPECT_FALSE(seen.strays.empty());
}

TEST(CaptureGate, ServesManyThreadsWithoutLosingOne) {
  const Listener listener(4096);
  Seen seen;
  CaptureGate gate(listener.fd.get(), seen);
  constexpr unsigned kThreads = 8, kEach = 50;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<UniqueFd> clients;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kEach; ++i) {
        UniqueFd client = Tcp();
        ASSERT_EQ(ConnectInPlace(client.get(), listener.address(), sizeof listener.name), 0);
        gate.Admit(AttemptOf(1 + t * kEach + i), {LocalEnd(client.get()), listener.endpoint()});
        const std::lock_guard lock(mutex);
        clients.push_back(std::move(client));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.matched.size(), size_t{kThreads} * kEach);
  EXPECT_EQ(gate.waiting(), 0U);
}

TEST(SocketFacts, NoTimeoutIsTooLongToBeAddedToATime) {
  const UniqueFd socket = Tcp();
  EXPECT_EQ(SendTimeout(socket.get()), std::nullopt);
  for (const auto& [seconds, said] : std::initializer_list<std::pair<int64_t, std::chrono::seconds>>{
           {5, 5s}, {10'000'000'000, kLongestSendWait}, {9'000'000'000'000'000, kLongestSendWait}}) {
    const timeval longest{seconds, 0};
    ASSERT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest), 0);
    EXPECT_EQ(SendTimeout(socket.get()), said) << seconds;
  }
}

TEST(InFlight, HoldsASocketOnce) {
  InFlight in_flight;
  EXPECT_TRUE(in_flight.Enter(1));
  EXPECT_FALSE(in_flight.Enter(1));
  EXPECT_TRUE(in_flight.Enter(2));
  in_flight.Leave(1);
  EXPECT_TRUE(in_flight.Enter(1));
}

// ---- ProcessTable ----

TEST(ProcessTable, IdentifiesAProcess) {
  ProcessTable table({.workload_pid = getpid()});
  const CallerThreadPtr thread = table.Find(getpid());
  ASSERT_TRUE(thread);
  const policy::ProcessPtr process = table.Identify(*thread, Digests::kNone);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, getpid());
  EXPECT_EQ(process->uid, geteuid());
  EXPECT_TRUE(process->exe.path.ends_with("/notifier_parts_test"));
  EXPECT_TRUE(process->exe.trusted);
  EXPECT_FALSE(process->exe.sha256);
  EXPECT_TRUE(process->ancestors.empty()) << "the first process has none";
  EXPECT_EQ(table.Identify(*thread, Digests::kNone), process) << "remembered";
}

TEST(ProcessTable, HashesWhatTheKernelRuns) {
  ProcessTable table({.workload_pid = getpid()});
  const CallerThreadPtr thread = table.Find(getpid());
  const policy::ProcessPtr process = table.Identify(*thread, Digests::kNeeded);
  ASSERT_TRUE(process->exe.sha256);
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  std::array<uint8_t, 32> wanted{};
  unsigned length = 0;
  EVP_Digest(content.data(), content.size(), wanted.data(), &length, EVP_sha256(), nullptr);
  EXPECT_EQ(*process->exe.sha256, wanted);
}

TEST(ProcessTable, NamesAncestorsUpToTheWorkload) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      pause();
      _exit(0);
    }
    (void)!write(ready[1], &grandchild, sizeof grandchild);
    pause();
    _exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(ready[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  ProcessTable table({.workload_pid = child});
  const policy::ProcessPtr process = table.Identify(*table.Find(grandchild), Digests::kNone);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->ancestors.size(), 1U);
  kill(grandchild, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(ProcessTable, NoticesThatAThreadIsGone) {
  ProcessTable table({});
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const CallerThreadPtr thread = table.Find(child);
  ASSERT_TRUE(thread);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(thread->TakeFd(0), -ESRCH);
  table.Forget(thread);
  EXPECT_FALSE(table.Find(child));
}

// Where PIDFD_THREAD is missing, a thread's descriptors are reached through the process's first thread, while they share one
// table, and not at all when they do not.
TEST(ProcessTable, WithoutThreadPidfdsRefusesAThreadWithItsOwnTable) {
  ProcessTable table({.workload_pid = 0, .pinning = ThreadPinning::kViaLeader});
  std::atomic<pid_t> shared{0}, alone{0};
  std::atomic<bool> stop{false};
  std::thread first([&] {
    shared = gettid();
    while (!stop) std::this_thread::sleep_for(1ms);
  });
  std::thread second([&] {
    ASSERT_EQ(unshare(CLONE_FILES), 0);
    alone = gettid();
    while (!stop) std::this_thread::sleep_for(1ms);
  });
  while (shared == 0 || alone == 0) std::this_thread::sleep_for(1ms);
  const UniqueFd taken(table.Find(shared)->TakeFd(0));
  EXPECT_TRUE(taken);
  EXPECT_EQ(table.Find(alone)->TakeFd(0), -EPERM);
  stop = true;
  first.join();
  second.join();
}

TEST(ProcessTable, IsBounded) {
  ProcessTable table({});
  std::vector<pid_t> children;
  for (size_t i = 0; i < kMaxCachedThreads + 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    children.push_back(child);
    ASSERT_TRUE(table.Find(child));
  }
  size_t open = 0;
  for (int fd = 0; fd < 4096; ++fd) open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  EXPECT_LE(open, 2 * kMaxCachedThreads + 64);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace sluice::supervisor
