#include "dns/io/udp_pool.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "base/patient_poll.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr int kMaxStrangers = 64;        ///< datagrams that do not match before the question goes by TCP: someone is guessing
constexpr size_t kMaxIdleSockets = 128;  ///< kept open for the next questions, of each family
constexpr size_t kMaxDatagram = 4096;
constexpr size_t kReadAhead = 64 * 1024;  ///< octets read before any is looked at
constexpr int kMostLeft = 4096;           ///< datagrams that a receive buffer may hold
constexpr size_t kMany = 16;              ///< questions under way from which on ports are used again …
constexpr int kUsesOfPort = 8;            ///< … and how often
constexpr int kEvents = 64;
constexpr int kTurns = 16;  ///< of kEvents, before others on the loop have their turn
constexpr milliseconds kTick{25};
constexpr milliseconds kIdleTime{5000};

Error Unreachable(const Endpoint& server, int error) { return SystemError("the resolver " + server.ToString(), error); }

size_t IndexOf(int family) { return family == AF_INET ? 0 : 1; }

// Gives the port back; the connect after that takes another. Nothing comes to a socket without one, so that what lies there can
// be thrown away: else it would be looked at as if whoever sent it had known the next port.
// False: it still has the port.
bool LeavePort(int fd) {
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  if (Faulty("dns.upstream.leave", [&] { return connect(fd, &nowhere, sizeof nowhere); }) != 0) return false;
  char octet = 0;
  for (int left = kMostLeft; left > 0 && (recv(fd, &octet, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN); --left) {
  }
  return true;
}

}  // namespace

UdpPool::UdpPool(asio::io_context& context, UniqueFd epoll, SocketSeal seal)
    : context_(context), seal_(seal), epoll_(context, epoll.get()), tick_(context), rest_(context) {
  [[maybe_unused]] const int owned = epoll.Release();
}

Result<std::shared_ptr<UdpPool>> UdpPool::Create(asio::io_context& context, SocketSeal seal) {
  UniqueFd epoll(Faulty("dns.upstream.epoll", [] { return epoll_create1(EPOLL_CLOEXEC); }));
  if (!epoll) return FailErrno("epoll", errno);
  std::shared_ptr<UdpPool> self(new UdpPool(context, std::move(epoll), seal));
  self->Watch();
  return self;
}

void UdpPool::Watch() {
  epoll_.async_wait(asio::posix::stream_descriptor::wait_read,
                    [self = shared_from_this()](const boost::system::error_code& error) {
                      if (error || self->stopped_) return;
                      if (!self->ReceiveReady()) return self->WatchLater();
                      if (!self->stopped_) self->Watch();
                    });
}

// What has come is there still: a wait for it would end at once.
void UdpPool::WatchLater() {
  rest_.expires_after(kPollRest);
  rest_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && !self->stopped_) self->Watch();
  });
}

void UdpPool::Stop() {
  stopped_ = true;
  boost::system::error_code ignored;
  epoll_.close(ignored);
  tick_.cancel();
  rest_.cancel();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].active) continue;
    Done done = Free(i, Keep::kNothing);
    done(Fail(Code::kIo, "the resolver was shut down"));
  }
  CloseIdle();
}

Result<uint32_t> UdpPool::Open(int family) {
  uint32_t index = 0;
  if (empty_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = empty_.back();
    empty_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.family = family;
  slot.connected = false;
  slot.fd.Reset(Faulty("dns.upstream.socket", [&] { return socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
  // Told once for what has come: Receive takes it all, and the kernel need not look again whether there is more.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u32 = index}};
  const auto watch = [&] { return epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, slot.fd.get(), &event); };
  if (slot.fd && ApplySeal(slot.fd.get(), seal_) && Faulty("dns.upstream.watch", watch) == 0) return index;
  const int error = errno;
  slot.fd.Reset();
  empty_.push_back(index);
  return FailErrno("a socket for lookups", error);
}

// A socket for a question to the server. `uses` says whether it may keep its port.
Result<uint32_t> UdpPool::Choose(const Endpoint& server) {
  const int family = server.address.is_v4() ? AF_INET : AF_INET6;
  auto& idle = idle_[IndexOf(family)];
  if (idle.empty()) {
    auto opened = Open(family);
    if (opened) slots_[*opened].uses = 0;
    return opened;
  }
  std::array<uint8_t, 1> draw{};
  random_.Take(draw);
  std::swap(idle[draw[0] % idle.size()], idle.back());
  const uint32_t index = idle.back();
  idle.pop_back();
  if (slots_[index].server != server) slots_[index].uses = 0;
  return index;
}

void UdpPool::FailLater(Error error, Done done) {
  asio::post(context_, [error = std::move(error), done = std::move(done)]() mutable { done(std::unexpected(std::move(error))); });
}

void UdpPool::Ask(const Endpoint& server, const Question& question, Extension extension, TimePoint deadline, Done done) {
  if (stopped_) return FailLater({Code::kIo, "the resolver was shut down", 0, std::nullopt}, std::move(done));
  const auto chosen = Choose(server);
  if (!chosen) return FailLater(chosen.error(), std::move(done));
  Slot& slot = slots_[*chosen];
  MakeQuery(question, extension, &random_, &slot.sent);
  slot.strangers = 0;
  slot.deadline = deadline;
  slot.server = server;
  slot.done = std::move(done);
  slot.active = slot.unsent = true;
  ++active_;
  StartTicking();
  unsent_.push_back(*chosen);
  if (unsent_.size() > 1) return;
  asio::post(context_, [self = shared_from_this()] { self->SendUnsent(); });
}

// What Stop has ended is no longer active.
void UdpPool::SendUnsent() {
  const std::vector<uint32_t> unsent = std::exchange(unsent_, {});
  for (const uint32_t index : unsent) {
    Slot& slot = slots_[index];
    if (stopped_ || !slot.active || !std::exchange(slot.unsent, false)) continue;
    const int error = SendOne(slot);
    if (error == 0) continue;
    Error unreachable = Unreachable(slot.server, error);
    Done done = Free(index, Keep::kNothing);
    done(std::unexpected(std::move(unreachable)));
  }
}

// Now that all are counted that this turn has asked: a burst is many from its first question on.
int UdpPool::SendOne(Slot& slot) {
  if (active_ < kMany || slot.uses >= kUsesOfPort) slot.uses = 0;
  if (slot.uses == 0) {
    if (slot.connected && !LeavePort(slot.fd.get())) return errno;
    sockaddr_storage peer{};
    const auto length = static_cast<socklen_t>(slot.server.ToSockaddr(&peer));
    const int connected =
        Faulty("dns.upstream.connect", [&] { return connect(slot.fd.get(), reinterpret_cast<const sockaddr*>(&peer), length); });
    if (connected != 0) return errno;
    slot.connected = true;
  }
  ++slot.uses;
  const auto send_it = [&] { return send(slot.fd.get(), slot.sent.wire.data(), slot.sent.wire.size(), MSG_NOSIGNAL); };
  ssize_t sent = Faulty("dns.upstream.send", send_it);
  // An error that an earlier datagram met is told at the next call, which then sends nothing.
  if (sent < 0 && errno == ECONNREFUSED) sent = send_it();
  return sent < 0 ? errno : 0;
}

UdpPool::Done UdpPool::Free(uint32_t index, Keep keep) {
  Slot& slot = slots_[index];
  Done done = std::move(slot.done);
  slot.done = nullptr;
  if (slot.active) --active_;
  slot.active = false;
  auto& idle = idle_[IndexOf(slot.family)];
  if (keep == Keep::kSocket && idle.size() < kMaxIdleSockets && !stopped_) {
    idle.push_back(index);
  } else {
    slot.fd.Reset();
    empty_.push_back(index);
  }
  return done;
}

bool UdpPool::ReceiveReady() {
  std::array<epoll_event, kEvents> events{};
  std::array<Arrived, kEvents> arrived{};
  if (buffer_.empty()) buffer_.resize(kReadAhead + kMaxDatagram);
  for (int turn = 0; turn < kTurns && !stopped_; ++turn) {
    const int count = Faulty("dns.upstream.wait", [&] { return epoll_wait(epoll_.native_handle(), events.data(), kEvents, 0); });
    if (count < 0) return false;
    size_t used = 0;
    size_t held = 0;
    const auto take_all = [&] {
      for (size_t i = 0; i < held && !stopped_; ++i) Take(arrived[i]);
      used = held = 0;
    };
    for (int i = 0; i < count; ++i) {
      Arrived& one = arrived[held];
      if (!ReceiveOne(events[static_cast<size_t>(i)].data.u32, used, &one)) continue;
      ++held;
      used += static_cast<size_t>(std::max<ssize_t>(one.size, 0));
      if (kReadAhead - used < kMaxDatagram) take_all();
      if (stopped_) return true;
    }
    take_all();
    if (count < kEvents) break;
  }
  return true;
}

// What came late, for a question that has ended, is thrown away. What stays behind the answer is so with what comes for the
// socket's next question.
bool UdpPool::ReceiveOne(uint32_t index, size_t at, Arrived* arrived) {
  const Slot& slot = slots_[index];
  for (int i = 0; i <= kMaxStrangers; ++i) {
    const ssize_t size =
        Faulty("dns.upstream.receive", [&] { return recv(slot.fd.get(), &buffer_[at], kMaxDatagram, MSG_DONTWAIT); });
    if (size < 0 && (errno == EAGAIN || errno == EBADF)) return false;
    if (!slot.active || slot.unsent || (size < 0 && errno == EINTR)) continue;
    *arrived = {index, at, size, size < 0 ? errno : 0};
    return true;
  }
  return false;
}

// Those that do not match are read past, behind what was read ahead.
void UdpPool::Take(const Arrived& arrived) {
  Arrived next = arrived;
  while (!TakeOne(next))
    if (!ReceiveOne(arrived.index, kReadAhead, &next)) return;
}

bool UdpPool::TakeOne(const Arrived& arrived) {
  Slot& slot = slots_[arrived.index];
  if (!slot.active) return true;
  if (arrived.size < 0) {
    Error error = Unreachable(slot.server, arrived.error);
    Done done = Free(arrived.index, Keep::kNothing);
    done(std::unexpected(std::move(error)));
    return true;
  }
  Outcome outcome{.octets = static_cast<size_t>(arrived.size)};
  outcome.reception = ReadAnswer(slot.sent, std::span(buffer_).subspan(arrived.at, outcome.octets), &outcome.message);
  if (outcome.reception == Reception::kStranger) {
    if (++slot.strangers < kMaxStrangers) return false;
    outcome.reception = Reception::kAskByTcp;
  }
  if (outcome.reception != Reception::kAnswer) outcome.question = slot.sent.question;
  // Whoever guesses has found this port.
  if (slot.strangers > 0) slot.uses = 0;
  Done done = Free(arrived.index, Keep::kSocket);
  done(std::move(outcome));
  return true;
}

void UdpPool::StartTicking() {
  if (ticking_ == Ticking::kForDeadlines) return;
  ticking_ = Ticking::kForDeadlines;
  Arm(kTick);
}

// A wait that a later one replaced does nothing.
void UdpPool::Arm(milliseconds wait) {
  tick_.expires_after(wait);
  tick_.async_wait([self = shared_from_this(), armed = ++armed_](const boost::system::error_code& error) {
    if (!error && !self->stopped_ && armed == self->armed_) self->Tick();
  });
}

// Ends what is overdue; with nothing under way for a while, closes what was kept open.
void UdpPool::Tick() {
  const TimePoint now = std::chrono::steady_clock::now();
  for (uint32_t i = 0; i < slots_.size() && active_ > 0; ++i) {
    const Slot& slot = slots_[i];
    if (!slot.active || slot.deadline > now) continue;
    Error late{Code::kTimeout, "no answer from the resolver " + slot.server.ToString(), 0, std::nullopt};
    Done done = Free(i, Keep::kNothing);
    done(std::unexpected(std::move(late)));
    if (stopped_) return;
  }
  if (active_ > 0) {
    ticking_ = Ticking::kForDeadlines;
    Arm(kTick);
  } else if (ticking_ == Ticking::kForDeadlines) {
    ticking_ = Ticking::kForIdle;
    Arm(kIdleTime);
  } else {
    ticking_ = Ticking::kNo;
    CloseIdle();
  }
}

void UdpPool::CloseIdle() {
  for (auto& idle : idle_) {
    for (const uint32_t index : idle) {
      slots_[index].fd.Reset();
      empty_.push_back(index);
    }
    idle.clear();
  }
}

}  // namespace sluice::dns
