// What a workload might try. Each case checks what it can see itself; the test looks at what the supervisor did.

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/attack/notify/workload/cases.h"

namespace workload {
namespace {

void ResetOnClose(int fd) {
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

void WaitForChild(pid_t child, const std::string& what) {
  int status = 0;
  Check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

// ---- races ----

WORKLOAD_CASE(race_address) {
  const int tries = std::stoi(args.at(0));
  Address shared = To(kAllowed);
  const uint32_t good = reinterpret_cast<sockaddr_in*>(&shared.storage)->sin_addr.s_addr;
  const Address other = To(kForbidden);
  const uint32_t bad = reinterpret_cast<const sockaddr_in*>(&other.storage)->sin_addr.s_addr;
  auto* target = &reinterpret_cast<sockaddr_in*>(&shared.storage)->sin_addr.s_addr;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      __atomic_store_n(target, bad, __ATOMIC_RELAXED);
      __atomic_store_n(target, good, __ATOMIC_RELAXED);
    }
  });
  int allowed = 0;
  int denied = 0;
  for (int i = 0; i < tries; ++i) {
    const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
    ResetOnClose(fd);
    const int error = Connect(fd, shared);
    if (error == EINPROGRESS) {
      ++allowed;
      sockaddr_in peer{};
      socklen_t length = sizeof peer;
      const bool reached = getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
      Check(!reached || peer.sin_addr.s_addr == good, "a forbidden peer");
    } else {
      Same(error, EACCES, "connect");
      ++denied;
    }
    close(fd);
  }
  stop = true;
  writer.join();
  Check(allowed > 0 && denied > 0, "the race never ran: " + std::to_string(allowed) + " and " + std::to_string(denied));
}

// A socket changes under a call that was judged for another: UNIX when looked at, TCP when the kernel goes on.
WORKLOAD_CASE(race_descriptor) {
  const int tries = std::stoi(args.at(0));
  // One address that reads as either: the family is flipped, the bytes after it are a forbidden place.
  alignas(sockaddr_storage) static Address shared = To(kForbidden);
  auto* family = &reinterpret_cast<sockaddr*>(&shared.storage)->sa_family;
  const int unix_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int slot = dup(unix_socket);
  std::atomic<bool> stop{false};
  std::atomic<int> tcp{-1};
  std::thread swapper([&] {
    while (!stop.load()) {
      const int now = tcp.load();
      if (now < 0) continue;
      __atomic_store_n(family, AF_UNIX, __ATOMIC_SEQ_CST);
      dup2(unix_socket, slot);
      dup2(now, slot);
      __atomic_store_n(family, AF_INET, __ATOMIC_SEQ_CST);
    }
  });
  for (int i = 0; i < tries; ++i) {
    const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
    tcp = fd;
    const int error = connect(slot, shared.get(), shared.length) == 0 ? 0 : errno;
    if (error == 0 || error == EINPROGRESS) {
      sockaddr_in peer{};
      socklen_t length = sizeof peer;
      Check(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0, "connected to a forbidden place");
    }
    tcp = -1;
    close(fd);
  }
  stop = true;
  swapper.join();
}

// ---- ways past connect ----

WORKLOAD_CASE(io_uring) {
  char parameters[256] = {};
  Same(syscall(425, 8, parameters), -1, "io_uring_setup");
  Same(errno, EPERM, "io_uring_setup");
  Same(syscall(426, 3, 1, 0, 0, nullptr, 0), -1, "io_uring_enter");
  Same(errno, EPERM, "io_uring_enter");
  Same(syscall(427, 3, 0, nullptr, 0), -1, "io_uring_register");
  Same(errno, EPERM, "io_uring_register");
}

#if defined(__x86_64__)
WORKLOAD_CASE(int80) {
  const pid_t child = fork();
  if (child == 0) {
    long result = 362;  // connect of the 32-bit ABI
    asm volatile("int $0x80" : "+a"(result) : "b"(3L), "c"(0L), "d"(16L) : "memory");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "SIGSYS");
}

WORKLOAD_CASE(x32) {
  Same(syscall(0x40000000 | 42, 3, nullptr, 16), -1, "connect of x32");
  Same(errno, ENOSYS, "connect of x32");
  Same(syscall(470), -1, "a call that is not known yet");
  Same(errno, ENOSYS, "a call that is not known yet");
}
#endif

WORKLOAD_CASE(fast_open) {
  const Address to = To(kAllowed);
  char byte = 'x';
  Same(sendto(TcpSocket(), &byte, 1, MSG_FASTOPEN, to.get(), to.length), -1, "sendto");
  Same(errno, EOPNOTSUPP, "sendto");
  iovec part{&byte, 1};
  mmsghdr message{};
  message.msg_hdr.msg_name = const_cast<sockaddr*>(to.get());
  message.msg_hdr.msg_namelen = to.length;
  message.msg_hdr.msg_iov = &part;
  message.msg_hdr.msg_iovlen = 1;
  Same(sendmsg(TcpSocket(), &message.msg_hdr, MSG_FASTOPEN), -1, "sendmsg");
  Same(errno, EOPNOTSUPP, "sendmsg");
  Same(sendmmsg(TcpSocket(), &message, 1, MSG_FASTOPEN), -1, "sendmmsg");
  Same(errno, EOPNOTSUPP, "sendmmsg");
  const int on = 1;
  Same(setsockopt(TcpSocket(), IPPROTO_TCP, 30, &on, sizeof on), -1, "TCP_FASTOPEN_CONNECT");
}

WORKLOAD_CASE(socket_families) {
  for (int family = 0; family <= 45; ++family) {
    for (const int type : {1, 2, 3, 4, 5, 10}) {
      const int fd = socket(family, type, 0);
      const bool inet = (family == AF_INET || family == AF_INET6) && (type == SOCK_STREAM || type == SOCK_DGRAM);
      const bool local =
          family == AF_UNIX && (type == SOCK_STREAM || type == SOCK_DGRAM || type == SOCK_SEQPACKET || type == SOCK_RAW);
      const bool route = family == AF_NETLINK && (type == SOCK_RAW || type == SOCK_DGRAM);
      Check((fd >= 0) == (inet || local || route), "family " + std::to_string(family) + " type " + std::to_string(type));
      if (fd >= 0) close(fd);
    }
  }
  Same(socket(AF_INET, SOCK_STREAM, 262), -1, "MPTCP");
  Same(errno, EPROTONOSUPPORT, "MPTCP");
  Same(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), -1, "raw");
  Same(errno, EPERM, "raw");
  Same(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), -1, "ping");
  Same(socket(AF_PACKET, SOCK_RAW, 0), -1, "packet");
  Same(errno, EPERM, "packet");
  Same(socket(40, SOCK_STREAM, 0), -1, "vsock");
  Same(errno, EPERM, "vsock");
  for (int protocol = 1; protocol < 32; ++protocol) Same(socket(AF_NETLINK, SOCK_RAW, protocol), -1, "netlink");
}

WORKLOAD_CASE(refused_calls) {
  const auto refused = [](long result, int error, const char* what) {
    const int got = errno;
    Same(result, -1, what);
    Same(got, error, what);
  };
  refused(syscall(SYS_keyctl, 0, -3, 0), EPERM, "keyctl");
  refused(syscall(SYS_add_key, "user", "x", "y", 1, -3), EPERM, "add_key");
  refused(syscall(SYS_request_key, "user", "x", nullptr, 0), EPERM, "request_key");
  refused(syscall(SYS_userfaultfd, 0), EPERM, "userfaultfd");
  refused(syscall(SYS_bpf, 0, nullptr, 0), EPERM, "bpf");
  refused(syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0), EPERM, "perf_event_open");
  refused(syscall(SYS_pidfd_getfd, 3, 0, 0), EPERM, "pidfd_getfd");
  refused(syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0), EPERM, "kcmp");
  refused(syscall(SYS_process_vm_readv, getppid(), nullptr, 0, nullptr, 0, 0), ENOSYS, "process_vm_readv");
  refused(syscall(SYS_setns, 3, 0), EPERM, "setns");
  for (const int flag :
       {CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP, 0x80}) {
    refused(unshare(flag), EPERM, "unshare");
  }
  refused(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0), EPERM, "clone");
  char arguments[88] = {};
  refused(syscall(SYS_clone3, arguments, sizeof arguments), ENOSYS, "clone3");
  refused(syscall(SYS_mount, "x", "/", "tmpfs", 0, nullptr), EPERM, "mount");
  char byte = 'x';
  refused(ioctl(0, 0x5412, &byte), EPERM, "TIOCSTI");
  refused(ioctl(0, 0x541c, &byte), EPERM, "TIOCLINUX");
  refused(ioctl(TcpSocket(), 0x894c, 0), EPERM, "SIOCGSKNS");
}

WORKLOAD_CASE(options_that_hang) {
  const auto refused = [](int fd, int level, int option, const void* value, socklen_t length, const char* what) {
    Same(setsockopt(fd, level, option, value, length), -1, what);
    Same(errno, EPERM, what);
  };
  const int fd = TcpSocket();
  const int fd6 = TcpSocket(AF_INET6);
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  refused(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program, "SO_ATTACH_FILTER");
  refused(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2, "SO_BINDTODEVICE");
  tcp_md5sig key{};
  refused(fd, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key, "TCP_MD5SIG");
  const uint8_t route[] = {131, 7, 4, 8, 8, 8, 8, 0};
  refused(fd, IPPROTO_IP, IP_OPTIONS, route, sizeof route, "IP_OPTIONS");
  refused(fd6, IPPROTO_IP, IP_OPTIONS, route, sizeof route, "IP_OPTIONS of an IPv6 socket");
  const char header[24] = {};
  for (const int option : {57, 54, 55, 59, 2, 3, 4, 5, 6})
    refused(fd6, IPPROTO_IPV6, option, header, sizeof header, "IPV6 header");
  const int on = 1;
  refused(fd, IPPROTO_TCP, 19, &on, sizeof on, "TCP_REPAIR");
  Same(Connect(fd, To(kAllowed)), 0, "and the socket still works");
}

// ---- datagrams ----

WORKLOAD_CASE(udp) {
  const auto udp = [](int family = AF_INET) { return socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0); };
  char byte = 'x';
  const Address far = To(kForbiddenLiteral, 443);
  Same(sendto(udp(), &byte, 1, 0, far.get(), far.length), -1, "sendto");
  Same(errno, EACCES, "sendto");
  Same(Connect(udp(), far), EACCES, "connect");
  Same(Connect(udp(AF_INET6), To("2001:4860:4860::8888", 443)), EACCES, "connect over IPv6");
  Same(Connect(udp(AF_INET6), far), EACCES, "an IPv4 address on an IPv6 socket");
  // sendmsg cannot be watched: the namespace refuses.
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(far.get());
  message.msg_namelen = far.length;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const int fd = udp();
  const bool sent = sendmsg(fd, &message, 0) == 1;
  pollfd state{fd, POLLIN, 0};
  Check(!sent || poll(&state, 1, 100) == 0 || recv(fd, &byte, 1, MSG_DONTWAIT) < 0, "nobody answers");
  // getaddrinfo connects to what it found, to learn its own address.
  const int chooser = udp();
  Same(Connect(chooser, To(kAllowed, 0)), 0, "source selection");
  sockaddr_in name{};
  socklen_t length = sizeof name;
  getsockname(chooser, reinterpret_cast<sockaddr*>(&name), &length);
  Check(name.sin_addr.s_addr != 0 && name.sin_addr.s_addr != htonl(INADDR_LOOPBACK), "a source address that is no loopback");
  Check(send(chooser, &byte, 1, 0) < 0 || (usleep(50'000), send(chooser, &byte, 1, 0) < 0), "and sends are refused");
  // Its own loopback stays its own.
  const int server = udp();
  Same(bind(server, To("127.0.0.1", 0).get(), To("127.0.0.1", 0).length), 0, "bind");
  length = sizeof name;
  getsockname(server, reinterpret_cast<sockaddr*>(&name), &length);
  Same(sendto(udp(), &byte, 1, 0, reinterpret_cast<sockaddr*>(&name), length), 1, "to itself");
  Same(recv(server, &byte, 1, 0), 1, "from itself");
}

/// Sends a lookup in the way that is asked for, then waits until told to go on.
WORKLOAD_CASE(lookup) {
  const std::string& how = args.at(0);
  const Address resolver = To("9.9.9.9", 53);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  char text[] = "question";
  if (how == "connect") {
    Same(Connect(fd, resolver), 0, "connect");
    Same(send(fd, text, sizeof text, 0), sizeof text, "send");
  } else if (how == "sendto") {
    Same(sendto(fd, text, sizeof text, 0, resolver.get(), resolver.length), sizeof text, "sendto");
  } else {
    iovec part{text, sizeof text};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(resolver.get());
    message.msg_namelen = resolver.length;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    Same(sendmsg(fd, &message, 0), sizeof text, "sendmsg");
  }
  while (access("go", F_OK) != 0) usleep(1000);
}

// ---- parking the supervisor ----

// Fills a connection, has the supervisor pin it, sets SO_LINGER and closes: the supervisor's close would be the last.
void LingerOnce() {
  const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
  if (Connect(fd, To(kAllowed)) != EINPROGRESS) _exit(1);
  std::string block(1 << 16, 'x');
  while (send(fd, block.data(), block.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  std::thread caller([fd] { Connect(fd, To(kAllowed)); });
  const linger wait{1, 20};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  syscall(SYS_close, fd);
  caller.join();
}

WORKLOAD_CASE(linger) {
  std::vector<pid_t> children;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::vector<std::thread> threads;
      for (int k = 0; k < 10; ++k) threads.emplace_back(LingerOnce);
      for (std::thread& thread : threads) thread.join();
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<int64_t> took;
  for (int i = 0; i < 100; ++i) {
    const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
    const int64_t begin = NowMs();
    Same(Connect(fd, To(kOtherAllowed)), EINPROGRESS, "connect of another");
    took.push_back(NowMs() - begin);
    close(fd);
    usleep(5'000);
  }
  std::ranges::sort(took);
  for (const pid_t child : children) kill(child, SIGKILL);
  // A parked supervisor would hold most of them for seconds; a loaded machine may hold a few for a while.
  Check(took[took.size() / 2] <= 50, "half within 50 ms; took " + std::to_string(took[took.size() / 2]));
  Check(took.back() <= 5000, "longest: " + std::to_string(took.back()));
}

// ---- attribution ----

// A sends, resets and frees its port; B connects from the same one. A's bytes must never be B's.
WORKLOAD_CASE(port_reuse) {
  const int rounds = std::stoi(args.at(0));
  const Address local = To("0.0.0.0", 20321);
  const auto bound = [&] {
    const int fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ResetOnClose(fd);
    return bind(fd, local.get(), local.length) == 0 ? fd : (close(fd), -1);
  };
  const auto play = [&](char letter) {
    for (int i = 0; i < rounds; ++i) {
      const int fd = bound();
      if (fd < 0) continue;
      std::thread dissolver([fd] {
        Address none;
        none.length = sizeof(sockaddr_in);
        Connect(fd, none);
      });
      if (Connect(fd, To(kAllowed)) == EINPROGRESS) (void)!send(fd, &letter, 1, MSG_NOSIGNAL);
      dissolver.join();
      close(fd);
    }
  };
  const pid_t child = fork();
  if (child == 0) {
    play('B');
    _exit(0);
  }
  play('A');
  WaitForChild(child, "child");
}

WORKLOAD_CASE(thread_with_its_own_table) {
  const int first = TcpSocket();
  std::thread other([first] {
    Check(unshare(CLONE_FILES) == 0, "unshare(CLONE_FILES)");
    const int mine = TcpSocket(AF_INET, SOCK_NONBLOCK);
    Check(dup2(mine, first) == first, "dup2 in the thread's own table");
    Same(Connect(first, To(kAllowed)), EINPROGRESS, "connect");
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    Same(getpeername(mine, reinterpret_cast<sockaddr*>(&peer), &length), 0, "this thread's socket is connected");
  });
  other.join();
  sockaddr_storage peer;
  socklen_t length = sizeof peer;
  Check(getpeername(first, reinterpret_cast<sockaddr*>(&peer), &length) != 0, "the other thread's is not");
}

WORKLOAD_CASE(connect_once) { Same(Connect(TcpSocket(), To(kAllowed)), 0, "connect"); }

WORKLOAD_CASE(exec_another) {
  Same(Connect(TcpSocket(), To(kAllowed)), 0, "connect before");
  // A copy of this program under another name, and one without any.
  const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int copy = args.at(0) == "memfd" ? static_cast<int>(syscall(SYS_memfd_create, "copy", MFD_CLOEXEC))
                                         : open("copy", O_RDWR | O_CREAT | O_CLOEXEC, 0700);
  char block[65536];
  for (ssize_t n = 0; (n = read(self, block, sizeof block)) > 0;) Check(write(copy, block, static_cast<size_t>(n)) == n, "copy");
  char name[] = "copy", what[] = "connect_once";
  char* arguments[] = {name, what, nullptr};
  if (args.at(0) == "memfd") {
    fexecve(copy, arguments, environ);
  } else {
    close(copy);
    execv("copy", arguments);
  }
  Check(false, "exec");
}

// ---- the supervisor's own ----

WORKLOAD_CASE(dial_the_listener) {
  const auto port = static_cast<uint16_t>(std::stoi(args.at(0)));
  for (const char* address : {"127.0.0.1", "127.1.2.3", "0.0.0.0"}) {
    Same(Connect(TcpSocket(), To(address, port)), ECONNREFUSED, address);
    Same(Connect(TcpSocket(AF_INET6), Mapped(address, port)), ECONNREFUSED, address);
  }
  for (const char* address : {"::1", "::"}) Same(Connect(TcpSocket(AF_INET6), To(address, port)), ECONNREFUSED, address);
  // The namespace's own address, as a source shows it.
  const int chooser = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  Same(Connect(chooser, To(kAllowed, 0)), 0, "source selection");
  Address own;
  own.length = sizeof own.storage;
  getsockname(chooser, reinterpret_cast<sockaddr*>(&own.storage), &own.length);
  reinterpret_cast<sockaddr_in*>(&own.storage)->sin_port = htons(port);
  Same(Connect(TcpSocket(), own), ECONNREFUSED, "its own address");
  Same(Connect(TcpSocket(), To(kAllowed, port)), EACCES, "that port elsewhere");
}

// Another listener on the supervisor's port would take its connections, or make them fail.
WORKLOAD_CASE(share_the_listener) {
  const auto port = static_cast<uint16_t>(std::stoi(args.at(0)));
  const int on = 1;
  for (const char* address : {"::", "::1", "0.0.0.0", "127.0.0.1", "198.18.0.1"}) {
    const int fd = TcpSocket(std::string_view(address).contains(':') ? AF_INET6 : AF_INET);
    Same(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0, "SO_REUSEPORT");
    Same(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0, "SO_REUSEADDR");
    Same(bind(fd, To(address, port).get(), To(address, port).length), -1, address);
    Check(errno == EADDRINUSE || errno == EACCES, std::string("errno of ") + address);
  }
  const int resolver = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  Same(setsockopt(resolver, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0, "SO_REUSEPORT");
  Same(bind(resolver, To("8.8.8.8", 53).get(), To("8.8.8.8", 53).length), -1, "8.8.8.8:53");
  for (int i = 0; i < 100; ++i) {
    const int fd = TcpSocket();
    Same(Connect(fd, To(kAllowed)), 0, "connect");
    Check(Greeting(fd) == "a.test\n", "captured");
    close(fd);
  }
}

WORKLOAD_CASE(second_filter) {
  // For connect alone: hand it to a tracer, which there is none of. A notification ranks above.
  sock_filter trace[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_connect},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRACE},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  sock_fprog program{4, trace};
  Same(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), -1, "a second listener");
  Same(errno, EBUSY, "a second listener");
  Same(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0, "a filter that only tells a tracer");
  Same(Connect(TcpSocket(AF_INET, SOCK_NONBLOCK), To(kForbidden)), EACCES, "still decided");
  Same(Connect(TcpSocket(AF_INET, SOCK_NONBLOCK), To(kAllowed)), EINPROGRESS, "still connected");
}

WORKLOAD_CASE(supervisor_gone) {
  Same(Connect(TcpSocket(), To(kAllowed)), 0, "before");
  close(open("ready", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (access("go", F_OK) != 0) usleep(1000);
  Same(Connect(TcpSocket(), To(kAllowed)), ENOSYS, "allowed");
  Same(Connect(TcpSocket(AF_INET, SOCK_NONBLOCK), To(kForbidden)), ENOSYS, "forbidden");
  Same(Connect(TcpSocket(), To("127.0.0.1", 9)), ENOSYS, "loopback");
}

WORKLOAD_CASE(unrecorded) { Same(Connect(TcpSocket(), To(kAllowed)), EACCES, "what cannot be recorded"); }

// ---- UNIX sockets ----

int ConnectUnix(const std::string& path, int type = SOCK_STREAM) {
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path.data(), std::min(path.size(), sizeof to.sun_path));
  const int error = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? 0 : errno;
  close(fd);
  return error;
}

WORKLOAD_CASE(unix_sockets) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, "here.sock");  // NOLINT: it fits
  Same(bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof name), 0, "bind");
  Same(listen(listener, 8), 0, "listen");
  Same(ConnectUnix("here.sock"), 0, "relative, in the work directory");
  Same(ConnectUnix("./sub/../here.sock"), ENOENT, "a folder that is not there");
  Same(ConnectUnix("missing.sock"), ENOENT, "nothing there");
  Same(ConnectUnix("/run/docker.sock"), ENOENT, "a host's socket, which the view does not hold");
  Same(ConnectUnix("../../run/docker.sock"), ENOENT, "the same, by dots");
  Same(ConnectUnix("/etc/hostname"), EACCES, "elsewhere, a file");
  Same(symlink("/etc/hostname", "link.sock"), 0, "symlink");
  Same(ConnectUnix("link.sock"), EACCES, "elsewhere, by a link");
  Same(ConnectUnix("/etc/hostname", SOCK_DGRAM), EACCES, "a datagram socket elsewhere");
  sockaddr_un log{};
  log.sun_family = AF_UNIX;
  std::strcpy(log.sun_path, "/etc/hostname");  // NOLINT: it fits
  char byte = 'x';
  const int datagram = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  Same(sendto(datagram, &byte, 1, 0, reinterpret_cast<sockaddr*>(&log), sizeof log), -1, "sendto elsewhere");
  Same(errno, EACCES, "sendto elsewhere");
  Same(ConnectUnix(std::string("\0abstract", 9)), ECONNREFUSED, "abstract, in its own namespace");
}

// A socket of the host's network namespace, handed over through the work directory.
WORKLOAD_CASE(foreign_socket) {
  const int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::strcpy(to.sun_path, "outside.sock");  // NOLINT: it fits
  while (connect(channel, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) usleep(1000);
  for (int i = 0; i < 2; ++i) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    Same(recvmsg(channel, &message, MSG_CMSG_CLOEXEC), 1, "recvmsg");
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    Same(Connect(fd, To(kAllowed)), EACCES, "connect of a foreign socket");
    Same(Connect(fd, To("127.0.0.1", 9)), EACCES, "to its loopback");
    Same(sendto(fd, &byte, 1, 0, To("127.0.0.1", 9).get(), sizeof(sockaddr_in)), -1, "sendto of a foreign socket");
    Same(errno, EACCES, "sendto of a foreign socket");
  }
}

// ---- load ----

WORKLOAD_CASE(many) {
  const int processes = std::stoi(args.at(0));
  const int each = std::stoi(args.at(1));
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::vector<int> fds;
      for (int k = 0; k < each; ++k) {
        fds.push_back(TcpSocket(AF_INET, k % 2 == 0 ? SOCK_NONBLOCK : 0));
        const int error = Connect(fds.back(), To(k % 3 == 0 ? kOtherAllowed : kAllowed));
        Same(error, k % 2 == 0 ? EINPROGRESS : 0, "connect");
      }
      for (int k = 0; k < each; ++k) {
        const std::string got = Greeting(fds[static_cast<size_t>(k)]);
        Check(got == (k % 3 == 0 ? "b.test\n" : "a.test\n"), "greeting: " + got);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) WaitForChild(child, "one of many");
}

}  // namespace
}  // namespace workload
