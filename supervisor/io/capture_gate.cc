#include "supervisor/io/capture_gate.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "supervisor/io/socket_facts.h"

namespace sluice::supervisor {
namespace {

constexpr uint64_t kNoApproval = 0;
using Table = FlowTable<Attempt, UniqueFd>;

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void Reset(UniqueFd fd) {
  SetReset(fd.get());
  fd.Reset();
}

}  // namespace

CaptureGate::CaptureGate(int listener, Sink& sink) : listener_(listener), sink_(sink), spare_(OpenSpare()) {}

size_t CaptureGate::waiting() const {
  const std::lock_guard lock(mutex_);
  return table_.waiting();
}

bool CaptureGate::Admit(Attempt attempt, const FlowTuple& tuple) {
  const uint64_t id = attempt.approved.id;
  std::optional<UniqueFd> accepted;
  Table::Outcome outcome{};
  do {
    // One that was accepted early and reset since belongs to whoever had the port before.
    accepted.reset();
    const std::lock_guard lock(mutex_);
    outcome = table_.Expect(tuple, attempt, std::chrono::steady_clock::now(), &accepted);
  } while (outcome == Table::Outcome::kMatched && TakeSocketError(accepted->get()) != 0);
  switch (outcome) {
    case Table::Outcome::kMatched:
      sink_.Matched(std::move(attempt), tuple.source, std::move(*accepted));
      return false;
    case Table::Outcome::kFull:
      sink_.Lost(std::move(attempt), ENOBUFS);
      return false;
    case Table::Outcome::kWaiting:
      Drain(id);
      break;
  }
  return waiting() != 0;
}

void CaptureGate::Drain(uint64_t until) {
  for (;;) {
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    UniqueFd fd(Faulty("gate.accept", [&] {
      return accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE) AcceptWithoutDescriptors();
      return;
    }
    const auto source = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&peer), length);
    uint64_t served = kNoApproval;
    if (source) TakeOne(std::move(fd), *source, &served);
    if (until != kNoApproval && served == until) return;
  }
}

void CaptureGate::TakeOne(UniqueFd fd, const Endpoint& source, uint64_t* served) {
  // A reset one must not meet an approval: its port may be in use again already, by somebody else.
  if (TakeSocketError(fd.get()) != 0) return;
  const FlowTuple tuple{source, LocalEnd(fd.get())};
  std::optional<Attempt> attempt;
  Table::Outcome outcome{};
  {
    const std::lock_guard lock(mutex_);
    outcome = table_.Offer(tuple, fd, std::chrono::steady_clock::now(), &attempt);
  }
  if (outcome == Table::Outcome::kMatched) {
    *served = attempt->approved.id;
    sink_.Matched(std::move(*attempt), source, std::move(fd));
  } else if (outcome == Table::Outcome::kFull) {
    Reset(std::move(fd));
    sink_.Stray(tuple);
  }
}

void CaptureGate::AcceptWithoutDescriptors() {
  const std::lock_guard lock(spare_mutex_);
  spare_.Reset();
  UniqueFd fd(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  if (fd) Reset(std::move(fd));
  spare_ = OpenSpare();
}

void CaptureGate::Sweep() {
  Drain(kNoApproval);
  std::vector<std::pair<FlowTuple, Attempt>> lost;
  std::vector<std::pair<FlowTuple, UniqueFd>> strays;
  {
    const std::lock_guard lock(mutex_);
    const SteadyTime before = std::chrono::steady_clock::now() - kApprovalWait;
    lost = table_.ExpiredApprovals(before);
    strays = table_.ExpiredAccepted(before);
  }
  for (auto& [tuple, attempt] : lost) sink_.Lost(std::move(attempt), ETIMEDOUT);
  for (auto& [tuple, fd] : strays) {
    Reset(std::move(fd));
    sink_.Stray(tuple);
  }
}

}  // namespace sluice::supervisor
