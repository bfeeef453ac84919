#include "supervisor/io/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/clock.h"
#include "base/fault.h"
#include "base/poll_timeout.h"
#include "nft/encode.h"
#include "nft/io/session.h"
#include "nft/io/transaction.h"
#include "supervisor/canary.h"
#include "supervisor/capture_ruleset.h"
#include "supervisor/io/capture_network.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/socket_facts.h"
#include "supervisor/io/standard_streams.h"
#include "supervisor/io/user_namespace.h"

namespace sluice::supervisor {
namespace {

constexpr int kStartTimeoutMs = 10'000;
constexpr size_t kPassedCount = 7;
constexpr std::chrono::milliseconds kProbeTimeout{2000};

// An earlier supervisor's table goes in the same transaction that makes the new one.
Result<void> ReplaceRuleset(const nft::Table& table) {
  auto session = nft::Session::Open();
  if (!session) return std::unexpected(session.error());
  nft::BatchBuilder builder((*session)->NextSequence());
  builder.CreateTable(table, nft::Existing::kKeep);
  builder.DeleteTable(table);
  builder.CreateTable(table, nft::Existing::kRefuse);
  if (auto filled = builder.Fill(table); !filled) return filled;
  auto batch = builder.Finish();
  if (!batch) return std::unexpected(batch.error());
  return (*session)->Commit(*batch);
}

// From inside, without a filter and so without an approval: to an address that no policy can make reachable.
Result<void> ProbeCapture(int listener) {
  sockaddr_storage to{};
  const auto size = static_cast<socklen_t>(kCanary.ToSockaddr(&to));
  const UniqueFd probe(
      Faulty("capture.probe.socket", [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
  if (!probe) return FailErrno("cannot open a socket in the container's network namespace", errno);
  const auto dial = [&] { return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), size); };
  if (Faulty("capture.probe.connect", dial) != 0 && errno != EINPROGRESS)
    return FailErrno("the capture of the container's network namespace does not take connections", errno);
  // The container may have opened connections of its own by now, and may go on: they have no approval, and are closed here.
  const SteadyTime until = std::chrono::steady_clock::now() + kProbeTimeout;
  while (const int left = PollTimeout(until)) {
    pollfd ready{listener, POLLIN, 0};
    if (::poll(&ready, 1, left) <= 0) break;
    const UniqueFd accepted(
        Faulty("capture.probe.accept", [&] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
    if (accepted && LocalEnd(accepted.get()) == kCanary) return {};
    if (!accepted && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      return FailErrno("cannot accept a connection made in the container's network namespace", errno);
  }
  return Fail(Code::kInternal, "a connection made in the container's network namespace did not reach the supervisor's listener");
}

// In the child: builds the namespace and sends what holds it.
Result<void> BuildAndSend(int socket, NamespaceOrigin origin, const UniqueFd& user) {
  const bool given = origin == NamespaceOrigin::kGiven;
  if (auto done = ConfigureLoopback(origin); !done) return done;
  if (auto done = ConfigureSysctls(); !done) return done;
  const nft::Table ruleset = CaptureRuleset(kListenerPort);
  if (auto done = given ? ReplaceRuleset(ruleset) : nft::Add(ruleset); !done) return done;
  auto sockets = OpenCaptureSockets();
  if (!sockets) return std::unexpected(sockets.error());
  if (given)
    if (auto probed = ProbeCapture(sockets->listener.get()); !probed) return probed;
  const UniqueFd network(Faulty("capture.network", [] { return ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }));
  if (!user || !network) return FailErrno("cannot open /proc/self/ns", errno);
  return Send(socket, Step::kCaptured, 0,
              {user.get(), network.get(), sockets->listener.get(), sockets->dns_udp.get(), sockets->dns_tcp.get(),
               sockets->socket_diagnosis.get(), sockets->routes.get()});
}

Result<void> RunChild(int socket) {
  if (Faulty("capture.unshare", [] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNET); }) != 0)
    return std::unexpected(NamespaceError("a user and network namespace", errno));
  // The supervisor is not dumpable, which its child inherits, and the maps of a process that is not dumpable are root's.
  if (Faulty("capture.dumpable", [] { return ::prctl(PR_SET_DUMPABLE, 1); }) != 0)
    return FailErrno("prctl(PR_SET_DUMPABLE)", errno);
  // Building needs no ids. The maps, which only a live process's can be, come last.
  const UniqueFd user(Faulty("capture.user", [] { return ::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC); }));
  if (auto sent = BuildAndSend(socket, NamespaceOrigin::kOwn, user); !sent) return sent;
  if (auto go = Expect(socket, Step::kGo, kStartTimeoutMs); !go) return std::unexpected(go.error());
  return {};
}

// In the child. Root may enter as it is; the user whose container it is has rights inside its user namespace only.
Result<void> BuildInside(int socket, int network_namespace) {
  const UniqueFd owner(Faulty("capture.owner", [&] { return ::ioctl(network_namespace, NS_GET_USERNS); }));
  if (!owner) return FailErrno("the container's user namespace is not this user's to see", errno);
  if (Faulty("capture.enter", [&] { return ::setns(network_namespace, CLONE_NEWNET); }) != 0) {
    if (errno != EPERM) return FailErrno("cannot enter the container's network namespace", errno);
    if (::setns(owner.get(), CLONE_NEWUSER) != 0) return FailErrno("cannot enter the container's user namespace", errno);
    if (::setns(network_namespace, CLONE_NEWNET) != 0) return FailErrno("cannot enter the container's network namespace", errno);
  }
  if (auto alone = CheckOnlyLoopback(); !alone) return alone;
  return BuildAndSend(socket, NamespaceOrigin::kGiven, owner);
}

Result<Capture> ReceiveCapture(int socket, pid_t child, NamespaceOrigin origin) {
  auto message = Expect(socket, Step::kCaptured, kStartTimeoutMs);
  if (!message) return std::unexpected(message.error());
  if (origin == NamespaceOrigin::kOwn)
    if (auto mapped = WriteIdentityMaps(child); !mapped) return std::unexpected(mapped.error());
  if (message->fds.size() != kPassedCount) return Fail(Code::kInternal, "a capture came without its descriptors");
  Capture capture;
  capture.user_namespace = std::move(message->fds[0]);
  capture.network_namespace = std::move(message->fds[1]);
  capture.listener = std::move(message->fds[2]);
  capture.dns_udp = std::move(message->fds[3]);
  capture.dns_tcp = std::move(message->fds[4]);
  capture.socket_diagnosis = std::move(message->fds[5]);
  capture.routes = std::move(message->fds[6]);
  capture.listener_port = kListenerPort;
  socklen_t size = sizeof capture.netns_cookie;
  if (Faulty("capture.cookie", [&] {
        return ::getsockopt(capture.listener.get(), SOL_SOCKET, SO_NETNS_COOKIE, &capture.netns_cookie, &size);
      }) != 0)
    return Fail(Code::kUnsupported, "this kernel has no SO_NETNS_COOKIE (Linux 5.14)");
  return capture;
}

}  // namespace

namespace {

struct Builder {
  pid_t child = 0;
  UniqueFd handshake;
};

template <class Run>
Result<Builder> StartBuilder(Run run) {
  ReserveStandardDescriptors();
  auto handshake = MakeHandshake();
  if (!handshake) return std::unexpected(handshake.error());
  const pid_t child = Faulty("capture.fork", [] { return ::fork(); });
  if (child < 0) return FailErrno("cannot fork", errno);
  if (child == 0) {
    handshake->first.Reset();
    if (auto done = run(handshake->second.get()); !done) SendFailure(handshake->second.get(), done.error());
    ::_exit(0);
  }
  return Builder{child, std::move(handshake->first)};
}

}  // namespace

Result<CaptureInProgress> CaptureInProgress::Begin() {
  auto builder = StartBuilder(RunChild);
  if (!builder) return std::unexpected(builder.error());
  return CaptureInProgress(builder->child, std::move(builder->handshake));
}

CaptureInProgress::CaptureInProgress(CaptureInProgress&& other) noexcept
    : child_(std::exchange(other.child_, 0)), handshake_(std::move(other.handshake_)) {}

CaptureInProgress::~CaptureInProgress() { End(); }

Result<Capture> CaptureInProgress::Finish() {
  auto capture = ReceiveCapture(handshake_.get(), child_, NamespaceOrigin::kOwn);
  ::kill(child_, SIGKILL);  // it has done its work, or failed
  return capture;
}

void CaptureInProgress::End() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);  // not reaped yet, so the number is still its own
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = 0;
}

Result<Capture> CaptureNamespace(int network_namespace) {
  auto builder = StartBuilder([network_namespace](int socket) { return BuildInside(socket, network_namespace); });
  if (!builder) return std::unexpected(builder.error());
  auto capture = ReceiveCapture(builder->handshake.get(), builder->child, NamespaceOrigin::kGiven);
  ::kill(builder->child, SIGKILL);  // it has done its work, or failed
  while (::waitpid(builder->child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return capture;
}

Result<Capture> CreateCapture() {
  auto begun = CaptureInProgress::Begin();
  if (!begun) return std::unexpected(begun.error());
  return begun->Finish();
}

}  // namespace sluice::supervisor
