#include "supervisor/io/publisher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/clock.h"
#include "base/listen_error.h"
#include "base/log.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/privileges.h"

namespace sluice::supervisor {
namespace {

constexpr int kStartTimeoutMs = 10'000;
constexpr size_t kPiece = size_t{64} << 10;
constexpr int kBacklog = 256;
constexpr int kFinishMs = 1000;
constexpr int kShutMs = 200;  // before it is tried again whether there is room for one more connection

using End = PublishedConnection::End;

struct Listener {
  UniqueFd fd;
  uint16_t inside = 0;
};

// What the child says of a connection that has ended.
struct Report {
  sockaddr_storage from;
  uint64_t octets_in;
  uint64_t octets_out;
  uint64_t microseconds;
  uint32_t listener;
  End end;
};

Result<UniqueFd> ListenOn(Endpoint* where) {
  const bool v4 = where->address.is_v4();
  UniqueFd fd(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return FailErrno(fmt::format("cannot publish {}", where->ToString()), errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!v4) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  sockaddr_storage address{};
  auto length = static_cast<socklen_t>(where->ToSockaddr(&address));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return std::unexpected(ListenError(fmt::format("cannot publish {}", where->ToString()), errno));
  length = sizeof address;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  if (const auto bound = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&address), length)) *where = *bound;
  return fd;
}

// One side of a connection: what is read here is written to the other.
struct Side {
  UniqueFd fd;
  std::string unsent;  // to be written here
  size_t sent = 0;
  bool read_ended = false;
  bool write_ended = false;
  uint32_t interest = 0;
  uint64_t octets = 0;  // that were written here
};

struct Pair {
  std::array<Side, 2> sides;  // outside, inside
  sockaddr_storage from{};
  SteadyTime since{};
  size_t listener = 0;
  bool dialling = false;
  bool tried_v6 = false;
};

// In the child, alone with its sockets.
class Server {
 public:
  Server(std::vector<Listener> listeners, int supervisor)
      : listeners_(std::move(listeners)), pairs_(kMaxPublishedConnections), supervisor_(supervisor) {}

  void Run() {
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return;
    for (size_t i = 0; i < listeners_.size(); ++i) Watch(listeners_[i].fd.get(), EPOLL_CTL_ADD, EPOLLIN, Tag(kListeners, i));
    Watch(supervisor_, EPOLL_CTL_ADD, EPOLLIN, Tag(kSupervisor, 0));
    std::array<epoll_event, 64> events{};
    while (!finished_) {
      const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), full_ ? kShutMs : -1);
      if (ready < 0 && errno != EINTR) return;
      for (int i = 0; i < ready; ++i) Handle(events[static_cast<size_t>(i)]);
      if (full_ && (closed_ || ready == 0)) Reopen();
    }
    for (Pair& pair : pairs_)
      if (pair.sides[0].fd) Close(pair, End::kRunEnded);
  }

 private:
  static constexpr uint64_t kListeners = 2;  // beside sides 0 and 1
  static constexpr uint64_t kSupervisor = 3;
  static uint64_t Tag(uint64_t what, size_t index) { return what << 32 | index; }

  void Watch(int fd, int how, uint32_t interest, uint64_t tag) const {
    epoll_event event{};
    event.events = interest;
    event.data.u64 = tag;
    ::epoll_ctl(epoll_.get(), how, fd, &event);
  }

  void Handle(const epoll_event& event) {
    const uint64_t what = event.data.u64 >> 32;
    const auto index = static_cast<size_t>(event.data.u64 & 0xffffffff);
    if (what == kListeners) return Accept(index);
    if (what == kSupervisor) {  // it says nothing: this is its end
      finished_ = true;
      return;
    }
    Pair& pair = pairs_[index];
    if (!pair.sides[0].fd) return;  // closed by an event before this one
    if (pair.dialling && !Dialled(pair, index)) return;
    const bool lives = Move(pair, 0) && Move(pair, 1);
    const bool over = pair.sides[0].write_ended && pair.sides[1].write_ended;
    if (!lives || over) return Close(pair, lives ? End::kBoth : End::kBroken);
    Update(pair, index);
  }

  void Accept(size_t listener) {
    const auto free = std::ranges::find_if(pairs_, [](const Pair& pair) { return !pair.sides[0].fd; });
    if (free == pairs_.end()) return Shut();
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    UniqueFd outside(
        ::accept4(listeners_[listener].fd.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    // Without room for one more, the one that waits would be found again at once, and again.
    if (!outside && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) return Shut();
    if (!outside) return;
    const auto index = static_cast<size_t>(free - pairs_.begin());
    *free = Pair{};
    free->sides[0].fd = std::move(outside);
    free->from = from;
    free->since = SystemClock().Steady();
    free->listener = listener;
    Watch(free->sides[0].fd.get(), EPOLL_CTL_ADD, 0, Tag(0, index));
    Dial(*free, index, false);
  }

  // Until a connection ends, or for a while.
  void Shut() {
    for (size_t i = 0; i < listeners_.size(); ++i) Watch(listeners_[i].fd.get(), EPOLL_CTL_MOD, 0, Tag(kListeners, i));
    full_ = true;
    closed_ = false;
  }

  void Reopen() {
    for (size_t i = 0; i < listeners_.size(); ++i) Watch(listeners_[i].fd.get(), EPOLL_CTL_MOD, EPOLLIN, Tag(kListeners, i));
    full_ = false;
  }

  // A server inside listens on 127.0.0.1, on ::1 or on any address.
  void Dial(Pair& pair, size_t index, bool v6) {
    pair.tried_v6 = v6;
    const IpAddress address = v6 ? *IpAddress::Parse("::1") : IpAddress::FromV4(0x7f000001);
    sockaddr_storage to{};
    const auto length = static_cast<socklen_t>(Endpoint{address, listeners_[pair.listener].inside}.ToSockaddr(&to));
    pair.sides[1] = Side{};
    pair.sides[1].fd = UniqueFd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!pair.sides[1].fd) return Close(pair, End::kNobody);
    const int result = ::connect(pair.sides[1].fd.get(), reinterpret_cast<const sockaddr*>(&to), length);
    if (result != 0 && errno != EINPROGRESS) return v6 ? Close(pair, End::kNobody) : Dial(pair, index, true);
    pair.dialling = true;
    pair.sides[1].interest = EPOLLOUT;
    Watch(pair.sides[1].fd.get(), EPOLL_CTL_ADD, EPOLLOUT, Tag(1, index));
  }

  // True: connected.
  bool Dialled(Pair& pair, size_t index) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(pair.sides[1].fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    sockaddr_storage peer{};
    size = sizeof peer;
    if (error == 0 && ::getpeername(pair.sides[1].fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
    pair.dialling = false;
    if (error == 0) return true;
    if (pair.tried_v6) {
      Close(pair, End::kNobody);
    } else {
      Dial(pair, index, true);
    }
    return false;
  }

  // Bytes from end `from` to the other, as far as they go now. False: one of them broke.
  static bool Move(Pair& pair, size_t from) {
    Side& source = pair.sides[from];
    Side& sink = pair.sides[1 - from];
    for (int turns = 0; turns < 4; ++turns) {
      if (sink.unsent.size() == sink.sent && !source.read_ended) {
        sink.unsent.resize(kPiece);
        const ssize_t got = ::read(source.fd.get(), sink.unsent.data(), kPiece);
        sink.unsent.resize(got > 0 ? static_cast<size_t>(got) : 0);
        sink.sent = 0;
        if (got == 0) source.read_ended = true;
        if (got < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (got < 0) break;
      }
      if (sink.unsent.size() == sink.sent) break;
      const ssize_t put = ::send(sink.fd.get(), sink.unsent.data() + sink.sent, sink.unsent.size() - sink.sent, MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (put < 0) break;
      sink.sent += static_cast<size_t>(put);
      sink.octets += static_cast<uint64_t>(put);
    }
    if (sink.unsent.size() == sink.sent) {
      sink.unsent = std::string();  // idle connections hold no buffer
      sink.sent = 0;
      if (source.read_ended && !sink.write_ended) {
        ::shutdown(sink.fd.get(), SHUT_WR);
        sink.write_ended = true;
      }
    }
    return true;
  }

  void Update(Pair& pair, size_t index) const {
    for (size_t i = 0; i < 2; ++i) {
      Side& end = pair.sides[i];
      const Side& other = pair.sides[1 - i];
      uint32_t interest = 0;
      if (!end.read_ended && other.unsent.empty()) interest |= EPOLLIN;
      if (!end.unsent.empty()) interest |= EPOLLOUT;
      if (interest == end.interest) continue;
      end.interest = interest;
      Watch(end.fd.get(), EPOLL_CTL_MOD, interest, Tag(i, index));
    }
  }

  void Close(Pair& pair, End how) {
    const linger reset{1, 0};
    for (Side& side : pair.sides)
      if (side.fd && how != End::kBoth) ::setsockopt(side.fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    const auto lasted = std::chrono::duration_cast<std::chrono::microseconds>(SystemClock().Steady() - pair.since);
    const Report report{.from = pair.from,
                        .octets_in = pair.sides[1].octets,
                        .octets_out = pair.sides[0].octets,
                        .microseconds = static_cast<uint64_t>(lasted.count()),
                        .listener = static_cast<uint32_t>(pair.listener),
                        .end = how};
    pair = Pair{};
    closed_ = true;
    // Where the supervisor does not keep up, nothing goes on unrecorded: this waits.
    while (::send(supervisor_, &report, sizeof report, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  std::vector<Listener> listeners_;
  std::vector<Pair> pairs_;
  const int supervisor_;
  UniqueFd epoll_;
  bool full_ = false;
  bool closed_ = false;  // one of them, since they were full
  bool finished_ = false;
};

// Closes what this process inherited but the standard descriptors, which become /dev/null, and those of `kept`.
void KeepOnly(std::vector<int> kept) {
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
  std::ranges::sort(kept);
  unsigned next = 3;
  for (const int fd : kept) {
    if (static_cast<unsigned>(fd) > next) ::close_range(next, static_cast<unsigned>(fd) - 1, 0);
    next = static_cast<unsigned>(fd) + 1;
  }
  ::close_range(next, ~0U, 0);
}

[[noreturn]] void RunChild(std::vector<Listener> listeners, int handshake) {
  const pid_t supervisor = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "sluice-publish");
  ::prctl(PR_SET_DUMPABLE, 0);
  std::vector<int> kept = {handshake};
  for (const Listener& listener : listeners) kept.push_back(listener.fd.get());
  KeepOnly(std::move(kept));
  // Keys of the terminal that stop or end the run are the supervisor's to hear.
  ::setsid();
  {
    const auto go = Expect(handshake, Step::kCaptured, -1);
    if (!go || go->fds.size() != 2) ::_exit(1);
    if (::setns(go->fds[0].get(), CLONE_NEWUSER) != 0 || ::setns(go->fds[1].get(), CLONE_NEWNET) != 0) {
      SendFailure(handshake, SystemError("cannot enter the sandbox's network to publish ports", errno));
      ::_exit(1);
    }
  }
  if (auto dropped = DropPrivileges(); !dropped) {
    SendFailure(handshake, dropped.error());
    ::_exit(1);
  }
  // Entering a user namespace gained capabilities, which took both back (prctl(2), PR_SET_PDEATHSIG).
  ::prctl(PR_SET_DUMPABLE, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != supervisor || !Send(handshake, Step::kGo)) ::_exit(1);
  Server(std::move(listeners), handshake).Run();
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Publisher>> Publisher::Begin(const std::vector<PublishedPort>& ports) {
  if (ports.size() > kMaxPublishedPorts)
    return Fail(Code::kExhausted, fmt::format("at most {} ports can be published", kMaxPublishedPorts));
  std::unique_ptr<Publisher> publisher(new Publisher);
  publisher->ports_ = ports;
  std::vector<Listener> listeners;
  for (PublishedPort& port : publisher->ports_) {
    auto fd = ListenOn(&port.outside);
    if (!fd) return std::unexpected(fd.error());
    listeners.push_back({*std::move(fd), port.inside});
  }
  auto handshake = MakeHandshake();
  if (!handshake) return std::unexpected(handshake.error());
  publisher->child_ = ::fork();
  if (publisher->child_ < 0) return FailErrno("cannot fork", errno);
  if (publisher->child_ == 0) {
    handshake->first.Reset();
    RunChild(std::move(listeners), handshake->second.get());
  }
  publisher->handshake_ = std::move(handshake->first);
  return publisher;
}

Publisher::~Publisher() {
  if (child_ <= 0) return;
  finishing_ = true;
  ::kill(child_, SIGKILL);  // not reaped yet, so the number is still its own
  if (reader_.joinable()) reader_.join();
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<void> Publisher::Serve(const Capture& capture) {
  if (auto sent = Send(handshake_.get(), Step::kCaptured, 0, {capture.user_namespace.get(), capture.network_namespace.get()});
      !sent)
    return sent;
  if (auto ready = Expect(handshake_.get(), Step::kGo, kStartTimeoutMs); !ready) return std::unexpected(ready.error());
  return {};
}

void Publisher::Tell(std::function<void(const PublishedConnection&)> told) {
  reader_ = std::thread([this, told = std::move(told)] { ReadReports(told); });
}

void Publisher::ReadReports(const std::function<void(const PublishedConnection&)>& told) {
  Report report{};
  for (;;) {
    const ssize_t got = ::recv(handshake_.get(), &report, sizeof report, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const auto from = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&report.from), sizeof report.from);
    if (got != static_cast<ssize_t>(sizeof report) || !from || report.listener >= ports_.size()) continue;
    told({.from = *from,
          .port = ports_[report.listener],
          .octets_in = report.octets_in,
          .octets_out = report.octets_out,
          .duration = std::chrono::microseconds(report.microseconds),
          .end = report.end});
  }
  if (!finishing_) LogError("published ports are served no longer: the process that did so is gone");
}

void Publisher::Finish() {
  finishing_ = true;
  ::shutdown(handshake_.get(), SHUT_WR);
  const UniqueFd child(static_cast<int>(::syscall(SYS_pidfd_open, child_, 0)));
  pollfd ended{child.get(), POLLIN, 0};
  if (::poll(&ended, 1, kFinishMs) <= 0) ::kill(child_, SIGKILL);
  if (reader_.joinable()) reader_.join();
}

}  // namespace sluice::supervisor
