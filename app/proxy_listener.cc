#include "app/proxy_listener.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "base/listen_error.h"
#include "base/log.h"
#include "base/unix_listener.h"
#include "base/wake_timer.h"

namespace sluice::app {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr int kBacklog = 4096;

bool IsLoopback(const IpAddress& address) {
  static const Cidr kV4 = Cidr::Of(IpAddress::FromV4(0x7f000000), 8);
  static const IpAddress kV6 = *IpAddress::Parse("::1");
  return address == kV6 || (address.is_v4() && kV4.Contains(address));
}

std::unexpected<Error> CannotListen(const Endpoint& endpoint) {
  return std::unexpected(ListenError(fmt::format("cannot listen on {}", endpoint.ToString()), errno));
}

Result<UniqueFd> BindTcp(const Endpoint& endpoint) {
  sockaddr_storage address{};
  const auto size = static_cast<socklen_t>(endpoint.ToSockaddr(&address));
  UniqueFd listener(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Every client speaks first: until it does, there is nothing to do.
  setsockopt(listener.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof on);
  // What is accepted has it too.
  setsockopt(listener.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return CannotListen(endpoint);
  return listener;
}

Result<UniqueFd> ListenTcp(Endpoint* endpoint) {
  auto listener = BindTcp(*endpoint);
  if (!listener) return listener;
  if (listen(listener->get(), kBacklog) != 0) return CannotListen(*endpoint);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(listener->get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0)
    if (const auto named = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&bound), length)) *endpoint = *named;
  return listener;
}

}  // namespace

Result<ListenAddress> ParseListen(const std::string& text) {
  ListenAddress address;
  if (text.starts_with(kUnixPrefix)) {
    address.unix_path = text.substr(kUnixPrefix.size());
    if (!address.unix_path.starts_with('/') || address.unix_path.size() >= sizeof(sockaddr_un::sun_path))
      return Fail(Code::kInvalid, fmt::format("--listen {}: after unix: comes an absolute path of at most {} bytes", text,
                                              sizeof(sockaddr_un::sun_path) - 1));
    return address;
  }
  const size_t colon = text.rfind(':');
  const auto malformed = [&] {
    return Fail(Code::kInvalid,
                fmt::format("--listen {}: write ADDRESS:PORT, such as 127.0.0.1:3128 or [::1]:3128, or unix:/PATH", text));
  };
  if (colon == std::string::npos) return malformed();
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const auto parsed = IpAddress::Parse(host == "localhost" ? "127.0.0.1" : host);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.endpoint.port);
  if (!parsed || error != std::errc{} || stop != end || stop == text.data() + colon + 1 ||
      bracketed != (host.find(':') != std::string::npos))
    return malformed();
  address.endpoint.address = *parsed;
  return address;
}

Result<UnixListener> ListenAt(ListenAddress* address) {
  if (!address->unix_path.empty()) return ListenUnix(address->unix_path, {.backlog = kBacklog});
  auto socket = ListenTcp(&address->endpoint);
  if (!socket) return std::unexpected(socket.error());
  return UnixListener{*std::move(socket), {}};
}

Result<void> CheckListenAt(const ListenAddress& address) {
  if (!address.unix_path.empty()) return CheckListenUnix(address.unix_path, {.backlog = kBacklog});
  if (auto bound = BindTcp(address.endpoint); !bound) return std::unexpected(bound.error());
  return {};
}

Result<std::unique_ptr<ProxyListener>> ProxyListener::Open(const std::vector<ListenAddress>& addresses) {
  std::unique_ptr<ProxyListener> listener(new ProxyListener);
  std::vector<UniqueFd> sockets;
  for (ListenAddress address : addresses) {
    auto bound = ListenAt(&address);
    if (!bound) return std::unexpected(bound.error());
    sockets.push_back(std::move(bound->socket));
    listener->names_.push_back(std::move(bound->name));
    listener->addresses_.push_back(std::move(address));
  }
  auto loop = AcceptLoop::Create(std::move(sockets));
  if (!loop) return std::unexpected(loop.error());
  listener->loop_ = *std::move(loop);
  return listener;
}

ProxyListener::~ProxyListener() { Stop(); }

Result<void> ProxyListener::Start(proxy::Engine& engine, const policy::CurrentPolicy& policy, Attribute attribute,
                                  std::vector<IpAddress> host_addresses) {
  engine_ = &engine;
  policy_ = &policy;
  host_addresses_ = std::move(host_addresses);
  if (attribute == Attribute::kProcesses) {
    auto processes = supervisor::ClientProcesses::Open();
    if (!processes) return std::unexpected(processes.error());
    processes_ = *std::move(processes);
  }
  loop_->Start([this](UniqueFd socket, const sockaddr_storage& from, socklen_t size) { Take(std::move(socket), from, size); });
  return {};
}

void ProxyListener::Stop() {
  names_.clear();
  if (loop_) loop_->Stop();
}

void ProxyListener::Take(UniqueFd socket, const sockaddr_storage& from, socklen_t size) {
  proxy::Client client;
  client.id = ++next_id_;
  if (from.ss_family != AF_UNIX) {
    client.source = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&from), size);
    if (!client.source) return;
  }
  std::optional<BriefCloses> brief;  // of who finds no room
  if (!client.source && !RefuseDescriptors(socket.get())) brief.emplace();
  client.process = WhoseIs(socket, client.source);
  client.socket = std::move(socket);
  engine_->AcceptClient(std::move(client));
}

policy::ProcessPtr ProxyListener::WhoseIs(const UniqueFd& socket, const std::optional<Endpoint>& source) {
  if (processes_ == nullptr) return nullptr;
  const auto digests = policy_->Get()->NeedsDigests() ? supervisor::Digests::kNeeded : supervisor::Digests::kNone;
  if (!source) return processes_->OfUnixPeer(socket.get(), digests);
  const bool ours = IsLoopback(source->address) || std::ranges::find(host_addresses_, source->address) != host_addresses_.end();
  if (!ours) return nullptr;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return nullptr;
  const auto server = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&own), size);
  return server ? processes_->OfTcpPeer(*source, *server, digests) : nullptr;
}

}  // namespace sluice::app
