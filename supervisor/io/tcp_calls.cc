// connect(2) of TCP sockets, as CallHandler decides it.

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "supervisor/canary.h"
#include "supervisor/io/call_handler.h"

namespace sluice::supervisor {
namespace {

using Kind = PinnedCloser::Kind;
constexpr uint16_t kDnsPort = 53;

// Of a connect inside the capture: not what the caller's own socket is to blame for.
bool IsOurs(int error) {
  return error == ENOBUFS || error == ENOMEM || error == EACCES || error == EPERM || error == ECONNREFUSED;
}

// A dial that this thread is just asking for.
struct AnsweredWithin {
  uint64_t id = 0;
  std::optional<int> error;
  AnsweredWithin* outer = nullptr;
};
thread_local AnsweredWithin* answered_within = nullptr;

}  // namespace

void CallHandler::ConnectTcp(WatchedCall call) {
  switch (call.address.kind) {
    case AddressKind::kUnspecified:
      return DissolveSocket(std::move(call));
    case AddressKind::kMalformed:
      return Answer(std::move(call), EINVAL, Kind::kUnknown);
    case AddressKind::kInet:
      break;
    default:
      return Answer(std::move(call), EAFNOSUPPORT, Kind::kUnknown);
  }
  // Neither family's TCP takes the other's addresses.
  if (call.address.family != call.facts.domain) return Answer(std::move(call), EAFNOSUPPORT, Kind::kUnknown);
  if (!waiting_.empty()) {
    const Blocking blocking = IsNonBlocking(call.pinned.get()) ? Blocking::kNo : Blocking::kYes;
    if (waiting_.Join(SocketCookie(call.pinned.get()), blocking, WaiterOf(call))) {
      return closer_.Drop(std::move(call.pinned), Kind::kUnknown);
    }
  }
  const Endpoint& to = call.address.endpoint;
  if (to.port == kDnsPort) return ConnectResolver(std::move(call), policy::Transport::kTcp);
  if (setup_.own.Contains(to.address)) return ConnectOwn(std::move(call));
  ConnectCaptured(std::move(call));
}

void CallHandler::DissolveSocket(WatchedCall call) {
  const uint64_t cookie = SocketCookie(call.pinned.get());
  if (!in_flight_.Enter(cookie)) {
    // Its connect has not been matched yet; the kernel would make this call wait for the socket's lock as well.
    const std::lock_guard lock(postponed_mutex_);
    if (postponed_.size() >= kMaxPostponed) {
      call.caller.Reply(ENOBUFS);
      return closer_.Drop(std::move(call.pinned), Kind::kUnknown);
    }
    postponed_.push_back(std::move(call));
    postponed_count_.store(postponed_.size(), std::memory_order_release);
    return setup_.wake_sweeper();
  }
  if (!waiting_.empty()) waiting_.Abandon(cookie);
  const int error = Dissolve(call.pinned.get());
  in_flight_.Leave(cookie);
  Answer(std::move(call), error, Kind::kUnknown);
}

void CallHandler::ConnectOwn(WatchedCall call) {
  if (call.address.endpoint.port == setup_.listener_port) {
    const Question question{.process = processes_.Identify(*call.thread, Digests::kNone),
                            .snapshot = CurrentSnapshot(),
                            .host = {},
                            .destination = call.address.endpoint};
    return DenyBecause(std::move(call), question, policy::Reason::kNoRule, "the supervisor's own listener", ECONNREFUSED);
  }
  ConnectInside(std::move(call));
}

// To a service of the workload's own.
void CallHandler::ConnectInside(WatchedCall call) {
  const Kind kind = HasPeer(call.pinned.get()) ? Kind::kUnknown : Kind::kFresh;
  int error = ConnectInPlace(call.pinned.get(), call.raw(), call.raw_length());
  if (error == EINTR) error = ConnectInPlace(call.pinned.get(), call.raw(), call.raw_length());
  if (error != EINTR) return Answer(std::move(call), error, kind);
  if (call.pinned.get() >= setup_.descriptor_ceiling) return Answer(std::move(call), ENOBUFS, kind);
  // The workload's own listener has a full backlog: the call waits, this thread does not.
  const uint64_t cookie = SocketCookie(call.pinned.get());
  std::vector<uint8_t> address(call.bytes.begin(), call.bytes.begin() + static_cast<ptrdiff_t>(call.length));
  const PendingCall caller = call.caller;
  WaitingConnects::Waiter waiter = WaiterOf(call);
  if (waiting_.BeginHung(cookie, std::move(call.pinned), std::move(address), std::move(waiter)) ==
      WaitingConnects::Begun::kFull) {
    return caller.Reply(ENOBUFS);
  }
  setup_.wake_sweeper();
}

void CallHandler::ConnectResolver(WatchedCall call, policy::Transport transport) {
  const policy::SnapshotPtr snapshot = CurrentSnapshot();
  policy::ProcessPtr process = processes_.Identify(*call.thread, snapshot->NeedsDigests() ? Digests::kNeeded : Digests::kNone);
  const Kind kind = transport == policy::Transport::kTcp && HasPeer(call.pinned.get()) ? Kind::kUnknown : Kind::kFresh;
  const int error = ConnectInPlace(call.pinned.get(), call.raw(), call.raw_length());
  if (process && (error == 0 || error == EINPROGRESS)) {
    attribution_.Remember(transport, LocalEnd(call.pinned.get()), SocketCookie(call.pinned.get()), std::move(process));
  }
  Answer(std::move(call), error, kind);
}

void CallHandler::ConnectCaptured(WatchedCall call) {
  if (call.address.endpoint == kCanary && !probed_.exchange(true)) {
    return Answer(std::move(call), CurrentSnapshot()->settings().deny_errno, Kind::kFresh);
  }
  const Question question = Ask(call, policy::Transport::kTcp);
  if (!question.process) {
    // Reading who calls takes descriptors too.
    if (!UniqueFd(fcntl(call.pinned.get(), F_DUPFD_CLOEXEC, 0))) return DenyExhausted(std::move(call), question);
    return DenyBecause(std::move(call), question, policy::Reason::kUnattributed,
                       "the calling process's executable cannot be read", EACCES);
  }
  if (question.host.empty() && flows_.IsSynthetic(question.destination.address)) {
    return DenyBecause(std::move(call), question, policy::Reason::kDns, "no name stands behind this synthetic address",
                       question.snapshot->settings().deny_errno);
  }
  const policy::ConnectQuery query = QueryOf(question);
  const policy::ConnectDecision decision = question.snapshot->DecideConnect(query);
  if (!decision.allowed()) return DenyConnect(std::move(call), question, decision);
  if (HasPeer(call.pinned.get())) {
    // Connected already, or the second call of the idiom that ends a non-blocking connect: no new flow can come of it.
    const int error = ConnectInPlace(call.pinned.get(), call.raw(), call.raw_length());
    return Answer(std::move(call), error == EINTR ? EISCONN : error, Kind::kUnknown);
  }
  if (call.pinned.get() >= setup_.descriptor_ceiling) return DenyExhausted(std::move(call), question);
  ApprovedConnect approved{next_connection_.fetch_add(1, std::memory_order_relaxed), question.host, question.destination,
                           question.process};
  Judged judged{.layer = policy::EventLayer::kConnect,
                .target = TargetOf(question),
                .process = question.process,
                .decision = decision.decision,
                .advice = {},
                .snapshot = question.snapshot,
                .detail = {},
                .connection = approved.id};
  if (decision.decision.audit_only) judged.advice = question.snapshot->AdviseConnect(query, decision);
  if (!journal_.Allowed(std::move(judged))) return Answer(std::move(call), EACCES, Kind::kFresh);
  Dial(std::move(call), std::move(approved));
}

void CallHandler::Dial(WatchedCall call, ApprovedConnect approved) {
  const uint64_t cookie = SocketCookie(call.pinned.get());
  if (!IsNonBlocking(call.pinned.get())) return WaitForUpstream(std::move(call), cookie, std::move(approved));
  if (!in_flight_.Enter(cookie)) return Answer(std::move(call), EALREADY, Kind::kUnknown);
  const int error = ConnectInPlace(call.pinned.get(), call.raw(), call.raw_length());
  // 0 and EINTR: somebody took O_NONBLOCK away meanwhile.
  if (error != EINPROGRESS && error != 0 && error != EINTR && !IsOurs(error)) {
    in_flight_.Leave(cookie);
    return Answer(std::move(call), error, Kind::kUnknown);
  }
  Attempt attempt{{call.caller}, error == 0 ? 0 : EINPROGRESS, cookie, std::move(call.pinned), std::move(approved)};
  if (IsOurs(error)) return Lost(std::move(attempt), error);
  AdmitConnected(std::move(attempt), call.address.endpoint);
}

void CallHandler::AdmitConnected(Attempt attempt, const Endpoint& destination) {
  const FlowTuple tuple{LocalEnd(attempt.pinned.get()), destination};
  if (gate_.Admit(std::move(attempt), tuple)) setup_.wake_sweeper();
}

void CallHandler::WaitForUpstream(WatchedCall call, uint64_t cookie, ApprovedConnect approved) {
  WaitingConnects::Waiter waiter = WaiterOf(call);
  const PendingCall caller = call.caller;
  const uint64_t id = approved.id;
  ApprovedConnect copy = approved;
  switch (waiting_.Begin(cookie, std::move(call.pinned), std::move(approved), std::move(waiter))) {
    case WaitingConnects::Begun::kFull:
      return caller.Reply(ENOBUFS);
    case WaitingConnects::Begun::kJoined:
      return;
    case WaitingConnects::Begun::kNew:
      break;
  }
  // An upstream that is ready at once answers inside Prepare: this thread then goes on, and nobody else is woken.
  AnsweredWithin within{id, std::nullopt, answered_within};
  answered_within = &within;
  flows_.Prepare(std::move(copy), [later = setup_.finish_later, cookie, id](int error) {
    if (answered_within != nullptr && answered_within->id == id) {
      answered_within->error = error;
    } else {
      later(cookie, id, error);
    }
  });
  answered_within = within.outer;
  if (within.error) return Finish(cookie, id, *within.error);
  setup_.wake_sweeper();
}

void CallHandler::Finish(uint64_t cookie, uint64_t id, int error) {
  if (error != 0) return waiting_.Failed(cookie, id, error);
  // In flight before it leaves the waiting table, so that no other call finds the socket in neither.
  if (!in_flight_.Enter(cookie)) return waiting_.Failed(cookie, id, ECONNABORTED);
  std::optional<Attempt> attempt = waiting_.Prepared(cookie, id);
  if (!attempt) return in_flight_.Leave(cookie);
  sockaddr_storage address{};
  const Endpoint destination = attempt->approved.destination;
  SocketFacts facts = ReadSocketFacts(attempt->pinned.get()).value_or(SocketFacts{});
  const size_t length = facts.domain == AF_INET6 ? destination.ToSockaddr6(&address) : destination.ToSockaddr(&address);
  const int failed =
      ConnectInPlace(attempt->pinned.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  if (IsOurs(failed)) return Lost(std::move(*attempt), failed);
  if (failed != 0 && failed != EINPROGRESS && failed != EINTR) {
    in_flight_.Leave(cookie);
    if (attempt->callers.empty()) waiting_.Remember(cookie, failed);
    ReplyAll(*attempt, failed);
    return closer_.Drop(std::move(attempt->pinned), Kind::kUnknown);
  }
  AdmitConnected(std::move(*attempt), destination);
}

}  // namespace sluice::supervisor
