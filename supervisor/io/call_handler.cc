#include "supervisor/io/call_handler.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <cerrno>
#include <utility>

namespace sluice::supervisor {
namespace {

std::string OutOfDescriptors(size_t open_connections, int limit) {
  return fmt::format("out of descriptors: {} connections open, limit {}", open_connections, limit);
}

}  // namespace

using Kind = PinnedCloser::Kind;

CallHandler::CallHandler(Setup setup, ProcessTable& processes, Attribution& attribution, FlowHandler& flows,
                         const policy::CurrentPolicy& policy, policy::EventSink& sink)
    : setup_(std::move(setup)),
      processes_(processes),
      attribution_(attribution),
      flows_(flows),
      policy_(policy),
      journal_(sink),
      gate_(setup_.listener, *this),
      waiting_([this](UniqueFd fd) { closer_.Drop(std::move(fd), Kind::kUnknown); }),
      networks_(setup_.owner_of_networks),
      host_sockets_(setup_.host_sockets, setup_.view) {}

CallHandler::~CallHandler() = default;

void CallHandler::Handle(const SeccompChannelPtr& channel, const seccomp_notif& notification) {
  PendingCall caller{channel, notification.id};
  switch (notification.data.nr) {
    case __NR_connect:
      return HandleConnect(std::move(caller), notification);
    case __NR_sendto:
      return HandleSendto(std::move(caller), notification);
    case __NR_execve:
    case __NR_execveat:
      // A container's filter notifies of it so that its program waits until it is supervised. Nothing is decided by it.
      return caller.Continue();
    default:
      return caller.Reply(EPERM);  // the filter notifies of nothing else
  }
}

void CallHandler::HandleConnect(PendingCall caller, const seccomp_notif& notification) {
  const auto& args = notification.data.args;
  const auto tid = static_cast<pid_t>(notification.pid);
  auto taken = TakeCall(caller, tid, processes_, {static_cast<int>(args[0]), args[1], static_cast<int>(args[2])});
  if (!taken) return Refuse(caller, tid, std::move(taken.error()));
  WatchedCall call = std::move(*taken);
  if (IsForeign(call)) return HandleForeign(std::move(call), __NR_connect);
  switch (call.facts.domain) {
    case AF_UNIX:
      return ConnectUnix(std::move(call));
    case AF_INET:
    case AF_INET6:
      return call.facts.type == SOCK_STREAM ? ConnectTcp(std::move(call)) : ConnectUdp(std::move(call));
    case AF_NETLINK:
      return ContinueAndDrop(std::move(call));
    default:
      return Answer(std::move(call), EPERM, Kind::kUnknown);
  }
}

bool CallHandler::IsForeign(const WatchedCall& call) const { return call.facts.netns_cookie != setup_.netns_cookie; }

void CallHandler::HandleForeign(WatchedCall call, long number) {
  const bool stream = call.facts.type == SOCK_STREAM;
  const policy::Transport transport = stream ? policy::Transport::kTcp : policy::Transport::kUdp;
  if (!networks_.Hold(call.pinned.get(), call.facts.netns_cookie))
    return DenyForeign(std::move(call), transport, "the socket belongs to another network namespace");
  if (call.facts.domain == AF_UNIX) return ConnectUnix(std::move(call));
  if (call.facts.domain == AF_NETLINK) return ContinueAndDrop(std::move(call));
  // Not every family knows of network namespaces.
  if (call.facts.domain != AF_INET && call.facts.domain != AF_INET6) return Answer(std::move(call), EPERM, Kind::kUnknown);
  const bool inet = call.address.kind == AddressKind::kInet;
  if (inet && !OwnAddresses().Contains(call.address.endpoint.address))
    return DenyForeign(
        std::move(call), transport,
        "the socket belongs to a network namespace that the command made, which has no way out: share the sandbox's");
  if (number == __NR_sendto) return ContinueAndDrop(std::move(call));
  if (inet) return ConnectInside(std::move(call));
  if (call.address.kind == AddressKind::kUnspecified) return DissolveSocket(std::move(call));
  Answer(std::move(call), call.address.kind == AddressKind::kMalformed ? EINVAL : EAFNOSUPPORT, Kind::kUnknown);
}

void CallHandler::DenyForeign(WatchedCall call, policy::Transport transport, std::string why) {
  const Question question{.process = processes_.Identify(*call.thread, Digests::kNone),
                          .snapshot = CurrentSnapshot(),
                          .host = {},
                          .destination = call.address.endpoint,
                          .transport = transport};
  DenyBecause(std::move(call), question, policy::Reason::kUnattributed, std::move(why), EACCES);
}

void CallHandler::HandleSendto(PendingCall caller, const seccomp_notif& notification) {
  const auto& args = notification.data.args;
  const auto tid = static_cast<pid_t>(notification.pid);
  auto taken = TakeCall(caller, tid, processes_, {static_cast<int>(args[0]), args[4], static_cast<int>(args[5])});
  if (!taken) return Refuse(caller, tid, std::move(taken.error()));
  WatchedCall call = std::move(*taken);
  // A socket from elsewhere is not bounded by the capture namespace, so that nothing about it may be left to the kernel.
  if (IsForeign(call)) return HandleForeign(std::move(call), __NR_sendto);
  if (call.facts.domain == AF_UNIX) return ConnectUnix(std::move(call));
  const bool inet = call.facts.domain == AF_INET || call.facts.domain == AF_INET6;
  // A stream ignores the address: without MSG_FASTOPEN, which the filter refuses, it opens nothing.
  if (inet && call.facts.type == SOCK_DGRAM && call.address.kind == AddressKind::kInet) return SendtoUdp(std::move(call));
  ContinueAndDrop(std::move(call));
}

void CallHandler::Refuse(const PendingCall& caller, pid_t tid, NotTaken why) {
  closer_.Drop(std::move(why.pinned), Kind::kUnknown);
  if (why.why == NotTaken::Why::kGone) return;
  if (why.why != NotTaken::Why::kNative) {
    const bool exhausted = why.why == NotTaken::Why::kExhausted;
    journal_.Denied(
        {.layer = policy::EventLayer::kSyscall,
         .target = {},
         .process = processes_.Glimpse(tid),
         .decision = {.allowed = false, .reason = exhausted ? policy::Reason::kLimit : policy::Reason::kUnattributed},
         .advice = {},
         .snapshot = CurrentSnapshot(),
         .detail = exhausted ? OutOfDescriptors(flows_.Open(), setup_.descriptor_limit)
                             : "the supervisor may not look into the calling process (an executable that cannot be read?)"});
  }
  caller.Reply(why.error);
}

void CallHandler::Answer(WatchedCall call, int error, Kind kind) {
  // First the descriptor: a caller that closes its socket after the answer is then the last to hold it.
  closer_.Drop(std::move(call.pinned), kind);
  call.caller.Reply(error);
}

void CallHandler::ContinueAndDrop(WatchedCall call) {
  closer_.Drop(std::move(call.pinned),
               call.facts.type == SOCK_STREAM && call.facts.domain != AF_UNIX ? Kind::kUnknown : Kind::kFresh);
  call.caller.Continue();
}

policy::SnapshotPtr CallHandler::CurrentSnapshot() const {
  // One copy per thread and generation: the shared pointer's own counter is what threads would fight over.
  struct Cached {
    const policy::CurrentPolicy* from = nullptr;
    uint64_t generation = 0;
    policy::SnapshotPtr snapshot;
  };
  thread_local Cached cached;
  const uint64_t generation = policy_.generation();
  if (cached.from != &policy_ || cached.generation != generation) cached = {&policy_, generation, policy_.Get()};
  return cached.snapshot;
}

CallHandler::Question CallHandler::Ask(WatchedCall& call, policy::Transport transport) {
  Question question{.process = nullptr,
                    .snapshot = CurrentSnapshot(),
                    .host = {},
                    .destination = call.address.endpoint,
                    .transport = transport};
  question.process = processes_.Identify(*call.thread, question.snapshot->NeedsDigests() ? Digests::kNeeded : Digests::kNone);
  const bool real = question.snapshot->settings().dns == policy::DnsMode::kReal;
  if (real || flows_.IsSynthetic(question.destination.address)) {
    question.host = flows_.NameOf(question.destination.address).value_or(std::string());
  }
  return question;
}

policy::ConnectQuery CallHandler::QueryOf(const Question& question) const {
  policy::ConnectQuery query{.process = question.process.get(),
                             .host = question.host,
                             .port = question.destination.port,
                             .transport = question.transport,
                             .now = SystemClock().Wall(),
                             .host_addresses = setup_.host_addresses};
  const bool real = question.snapshot->settings().dns == policy::DnsMode::kReal;
  if (question.host.empty() || real) query.address = question.destination.address;
  return query;
}

policy::EventTarget CallHandler::TargetOf(const Question& question) {
  policy::EventTarget target;
  target.host = question.host;
  if (question.host.empty()) target.address = question.destination.address;
  target.port = question.destination.port;
  return target;
}

void CallHandler::DenyConnect(WatchedCall call, const Question& question, const policy::ConnectDecision& decision) {
  journal_.Denied(
      {.layer = question.transport == policy::Transport::kUdp ? policy::EventLayer::kUdp : policy::EventLayer::kConnect,
       .target = TargetOf(question),
       .process = question.process,
       .decision = decision.decision,
       .advice = question.snapshot->AdviseConnect(QueryOf(question), decision),
       .snapshot = question.snapshot,
       .detail = {}});
  const int error = question.snapshot->settings().deny_errno;
  const Kind kind = HasPeer(call.pinned.get()) ? Kind::kUnknown : Kind::kFresh;
  Answer(std::move(call), error, kind);
}

void CallHandler::DenyBecause(WatchedCall call, const Question& question, policy::Reason reason, std::string detail, int error) {
  journal_.Denied(
      {.layer = question.transport == policy::Transport::kUdp ? policy::EventLayer::kUdp : policy::EventLayer::kConnect,
       .target = TargetOf(question),
       .process = question.process ? question.process : processes_.Glimpse(call.thread->tid()),
       .decision = {.allowed = false, .reason = reason},
       .advice = {},
       .snapshot = question.snapshot,
       .detail = std::move(detail)});
  Answer(std::move(call), error, Kind::kUnknown);
}

void CallHandler::DenyExhausted(WatchedCall call, const Question& question) {
  // What is only remembered is given back, so that the next call finds more.
  processes_.ForgetAll();
  DenyBecause(std::move(call), question, policy::Reason::kLimit, OutOfDescriptors(flows_.Open(), setup_.descriptor_limit),
              ENOBUFS);
}

WaitingConnects::Waiter CallHandler::WaiterOf(const WatchedCall& call) const {
  WaitingConnects::Waiter waiter{call.caller, call.thread, std::nullopt};
  if (const auto limit = SendTimeout(call.pinned.get())) waiter.deadline = std::chrono::steady_clock::now() + *limit;
  return waiter;
}

void CallHandler::ReplyAll(const Attempt& attempt, int error) {
  for (const PendingCall& caller : attempt.callers) caller.Reply(error);
}

void CallHandler::Matched(Attempt attempt, const Endpoint& source, UniqueFd accepted) {
  in_flight_.Leave(attempt.cookie);
  closer_.Drop(std::move(attempt.pinned), Kind::kFresh);
  // Every caller was interrupted by a signal: one that comes back is owed the outcome.
  if (attempt.callers.empty()) waiting_.Remember(attempt.cookie, 0);
  ReplyAll(attempt, attempt.reply);
  flows_.Start(std::move(attempt.approved), source, std::move(accepted));
}

void CallHandler::Lost(Attempt attempt, int error) {
  (void)Dissolve(attempt.pinned.get());
  in_flight_.Leave(attempt.cookie);
  closer_.Drop(std::move(attempt.pinned), Kind::kUnknown);
  journal_.Denied({.layer = policy::EventLayer::kConnect,
                   .target = {.host = attempt.approved.host,
                              .address = attempt.approved.destination.address,
                              .port = attempt.approved.destination.port,
                              .scheme = {},
                              .method = {},
                              .path = {},
                              .query = {}},
                   .process = attempt.approved.process,
                   .decision = {.allowed = false, .reason = policy::Reason::kUnattributed},
                   .advice = {},
                   .snapshot = CurrentSnapshot(),
                   .detail = "approved, but its connection never reached the supervisor",
                   .connection = attempt.approved.id});
  ReplyAll(attempt, error);
}

void CallHandler::Stray(const FlowTuple& tuple) {
  journal_.Denied({.layer = policy::EventLayer::kConnect,
                   .target = {.host = {},
                              .address = tuple.destination.address,
                              .port = tuple.destination.port,
                              .scheme = {},
                              .method = {},
                              .path = {},
                              .query = {}},
                   .process = nullptr,
                   .decision = {.allowed = false, .reason = policy::Reason::kUnattributed},
                   .advice = {},
                   .snapshot = CurrentSnapshot(),
                   .detail = "a connection that no notification approved, from " + tuple.source.ToString()});
}

bool CallHandler::busy() const {
  return gate_.waiting() != 0 || !waiting_.empty() || postponed_count_.load(std::memory_order_acquire) != 0;
}

void CallHandler::Sweep() {
  gate_.Sweep();
  if (!waiting_.empty()) waiting_.Tick();
  std::vector<WatchedCall> again;
  {
    const std::lock_guard lock(postponed_mutex_);
    again.swap(postponed_);
    postponed_count_.store(0, std::memory_order_release);
  }
  for (WatchedCall& call : again) DissolveSocket(std::move(call));
}

}  // namespace sluice::supervisor
