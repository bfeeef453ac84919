// What the administration of a run has besides a sidecar's: hold, stop, connections that are handed over, and who may call.
#include "app/run_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "app/admin_server.h"
#include "app/control_peer.h"
#include "app/passed_sockets.h"
#include "app/run_hold.h"
#include "base/unique_fd.h"
#include "library/io/control_client.h"
#include "library/io/supervisor_process.h"
#include "tests/app/admin_support.h"

namespace sluice::app {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::pair<UniqueFd, UniqueFd> Pair(int type) {
  std::array<int, 2> pair{};
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair.data()), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

// A run's administration behind a channel, with libsluice's own client.
struct RunBed : AdminBed {
  explicit RunBed(AdminAddresses addresses = {}) {
    control.BecomeRun();
    auto [mine, theirs] = Pair(SOCK_SEQPACKET);
    channel = std::move(mine);
    RunDoors doors;
    doors.hold = &hold;
    doors.channels.push_back(std::move(theirs));
    auto started = AdminServer::Start(std::move(addresses), api, stream, nullptr, std::move(doors));
    if (!started) throw std::runtime_error(started.error().message);
    server = *std::move(started);
  }
  ~RunBed() {
    hold.End();
    server.reset();
  }
  library::Answer Do(const std::string& method, const std::string& target) const {
    auto answer = library::Ask(channel.get(), {.method = method, .target = target}, 10s);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? *answer : library::Answer{};
  }
  bool Soon(const auto& condition) const {
    for (int i = 0; i < 1000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  std::atomic<int> held = 0;
  std::atomic<int> lost = 0;
  RunHold hold{[this](RunHold::Change change) { ++(change == RunHold::Change::kHeld ? held : lost); }};
  UniqueFd channel;
  std::unique_ptr<AdminServer> server;
};

std::string NextLine(library::LineStream& lines) {
  for (int i = 0; i < 1000; ++i) {
    if (auto line = lines.Next()) return *line;
    const auto read = lines.Read();
    if (!read || *read == library::LineStream::Reading::kOver) {
      if (auto line = lines.Next()) return *line;
      return "over";
    }
    std::this_thread::sleep_for(5ms);
  }
  return "nothing";
}

TEST(RunHold, TellsTheLastLineFirstAndEndsAfterTheLast) {
  RunBed bed;
  bed.hold.Tell("{\"n\":1}\n");
  bed.hold.Tell("{\"n\":2}\n");
  auto lines = library::LineStream::Open(bed.channel.get(), "/v1/hold");
  ASSERT_TRUE(lines);
  EXPECT_EQ(NextLine(*lines), "{\"n\":2}");
  bed.hold.Tell("{\"n\":3}\n");
  EXPECT_EQ(NextLine(*lines), "{\"n\":3}");
  bed.hold.Tell("{\"n\":4}\n");
  bed.hold.End();
  bed.server->AwaitStreams(5s);
  EXPECT_EQ(NextLine(*lines), "{\"n\":4}");
  EXPECT_EQ(NextLine(*lines), "over");
  EXPECT_EQ(bed.lost, 0) << "nothing is lost at the end";
}

TEST(RunHold, IsOneConnectionsAndIsLostWithIt) {
  RunBed bed;
  EXPECT_FALSE(bed.hold.AwaitHeld(1ms));
  auto first = library::LineStream::Open(bed.channel.get(), "/v1/hold");
  ASSERT_TRUE(first);
  EXPECT_TRUE(bed.hold.AwaitHeld(5s));
  EXPECT_EQ(bed.Do("GET", "/v1/hold").status, 409);
  EXPECT_EQ(bed.lost, 0);
  const auto begin = std::chrono::steady_clock::now();
  first = std::unexpected(Error{});
  EXPECT_TRUE(bed.Soon([&] { return bed.lost == 1; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s) << "not noticed until something was to be written";
  auto second = library::LineStream::Open(bed.channel.get(), "/v1/hold");
  EXPECT_TRUE(bed.Soon([&] { return bed.held == 2; }));
}

TEST(RunHold, IsGivenUpWhenNobodyCanComeAnyMore) {
  RunBed bed;
  std::thread leaving([&] { bed.channel.Reset(); });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(bed.hold.AwaitHeld(60s));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  leaving.join();
}

// How long a run is waited for that nobody comes to hold.
constexpr auto kNotGivenUp = 300ms;

bool IsGivenUp(RunBed& bed, std::chrono::milliseconds longest) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(bed.hold.AwaitHeld(longest));
  return std::chrono::steady_clock::now() - begin < longest;
}

TEST(RunHold, IsNotGivenUpWhileSomebodyWhoCameCanStillAskForIt) {
  RunBed bed;
  const auto came = library::OpenConnection(bed.channel.get());
  ASSERT_TRUE(came);
  bed.channel.Reset();
  EXPECT_FALSE(IsGivenUp(bed, kNotGivenUp));
  constexpr std::string_view kAsk = "GET /v1/hold HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(send(came->get(), kAsk.data(), kAsk.size(), MSG_NOSIGNAL), static_cast<ssize_t>(kAsk.size()));
  EXPECT_TRUE(bed.hold.AwaitHeld(60s));
}

TEST(RunHold, IsGivenUpOnceWhoCameIsGoneOrReadsSomethingElse) {
  RunBed bed;
  auto came = library::OpenConnection(bed.channel.get());
  auto reads = library::LineStream::Open(bed.channel.get(), "/v1/decisions");
  ASSERT_TRUE(came && reads);
  bed.channel.Reset();
  EXPECT_FALSE(IsGivenUp(bed, kNotGivenUp));
  came->Reset();
  EXPECT_TRUE(IsGivenUp(bed, 60s));
}

TEST(RunHold, IsNotGivenUpWhileASocketLeadsToIt) {
  std::string name = std::filesystem::temp_directory_path() / "run-hold-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  {
    AdminAddresses addresses;
    addresses.admin.emplace_back().unix_path = folder + "/socket";
    RunBed bed(std::move(addresses));
    bed.channel.Reset();
    EXPECT_FALSE(IsGivenUp(bed, kNotGivenUp));
  }
  std::filesystem::remove_all(folder);
}

TEST(RunApi, StopsTheCommandAndSaysHowItStands) {
  RunBed bed;
  EXPECT_EQ(bed.Do("POST", "/v1/stop").status, 202);
  EXPECT_EQ(bed.Do("POST", "/v1/stop?grace_ms=0").status, 202);
  EXPECT_EQ(bed.Do("POST", "/v1/stop?grace_ms=60001").status, 400);
  EXPECT_EQ(bed.Do("POST", "/v1/stop?grace_ms=-1").status, 400);
  EXPECT_EQ(bed.Do("GET", "/v1/stop").status, 405);
  EXPECT_THAT(bed.control.stops(), ElementsAre(2000ms, 0ms));
  const json status = json::parse(bed.Do("GET", "/v1/status").body);
  EXPECT_EQ(status["run"]["state"], "running");
  EXPECT_FALSE(status.contains("fence"));
  EXPECT_EQ(bed.Do("GET", "/v1/sets").status, 404);
  EXPECT_EQ(bed.Do("GET", "/v1/dns").status, 200);
  EXPECT_EQ(bed.Do("GET", "/metrics").status, 200);
  AdminBed sidecar;
  EXPECT_EQ(sidecar.Ask("POST", "/v1/stop").status, 404);
  EXPECT_EQ(sidecar.Ask("GET", "/v1/hold").status, 404);
}

TEST(RunApi, EndsAStreamOfDecisionsAfterItsLastRecord) {
  RunBed bed;
  auto lines = library::LineStream::Open(bed.channel.get(), "/v1/decisions");
  ASSERT_TRUE(lines);
  EXPECT_TRUE(bed.Soon([&] { return bed.stream.wants_lines(); }));
  static_cast<audit::Tap&>(bed.stream).Line("{\"last\":true}\n");
  bed.stream.End();
  EXPECT_EQ(NextLine(*lines), "{\"last\":true}");
  EXPECT_EQ(NextLine(*lines), "over");
}

TEST(PassedSockets, TakesSocketsAlone) {
  EXPECT_FALSE(TakeChannel(0));
  EXPECT_FALSE(TakeChannel(1 << 20));
  auto [stream, peer] = Pair(SOCK_STREAM);
  EXPECT_FALSE(TakeChannel(stream.get()));
  auto [mine, theirs] = Pair(SOCK_SEQPACKET);
  std::atomic<int> taken = 0;
  std::atomic<bool> ended = false;
  auto sockets = PassedSockets::Start(std::move(theirs), [&](UniqueFd) { ++taken; }, [&] { ended = true; });
  ASSERT_TRUE(sockets);
  ASSERT_TRUE(library::OpenConnection(mine.get()));
  ASSERT_TRUE(library::OpenConnection(mine.get()));
  // A message without a descriptor breaks the protocol.
  EXPECT_EQ(send(mine.get(), "x", 1, MSG_NOSIGNAL), 1);
  for (int i = 0; i < 1000 && !ended; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(taken, 2);
  EXPECT_TRUE(ended);
}

// How a caller is judged that `make` gives one end of a socket to.
bool Judged(void (*make)(int socket), bool gone_soon = false) {
  auto [mine, theirs] = Pair(SOCK_SEQPACKET);
  const pid_t child = fork();
  if (child == 0) {
    mine.Reset();
    make(theirs.get());
    _exit(0);
  }
  theirs.Reset();
  // The far end of the pair that the process itself made comes over, so that its credentials are that process's.
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  EXPECT_EQ(recvmsg(mine.get(), &message, 0), 1);
  int number = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&number, CMSG_DATA(header), sizeof number);
  const UniqueFd socket(number);
  // Whoever made it may be gone a moment later.
  for (int i = 0; i < 200 && MayAdminister(socket.get(), PeerPlace::kNotBelow) && gone_soon; ++i)
    std::this_thread::sleep_for(5ms);
  const bool may = MayAdminister(socket.get(), PeerPlace::kNotBelow);
  mine.Reset();
  waitpid(child, nullptr, 0);
  return may;
}

void GiveOwn(int channel) {
  const auto connection = library::OpenConnection(channel);
  char byte = 0;
  if (connection) (void)!recv(channel, &byte, 1, 0);  // lives until it was judged
}

TEST(ControlPeer, LetsInWhoLivesBesideIt) { EXPECT_TRUE(Judged(GiveOwn)); }

TEST(ControlPeer, TurnsAwayWhoLivesBelowItAndWhoIsGone) {
  EXPECT_FALSE(Judged([](int channel) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(1);
    const pid_t below = fork();
    if (below == 0) {
      GiveOwn(channel);
      _exit(0);
    }
    waitpid(below, nullptr, 0);
  })) << "a process of a namespace below";
  EXPECT_FALSE(Judged(
      [](int channel) {
        const pid_t short_lived = fork();
        if (short_lived == 0) {
          (void)!library::OpenConnection(channel);
          _exit(0);
        }
        waitpid(short_lived, nullptr, 0);
        char byte = 0;
        (void)!recv(channel, &byte, 1, 0);
      },
      true))
      << "one that is gone";
}

TEST(ControlPlan, TakesPathsThatTheCommandDoesNotSee) {
  std::string name = std::filesystem::temp_directory_path() / "control-plan-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  std::filesystem::create_directory(folder + "/work");
  std::filesystem::create_directory_symlink(folder + "/work", folder + "/link");
  supervisor::LaunchSpec spec;
  spec.work_directory = std::filesystem::canonical(folder + "/work");
  EXPECT_TRUE(PlanControl({folder + "/c.sock", "unix:" + folder + "/d.sock"}, true, spec));
  for (const std::string& path : {folder + "/work/c.sock", folder + "/link/c.sock", folder + "/work/../work/c.sock"}) {
    const auto plan = PlanControl({path}, false, spec);
    ASSERT_FALSE(plan) << path;
    EXPECT_THAT(plan.error().message, HasSubstr("would find the socket"));
  }
  EXPECT_FALSE(PlanControl({"@name"}, false, spec));
  EXPECT_FALSE(PlanControl({"127.0.0.1:1"}, false, spec));
  EXPECT_FALSE(PlanControl({}, true, spec));
  EXPECT_FALSE(PlanControl({}, false, spec)->wanted());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::app
