// The numbered sequences of connect(2) that must behave as they do without a supervisor.

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/attack/notify/workload/cases.h"

namespace workload {
namespace {

void CheckGreeting(int fd, const std::string& name) {
  const std::string got = Greeting(fd);
  Check(got == name + "\n", "greeting of " + name + ", got " + got);
}

WORKLOAD_CASE(nonblocking_allowed) {
  const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Same(Connect(fd, To(kAllowed)), EINPROGRESS, "connect");
  Same(FinishConnect(fd), 0, "SO_ERROR");
  CheckGreeting(fd, "a.test");
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  Check(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0, "getpeername");
  Same(ntohs(peer.sin_port), kPort, "port of the peer");
}

WORKLOAD_CASE(blocking_allowed) {
  const int fd = TcpSocket();
  Same(Connect(fd, To(kAllowed)), 0, "connect");
  CheckGreeting(fd, "a.test");
}

WORKLOAD_CASE(denied_name) {
  const int fd = TcpSocket();
  const int64_t begin = NowMs();
  Same(Connect(fd, To(kForbidden)), EACCES, "connect");
  Check(NowMs() - begin < 2000, "at once");
  Same(Connect(TcpSocket(AF_INET, SOCK_NONBLOCK), To(kForbidden)), EACCES, "non-blocking connect");
}

WORKLOAD_CASE(denied_literal) {
  Same(Connect(TcpSocket(), To(kForbiddenLiteral, 443)), EACCES, "connect");
  Same(Connect(TcpSocket(AF_INET6), To("2001:4860:4860::8888", 443)), EACCES, "connect over IPv6");
  Same(Connect(TcpSocket(), To(kAllowed, 81)), EACCES, "another port of an allowed name");
}

WORKLOAD_CASE(closed_loopback_port) {
  const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Same(Connect(fd, To("127.0.0.1", 9)), EINPROGRESS, "connect");
  Same(FinishConnect(fd), ECONNREFUSED, "SO_ERROR");
  Same(Connect(TcpSocket(), To("127.0.0.1", 9)), ECONNREFUSED, "blocking connect");
}

WORKLOAD_CASE(upstream_refuses) { Same(Connect(TcpSocket(), To(kNoUpstream)), ECONNREFUSED, "connect"); }

void OnAlarm(int) {}

void SetTimer(int milliseconds, int flags) {
  struct sigaction action{};
  action.sa_handler = OnAlarm;
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval once{{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

WORKLOAD_CASE(alarm_without_restart) {
  const int fd = TcpSocket();
  SetTimer(200, 0);
  const int64_t begin = NowMs();
  Same(Connect(fd, To(kSlow)), EINTR, "connect");
  const int64_t took = NowMs() - begin;
  Check(took >= 195 && took < 900, "interrupted after " + std::to_string(took) + " ms");
  // The connect goes on, as in the kernel: a second call waits for it.
  Same(Connect(fd, To(kSlow)), 0, "second connect");
  CheckGreeting(fd, "slow.test");
}

WORKLOAD_CASE(alarm_with_restart) {
  const int fd = TcpSocket();
  SetTimer(200, SA_RESTART);
  const int64_t begin = NowMs();
  Same(Connect(fd, To(kSlow)), 0, "connect");
  Check(NowMs() - begin >= 800, "waited for the upstream");
  CheckGreeting(fd, "slow.test");
}

WORKLOAD_CASE(terminated_while_waiting) {
  int64_t shortest = 1000;
  for (int i = 0; i < 3; ++i) {  // the best of three: the machine may be busy
    const pid_t child = fork();
    if (child == 0) {
      Connect(TcpSocket(), To(kSlow));
      _exit(0);
    }
    usleep(200'000);
    kill(child, SIGTERM);
    const int64_t begin = NowMs();
    int status = 0;
    waitpid(child, &status, 0);
    Check(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "died of SIGTERM");
    shortest = std::min(shortest, NowMs() - begin);
  }
  Check(shortest <= 50, "took " + std::to_string(shortest) + " ms");
}

WORKLOAD_CASE(already_connected) {
  const int fd = TcpSocket();
  Same(Connect(fd, To(kAllowed)), 0, "connect");
  Same(Connect(fd, To(kAllowed)), EISCONN, "again");
  const int other = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Same(Connect(other, To(kAllowed)), EINPROGRESS, "connect");
  Same(FinishConnect(other), 0, "SO_ERROR");
  Same(Connect(other, To(kAllowed)), 0, "the call that ends a non-blocking connect");
  Same(Connect(other, To(kAllowed)), EISCONN, "and one more");
}

WORKLOAD_CASE(epoll_registered_before) {
  const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{EPOLLOUT | EPOLLET, {.u64 = 0x1234567890}};
  Same(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0, "ADD");
  epoll_event got{};
  (void)epoll_wait(epoll, &got, 1, 0);  // an unconnected socket hangs up first
  Same(Connect(fd, To(kAllowed)), EINPROGRESS, "connect");
  bool writable = false;
  for (int i = 0; i < 3 && !writable; ++i) {
    Same(epoll_wait(epoll, &got, 1, 3000), 1, "event");
    writable = (got.events & (EPOLLOUT | EPOLLHUP)) == EPOLLOUT;
  }
  Check(writable && got.data.u64 == 0x1234567890, "same data");
  event.events = EPOLLIN;
  Same(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event), 0, "MOD");
  Same(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr), 0, "DEL");
}

WORKLOAD_CASE(duplicate_sees_the_peer) {
  const int fd = TcpSocket();
  const int copy = dup(fd);
  Same(Connect(fd, To(kAllowed)), 0, "connect");
  sockaddr_storage peer;
  socklen_t length = sizeof peer;
  Same(getpeername(copy, reinterpret_cast<sockaddr*>(&peer), &length), 0, "getpeername of the copy");
}

WORKLOAD_CASE(fork_shares_the_socket) {
  const int fd = TcpSocket();
  const pid_t child = fork();
  if (child == 0) {
    Same(Connect(fd, To(kAllowed)), 0, "connect in the child");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child");
  CheckGreeting(fd, "a.test");
}

// The parent stands still in vfork meanwhile, and both have one memory.
WORKLOAD_CASE(vfork_child_connects) {
  const int fd = TcpSocket();
  const Address to = To(kAllowed);
  const Address forbidden = To(kForbidden);
  const pid_t child = vfork();
  if (child == 0) {
    const bool connected = connect(fd, to.get(), to.length) == 0;
    const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool refused = connect(other, forbidden.get(), forbidden.length) != 0 && errno == EACCES;
    _exit(connected && refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child");
  CheckGreeting(fd, "a.test");
}

WORKLOAD_CASE(options_are_kept) {
  const int fd = TcpSocket();
  const int on = 1;
  Same(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0, "set");
  Same(fcntl(fd, F_SETFD, 0), 0, "clear FD_CLOEXEC");
  Same(Connect(fd, To(kAllowed)), 0, "connect");
  int got = 0;
  socklen_t length = sizeof got;
  getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &got, &length);
  Same(got, 1, "TCP_NODELAY");
  Same(fcntl(fd, F_GETFD), 0, "descriptor flags");
}

WORKLOAD_CASE(bound_port_is_kept) {
  const int fd = TcpSocket();
  Same(bind(fd, To("0.0.0.0", 20123).get(), To("0.0.0.0", 20123).length), 0, "bind");
  Same(Connect(fd, To(kAllowed)), 0, "connect");
  sockaddr_in name{};
  socklen_t length = sizeof name;
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length);
  Same(ntohs(name.sin_port), 20123, "port");
}

WORKLOAD_CASE(own_listener) {
  const int listener = TcpSocket();
  Same(bind(listener, To("127.0.0.1", 0).get(), To("127.0.0.1", 0).length), 0, "bind");
  Same(listen(listener, 5), 0, "listen");
  sockaddr_in name{};
  socklen_t length = sizeof name;
  getsockname(listener, reinterpret_cast<sockaddr*>(&name), &length);
  const int fd = TcpSocket();
  Same(Connect(fd, To("127.0.0.1", ntohs(name.sin_port))), 0, "connect");
  Check(accept(listener, nullptr, nullptr) >= 0, "accept");
}

WORKLOAD_CASE(dissolved_then_listening) {
  const int fd = TcpSocket();
  Same(Connect(fd, To(kAllowed)), 0, "connect");
  Address none;
  none.length = sizeof(sockaddr_in);
  Same(Connect(fd, none), 0, "connect(AF_UNSPEC)");
  // In the capture namespace a listener is the workload's own business, and reaches nobody outside.
  Same(listen(fd, 1), 0, "listen");
}

WORKLOAD_CASE(mapped_denied) {
  Same(Connect(TcpSocket(AF_INET6), Mapped(kForbidden)), EACCES, "name");
  Same(Connect(TcpSocket(AF_INET6), Mapped(kForbiddenLiteral, 443)), EACCES, "literal");
}

WORKLOAD_CASE(mapped_allowed) {
  const int fd = TcpSocket(AF_INET6);
  Same(Connect(fd, Mapped(kAllowed)), 0, "connect");
  CheckGreeting(fd, "a.test");
  const int other = TcpSocket(AF_INET6, SOCK_NONBLOCK);
  Same(Connect(other, Mapped(kAllowed)), EINPROGRESS, "non-blocking");
  CheckGreeting(other, "a.test");
}

WORKLOAD_CASE(ipv6_allowed) {
  const int fd = TcpSocket(AF_INET6, SOCK_NONBLOCK);
  Same(Connect(fd, To("fd5c::1")), EINPROGRESS, "connect");
  Same(FinishConnect(fd), 0, "SO_ERROR");
  CheckGreeting(fd, "a.test");
}

WORKLOAD_CASE(bad_arguments) {
  const Address good = To(kAllowed);
  const int fd = TcpSocket();
  const auto raw = [&](int which, const void* address, socklen_t length) {
    return connect(which, static_cast<const sockaddr*>(address), length) == 0 ? 0 : errno;
  };
  Same(raw(fd, good.get(), 1), EINVAL, "length 1");
  Same(raw(fd, good.get(), 0), EINVAL, "length 0");
  Same(raw(fd, good.get(), 8), EINVAL, "length 8");
  Same(raw(fd, good.get(), 4096), EINVAL, "length 4096");
  Same(raw(fd, good.get(), static_cast<socklen_t>(-1)), EINVAL, "length -1");
  Same(raw(fd, reinterpret_cast<const void*>(8), good.length), EFAULT, "bad pointer");  // NOLINT
  Same(raw(fd, nullptr, good.length), EFAULT, "null pointer");
  Same(raw(-1, good.get(), good.length), EBADF, "descriptor -1");
  Same(raw(999, good.get(), good.length), EBADF, "descriptor 999");
  int pipes[2];
  Same(pipe(pipes), 0, "pipe");
  Same(raw(pipes[0], good.get(), good.length), ENOTSOCK, "a pipe");
  Same(raw(fd, To("::1").get(), To("::1").length), EAFNOSUPPORT, "the other family");
  Same(Connect(TcpSocket(AF_INET6), good), EAFNOSUPPORT, "the other family, the other way");
}

WORKLOAD_CASE(send_timeout) {
  const int fd = TcpSocket();
  const timeval limit{0, 300'000};
  Same(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0, "SO_SNDTIMEO");
  const int64_t begin = NowMs();
  Same(Connect(fd, To(kSlow)), EINPROGRESS, "connect");
  const int64_t took = NowMs() - begin;
  Check(took >= 290 && took < 900, "took " + std::to_string(took) + " ms");
}

WORKLOAD_CASE(nonblocking_while_waiting) {
  const int fd = TcpSocket();
  const pid_t child = fork();
  if (child == 0) {
    Same(Connect(fd, To(kSlow)), 0, "connect in the child");
    _exit(0);
  }
  usleep(200'000);
  Same(fcntl(fd, F_SETFL, O_NONBLOCK), 0, "F_SETFL");
  Same(Connect(fd, To(kSlow)), EALREADY, "non-blocking connect meanwhile");
  int status = 0;
  waitpid(child, &status, 0);
  Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child");
}

WORKLOAD_CASE(full_backlog_of_its_own) {
  const int listener = TcpSocket();
  Same(bind(listener, To("127.0.0.1", 0).get(), To("127.0.0.1", 0).length), 0, "bind");
  Same(listen(listener, 0), 0, "listen");
  sockaddr_in name{};
  socklen_t length = sizeof name;
  getsockname(listener, reinterpret_cast<sockaddr*>(&name), &length);
  const Address full = To("127.0.0.1", ntohs(name.sin_port));
  Same(Connect(TcpSocket(), full), 0, "the one that fits");
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      Connect(TcpSocket(), full);
      _exit(0);
    }
  }
  usleep(300'000);
  std::vector<int64_t> took;
  for (int i = 0; i < 50; ++i) {
    const int64_t start = NowMs();
    const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
    Same(Connect(fd, To(kAllowed)), EINPROGRESS, "connect of another");
    took.push_back(NowMs() - start);
    close(fd);
  }
  std::ranges::sort(took);
  Check(took[25] <= 50, "half within 50 ms, took " + std::to_string(took[25]));
  const int64_t begin = NowMs();
  const pid_t child = fork();
  if (child == 0) {
    SetTimer(200, 0);
    Same(Connect(TcpSocket(), full), EINTR, "a signal while the backlog is full");
    Check(NowMs() - begin < 5000, "in time");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "interrupted child");
  signal(SIGTERM, SIG_IGN);
  kill(0, SIGTERM);
}

}  // namespace
}  // namespace workload
