// connect(2) and sendto(2) of UDP and UNIX sockets, as CallHandler decides them.

#include <netinet/in.h>

#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "supervisor/io/call_handler.h"
#include "supervisor/io/caller_path.h"

namespace sluice::supervisor {
namespace {

using Kind = PinnedCloser::Kind;
constexpr uint16_t kDnsPort = 53;

// Gives an unbound socket its port now, so that who sends from it is known before the datagram arrives.
void BindIfUnbound(int fd, int domain) {
  if (LocalEnd(fd).port != 0) return;
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(domain);
  const socklen_t size = domain == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  // Without it who sends is looked for when the datagram has come.
  (void)Faulty("udp.bind", [&] { return bind(fd, reinterpret_cast<const sockaddr*>(&any), size); });
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

void CallHandler::DenyUnresolved(WatchedCall call, const Error& why) {
  const bool exhausted = why.code == Code::kExhausted;
  // What is only remembered is given back, so that the next call finds more.
  if (exhausted) processes_.ForgetAll();
  policy::EventTarget target;
  target.path = call.address.path;
  journal_.Denied({.layer = policy::EventLayer::kUnix,
                   .target = std::move(target),
                   .process = processes_.Glimpse(call.thread->tid()),
                   .decision = {.allowed = false, .reason = exhausted ? policy::Reason::kLimit : policy::Reason::kUnattributed},
                   .advice = {},
                   .snapshot = CurrentSnapshot(),
                   .detail = why.message});
  Answer(std::move(call), EACCES, Kind::kFresh);
}

void CallHandler::ConnectUnix(WatchedCall call) {
  if (call.address.kind != AddressKind::kUnixPath) {
    // Abstract and unnamed addresses end in the workload's own namespace; another family's address fits no UNIX socket.
    const bool native = call.address.kind == AddressKind::kUnixAbstract || call.address.kind == AddressKind::kUnspecified;
    if (native) return ContinueAndDrop(std::move(call));
    return Answer(std::move(call), EINVAL, Kind::kFresh);
  }
  const auto place = FindPlace(*call.thread, call.address.path);
  if (!place) return DenyUnresolved(std::move(call), place.error());
  // A name that leads nowhere in the workload's view (nscd's socket, at every lookup) is no decision. It is answered here all the
  // same: the kernel might find a socket there.
  if (place->nowhere != 0) return Answer(std::move(call), place->nowhere, Kind::kFresh);
  const std::string* const host_socket = host_sockets_.Find(*place);
  const std::string& path = host_socket == nullptr ? place->path : *host_socket;
  // Its own, unless a rule speaks of it: then the rules decide there too.
  const bool own = host_socket == nullptr && LongestTree(path, setup_.writable_trees) > LongestTree(path, setup_.shared_trees);
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
