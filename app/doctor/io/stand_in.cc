#include "app/doctor/io/stand_in.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <vector>

#include "base/ip.h"
#include "base/unique_fd.h"
#include "dns/message.h"

namespace sluice::app {
namespace {

constexpr size_t kMaxDoctorClients = 32;
constexpr int kBacklog = 32;
constexpr uint32_t kTtl = 5;
constexpr IpAddress kLoopback = IpAddress::FromV4(0x7f000001);

struct Bound {
  UniqueFd socket;
  uint16_t port = 0;
};

Result<Bound> Bind(int type) {
  Bound bound{UniqueFd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), 0};
  sockaddr_storage address{};
  socklen_t size = static_cast<socklen_t>(Endpoint{kLoopback, 0}.ToSockaddr(&address));
  if (!bound.socket || ::bind(bound.socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return FailErrno("cannot bind 127.0.0.1", errno);
  size = sizeof address;
  if (::getsockname(bound.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return FailErrno("getsockname", errno);
  const auto end = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&address), size);
  bound.port = end ? end->port : 0;
  if (type == SOCK_STREAM && ::listen(bound.socket.get(), kBacklog) != 0) return FailErrno("cannot listen on 127.0.0.1", errno);
  return bound;
}

// A of the names that there are; nothing of other types, and no other name.
std::vector<uint8_t> AnswerTo(std::span<const uint8_t> query) {
  auto asked = dns::Decode(query);
  if (!asked || asked->header.response || asked->questions.size() != 1) return {};
  dns::Message answer;
  answer.header = asked->header;
  answer.header.response = answer.header.authoritative = answer.header.recursion_available = true;
  answer.questions = asked->questions;
  const std::string name = asked->questions[0].name.Canonical();
  const bool known = name == kDoctorAllowed || name == kDoctorInspected || name == kDoctorDenied;
  if (!known) answer.header.rcode = dns::Rcode::kNxDomain;
  if (known && asked->questions[0].type == dns::Type::kA)
    answer.answers.push_back(dns::AddressRecord(asked->questions[0].name, kLoopback, kTtl));
  return dns::Encode(answer);
}

void ServeLookup(int socket) {
  std::array<uint8_t, 2048> query{};
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  const ssize_t got = ::recvfrom(socket, query.data(), query.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
  if (got <= 0) return;
  const std::vector<uint8_t> answer = AnswerTo(std::span(query).first(static_cast<size_t>(got)));
  if (!answer.empty())
    (void)::sendto(socket, answer.data(), answer.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&from), size);
}

// The word for the first bytes that come; false: it is over.
bool ServeClient(int client) {
  std::array<char, 512> asked{};
  const ssize_t got = ::recv(client, asked.data(), asked.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got > 0) (void)::send(client, kDoctorWord.data(), kDoctorWord.size(), MSG_NOSIGNAL);
  return false;
}

[[noreturn]] void Serve(int listener, int resolver) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "sluice-doctor");
  std::vector<UniqueFd> clients;
  for (;;) {
    std::vector<pollfd> waits = {{resolver, POLLIN, 0}, {clients.size() < kMaxDoctorClients ? listener : -1, POLLIN, 0}};
    for (const UniqueFd& client : clients) waits.push_back({client.get(), POLLIN, 0});
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) ::_exit(1);
    if ((waits[0].revents & POLLIN) != 0) ServeLookup(resolver);
    for (size_t i = clients.size(); i-- > 0;)
      if (waits[i + 2].revents != 0 && !ServeClient(clients[i].get())) clients.erase(clients.begin() + static_cast<ptrdiff_t>(i));
    if ((waits[1].revents & POLLIN) == 0) continue;
    UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client) clients.push_back(std::move(client));
  }
}

}  // namespace

Result<StandIn> StandIn::Start() {
  auto listener = Bind(SOCK_STREAM);
  if (!listener) return std::unexpected(listener.error());
  auto resolver = Bind(SOCK_DGRAM);
  if (!resolver) return std::unexpected(resolver.error());
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno("cannot fork", errno);
  if (pid == 0) Serve(listener->socket.get(), resolver->socket.get());
  return StandIn(pid, listener->port, resolver->port);
}

StandIn::~StandIn() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace sluice::app
