// connect(2) and sendto(2) of UDP and UNIX sockets, as CallHandler decides them.

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "supervisor/io/call_handler.h"

namespace sluice::supervisor {
namespace {

using Kind = PinnedCloser::Kind;
constexpr uint16_t kDnsPort = 53;

// Gives an unbound socket its port now, so that who sends from it is known before the datagram arrives.
void BindIfUnbound(int fd, int domain) {
  if (LocalEnd(fd).port != 0) return;
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(domain);
  (void)bind(fd, reinterpret_cast<const sockaddr*>(&any), domain == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

// Where `path` leads inside that process's root, symbolic links followed. Nothing when it leads nowhere there; the path as
// written when that cannot be found out, so that it is judged all the same.
std::optional<std::string> FollowPath(int proc, const std::string& path) {
  const UniqueFd root(Faulty("unix.root", [&] { return openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!root) return path;
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const UniqueFd file(
      static_cast<int>(Faulty("unix.path", [&] { return ::syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how); })));
  if (!file) return errno == ENOENT || errno == ENOTDIR ? std::nullopt : std::optional(path);
  char buffer[4096];
  const ssize_t n = readlink(fmt::format("/proc/self/fd/{}", file.get()).c_str(), buffer, sizeof buffer);
  return n > 0 && static_cast<size_t>(n) < sizeof buffer ? std::string(buffer, static_cast<size_t>(n)) : path;
}

}  // namespace

bool CallHandler::KnownToPolicy(const Question& question) {
  if (!question.host.empty() || flows_.IsSynthetic(question.destination.address)) return true;
  policy::ConnectQuery query = QueryOf(question);
  query.transport = policy::Transport::kTcp;
  return question.process != nullptr && question.snapshot->DecideConnect(query).allowed();
}

void CallHandler::ConnectUdp(WatchedCall call) {
  const Endpoint& to = call.address.endpoint;
  const bool inet = call.address.kind == AddressKind::kInet;
  if (inet && to.port == kDnsPort) return ConnectResolver(std::move(call), policy::Transport::kUdp);
  if (inet && !setup_.own.Contains(to.address)) {
    const Question question = Ask(call, policy::Transport::kUdp);
    // Resolvers connect a UDP socket to each address they found, only to learn the source address. Nothing is sent by that,
    // and what would be sent is refused by the namespace.
    if (!KnownToPolicy(question)) {
      policy::ConnectDecision denied = question.snapshot->DecideConnect(QueryOf(question));
      if (denied.allowed()) denied = {policy::ConnectVerdict::kDeny, {.allowed = false, .reason = policy::Reason::kUnsupported}};
      return DenyConnect(std::move(call), question, denied);
    }
  }
  const int error = ConnectInPlace(call.pinned.get(), call.raw(), call.raw_length());
  Answer(std::move(call), error, Kind::kFresh);
}

void CallHandler::SendtoUdp(WatchedCall call) {
  const Endpoint& to = call.address.endpoint;
  if (to.port == kDnsPort) {
    const policy::SnapshotPtr snapshot = CurrentSnapshot();
    policy::ProcessPtr process = processes_.Identify(*call.thread, snapshot->NeedsDigests() ? Digests::kNeeded : Digests::kNone);
    BindIfUnbound(call.pinned.get(), call.facts.domain);
    if (process) {
      attribution_.Remember(policy::Transport::kUdp, LocalEnd(call.pinned.get()), SocketCookie(call.pinned.get()),
                            std::move(process));
    }
    return ContinueAndDrop(std::move(call));
  }
  if (setup_.own.Contains(to.address)) return ContinueAndDrop(std::move(call));
  const Question question = Ask(call, policy::Transport::kUdp);
  policy::ConnectDecision denied = question.snapshot->DecideConnect(QueryOf(question));
  if (denied.allowed()) denied = {policy::ConnectVerdict::kDeny, {.allowed = false, .reason = policy::Reason::kUnsupported}};
  DenyConnect(std::move(call), question, denied);
}

std::optional<std::string> CallHandler::ResolvePath(const WatchedCall& call) const {
  const std::string path =
      NormalPath(call.address.path.starts_with('/') ? std::string() : call.thread->Link("cwd"), call.address.path);
  return FollowPath(call.thread->proc_fd(), path);
}

void CallHandler::ConnectUnix(WatchedCall call) {
  if (call.address.kind != AddressKind::kUnixPath) {
    // Abstract and unnamed addresses end in the workload's own namespace; another family's address fits no UNIX socket.
    const bool native = call.address.kind == AddressKind::kUnixAbstract || call.address.kind == AddressKind::kUnspecified;
    if (native) return ContinueAndDrop(std::move(call));
    return Answer(std::move(call), EINVAL, Kind::kFresh);
  }
  const std::optional<std::string> resolved = ResolvePath(call);
  // A name that leads nowhere in the workload's view (nscd's socket, at every lookup) is no decision: the kernel says ENOENT.
  // One that appears meanwhile is the workload's own: its view holds no socket of the host but those a rule had bound there.
  if (!resolved) return ContinueAndDrop(std::move(call));
  const auto host_socket = setup_.host_sockets.find(*resolved);
  const std::string& path = host_socket == setup_.host_sockets.end() ? *resolved : host_socket->second;
  // Its own, unless a rule speaks of it: then the rules decide there too.
  const bool own = host_socket == setup_.host_sockets.end() &&
                   LongestTree(path, setup_.writable_trees) > LongestTree(path, setup_.shared_trees);
  const policy::SnapshotPtr snapshot = CurrentSnapshot();
  if (own && !snapshot->HasUnixRules()) return ContinueAndDrop(std::move(call));
  policy::ProcessPtr process = processes_.Identify(*call.thread, snapshot->NeedsDigests() ? Digests::kNeeded : Digests::kNone);
  const policy::Decision decision =
      process ? snapshot->DecideUnix({.process = process.get(), .path = path, .now = SystemClock().Wall()})
              : policy::Decision{.allowed = false, .reason = policy::Reason::kUnattributed};
  if (own && decision.reason == policy::Reason::kNoRule) return ContinueAndDrop(std::move(call));
  policy::EventTarget target;
  target.path = path;
  Judged judged{.layer = policy::EventLayer::kUnix,
                .target = std::move(target),
                .process = std::move(process),
                .decision = decision,
                .advice = {},
                .snapshot = snapshot,
                .detail = {}};
  if (decision.allowed && journal_.Allowed(judged)) return ContinueAndDrop(std::move(call));
  if (!decision.allowed) journal_.Denied(std::move(judged));
  Answer(std::move(call), EACCES, Kind::kFresh);
}

}  // namespace sluice::supervisor
