#include "supervisor/io/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/fault.h"
#include "nft/io/transaction.h"
#include "supervisor/capture_ruleset.h"
#include "supervisor/io/capture_network.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/standard_streams.h"
#include "supervisor/io/user_namespace.h"

namespace sluice::supervisor {
namespace {

constexpr int kStartTimeoutMs = 10'000;
constexpr size_t kPassedCount = 7;

// In the child: builds the namespace and sends what holds it.
Result<void> BuildAndSend(int socket) {
  if (auto done = ConfigureLoopback(); !done) return done;
  if (auto done = ConfigureSysctls(); !done) return done;
  if (auto done = nft::Add(CaptureRuleset(kListenerPort)); !done) return done;
  auto sockets = OpenCaptureSockets();
  if (!sockets) return std::unexpected(sockets.error());
  const UniqueFd user(::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC));
  const UniqueFd network(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!user || !network) return FailErrno("cannot open /proc/self/ns", errno);
  return Send(socket, Step::kCaptured, 0,
              {user.get(), network.get(), sockets->listener.get(), sockets->dns_udp.get(), sockets->dns_tcp.get(),
               sockets->socket_diagnosis.get(), sockets->routes.get()});
}

Result<void> RunChild(int socket) {
  if (Faulty("capture.unshare", [] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNET); }) != 0)
    return std::unexpected(NamespaceError("a user and network namespace", errno));
  // The supervisor is not dumpable, which its child inherits, and the maps of a process that is not dumpable are root's.
  if (::prctl(PR_SET_DUMPABLE, 1) != 0) return FailErrno("prctl(PR_SET_DUMPABLE)", errno);
  // Building needs no ids. The maps, which only a live process's can be, come last.
  if (auto sent = BuildAndSend(socket); !sent) return sent;
  if (auto go = Expect(socket, Step::kGo, kStartTimeoutMs); !go) return std::unexpected(go.error());
  return {};
}

Result<Capture> ReceiveCapture(int socket, pid_t child) {
  auto message = Expect(socket, Step::kCaptured, kStartTimeoutMs);
  if (!message) return std::unexpected(message.error());
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

Result<CaptureInProgress> CaptureInProgress::Begin() {
  ReserveStandardDescriptors();
  auto handshake = MakeHandshake();
  if (!handshake) return std::unexpected(handshake.error());
  const pid_t child = ::fork();
  if (child < 0) return FailErrno("cannot fork", errno);
  if (child == 0) {
    handshake->first.Reset();
    if (auto done = RunChild(handshake->second.get()); !done) SendFailure(handshake->second.get(), done.error());
    ::_exit(0);
  }
  return CaptureInProgress(child, std::move(handshake->first));
}

CaptureInProgress::CaptureInProgress(CaptureInProgress&& other) noexcept
    : child_(std::exchange(other.child_, 0)), handshake_(std::move(other.handshake_)) {}

CaptureInProgress::~CaptureInProgress() { End(); }

Result<Capture> CaptureInProgress::Finish() {
  auto capture = ReceiveCapture(handshake_.get(), child_);
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

Result<Capture> CreateCapture() {
  auto begun = CaptureInProgress::Begin();
  if (!begun) return std::unexpected(begun.error());
  return begun->Finish();
}

}  // namespace sluice::supervisor
