#include "app/doctor/io/inside.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "app/doctor/io/stand_in.h"
#include "app/exit_code.h"
#include "base/ip.h"
#include "base/unique_fd.h"
#include "dns/message.h"

namespace sluice::app {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAllowedPatience{8000};
constexpr std::chrono::milliseconds kDeniedPatience{2000};
constexpr uint16_t kDnsPort = 53;
constexpr uint16_t kDiscard = 9;
// TEST-NET-1 (RFC 5737): nobody's.
constexpr IpAddress kNobody = IpAddress::FromV4(0xc0000201);
// Whose resolver is asked does not matter: every lookup is caught.
constexpr IpAddress kAnyResolver = IpAddress::FromV4(0xc0000235);

bool Await(int fd, short events, steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{fd, events, 0};
    const int got = ::poll(&wait, 1, static_cast<int>(left));
    if (got > 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

struct Dialled {
  UniqueFd socket;
  int error = 0;
};

Dialled Dial(const Endpoint& to, int type, steady_clock::time_point deadline) {
  sockaddr_storage address{};
  const auto size = static_cast<socklen_t>(to.ToSockaddr(&address));
  Dialled dialled{UniqueFd(::socket(address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), 0};
  if (!dialled.socket) return {UniqueFd(), errno};
  if (::connect(dialled.socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) return dialled;
  dialled.error = errno;
  if (dialled.error != EINPROGRESS) return dialled;
  if (!Await(dialled.socket.get(), POLLOUT, deadline)) {
    dialled.error = ETIMEDOUT;
    return dialled;
  }
  socklen_t length = sizeof dialled.error;
  ::getsockopt(dialled.socket.get(), SOL_SOCKET, SO_ERROR, &dialled.error, &length);
  return dialled;
}

// The word, or what came instead.
std::string AskForWord(int socket, steady_clock::time_point deadline) {
  if (::send(socket, "?", 1, MSG_NOSIGNAL) != 1) return std::strerror(errno);
  std::string word;
  while (word.size() < kDoctorWord.size()) {
    if (!Await(socket, POLLIN, deadline)) return "no answer in time";
    std::array<char, 64> piece{};
    const ssize_t got = ::recv(socket, piece.data(), piece.size(), 0);
    if (got < 0 && errno == EAGAIN) continue;
    if (got < 0) return std::strerror(errno);
    if (got == 0) return "closed";
    word.append(piece.data(), static_cast<size_t>(got));
  }
  return word.starts_with(kDoctorWord) ? "ok" : "another answer";
}

struct Lookup {
  std::optional<dns::Message> answer;
  std::string fault;
};

Lookup Ask(std::string_view name) {
  const auto deadline = steady_clock::now() + kAllowedPatience;
  dns::Message query;
  query.header.id = static_cast<uint16_t>(::getpid());
  query.header.recursion_desired = true;
  query.questions.push_back({*dns::Name::FromText(name), dns::Type::kA});
  const std::vector<uint8_t> octets = dns::Encode(query);
  const Dialled dialled = Dial({kAnyResolver, kDnsPort}, SOCK_DGRAM, deadline);
  if (dialled.error != 0) return {{}, std::strerror(dialled.error)};
  // A datagram may be lost where the resolver just started: asked again.
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (::send(dialled.socket.get(), octets.data(), octets.size(), MSG_NOSIGNAL) < 0) return {{}, std::strerror(errno)};
    if (!Await(dialled.socket.get(), POLLIN, steady_clock::now() + kDeniedPatience)) continue;
    std::array<uint8_t, 2048> got{};
    const ssize_t size = ::recv(dialled.socket.get(), got.data(), got.size(), 0);
    if (size < 0) return {{}, std::strerror(errno)};
    auto answer = dns::Decode(std::span(got).first(static_cast<size_t>(size)));
    if (!answer) return {{}, "the answer is no DNS message"};
    return {*std::move(answer), ""};
  }
  return {{}, "no answer in time"};
}

std::string TryAllowed(uint16_t port) {
  const Lookup lookup = Ask(kDoctorAllowed);
  if (!lookup.answer) return fmt::format("allowed the lookup of {}: {}\n", kDoctorAllowed, lookup.fault);
  std::optional<IpAddress> address;
  for (const dns::Record& record : lookup.answer->answers)
    if (!address) address = dns::AddressOf(record);
  if (!address) return fmt::format("allowed the lookup of {} gave no address\n", kDoctorAllowed);
  const auto deadline = steady_clock::now() + kAllowedPatience;
  const Dialled dialled = Dial({*address, port}, SOCK_STREAM, deadline);
  if (dialled.error != 0) return fmt::format("allowed the connect: {}\n", std::strerror(dialled.error));
  return fmt::format("allowed {}\n", AskForWord(dialled.socket.get(), deadline));
}

// Refused: an error at once, or a reset by who captured it. Anything else may have left.
std::string TryDeniedConnect(const Endpoint& to) {
  const auto deadline = steady_clock::now() + kDeniedPatience;
  const Dialled dialled = Dial(to, SOCK_STREAM, deadline);
  if (dialled.error == ETIMEDOUT) return fmt::format("denied a connect to {} was not answered\n", to.ToString());
  if (dialled.error != 0) return "denied refused\n";
  const std::string word = AskForWord(dialled.socket.get(), deadline);
  if (word == std::strerror(ECONNRESET) || word == std::strerror(EPIPE)) return "denied refused\n";
  return fmt::format("denied a connect to {} was let through ({})\n", to.ToString(), word);
}

std::string TryDeniedLookup() {
  const Lookup lookup = Ask(kDoctorDenied);
  if (!lookup.answer) return fmt::format("denied the lookup of {}: {}\n", kDoctorDenied, lookup.fault);
  if (lookup.answer->header.rcode == dns::Rcode::kNxDomain && lookup.answer->answers.empty()) return "denied refused\n";
  return fmt::format("denied the lookup of {} was answered\n", kDoctorDenied);
}

Result<UniqueFd> ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Fail(Code::kInvalid, "the path of a socket is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FailErrno("cannot connect to the proxy", errno);
  return socket;
}

// The status of an answer to CONNECT, 0 where there is none; the tunnel stays open.
int OpenTunnel(int proxy, std::string_view target, steady_clock::time_point deadline) {
  const std::string request = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", target);
  if (::send(proxy, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return 0;
  std::string head;
  constexpr size_t kMaxDoctorHead = 16 * 1024;
  // Byte for byte: what follows the head is the tunnel's.
  while (!head.ends_with("\r\n\r\n") && head.size() < kMaxDoctorHead) {
    char byte = 0;
    if (!Await(proxy, POLLIN, deadline) || ::recv(proxy, &byte, 1, 0) != 1) return 0;
    head.push_back(byte);
  }
  int status = 0;
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  if (head.starts_with(kVersion)) std::from_chars(head.data() + kVersion.size(), head.data() + head.size(), status);
  return status;
}

std::string TryDeniedTunnel(const std::string& path, const std::string& target) {
  auto proxy = ConnectUnix(path);
  if (!proxy) return fmt::format("denied {}\n", proxy.error().message);
  const int status = OpenTunnel(proxy->get(), target, steady_clock::now() + kDeniedPatience);
  return status == 403 ? std::string("denied refused\n")
                       : fmt::format("denied a tunnel to {} was answered by {}\n", target, status);
}

}  // namespace

SeenInside ParseSeen(std::string_view lines) {
  SeenInside seen;
  int allowed = 0;
  int denied = 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    at = end + 1;
    const bool of_allowed = line.starts_with("allowed ");
    if (!of_allowed && !line.starts_with("denied ")) continue;
    const std::string_view outcome = line.substr(line.find(' ') + 1);
    ++(of_allowed ? allowed : denied);
    if (outcome == (of_allowed ? "ok" : "refused")) continue;
    (of_allowed ? seen.allowed : seen.denied) = true;  // for now: a fault of it was seen
    seen.detail += fmt::format("{}{}", seen.detail.empty() ? "" : "; ", outcome);
  }
  seen.allowed = allowed > 0 && !seen.allowed;
  seen.denied = denied > 0 && !seen.denied;
  return seen;
}

std::string TryFromInside(uint16_t port, Loopback loopback) {
  std::string lines = TryAllowed(port) + TryDeniedConnect({kNobody, kDiscard}) + TryDeniedLookup();
  if (loopback == Loopback::kOwn) lines += TryDeniedConnect({IpAddress::FromV4(0x7f000001), port});
  return lines;
}

std::string TryThroughProxy(const std::string& path, uint16_t port) {
  const auto deadline = steady_clock::now() + kAllowedPatience;
  std::string lines;
  auto proxy = ConnectUnix(path);
  if (!proxy) {
    lines = fmt::format("allowed {}\n", proxy.error().message);
  } else {
    const int status = OpenTunnel(proxy->get(), fmt::format("{}:{}", kDoctorAllowed, port), deadline);
    lines = status == 200 ? fmt::format("allowed {}\n", AskForWord(proxy->get(), deadline))
                          : fmt::format("allowed the tunnel was answered by {}\n", status);
  }
  return lines + TryDeniedTunnel(path, fmt::format("{}:{}", kDoctorDenied, port)) +
         TryDeniedTunnel(path, fmt::format("127.0.0.1:{}", port));
}

int RunInside(const std::string& task) {
  const size_t colon = task.find(':');
  uint16_t port = 0;
  if (colon != std::string::npos) std::from_chars(task.data() + colon + 1, task.data() + task.size(), port);
  const std::string name = task.substr(0, colon);
  if (port == 0 || (name != "connect" && name != "trust")) return kExitBadInput;
  const std::string lines = name == "connect" ? TryFromInside(port, Loopback::kOwn) : TryRuntimes(port);
  std::fputs(lines.c_str(), stdout);
  return kExitOk;
}

}  // namespace sluice::app
