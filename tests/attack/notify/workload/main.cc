#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/attack/notify/workload/cases.h"

namespace workload {
namespace {

// Where the test looks: standard error belongs to the test program itself.
constexpr const char* kReport = "report";

[[noreturn]] void Fail(const std::string& line) {
  const int fd = open(kReport, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  (void)!write(fd >= 0 ? fd : STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

// Where a place of cases.h is in this sandbox: PLACES has "198.18.0.1=198.18.0.7 fd5c::1=…".
std::string Placed(const std::string& place) {
  const char* places = std::getenv("PLACES");
  std::istringstream all(places != nullptr ? places : "");
  for (std::string one; all >> one;)
    if (one.starts_with(place + "=")) return one.substr(place.size() + 1);
  return place;
}

}  // namespace

Register::Register(const char* name, Run run) { Cases().push_back({name, run}); }

void Check(bool ok, const std::string& what) {
  if (ok) return;
  Fail(what + " (errno " + std::to_string(errno) + ", " + std::strerror(errno) + ")\n");
}

void Same(long got, long wanted, const std::string& what) {
  if (got == wanted) return;
  Fail(what + ": got " + std::to_string(got) + ", wanted " + std::to_string(wanted) + "\n");
}

Address To(const std::string& name, uint16_t port) {
  const std::string address = Placed(name);
  Address out;
  auto* in = reinterpret_cast<sockaddr_in*>(&out.storage);
  if (inet_pton(AF_INET, address.c_str(), &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    out.length = sizeof *in;
    return out;
  }
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  Check(inet_pton(AF_INET6, address.c_str(), &in6->sin6_addr) == 1, "address " + address);
  in6->sin6_family = AF_INET6;
  in6->sin6_port = htons(port);
  out.length = sizeof *in6;
  return out;
}

Address Mapped(const std::string& address, uint16_t port) { return To("::ffff:" + Placed(address), port); }

int TcpSocket(int family, int flags) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  Check(fd >= 0, "socket");
  return fd;
}

int Connect(int fd, const Address& address) { return connect(fd, address.get(), address.length) == 0 ? 0 : errno; }

int FinishConnect(int fd, int timeout_ms) {
  pollfd state{fd, POLLOUT, 0};
  if (poll(&state, 1, timeout_ms) <= 0) return -1;
  int error = 0;
  socklen_t length = sizeof error;
  Check(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "SO_ERROR");
  return error;
}

std::string Greeting(int fd) {
  std::string out;
  while (!out.ends_with('\n')) {
    pollfd state{fd, POLLIN, 0};
    if (poll(&state, 1, 3000) <= 0) return "(silence)";
    char byte = 0;
    const ssize_t n = recv(fd, &byte, 1, 0);
    if (n == 0) return out + "(end)";
    if (n < 0) return "(" + std::string(std::strerror(errno)) + ")";
    out += byte;
  }
  return out;
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace workload

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  for (const workload::Case& one : workload::Cases()) {
    if (wanted != one.name) continue;
    one.run(workload::Arguments(argv + 2, argv + argc));
    return 0;
  }
  std::fprintf(stderr, "no such case: %s\n", wanted.c_str());
  return 2;
}
