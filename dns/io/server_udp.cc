#include "dns/io/server_udp.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/fault.h"
#include "base/patient_poll.h"
#include "dns/io/port_filter.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;

constexpr size_t kBatch = 32;            ///< datagrams of one receive
constexpr int kJudgedPerTurn = 128;      ///< before others on the loop have their turn
constexpr int kBatchesPerTurn = 32;      ///< the same; what is dropped unread costs next to nothing
constexpr int kReceiveBuffer = 4 << 20;  ///< asked for: the queue that everybody's lookups share
constexpr std::chrono::milliseconds kReopenEvery{250};
constexpr size_t kControl = CMSG_SPACE(sizeof(in6_pktinfo));

template <class T>
bool SetOption(int fd, int level, int name, T value) {
  return Faulty("dns.udp.option", [&] { return setsockopt(fd, level, name, &value, sizeof value); }) == 0;
}

std::optional<IpAddress> AskedAddress(msghdr* header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      std::array<uint8_t, 16> bytes{};
      std::memcpy(bytes.data(), &info.ipi6_addr, bytes.size());
      return IpAddress::FromV6(bytes);
    }
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      return IpAddress::FromV4(ntohl(info.ipi_addr.s_addr));
    }
  }
  return std::nullopt;
}

// Fills `control` so that the kernel takes `source` as the answer's own address.
void SetSource(msghdr* header, int family, const IpAddress& source) {
  cmsghdr* c = CMSG_FIRSTHDR(header);
  if (family == AF_INET) {
    in_pktinfo info{};
    info.ipi_spec_dst.s_addr = htonl(source.v4());
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof info);
    std::memcpy(CMSG_DATA(c), &info, sizeof info);
    header->msg_controllen = CMSG_SPACE(sizeof info);
    return;
  }
  in6_pktinfo info{};
  std::memcpy(&info.ipi6_addr, source.bytes().data(), 16);
  c->cmsg_level = IPPROTO_IPV6;
  c->cmsg_type = IPV6_PKTINFO;
  c->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(c), &info, sizeof info);
  header->msg_controllen = CMSG_SPACE(sizeof info);
}

}  // namespace

// Buffers of one receive, and of the answers to it that need no waiting: they leave in one call too.
struct UdpSide::Batch {
  struct Reply {
    Wire wire;
    sockaddr_storage peer;
    iovec vector;
    alignas(cmsghdr) std::array<uint8_t, kControl> control;
  };

  std::array<std::array<uint8_t, kMaxQueryOctets>, kBatch> bytes;
  std::array<sockaddr_storage, kBatch> peers;
  std::array<iovec, kBatch> vectors;
  alignas(cmsghdr) std::array<std::array<uint8_t, kControl>, kBatch> control;
  std::array<mmsghdr, kBatch> headers;
  std::array<Reply, kBatch> replies;
  std::array<mmsghdr, kBatch> reply_headers;
  size_t reply_count = 0;

  /// Makes the first `count` entries ready to receive again, with room for the address asked or without.
  void Prepare(size_t count, bool fixed) {
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = {bytes[i].data(), bytes[i].size()};
      headers[i] = {};
      headers[i].msg_hdr.msg_name = &peers[i];
      headers[i].msg_hdr.msg_namelen = sizeof peers[i];
      headers[i].msg_hdr.msg_iov = &vectors[i];
      headers[i].msg_hdr.msg_iovlen = 1;
      if (fixed) continue;
      headers[i].msg_hdr.msg_control = control[i].data();
      headers[i].msg_hdr.msg_controllen = control[i].size();
    }
  }
};

UdpSide::UdpSide(asio::io_context& context, int family, const Endpoint& own, std::shared_ptr<ServerCore> core,
                 std::shared_ptr<FloodGate> gate)
    : context_(context),
      socket_(context),
      family_(family),
      own_(own),
      fixed_(own.address != IpAddress() && own.address != IpAddress::FromV4(INADDR_ANY)),
      core_(std::move(core)),
      gate_(std::move(gate)),
      rest_(context),
      reopen_(context),
      batch_(new Batch, [](Batch* b) { delete b; }) {
  batch_->Prepare(kBatch, fixed_);
}

Result<std::shared_ptr<UdpSide>> UdpSide::Start(asio::io_context& context, UniqueFd socket, std::shared_ptr<ServerCore> core,
                                                std::shared_ptr<FloodGate> gate) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (Faulty("dns.udp.name", [&] { return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length); }) != 0)
    return FailErrno("the resolver's UDP socket", errno);
  const auto endpoint = Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&own), length);
  if (!endpoint) return Fail(Code::kInvalid, "the resolver's UDP socket is not of the Internet");
  const int family = own.ss_family;
  std::shared_ptr<UdpSide> self(new UdpSide(context, family, *endpoint, std::move(core), std::move(gate)));
  const int asks = self->fixed_ ? 0 : 1;
  const bool asked = family == AF_INET ? SetOption(socket.get(), IPPROTO_IP, IP_PKTINFO, asks)
                                       : SetOption(socket.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, asks);
  if (!asked) return FailErrno("the resolver's UDP socket: packet information", errno);
  if (!SetOption(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBuffer))
    (void)SetOption(socket.get(), SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  boost::system::error_code error;
  self->socket_.assign(socket.get(), error);
  if (error) return FailErrno("the resolver's UDP socket", error.value());
  [[maybe_unused]] const int owned = socket.Release();
  self->socket_.native_non_blocking(true, error);
  asio::co_spawn(context, Run(self), asio::detached);
  return self;
}

void UdpSide::Stop() {
  rest_.cancel();
  reopen_.cancel();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

asio::awaitable<void> UdpSide::Run(std::shared_ptr<UdpSide> self) {
  while (self->socket_.is_open()) {
    const auto [error] =
        co_await self->socket_.async_wait(asio::posix::stream_descriptor::wait_read, asio::as_tuple(asio::use_awaitable));
    if (error || !self->socket_.is_open()) co_return;
    int judged = 0;
    Received received;
    for (int i = 0; i < kBatchesPerTurn && judged < kJudgedPerTurn; ++i) {
      received = self->ReceiveSome();
      judged += received.judged;
      if (received.datagrams < static_cast<int>(kBatch)) break;
    }
    if (received.datagrams >= 0) continue;
    // What has come is there still: a wait for it would end at once.
    self->rest_.expires_after(kPollRest);
    co_await self->rest_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

UdpSide::Received UdpSide::ReceiveSome() {
  Batch& batch = *batch_;
  Received received;
  received.datagrams = Faulty(
      "dns.receive", [&] { return recvmmsg(socket_.native_handle(), batch.headers.data(), kBatch, MSG_DONTWAIT, nullptr); });
  if (received.datagrams < 0 && (errno == EAGAIN || errno == EINTR)) received.datagrams = 0;
  if (received.datagrams < 0) complaint_.Tell("read lookups", errno, "they get no answer");
  const SteadyTime now = SystemClock().Steady();
  for (int n = 0; n < received.datagrams; ++n) received.judged += TakeOne(static_cast<size_t>(n), now) ? 1 : 0;
  SendQueued();
  if (received.datagrams > 0) batch.Prepare(static_cast<size_t>(received.datagrams), fixed_);
  if (gate_ && gate_->changed()) UpdateFilter(now);
  return received;
}

bool UdpSide::TakeOne(size_t i, SteadyTime now) {
  msghdr& header = batch_->headers[i].msg_hdr;
  const auto peer = Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&batch_->peers[i]), header.msg_namelen);
  if (!peer) return false;
  const auto verdict = gate_ ? gate_->Judge(policy::Transport::kUdp, *peer, now) : FloodGate::Verdict::kServe;
  if (verdict == FloodGate::Verdict::kDrop) return false;
  const auto asked = fixed_ ? own_.address : AskedAddress(&header);
  if (!asked) return false;
  const ClientInfo client{policy::Transport::kUdp, *peer, {*asked, own_.port}};
  const std::span<const uint8_t> bytes(batch_->bytes[i].data(), batch_->headers[i].msg_len);
  Reply(verdict == FloodGate::Verdict::kServe ? core_->Begin(bytes, client) : core_->RefuseExcess(bytes, client), client);
  return true;
}

void UdpSide::Reply(Step step, const ClientInfo& client) {
  if (auto* wire = std::get_if<Wire>(&step)) return Queue(std::move(*wire), client);
  auto* work = std::get_if<std::unique_ptr<Work>>(&step);
  if (work == nullptr) return;
  if (waiting_ >= kMaxWaiting) {
    const Message busy = Failed((*work)->query, Rcode::kServFail, Ede::kOther, "too many lookups are waiting");
    return Queue(EncodeWithin(busy, kUdpOctetsPlain), client);
  }
  AnswerLater(std::move(*work), client);
}

// Where the kernel takes no filter, the gate goes on dropping one by one.
void UdpSide::UpdateFilter(SteadyTime now) {
  const std::vector<uint16_t> ports = gate_->ShutPorts(now);
  (void)DropFromPorts(socket_.native_handle(), ports);
  if (ports.empty()) return;
  reopen_.expires_after(kReopenEvery);
  reopen_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && self->socket_.is_open()) self->UpdateFilter(SystemClock().Steady());
  });
}

void UdpSide::AnswerLater(std::unique_ptr<Work> work, const ClientInfo& client) {
  ++waiting_;
  core_->Finish(std::move(work), [self = shared_from_this(), client](Wire wire) {
    --self->waiting_;
    if (wire.empty() || !self->socket_.is_open()) return;
    self->Queue(std::move(wire), client);
    self->SendSoon();
  });
}

// All that becomes ready in one turn of the loop leaves in one call.
void UdpSide::SendSoon() {
  if (std::exchange(sending_soon_, true)) return;
  asio::post(context_, [self = shared_from_this()] {
    self->sending_soon_ = false;
    if (self->socket_.is_open()) self->SendQueued();
  });
}

void UdpSide::Queue(Wire wire, const ClientInfo& client) {
  if (batch_->reply_count == kBatch) SendQueued();
  const size_t i = batch_->reply_count++;
  Batch::Reply& reply = batch_->replies[i];
  reply.wire = std::move(wire);
  reply.vector = {reply.wire.data(), reply.wire.size()};
  msghdr& header = batch_->reply_headers[i].msg_hdr;
  header = {};
  header.msg_name = &reply.peer;
  header.msg_namelen =
      static_cast<socklen_t>(family_ == AF_INET ? client.client.ToSockaddr(&reply.peer) : client.client.ToSockaddr6(&reply.peer));
  header.msg_iov = &reply.vector;
  header.msg_iovlen = 1;
  if (fixed_) return;
  header.msg_control = reply.control.data();
  header.msg_controllen = reply.control.size();
  SetSource(&header, family_, client.server.address);
}

// A full socket buffer loses answers, as a network would; the client asks again. One that cannot be sent does not stop the rest.
void UdpSide::SendQueued() {
  const size_t count = std::exchange(batch_->reply_count, 0);
  for (size_t sent = 0; sent < count;) {
    const int n = Faulty("dns.reply", [&] {
      return sendmmsg(socket_.native_handle(), &batch_->reply_headers[sent], static_cast<unsigned>(count - sent),
                      MSG_DONTWAIT | MSG_NOSIGNAL);
    });
    if (n < 0 && (errno == EAGAIN || errno == EBADF)) return;
    if (n < 0) complaint_.Tell("answer a lookup", errno, "it is lost");
    sent += n > 0 ? static_cast<size_t>(n) : 1;
  }
}

}  // namespace sluice::dns
