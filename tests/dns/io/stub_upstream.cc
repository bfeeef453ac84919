#include "tests/dns/io/stub_upstream.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>

namespace sluice::dns {

StubUpstream::StubUpstream(Handler handler) : handler_(std::move(handler)) {
  // The same port by both transports: another program may hold one of them, so try again.
  for (int i = 0; i < 100; ++i) {
    udp_.Reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    tcp_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(udp_.get(), generic, length) != 0 || getsockname(udp_.get(), generic, &length) != 0) std::abort();
    if (bind(tcp_.get(), generic, length) != 0 || listen(tcp_.get(), 16) != 0) continue;
    endpoint_ = *Endpoint::FromSockaddr(generic, length);
    const int room = 4 << 20;
    if (setsockopt(udp_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
      (void)setsockopt(udp_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    thread_ = std::thread([this] { Run(); });
    return;
  }
  std::abort();
}

StubUpstream::~StubUpstream() {
  stop_ = true;
  thread_.join();
}

std::vector<SeenQuery> StubUpstream::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void StubUpstream::Note(const Message& query, Via via, uint16_t port) {
  const std::lock_guard lock(mutex_);
  seen_.push_back(
      {via, query.header.id, query.questions.at(0).name.ToText(), query.questions.at(0).type, port, query.edns.has_value()});
}

void StubUpstream::Run() {
  while (!stop_) {
    pollfd fds[2] = {{udp_.get(), POLLIN, 0}, {tcp_.get(), POLLIN, 0}};
    poll(fds, 2, 20);
    if (fds[0].revents != 0) ServeDatagram();
    if (fds[1].revents != 0) ServeConnection();
  }
}

void StubUpstream::ServeDatagram() {
  std::array<uint8_t, 4096> bytes{};
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  auto* generic = reinterpret_cast<sockaddr*>(&peer);
  const ssize_t size = recvfrom(udp_.get(), bytes.data(), bytes.size(), 0, generic, &length);
  const auto query = Decode(std::span(bytes).first(static_cast<size_t>(std::max<ssize_t>(size, 0))));
  if (!query || query->questions.size() != 1) return;
  Note(*query, Via::kUdp, ntohs(peer.sin_port));
  for (const auto& datagram : handler_(*query, Via::kUdp))
    sendto(udp_.get(), datagram.data(), datagram.size(), 0, generic, length);
}

void StubUpstream::ServeConnection() {
  const UniqueFd connection(accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  timeval limit{1, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::array<uint8_t, 4096> bytes{};
  if (recv(connection.get(), bytes.data(), 2, MSG_WAITALL) != 2) return;
  const size_t size = static_cast<size_t>(bytes[0]) << 8 | bytes[1];
  if (size > bytes.size() || recv(connection.get(), bytes.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) return;
  const auto query = Decode(std::span(bytes).first(size));
  if (!query || query->questions.size() != 1) return;
  Note(*query, Via::kTcp, 0);
  const auto answers = handler_(*query, Via::kTcp);
  if (answers.empty()) return;
  std::vector<uint8_t> frame = {static_cast<uint8_t>(answers[0].size() >> 8), static_cast<uint8_t>(answers[0].size() & 0xff)};
  frame.insert(frame.end(), answers[0].begin(), answers[0].end());
  send(connection.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
}

}  // namespace sluice::dns
