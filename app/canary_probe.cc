#include "app/canary_probe.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "supervisor/canary.h"
#include "supervisor/io/privileges.h"

namespace sluice::app {
namespace {

constexpr int kTcpPatienceMs = 2000;
constexpr int kUdpPatienceMs = 500;
constexpr int kLookupPatienceMs = 2000;
constexpr int kRoundPatienceMs = 4 * (2 * kTcpPatienceMs) + 2 * kUdpPatienceMs + kLookupPatienceMs + 1000;
constexpr uint16_t kDnsPort = 53;
constexpr std::string_view kDomain = "internal";

constexpr std::array<uint8_t, 4> kLoopback = {127, 0, 0, 1};

// A query for the A record of a single label under "internal" (RFC 1035 section 4.1), its id in front.
std::vector<uint8_t> QueryFor(std::string_view label) {
  std::vector<uint8_t> query = {0x5c, 0x1c, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0, static_cast<uint8_t>(label.size())};
  query.insert(query.end(), label.begin(), label.end());
  query.push_back(static_cast<uint8_t>(kDomain.size()));
  query.insert(query.end(), kDomain.begin(), kDomain.end());
  query.insert(query.end(), {0, 0, 1, 0, 1});
  return query;
}

bool IsNoRoute(int error) {
  return error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

bool Await(int fd, short events, int patience_ms) {
  pollfd wait{fd, events, 0};
  int got = 0;
  do {
    got = poll(&wait, 1, patience_ms);
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

int PendingError(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

struct Connected {
  UniqueFd socket;
  int error = 0;
};

Connected Connect(const Endpoint& to, int type) {
  sockaddr_storage address{};
  const auto size = static_cast<socklen_t>(to.ToSockaddr(&address));
  Connected connected{UniqueFd(socket(address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), 0};
  if (!connected.socket || connect(connected.socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    connected.error = errno;
  return connected;
}

// Connected, or what hinders it.
Sight AwaitConnected(const Connected& made) {
  if (IsNoRoute(made.error)) return Sight::kNoRoute;
  if (made.error != 0 && made.error != EINPROGRESS) return Sight::kRefused;
  if (!Await(made.socket.get(), POLLOUT, kTcpPatienceMs)) return Sight::kUnanswered;
  const int error = PendingError(made.socket.get());
  if (error == 0) return Sight::kAnswered;
  // Told by a router, so the packet had left; that there is no way at all connect(2) says by itself.
  if (IsNoRoute(error) || error == ETIMEDOUT) return Sight::kUnanswered;
  // Reset so early that the connection was never seen whole: our listener's doing, or a reject.
  return error == ECONNRESET ? Sight::kCaptured : Sight::kRefused;
}

Sight TryTcp(const Endpoint& to) {
  const Connected made = Connect(to, SOCK_STREAM);
  if (const Sight sight = AwaitConnected(made); sight != Sight::kAnswered) return sight;
  if (!Await(made.socket.get(), POLLIN, kTcpPatienceMs)) return Sight::kLeft;
  char byte = 0;
  return recv(made.socket.get(), &byte, 1, 0) < 0 && errno == ECONNRESET ? Sight::kCaptured : Sight::kLeft;
}

// Where the proxy answers with the canary's name.
Sight TryAnswered(const Endpoint& to, std::string_view name) {
  const Connected made = Connect(to, SOCK_STREAM);
  if (const Sight sight = AwaitConnected(made); sight != Sight::kAnswered) return sight;
  std::array<char, 64> got{};
  size_t length = 0;
  while (length < name.size()) {
    if (!Await(made.socket.get(), POLLIN, kTcpPatienceMs)) return Sight::kUnanswered;
    const ssize_t n = recv(made.socket.get(), got.data() + length, std::min(got.size(), name.size()) - length, 0);
    if (n < 0) return errno == ECONNRESET ? Sight::kCaptured : Sight::kRefused;
    if (n == 0) break;
    length += static_cast<size_t>(n);
  }
  return std::string_view(got.data(), length) == name ? Sight::kAnswered : Sight::kLeft;
}

Sight TryUdp(const Endpoint& to) {
  Connected made = Connect(to, SOCK_DGRAM);
  if (IsNoRoute(made.error)) return Sight::kNoRoute;
  if (made.error != 0) return Sight::kRefused;
  const char byte = 0;
  if (send(made.socket.get(), &byte, 1, 0) < 0) return IsNoRoute(errno) ? Sight::kNoRoute : Sight::kRefused;
  if (!Await(made.socket.get(), POLLIN, kUdpPatienceMs)) return Sight::kUnanswered;
  return PendingError(made.socket.get()) != 0 ? Sight::kRefused : Sight::kLeft;
}

Sight TryLookup(const Endpoint& server, const std::vector<uint8_t>& query) {
  Connected made = Connect(server, SOCK_DGRAM);
  if (IsNoRoute(made.error)) return Sight::kNoRoute;
  if (made.error != 0 || send(made.socket.get(), query.data(), query.size(), 0) < 0)
    return IsNoRoute(errno) ? Sight::kNoRoute : Sight::kRefused;
  if (!Await(made.socket.get(), POLLIN, kLookupPatienceMs)) return Sight::kUnanswered;
  std::array<uint8_t, 512> answer{};
  const ssize_t n = recv(made.socket.get(), answer.data(), answer.size(), 0);
  if (n < 0) return Sight::kRefused;
  const auto length = static_cast<size_t>(n);
  const bool ours = length > query.size() + kLoopback.size() && std::memcmp(answer.data(), query.data(), 2) == 0 &&
                    memmem(answer.data() + query.size(), length - query.size(), kLoopback.data(), kLoopback.size()) != nullptr;
  return ours ? Sight::kAnswered : Sight::kLeft;
}

// What the child says, and to which request.
struct Told {
  uint8_t round = 0;
  CanaryReport report;
};

CanaryReport Round(const std::vector<uint8_t>& query, std::string_view name) {
  using supervisor::kCanary;
  using supervisor::kCanary6;
  CanaryReport report;
  report.tcp4 = TryTcp(kCanary);
  report.tcp6 = TryTcp(kCanary6);
  report.udp4 = TryUdp(kCanary);
  report.udp6 = TryUdp(kCanary6);
  report.lookup = TryLookup({kCanary.address, kDnsPort}, query);
  report.lookup_error = report.lookup == Sight::kRefused ? errno : 0;
  if (report.lookup == Sight::kNoRoute) report.lookup = TryLookup({kCanary6.address, kDnsPort}, query);
  // Without a route to anywhere the resolver is still asked for by whoever names the loopback.
  if (report.lookup == Sight::kNoRoute) report.lookup = TryLookup({IpAddress::FromV4(0x7f000001), kDnsPort}, query);
  report.connect = TryAnswered({kCanary.address, supervisor::kAnsweredPort}, name);
  if (report.connect == Sight::kNoRoute) report.connect = TryAnswered({kCanary6.address, supervisor::kAnsweredPort}, name);
  return report;
}

// The child: no more than this, for as long as the parent lives.
[[noreturn]] void Serve(int channel, const std::vector<uint8_t>& query, std::string_view name) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "sluice-canary");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !supervisor::DropCapabilities()) _exit(1);
  uint8_t request = 0;
  while (recv(channel, &request, 1, 0) == 1) {
    const Told told{request, Round(query, name)};
    if (send(channel, &told, sizeof told, MSG_NOSIGNAL) != sizeof told) break;
  }
  _exit(0);
}

}  // namespace

const char* SightText(Sight sight) {
  switch (sight) {
    case Sight::kNoRoute:
      return "no route";
    case Sight::kRefused:
      return "refused";
    case Sight::kCaptured:
      return "captured";
    case Sight::kAnswered:
      return "answered";
    case Sight::kUnanswered:
      return "unanswered";
    case Sight::kLeft:
      return "answered by somebody else";
  }
  return "?";
}

bool CanaryReport::Refused() const {
  const auto held = [](Sight sight) { return sight == Sight::kNoRoute || sight == Sight::kRefused || sight == Sight::kCaptured; };
  return held(tcp4) && held(tcp6) && held(udp4) && held(udp6);
}

std::string CanaryReport::Text() const {
  return fmt::format("TCP {} and {}, UDP {} and {} (IPv4 and IPv6), lookup {}{}, a connect {}", SightText(tcp4), SightText(tcp6),
                     SightText(udp4), SightText(udp6), SightText(lookup),
                     lookup_error != 0 ? fmt::format(" ({})", std::strerror(lookup_error)) : "", SightText(connect));
}

Result<CanaryProbe> CanaryProbe::Begin() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return FailErrno("cannot make the canary's channel", errno);
  uint64_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) return FailErrno("cannot draw the canary's name", errno);
  const std::string label = fmt::format("canary-{:016x}", drawn);
  const std::string name = fmt::format("{}.{}", label, kDomain);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return FailErrno("cannot start the canary's process", errno);
  if (pid == 0) {
    ours.Reset();
    Serve(theirs.get(), QueryFor(label), name);
  }
  return CanaryProbe(name, std::move(ours), pid);
}

CanaryProbe::CanaryProbe(CanaryProbe&& other) noexcept
    : name_(std::move(other.name_)),
      channel_(std::move(other.channel_)),
      pid_(std::exchange(other.pid_, 0)),
      round_(other.round_) {}

CanaryProbe::~CanaryProbe() {
  if (pid_ == 0) return;
  channel_.Reset();
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<CanaryReport> CanaryProbe::Look() {
  const uint8_t request = ++round_;
  Told told;
  bool answers = send(channel_.get(), &request, 1, MSG_NOSIGNAL) == 1;
  // What came too late for the round before would be taken for this one's, and so on with each that follows.
  do
    answers =
        answers && Await(channel_.get(), POLLIN, kRoundPatienceMs) && recv(channel_.get(), &told, sizeof told, 0) == sizeof told;
  while (answers && told.round != request);
  if (!answers) return Fail(Code::kInternal, "the canary's process does not answer");
  return told.report;
}

}  // namespace sluice::app
