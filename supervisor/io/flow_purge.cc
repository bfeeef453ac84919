#include "supervisor/io/flow_purge.h"

#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/fault.h"
#include "nft/io/netlink_socket.h"

namespace sluice::supervisor {
namespace {

constexpr int kReceiveBuffer = 4 * 1024 * 1024;
constexpr int kAttempts = 4;
constexpr std::array<uint8_t, 2> kFamilies = {AF_INET, AF_INET6};
constexpr std::array<uint8_t, 2> kProtocols = {IPPROTO_TCP, IPPROTO_UDP};
constexpr uint16_t kDnsPort = 53;
constexpr uint16_t kMarkAttribute = INET_DIAG_MARK;
constexpr size_t kTupleBytes = 256;  // of two IPv6 addresses, two ports and their headers: under 100

struct Points {
  static int Open(auto call) { return Faulty("purge.open", call); }
  static int Bind(auto call) { return call(); }
  static int Limit(auto call) { return Faulty("purge.timeout", call); }
};

class Socket {
 public:
  Result<void> Open(int protocol, const char* what) {
    auto opened = nft::OpenNetlink<Points>({.protocol = protocol, .what = what, .room = kReceiveBuffer});
    if (!opened) return std::unexpected(opened.error());
    socket_ = *std::move(opened);
    return {};
  }
  // Sends, and gives each message of the answer to `each` until the dump or the acknowledgement ends it. An errno, 0 for success.
  int Talk(nlmsghdr* request, const std::function<void(const nlmsghdr*)>& each) {
    request->nlmsg_seq = ++sequence_;
    if (Faulty("purge.ask", [&] { return mnl_socket_sendto(socket_.get(), request, request->nlmsg_len); }) < 0) return errno;
    while (true) {
      const ssize_t got = Hear();
      if (got < 0) return errno;
      int left = static_cast<int>(got);
      for (const auto* answer = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(answer, left);
           answer = mnl_nlmsg_next(answer, &left)) {
        if (answer->nlmsg_seq != sequence_) continue;
        if (answer->nlmsg_type == NLMSG_DONE) return 0;
        if (answer->nlmsg_type == NLMSG_ERROR) return -static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(answer))->error;
        each(answer);
      }
    }
  }

  // Sends `count` requests, each written by `put` into room of kRequestBytes, as many at once as one datagram takes. `refused`
  // gets the number and the errno of each that failed. An errno of the socket's own, 0 for success.
  int Tell(size_t count, const std::function<nlmsghdr*(size_t, std::span<char>)>& put,
           const std::function<void(size_t, int)>& refused) {
    alignas(nlmsghdr) std::array<char, kRequestBytes> room{};
    for (size_t from = 0; from < count;) {
      std::vector<char> datagram;
      const uint32_t first = sequence_ + 1;
      size_t next = from;
      size_t last = 0;
      for (; next < count && datagram.size() < kDatagramBytes; ++next) {
        nlmsghdr* request = put(next, room);
        request->nlmsg_seq = ++sequence_;
        last = datagram.size();
        datagram.insert(datagram.end(), room.data(), room.data() + request->nlmsg_len);
        datagram.resize(MNL_ALIGN(datagram.size()));
      }
      // Refusals come back for any; the last one's answer ends it.
      reinterpret_cast<nlmsghdr*>(&datagram[last])->nlmsg_flags |= NLM_F_ACK;
      if (Faulty("purge.end", [&] { return mnl_socket_sendto(socket_.get(), datagram.data(), datagram.size()); }) < 0)
        return errno;
      if (const int error = TakeAnswers(first, from, refused); error != 0) return error;
      from = next;
    }
    return 0;
  }

 private:
  static constexpr size_t kRequestBytes = 512;
  static constexpr size_t kDatagramBytes = 32 * 1024;

  ssize_t Hear() {
    while (true) {
      const ssize_t got =
          Faulty("purge.answer", [&] { return mnl_socket_recvfrom(socket_.get(), buffer_.data(), buffer_.size()); });
      if (got >= 0 || errno != EINTR) return got;
    }
  }

  int TakeAnswers(uint32_t first, size_t from, const std::function<void(size_t, int)>& refused) {
    while (true) {
      const ssize_t got = Hear();
      if (got < 0) return errno;
      int left = static_cast<int>(got);
      for (const auto* answer = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(answer, left);
           answer = mnl_nlmsg_next(answer, &left)) {
        if (answer->nlmsg_type != NLMSG_ERROR || answer->nlmsg_seq - first > sequence_ - first) continue;
        const int error = -static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(answer))->error;
        if (error != 0) refused(from + (answer->nlmsg_seq - first), error);
        if (answer->nlmsg_seq == sequence_) return 0;
      }
    }
  }

  nft::NetlinkSocket socket_;
  std::vector<char> buffer_ = std::vector<char>(64 * 1024);
  uint32_t sequence_ = 0;
};

template <class Each>
void ForEachAttribute(const void* start, size_t length, Each each) {
  const auto* attribute = static_cast<const nlattr*>(start);
  auto left = static_cast<int>(length);
  while (mnl_attr_ok(attribute, left)) {
    each(attribute);
    left -= static_cast<int>(MNL_ALIGN(attribute->nla_len));
    attribute = mnl_attr_next(attribute);
  }
}
template <class Each>
void ForEachNested(const nlattr* parent, Each each) {
  ForEachAttribute(mnl_attr_get_payload(parent), mnl_attr_get_payload_len(parent), each);
}

std::optional<IpAddress> AddressOf(const nlattr* attribute) {
  const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(mnl_attr_get_payload(attribute)),
                                       mnl_attr_get_payload_len(attribute));
  std::array<uint8_t, 16> all{};
  if (bytes.size() == 4) {
    all[10] = all[11] = 0xff;
    std::memcpy(&all[12], bytes.data(), 4);
    return IpAddress::FromV6(all);
  }
  if (bytes.size() != 16) return std::nullopt;
  std::memcpy(all.data(), bytes.data(), 16);
  return IpAddress::FromV6(all);
}

void ReadTuple(const nlattr* tuple, Flow* flow) {
  std::optional<IpAddress> address;
  uint8_t protocol = 0;
  uint16_t port = 0;
  ForEachNested(tuple, [&](const nlattr* part) {
    ForEachNested(part, [&](const nlattr* field) {
      const unsigned type = mnl_attr_get_type(field);
      if (mnl_attr_get_type(part) == CTA_TUPLE_IP && (type == CTA_IP_V4_DST || type == CTA_IP_V6_DST)) address = AddressOf(field);
      if (mnl_attr_get_type(part) != CTA_TUPLE_PROTO) return;
      if (type == CTA_PROTO_NUM && mnl_attr_get_payload_len(field) == 1) protocol = mnl_attr_get_u8(field);
      if (type == CTA_PROTO_DST_PORT && mnl_attr_get_payload_len(field) == 2) port = ntohs(mnl_attr_get_u16(field));
      if (type == CTA_PROTO_SRC_PORT && mnl_attr_get_payload_len(field) == 2) flow->from_port = ntohs(mnl_attr_get_u16(field));
    });
  });
  if (address && (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP))
    flow->to = FenceElement{*address, static_cast<nft::Protocol>(protocol), port};
  const auto* bytes = static_cast<const uint8_t*>(mnl_attr_get_payload(tuple));
  flow->tuple.assign(bytes, bytes + mnl_attr_get_payload_len(tuple));
}

Flow FlowOf(const nlmsghdr* message) {
  Flow flow;
  const size_t length = mnl_nlmsg_get_payload_len(message);
  if (length < sizeof(nfgenmsg)) return flow;
  flow.family = static_cast<const nfgenmsg*>(mnl_nlmsg_get_payload(message))->nfgen_family;
  ForEachAttribute(mnl_nlmsg_get_payload_offset(message, sizeof(nfgenmsg)), length - sizeof(nfgenmsg),
                   [&](const nlattr* attribute) {
                     if (mnl_attr_get_type(attribute) == CTA_MARK && mnl_attr_get_payload_len(attribute) == 4)
                       flow.mark = ntohl(mnl_attr_get_u32(attribute));
                     if (mnl_attr_get_type(attribute) == CTA_TUPLE_ORIG) ReadTuple(attribute, &flow);
                   });
  return flow;
}

nlmsghdr* ConntrackRequest(std::span<char> buffer, uint16_t type, uint16_t flags, uint8_t family) {
  nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
  header->nlmsg_type = static_cast<uint16_t>(NFNL_SUBSYS_CTNETLINK << 8 | type);
  header->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  auto* extra = static_cast<nfgenmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(nfgenmsg)));
  extra->nfgen_family = family;
  extra->version = NFNETLINK_V0;
  return header;
}

// Of both families in one walk of the kernel's table.
Result<std::vector<Flow>> FlowsWhere(Socket& socket, const std::function<bool(const Flow&)>& wanted) {
  std::vector<Flow> flows;
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    flows.clear();
    alignas(nlmsghdr) std::array<char, 256> buffer{};
    error = socket.Talk(ConntrackRequest(buffer, IPCTNL_MSG_CT_GET, NLM_F_DUMP, AF_UNSPEC), [&](const nlmsghdr* message) {
      Flow flow = FlowOf(message);
      if (flow.to && flow.tuple.size() <= kTupleBytes && wanted(flow)) flows.push_back(std::move(flow));
    });
    if (error != ENOBUFS) break;
  }
  if (error != 0) return FailErrno("cannot read the flows of this namespace", error);
  return flows;
}

Result<size_t> Delete(Socket& socket, std::span<const Flow> flows) {
  size_t deleted = flows.size();
  int refusal = 0;
  const int error = socket.Tell(
      flows.size(),
      [&](size_t i, std::span<char> room) {
        nlmsghdr* request = ConntrackRequest(room, IPCTNL_MSG_CT_DELETE, 0, flows[i].family);
        mnl_attr_put(request, CTA_TUPLE_ORIG | NLA_F_NESTED, flows[i].tuple.size(), flows[i].tuple.data());
        return request;
      },
      [&](size_t, int why) {
        --deleted;
        if (why != ENOENT) refusal = why;
      });
  if (error != 0 || refusal != 0) return FailErrno("cannot delete a flow", error != 0 ? error : refusal);
  return deleted;
}

Result<void> MarkAll(Socket& socket, uint32_t mark_mask, uint32_t mark, const std::vector<const Flow*>& flows) {
  int refusal = 0;
  const int error = socket.Tell(
      flows.size(),
      [&](size_t i, std::span<char> room) {
        nlmsghdr* request = ConntrackRequest(room, IPCTNL_MSG_CT_NEW, 0, flows[i]->family);
        mnl_attr_put(request, CTA_TUPLE_ORIG | NLA_F_NESTED, flows[i]->tuple.size(), flows[i]->tuple.data());
        mnl_attr_put_u32(request, CTA_MARK, htonl(mark & mark_mask));
        mnl_attr_put_u32(request, CTA_MARK_MASK, htonl(mark_mask));
        return request;
      },
      [&](size_t, int why) {
        if (why != ENOENT) refusal = why;
      });
  if (error != 0 || refusal != 0) return FailErrno("cannot mark a flow", error != 0 ? error : refusal);
  return {};
}

using HeldFlow = std::pair<FenceElement, uint16_t>;  ///< and the port of this end

struct Holder {
  inet_diag_sockid id{};
  uint8_t family = 0;
  uint8_t protocol = 0;
};

std::optional<Holder> HolderOf(const nlmsghdr* message, uint8_t protocol, const SocketSeal& seal,
                               const std::set<HeldFlow>& gone) {
  if (message->nlmsg_type != SOCK_DIAG_BY_FAMILY || mnl_nlmsg_get_payload_len(message) < sizeof(inet_diag_msg))
    return std::nullopt;
  const auto* found = static_cast<const inet_diag_msg*>(mnl_nlmsg_get_payload(message));
  if (found->id.idiag_dport == 0) return std::nullopt;
  std::array<uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), found->id.idiag_dst, bytes.size());
  IpAddress address = IpAddress::FromV6(bytes);
  if (found->idiag_family == AF_INET) address = IpAddress::FromV4(ntohl(found->id.idiag_dst[0]));
  const FenceElement to{address, static_cast<nft::Protocol>(protocol), ntohs(found->id.idiag_dport)};
  if (!gone.contains({to, ntohs(found->id.idiag_sport)})) return std::nullopt;
  uint32_t mark = 0;
  ForEachAttribute(mnl_nlmsg_get_payload_offset(message, sizeof(inet_diag_msg)),
                   mnl_nlmsg_get_payload_len(message) - sizeof(inet_diag_msg), [&](const nlattr* attribute) {
                     if (mnl_attr_get_type(attribute) == kMarkAttribute && mnl_attr_get_payload_len(attribute) == 4)
                       mark = mnl_attr_get_u32(attribute);
                   });
  if (!seal.empty() && mark == seal.mark) return std::nullopt;
  return Holder{found->id, found->idiag_family, protocol};
}

void FillRequest(nlmsghdr* header, uint8_t family, uint8_t protocol) {
  auto* request = static_cast<inet_diag_req_v2*>(mnl_nlmsg_put_extra_header(header, sizeof(inet_diag_req_v2)));
  request->sdiag_family = family;
  request->sdiag_protocol = protocol;
  request->idiag_states = UINT32_MAX;
}

Result<void> Destroy(Socket& socket, const std::vector<Holder>& holders, Purged* purged) {
  for (const Holder& holder : holders) {
    alignas(nlmsghdr) std::array<char, 256> buffer{};
    nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
    header->nlmsg_type = SOCK_DESTROY;
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    FillRequest(header, holder.family, holder.protocol);
    static_cast<inet_diag_req_v2*>(mnl_nlmsg_get_payload(header))->id = holder.id;
    const int error = socket.Talk(header, [](const nlmsghdr*) {});
    if (error == 0) ++purged->sockets;
    if (error == EOPNOTSUPP) purged->destroys = false;
    if (error == EPERM) return FailErrno("cannot destroy a socket", error);
  }
  return {};
}

Result<void> DestroySockets(Socket& socket, const SocketSeal& seal, const std::set<HeldFlow>& gone, Purged* purged) {
  for (const uint8_t protocol : kProtocols) {
    const bool some =
        std::ranges::any_of(gone, [&](const HeldFlow& flow) { return static_cast<uint8_t>(flow.first.protocol) == protocol; });
    if (!some) continue;
    std::vector<Holder> holders;
    // A socket of IPv6 may hold a flow of IPv4.
    for (const uint8_t family : kFamilies) {
      alignas(nlmsghdr) std::array<char, 256> buffer{};
      nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
      header->nlmsg_type = SOCK_DIAG_BY_FAMILY;
      header->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
      FillRequest(header, family, protocol);
      const int error = socket.Talk(header, [&](const nlmsghdr* message) {
        if (auto holder = HolderOf(message, protocol, seal, gone)) holders.push_back(*holder);
      });
      // ENOENT: the kernel has no diagnosis of this protocol; the rules reset what is left.
      if (error != 0 && error != ENOENT) return FailErrno("cannot read the sockets of this namespace", error);
    }
    if (auto destroyed = Destroy(socket, holders, purged); !destroyed) return destroyed;
  }
  return {};
}

class KernelPurger final : public FlowPurger {
 public:
  Result<void> OpenBoth() {
    if (auto opened = flows_.Open(NETLINK_NETFILTER, "a conntrack netlink socket"); !opened) return opened;
    return sockets_.Open(NETLINK_SOCK_DIAG, "a socket diagnosis socket");
  }

  Result<std::vector<Flow>> Flows(uint32_t mark_mask) override {
    return FlowsWhere(flows_, [mark_mask](const Flow& flow) { return (flow.mark & mark_mask) != 0; });
  }

  Result<void> ForgetLookups() override {
    const auto flows = FlowsWhere(
        flows_, [](const Flow& flow) { return flow.to->protocol == nft::Protocol::kUdp && flow.to->port == kDnsPort; });
    if (!flows) return std::unexpected(flows.error());
    // Those of Sluice's own zone are not found.
    if (const auto deleted = Delete(flows_, *flows); !deleted) return std::unexpected(deleted.error());
    return {};
  }

  Result<Purged> End(std::span<const Flow> flows, const SocketSeal& seal) override {
    Purged purged;
    if (flows.empty()) return purged;
    std::set<HeldFlow> held;
    for (const Flow& flow : flows) held.emplace(*flow.to, flow.from_port);
    if (auto destroyed = DestroySockets(sockets_, seal, held, &purged); !destroyed) return std::unexpected(destroyed.error());
    const auto deleted = Delete(flows_, flows);
    if (!deleted) return std::unexpected(deleted.error());
    purged.flows = *deleted;
    return purged;
  }

  Result<void> Mark(uint32_t mark_mask, uint32_t mark, std::span<const Flow> flows) override {
    std::vector<const Flow*> other;
    for (const Flow& flow : flows)
      if ((flow.mark & mark_mask) != (mark & mark_mask)) other.push_back(&flow);
    return MarkAll(flows_, mark_mask, mark, other);
  }

 private:
  Socket flows_;
  Socket sockets_;
};

}  // namespace

Result<std::unique_ptr<FlowPurger>> FlowPurger::Open() {
  auto purger = std::make_unique<KernelPurger>();
  if (auto opened = purger->OpenBoth(); !opened) return std::unexpected(opened.error());
  return purger;
}

}  // namespace sluice::supervisor
