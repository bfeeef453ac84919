#include "app/health_probe.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/exit_code.h"
#include "app/host.h"
#include "app/proxy_listener.h"
#include "app/run.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/unique_fd.h"

namespace sluice::app {
namespace {

using std::chrono::steady_clock;

constexpr size_t kMaxHealthAnswer = 64 * 1024;

bool WaitFor(int fd, short events, steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{fd, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Result<UniqueFd> Connect(const ListenAddress& to, steady_clock::time_point deadline) {
  sockaddr_storage address{};
  socklen_t size = 0;
  if (!to.unix_path.empty()) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path, to.unix_path.data(), to.unix_path.size());
    std::memcpy(&address, &local, sizeof local);
    size = sizeof local;
  } else {
    size = static_cast<socklen_t>(to.endpoint.ToSockaddr(&address));
  }
  UniqueFd socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return FailErrno("cannot connect", errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) return socket;
  if (errno != EINPROGRESS) return FailErrno("cannot connect", errno);
  if (!WaitFor(socket.get(), POLLOUT, deadline)) return Fail(Code::kTimeout, "nobody took the connection in time");
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return FailErrno("cannot connect", error);
  return socket;
}

Result<std::string> Ask(int socket, std::string_view request, steady_clock::time_point deadline) {
  while (!request.empty()) {
    const ssize_t n = ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    if (n > 0) request.remove_prefix(static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return FailErrno("cannot ask", errno);
    if (n < 0 && !WaitFor(socket, POLLOUT, deadline)) return Fail(Code::kTimeout, "no answer in time");
  }
  std::string answer;
  char buffer[4096];
  while (answer.size() < kMaxHealthAnswer) {
    const ssize_t n = ::recv(socket, buffer, sizeof buffer, 0);
    if (n == 0) return answer;
    if (n > 0) answer.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return FailErrno("no answer", errno);
    if (n < 0 && !WaitFor(socket, POLLIN, deadline)) return Fail(Code::kTimeout, "no answer in time");
  }
  return Fail(Code::kExhausted, "the answer is too long");
}

// Whoever listens there may say anything.
std::string TextOf(const nlohmann::json& check, const char* key, const char* otherwise) {
  const auto text = check.find(key);
  return Printable(text != check.end() && text->is_string() ? text->get<std::string>() : otherwise);
}

// What of a body of /readyz does not hold.
void TellChecks(std::string_view body) {
  const nlohmann::json in = nlohmann::json::parse(body, nullptr, false);
  if (!in.is_object() || !in.contains("checks") || !in["checks"].is_array()) return;
  for (const auto& check : in["checks"]) {
    if (!check.is_object() || check.value("ok", nlohmann::json(true)) == true) continue;
    fmt::print("{}: {}\n", TextOf(check, "name", "?"), TextOf(check, "detail", "does not hold"));
  }
}

}  // namespace

int RunHealth(const HealthOptions& options) {
  auto to = ParseListen(options.address);
  const auto timeout = ParseDuration(options.timeout);
  if (!to || !timeout) {
    LogError("{}", !to ? fmt::format("{}: write ADDRESS:PORT or unix:/PATH", options.address)
                       : fmt::format("--timeout {}: write a duration such as 500ms or 2s", options.timeout));
    return kExitBadInput;
  }
  // A listener of every address is asked on this host.
  if (to->endpoint.address == IpAddress::FromV4(0)) to->endpoint.address = IpAddress::FromV4(0x7f000001);
  if (to->unix_path.empty() && to->endpoint.address == IpAddress{}) to->endpoint.address = *IpAddress::Parse("::1");
  const auto deadline = steady_clock::now() + *timeout;
  const std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", options.path);
  const auto socket = Connect(*to, deadline);
  auto answer = socket ? Ask(socket->get(), request, deadline) : Result<std::string>(std::unexpected(socket.error()));
  if (!answer) {
    fmt::print("{}: {}\n", options.address, answer.error().message);
    return kExitNegative;
  }
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  const size_t body = answer->find("\r\n\r\n");
  if (!answer->starts_with(kVersion) || body == std::string::npos) {
    fmt::print("{}: the answer is not HTTP\n", options.address);
    return kExitNegative;
  }
  const std::string status = answer->substr(kVersion.size(), 3);
  if (status == "200") return kExitOk;
  if (status != "503") {
    fmt::print("{}: HTTP status {}: {}\n", options.address, Printable(status),
               status == "401" ? "the admin API asks for a token; ask where --health listens, or at unix:/PATH of --admin"
                               : "no sidecar answers so");
    return kExitNegative;
  }
  fmt::print("not ready ({})\n", Printable(status));
  TellChecks(std::string_view(*answer).substr(body + 4));
  return kExitNegative;
}

}  // namespace sluice::app
