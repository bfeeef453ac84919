#include "tests/dns/io/server_harness.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "policy/io/load.h"

namespace sluice::dns {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// The same port by UDP and TCP.
uint16_t BindBoth(Bind bind_to, uint16_t port, UniqueFd* udp, UniqueFd* tcp) {
  const int family = bind_to == Bind::kV4 ? AF_INET : AF_INET6;
  for (int i = 0; i < 100; ++i) {
    udp->Reset(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    tcp->Reset(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    const Endpoint any{bind_to == Bind::kV4 ? IpAddress::FromV4(0x7f000001) : IpAddress(), port};
    auto length = static_cast<socklen_t>(bind_to == Bind::kV4 ? any.ToSockaddr(&address) : any.ToSockaddr6(&address));
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const int off = 0;
    if (bind_to == Bind::kDualStack && (setsockopt(udp->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
                                        setsockopt(tcp->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0))
      Die("IPV6_V6ONLY");
    if (bind(udp->get(), generic, length) != 0 || getsockname(udp->get(), generic, &length) != 0) Die("bind");
    if (bind(tcp->get(), generic, length) == 0 && listen(tcp->get(), 128) == 0)
      return Endpoint::FromSockaddr(generic, length)->port;
  }
  Die("no port is free by both transports");
}

policy::ProcessPtr TestProcess(policy::Transport, const Endpoint&, const Endpoint&) {
  static const auto process = [] {
    auto made = std::make_shared<policy::Process>();
    made->pid = 4711;
    made->exe = {"/usr/bin/node", true, {}};
    return policy::ProcessPtr(made);
  }();
  return process;
}

policy::SnapshotPtr Loaded(Result<policy::SnapshotPtr> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", policy::RenderError(result.error(), false).c_str());
  std::abort();
}

}  // namespace

bool KeptEvents::Record(policy::DecisionEvent event) noexcept {
  if (refusing_ || (refusing_denials_ && !event.decision.allowed)) return false;
  const std::lock_guard lock(mutex_);
  decisions_.push_back(std::move(event));
  return true;
}

std::vector<policy::DecisionEvent> KeptEvents::decisions() const {
  const std::lock_guard lock(mutex_);
  return decisions_;
}

policy::SnapshotPtr ResolverHarness::Load(const std::vector<std::string>& allows) {
  return Loaded(policy::LoadRules({.extra_allows = allows, .check_executables = false}));
}

policy::SnapshotPtr ResolverHarness::LoadYaml(const std::string& yaml) {
  std::string path = (std::filesystem::temp_directory_path() / "sluice-policy-XXXXXX").string();
  const UniqueFd made(mkstemp(path.data()));
  std::ofstream(path) << yaml;
  auto loaded = policy::LoadFile(path, {.extra_allows = {}, .check_executables = false});
  std::filesystem::remove(path);
  return Loaded(std::move(loaded));
}

ResolverHarness::ResolverHarness(HarnessOptions options)
    : pool_(options.pool), policy_(options.yaml.empty() ? Load(options.allows) : LoadYaml(options.yaml)) {
  UniqueFd udp;
  UniqueFd tcp;
  port_ = BindBoth(options.bind, options.port, &udp, &tcp);
  UpstreamOptions asking = std::move(options.more);
  for (const Endpoint& server : options.upstream) asking.servers.push_back({.endpoint = server});
  asking.timeout = std::chrono::milliseconds(1500);
  auto upstream = UpstreamClient::Create(context_, std::move(asking));
  if (!upstream) Die(upstream.error().message.c_str());
  upstream_ = std::move(*upstream);
  ServerOptions serving{.udp = std::move(udp), .tcp = std::move(tcp), .attribute = TestProcess, .limits = options.limits};
  serving.tcp_idle = options.tcp_idle;
  serving.host_addresses = options.host_addresses;
  serving.flood = options.flood;
  serving.denial = options.denial;
  serving.ipv6 = options.ipv6;
  serving.history = options.history;
  serving.publish = options.publish;
  auto server = Server::Start(context_, std::move(serving), *upstream_, pool_, policy_, events_);
  if (!server) Die(server.error().message.c_str());
  server_ = std::move(*server);
  thread_ = std::thread([this] { context_.run(); });
}

ResolverHarness::~ResolverHarness() {
  boost::asio::post(context_, [this] {
    server_.reset();
    upstream_.reset();
  });
  thread_.join();  // run() returns once the last coroutine has ended, so a leak would hang here
}

std::vector<uint8_t> ResolverHarness::AskRaw(std::span<const uint8_t> query, int wait_ms) const {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage server{};
  const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), port_}.ToSockaddr(&server));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&server), length) != 0) Die("connect");
  const timeval limit{wait_ms / 1000, (wait_ms % 1000) * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (send(fd.get(), query.data(), query.size(), 0) < 0) Die("send");
  std::vector<uint8_t> answer(65536);
  const ssize_t size = recv(fd.get(), answer.data(), answer.size(), 0);
  answer.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return answer;
}

std::optional<Message> ResolverHarness::Ask(const Message& query) const {
  const auto answer = AskRaw(Encode(query));
  if (answer.empty()) return std::nullopt;
  auto decoded = Decode(answer);
  if (!decoded) return std::nullopt;
  return std::move(*decoded);
}

UniqueFd ResolverHarness::ConnectTcp() const {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage server{};
  const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), port_}.ToSockaddr(&server));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&server), length) != 0) Die("connect");
  const timeval limit{3, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return fd;
}

void SendFrame(int fd, std::span<const uint8_t> message) {
  std::vector<uint8_t> frame = {static_cast<uint8_t>(message.size() >> 8), static_cast<uint8_t>(message.size() & 0xff)};
  frame.insert(frame.end(), message.begin(), message.end());
  if (send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) Die("send");
}

std::optional<std::vector<uint8_t>> ReceiveFrame(int fd) {
  std::array<uint8_t, 2> length{};
  if (recv(fd, length.data(), 2, MSG_WAITALL) != 2) return std::nullopt;
  std::vector<uint8_t> body(static_cast<size_t>(length[0]) << 8 | length[1]);
  if (recv(fd, body.data(), body.size(), MSG_WAITALL) != static_cast<ssize_t>(body.size())) return std::nullopt;
  return body;
}

}  // namespace sluice::dns
