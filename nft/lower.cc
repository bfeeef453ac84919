#include "nft/lower.h"

#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <fmt/format.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <libnftnl/udata.h>
#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <array>
#include <span>

namespace sluice::nft {
namespace {

constexpr uint32_t kRegister = NFT_REG_1;
constexpr uint32_t kIpHeaderLengthOffset = 0;  // RFC 791 section 3.1
constexpr uint8_t kIpWordsWithoutOptions = 5;
constexpr uint32_t kIpFragmentOffset = 6;
constexpr uint32_t kIpSourceOffset = 12;
constexpr uint32_t kIpDestinationOffset = 16;
constexpr uint32_t kIp6NextHeaderOffset = 6;  // RFC 8200 section 3
constexpr uint32_t kIp6SourceOffset = 8;
constexpr uint32_t kIp6DestinationOffset = 24;
constexpr uint32_t kPortDestinationOffset = 2;  // RFC 9293 and RFC 768
constexpr uint32_t kTcpFlagsOffset = 13;        // RFC 9293 section 3.1
constexpr uint8_t kTcpSyn = 0x02;
constexpr uint8_t kTcpAck = 0x10;
constexpr uint8_t kIcmpDestinationUnreachable = 3;   // RFC 792
constexpr uint8_t kIcmp6DestinationUnreachable = 1;  // RFC 4443
constexpr uint32_t kLoopbackIndex = 1;
constexpr uint32_t kLogWarning = 4;       // of syslog(2); the default of nft(8)
constexpr uint32_t kNobody = UINT32_MAX;  // no user has this number
constexpr uint32_t kTableOwner = 0x2;     // NFT_TABLE_F_OWNER, Linux 5.12
constexpr uint32_t kTablePersist = 0x4;   // NFT_TABLE_F_PERSIST, Linux 6.9
constexpr uint32_t kSetConcat = 0x80;     // NFT_SET_CONCAT, Linux 5.6
constexpr unsigned kTypeBits = 6;         // of one field in the type number of a concatenation, as nft(8) reads it

template <class T>
std::vector<uint8_t> HostOrder(T value) {
  std::vector<uint8_t> bytes(sizeof value);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = reinterpret_cast<const uint8_t*>(&value)[i];
  return bytes;
}
std::vector<uint8_t> NetworkOrder(uint16_t value) {
  return {static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value & 0xff)};
}

struct KeyTypeFacts {
  uint32_t number;  // nft(8)'s number of the type; the kernel keeps it and does not look
  uint32_t bytes;
};
KeyTypeFacts Facts(KeyType type) {
  switch (type) {
    case KeyType::kFamily:
      return {2, 1};
    case KeyType::kMark:
      return {19, 4};
    case KeyType::kAddress4:
      return {7, 4};
    case KeyType::kAddress6:
      return {8, 16};
    case KeyType::kProtocol:
      return {12, 1};
    case KeyType::kPort:
      return {13, 2};
  }
  return {0, 4};
}
uint32_t Padded(uint32_t bytes) { return (bytes + 3) / 4 * 4; }

// Lowers expressions to the kernel's: a load into a register, then a comparison of it.
class RuleBuilder {
 public:
  RuleBuilder(nftnl_rule* rule, Family family) : rule_(rule), family_(family) {}

  void operator()(const DestinationIn& e) { AddressIn(e.prefix, kIpDestinationOffset, kIp6DestinationOffset); }
  void operator()(const SourceIn& e) { AddressIn(e.prefix, kIpSourceOffset, kIp6SourceOffset); }
  void operator()(const ProtocolIs& e) { MetaIs(NFT_META_L4PROTO, HostOrder(static_cast<uint8_t>(e.protocol))); }
  void operator()(const DestinationPort& e) {
    MetaIs(NFT_META_L4PROTO, HostOrder(static_cast<uint8_t>(e.protocol)));
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, kPortDestinationOffset, 2);
    Compare(NetworkOrder(e.port));
  }
  void operator()(const OpensTcp&) {
    MetaIs(NFT_META_L4PROTO, HostOrder(static_cast<uint8_t>(IPPROTO_TCP)));
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, kTcpFlagsOffset, 1);
    Mask(std::vector<uint8_t>{kTcpSyn | kTcpAck});
    Compare(std::vector<uint8_t>{kTcpSyn});
  }
  void operator()(const SocketIsTransparent&) {
    nftnl_expr* e = Add("socket");
    nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_KEY, NFT_SOCKET_TRANSPARENT);
    nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_DREG, kRegister);
    Compare(std::vector<uint8_t>{1});
  }
  void operator()(const IcmpUnreachable& e) {
    const bool v4 = e.protocol == Protocol::kIcmp;
    MetaIs(NFT_META_L4PROTO, HostOrder(static_cast<uint8_t>(e.protocol)));
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
    Compare(std::vector<uint8_t>{v4 ? kIcmpDestinationUnreachable : kIcmp6DestinationUnreachable});
  }
  void operator()(const Icmp6Types& e) {
    OfFamily(false);
    MetaIs(NFT_META_L4PROTO, HostOrder(static_cast<uint8_t>(IPPROTO_ICMPV6)));
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
    if (e.first == e.last) return Compare(std::vector<uint8_t>{e.first});
    Compare(std::vector<uint8_t>{e.first}, NFT_CMP_GTE);
    Compare(std::vector<uint8_t>{e.last}, NFT_CMP_LTE);
  }
  void operator()(const IsArp&) { MetaIs(NFT_META_PROTOCOL, NetworkOrder(ETH_P_ARP)); }
  void operator()(const OnLoopback& e) { MetaIs(e.way == Way::kIn ? NFT_META_IIF : NFT_META_OIF, HostOrder(kLoopbackIndex)); }
  void operator()(const OnDevice& e) {
    std::vector<uint8_t> name(IFNAMSIZ);
    for (size_t i = 0; i < e.name.size() && i + 1 < name.size(); ++i) name[i] = static_cast<uint8_t>(e.name[i]);
    MetaIs(e.way == Way::kIn ? NFT_META_IIFNAME : NFT_META_OIFNAME, name);
  }
  void operator()(const MarkIs& e) {
    Meta(NFT_META_MARK);
    Compare(HostOrder(e.mark), e.test == Test::kEqual ? NFT_CMP_EQ : NFT_CMP_NEQ);
  }
  void operator()(const PriorityIs& e) { MetaIs(NFT_META_PRIORITY, HostOrder(e.priority)); }
  void operator()(const HasOwner&) {
    Meta(NFT_META_SKUID);
    Compare(HostOrder(kNobody), NFT_CMP_NEQ);
  }
  void operator()(const SourceIsForeign&) {
    nftnl_expr* e = Add("fib");
    nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_DREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
    nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_FLAGS, NFTA_FIB_F_SADDR);
    Compare(HostOrder(static_cast<uint32_t>(RTN_LOCAL)), NFT_CMP_NEQ);
  }
  void operator()(const StateIn& e) {
    Conntrack(NFT_CT_STATE);
    Mask(HostOrder(static_cast<uint32_t>(e.states)));
    Compare(HostOrder(uint32_t{0}), NFT_CMP_NEQ);
  }
  void operator()(const DirectionIs& e) {
    Conntrack(NFT_CT_DIRECTION);
    Compare(HostOrder(static_cast<uint8_t>(e.direction == Direction::kOriginal ? IP_CT_DIR_ORIGINAL : IP_CT_DIR_REPLY)));
  }
  void operator()(const Rewritten& e) {
    Conntrack(NFT_CT_STATUS);
    Mask(HostOrder(static_cast<uint32_t>(IPS_DST_NAT)));
    Compare(HostOrder(e.test == Test::kEqual ? static_cast<uint32_t>(IPS_DST_NAT) : 0U));
  }
  void operator()(const FlowMarkIs& e) {
    Conntrack(NFT_CT_MARK);
    Mask(HostOrder(e.mask));
    Compare(HostOrder(e.value));
  }
  void operator()(const AnsweredFrom& e) {
    const bool v4 = e.address.is_v4();
    FlowTuple(v4 ? NFT_CT_SRC_IP : NFT_CT_SRC_IP6, IP_CT_DIR_REPLY, kRegister);
    const std::span<const uint8_t> all(e.address.bytes());
    Compare(v4 ? all.subspan(12) : all);
  }
  void operator()(const IsFragment& e) {
    OfFamily(true);
    Payload(NFT_PAYLOAD_NETWORK_HEADER, kIpFragmentOffset, 2);
    Mask(std::vector<uint8_t>{0x3f, 0xff});  // more fragments, or an offset
    Compare(std::vector<uint8_t>{0, 0}, e.test == Test::kEqual ? NFT_CMP_NEQ : NFT_CMP_EQ);
  }
  void operator()(const HasIp4Options& e) {
    OfFamily(true);
    Payload(NFT_PAYLOAD_NETWORK_HEADER, kIpHeaderLengthOffset, 1);
    Mask(std::vector<uint8_t>{0x0f});
    Compare(std::vector<uint8_t>{kIpWordsWithoutOptions}, e.test == Test::kEqual ? NFT_CMP_NEQ : NFT_CMP_EQ);
  }
  void operator()(const Ip6Carries& e) {
    OfFamily(false);
    Payload(NFT_PAYLOAD_NETWORK_HEADER, kIp6NextHeaderOffset, 1);
    Compare(std::vector<uint8_t>{static_cast<uint8_t>(e.protocol)});
  }
  void operator()(Ip6Header header) {
    OfFamily(false);
    nftnl_expr* e = Add("exthdr");
    nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_DREG, kRegister);
    nftnl_expr_set_u8(e, NFTNL_EXPR_EXTHDR_TYPE, static_cast<uint8_t>(header));
    nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_OFFSET, 0);
    nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_LEN, 1);
    nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_OP, NFT_EXTHDR_OP_IPV6);
    nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_FLAGS, NFT_EXTHDR_F_PRESENT);
    Compare(std::vector<uint8_t>{1});
  }
  void operator()(const InSet& e) {
    LoadKey(e.key);
    nftnl_expr* lookup = Add("lookup");
    nftnl_expr_set_u32(lookup, NFTNL_EXPR_LOOKUP_SREG, kRegister);
    nftnl_expr_set_str(lookup, NFTNL_EXPR_LOOKUP_SET, e.set.c_str());
    nftnl_expr_set_u32(lookup, NFTNL_EXPR_LOOKUP_FLAGS, 0);  // listed by the kernel, so said here
  }
  void operator()(const AddTo& e) {
    LoadKey(e.key);
    nftnl_expr* add = Add("dynset");
    nftnl_expr_set_u32(add, NFTNL_EXPR_DYNSET_SREG_KEY, kRegister);
    nftnl_expr_set_u32(add, NFTNL_EXPR_DYNSET_OP, NFT_DYNSET_OP_ADD);
    nftnl_expr_set_str(add, NFTNL_EXPR_DYNSET_SET_NAME, e.set.c_str());
    nftnl_expr_set_u64(add, NFTNL_EXPR_DYNSET_TIMEOUT, 0);  // the set's own
  }
  void operator()(const SetMark& e) { WriteMeta(NFT_META_MARK, e.mark); }
  void operator()(const SetPriority& e) { WriteMeta(NFT_META_PRIORITY, e.priority); }
  void operator()(const SetFlowMark& e) {
    Conntrack(NFT_CT_MARK);
    Mask(HostOrder(~e.mask), HostOrder(e.value));
    nftnl_expr* write = Add("ct");
    nftnl_expr_set_u32(write, NFTNL_EXPR_CT_KEY, NFT_CT_MARK);
    nftnl_expr_set_u32(write, NFTNL_EXPR_CT_SREG, kRegister);
  }
  void operator()(const SetFlowZone& e) {
    Load(HostOrder(e.zone));
    nftnl_expr* write = Add("ct");
    nftnl_expr_set_u32(write, NFTNL_EXPR_CT_KEY, NFT_CT_ZONE);
    nftnl_expr_set_u32(write, NFTNL_EXPR_CT_SREG, kRegister);
    nftnl_expr_set_u8(write, NFTNL_EXPR_CT_DIR, IP_CT_DIR_ORIGINAL);
  }
  void operator()(const Counter&) { Add("counter"); }
  void operator()(const Limit& e) {
    nftnl_expr* limit = Add("limit");
    nftnl_expr_set_u64(limit, NFTNL_EXPR_LIMIT_RATE, e.rate);
    nftnl_expr_set_u64(limit, NFTNL_EXPR_LIMIT_UNIT, 1);
    nftnl_expr_set_u32(limit, NFTNL_EXPR_LIMIT_BURST, e.burst);
    nftnl_expr_set_u32(limit, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
    nftnl_expr_set_u32(limit, NFTNL_EXPR_LIMIT_FLAGS, 0);
  }
  void operator()(const Log& e) {
    nftnl_expr* log = Add("log");
    nftnl_expr_set_str(log, NFTNL_EXPR_LOG_PREFIX, e.prefix.c_str());
    nftnl_expr_set_u32(log, NFTNL_EXPR_LOG_LEVEL, kLogWarning);
  }
  void operator()(const TproxyTo& e) {
    LoadPort(e.port);
    nftnl_expr* tproxy = Add("tproxy");
    nftnl_expr_set_u32(tproxy, NFTNL_EXPR_TPROXY_FAMILY, NFPROTO_UNSPEC);
    nftnl_expr_set_u32(tproxy, NFTNL_EXPR_TPROXY_REG_PORT, kRegister);
  }
  void operator()(const RedirectTo& e) {
    LoadPort(e.port);
    nftnl_expr* redirect = Add("redir");
    nftnl_expr_set_u32(redirect, NFTNL_EXPR_REDIR_REG_PROTO_MIN, kRegister);
    nftnl_expr_set_u32(redirect, NFTNL_EXPR_REDIR_REG_PROTO_MAX, kRegister);  // the kernel would add it, and list it
    nftnl_expr_set_u32(redirect, NFTNL_EXPR_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
  }
  void operator()(Reject e) {
    nftnl_expr* reject = Add("reject");
    if (e == Reject::kTcpReset) {
      nftnl_expr_set_u32(reject, NFTNL_EXPR_REJECT_TYPE, NFT_REJECT_TCP_RST);
      nftnl_expr_set_u8(reject, NFTNL_EXPR_REJECT_CODE, 0);
      return;
    }
    nftnl_expr_set_u32(reject, NFTNL_EXPR_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
    nftnl_expr_set_u8(reject, NFTNL_EXPR_REJECT_CODE,
                      e == Reject::kPortUnreachable ? NFT_REJECT_ICMPX_PORT_UNREACH : NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
  }
  void operator()(Verdict e) {
    nftnl_expr* verdict = Add("immediate");
    nftnl_expr_set_u32(verdict, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
    nftnl_expr_set_u32(verdict, NFTNL_EXPR_IMM_VERDICT, e == Verdict::kAccept ? NF_ACCEPT : NF_DROP);
  }
  void operator()(const Comment& e) {
    const std::unique_ptr<nftnl_udata_buf, void (*)(const nftnl_udata_buf*)> notes(nftnl_udata_buf_alloc(NFT_USERDATA_MAXLEN),
                                                                                   nftnl_udata_buf_free);
    nftnl_udata_put_strz(notes.get(), NFTNL_UDATA_RULE_COMMENT, e.text.c_str());
    nftnl_rule_set_data(rule_, NFTNL_RULE_USERDATA, nftnl_udata_buf_data(notes.get()), nftnl_udata_buf_len(notes.get()));
  }

  [[nodiscard]] bool complete() const { return complete_; }

 private:
  // libnftnl returns null for an expression it was built without; the setters take that in silence, so it is remembered.
  nftnl_expr* Add(const char* name) {
    nftnl_expr* e = nftnl_expr_alloc(name);
    if (e == nullptr) {
      complete_ = false;
      e = nftnl_expr_alloc("counter");
    }
    nftnl_rule_add_expr(rule_, e);
    return e;
  }
  void Meta(uint32_t key, uint32_t into = kRegister) {
    nftnl_expr* e = Add("meta");
    nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
    nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, into);
  }
  void MetaIs(uint32_t key, const std::vector<uint8_t>& value) {
    Meta(key);
    Compare(value);
  }
  void WriteMeta(uint32_t key, uint32_t value) {
    Load(HostOrder(value));
    nftnl_expr* e = Add("meta");
    nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
    nftnl_expr_set_u32(e, NFTNL_EXPR_META_SREG, kRegister);
  }
  void Conntrack(uint32_t key) {
    nftnl_expr* e = Add("ct");
    nftnl_expr_set_u32(e, NFTNL_EXPR_CT_KEY, key);
    nftnl_expr_set_u32(e, NFTNL_EXPR_CT_DREG, kRegister);
  }
  void Payload(uint32_t base, uint32_t offset, size_t length, uint32_t into = kRegister) {
    nftnl_expr* e = Add("payload");
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_DREG, into);
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, static_cast<uint32_t>(length));
  }
  void Mask(const std::vector<uint8_t>& mask) { Mask(mask, std::vector<uint8_t>(mask.size())); }
  void Mask(const std::vector<uint8_t>& mask, const std::vector<uint8_t>& flip) {
    const auto length = static_cast<uint32_t>(mask.size());
    nftnl_expr* e = Add("bitwise");
    nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_SREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_DREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_LEN, length);
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_MASK, mask.data(), length);
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_XOR, flip.data(), length);
  }
  void Compare(std::span<const uint8_t> value, uint32_t how = NFT_CMP_EQ) {
    nftnl_expr* e = Add("cmp");
    nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP, how);
    nftnl_expr_set(e, NFTNL_EXPR_CMP_DATA, value.data(), static_cast<uint32_t>(value.size()));
  }
  void Load(const std::vector<uint8_t>& value) {
    nftnl_expr* load = Add("immediate");
    nftnl_expr_set_u32(load, NFTNL_EXPR_IMM_DREG, kRegister);
    nftnl_expr_set(load, NFTNL_EXPR_IMM_DATA, value.data(), static_cast<uint32_t>(value.size()));
  }
  void LoadPort(uint16_t port) { Load(NetworkOrder(port)); }

  // Before a header of one family is read.
  void OfFamily(bool v4) {
    if (family_ == Family::kNetdev)
      MetaIs(NFT_META_PROTOCOL, NetworkOrder(v4 ? ETH_P_IP : ETH_P_IPV6));
    else
      MetaIs(NFT_META_NFPROTO, HostOrder(static_cast<uint8_t>(v4 ? NFPROTO_IPV4 : NFPROTO_IPV6)));
  }
  void AddressIn(const Cidr& prefix, uint32_t offset4, uint32_t offset6) {
    const bool v4 = prefix.is_v4();
    OfFamily(v4);
    const std::span<const uint8_t> all(prefix.base().bytes());
    const auto address = v4 ? all.subspan(12) : all;
    Payload(NFT_PAYLOAD_NETWORK_HEADER, v4 ? offset4 : offset6, address.size());
    const unsigned length = v4 ? prefix.length128() - 96 : prefix.length128();
    if (length < address.size() * 8) Mask(PrefixMask(address.size(), length));
    Compare(address);
  }
  // The fields side by side from the first register on, each from a boundary of four bytes.
  void LoadKey(const std::vector<Field>& key) {
    for (const Field field : key) {
      if (field == Field::kDestination4) OfFamily(true);
      if (field == Field::kDestination6) OfFamily(false);
    }
    uint32_t words = 0;
    for (const Field field : key) {
      // The kernel takes a whole 16-byte register by its first name.
      const uint32_t into = words % 4 == 0 ? NFT_REG_1 + words / 4 : NFT_REG32_00 + words;
      words += LoadField(field, into);
    }
  }
  uint32_t LoadField(Field field, uint32_t into) {
    switch (field) {
      case Field::kFamily:
        return Meta(NFT_META_NFPROTO, into), 1;
      case Field::kProtocol:
        return Meta(NFT_META_L4PROTO, into), 1;
      case Field::kMark:
        return Meta(NFT_META_MARK, into), 1;
      case Field::kDestination4:
        return Payload(NFT_PAYLOAD_NETWORK_HEADER, kIpDestinationOffset, 4, into), 1;
      case Field::kDestination6:
        return Payload(NFT_PAYLOAD_NETWORK_HEADER, kIp6DestinationOffset, 16, into), 4;
      case Field::kDestinationPort:
        return Payload(NFT_PAYLOAD_TRANSPORT_HEADER, kPortDestinationOffset, 2, into), 1;
      case Field::kOriginalDestination4:
        return FlowTuple(NFT_CT_DST_IP, IP_CT_DIR_ORIGINAL, into), 1;
      case Field::kOriginalDestination6:
        return FlowTuple(NFT_CT_DST_IP6, IP_CT_DIR_ORIGINAL, into), 4;
    }
    return 1;
  }
  // Of the flow's addresses as its first packet had them, or as its answers have them.
  void FlowTuple(uint32_t key, uint8_t direction, uint32_t into) {
    nftnl_expr* e = Add("ct");
    nftnl_expr_set_u32(e, NFTNL_EXPR_CT_KEY, key);
    nftnl_expr_set_u32(e, NFTNL_EXPR_CT_DREG, into);
    nftnl_expr_set_u8(e, NFTNL_EXPR_CT_DIR, direction);
  }
  static std::vector<uint8_t> PrefixMask(size_t bytes, unsigned length) {
    std::vector<uint8_t> mask(bytes);
    for (unsigned bit = 0; bit < length; ++bit) mask[bit / 8] = static_cast<uint8_t>(mask[bit / 8] | (0x80U >> (bit % 8)));
    return mask;
  }

  nftnl_rule* rule_;
  Family family_;
  bool complete_ = true;
};

// Port and flag matches read a TCP or UDP header; icmp matches only fit their own protocol; what acts comes last.
std::string Misplaced(const Rule& rule) {
  bool ended = false;
  for (const Expression& e : rule) {
    if (const auto* port = std::get_if<DestinationPort>(&e);
        port != nullptr && port->protocol != Protocol::kTcp && port->protocol != Protocol::kUdp)
      return "a port belongs to TCP or UDP";
    if (const auto* icmp = std::get_if<IcmpUnreachable>(&e);
        icmp != nullptr && icmp->protocol != Protocol::kIcmp && icmp->protocol != Protocol::kIcmp6)
      return "destination-unreachable belongs to ICMP";
    if (ended && !std::holds_alternative<Comment>(e)) return "a verdict, reject or redirect ends its rule";
    ended =
        ended || std::holds_alternative<Reject>(e) || std::holds_alternative<Verdict>(e) || std::holds_alternative<RedirectTo>(e);
  }
  return rule.empty() ? "an empty rule" : "";
}

uint32_t NetlinkHook(Hook hook) {
  switch (hook) {
    case Hook::kPrerouting:
      return NF_INET_PRE_ROUTING;
    case Hook::kInput:
      return NF_INET_LOCAL_IN;
    case Hook::kForward:
      return NF_INET_FORWARD;
    case Hook::kOutput:
      return NF_INET_LOCAL_OUT;
    case Hook::kPostrouting:
      return NF_INET_POST_ROUTING;
    case Hook::kEgress:
      return NF_NETDEV_EGRESS;
  }
  return NF_INET_PRE_ROUTING;
}

}  // namespace

void ObjectFreer::operator()(nftnl_table* object) const { nftnl_table_free(object); }
void ObjectFreer::operator()(nftnl_chain* object) const { nftnl_chain_free(object); }
void ObjectFreer::operator()(nftnl_set* object) const { nftnl_set_free(object); }
void ObjectFreer::operator()(nftnl_rule* object) const { nftnl_rule_free(object); }

uint8_t NetlinkFamily(Family family) {
  switch (family) {
    case Family::kInet:
      return NFPROTO_INET;
    case Family::kIp:
      return NFPROTO_IPV4;
    case Family::kIp6:
      return NFPROTO_IPV6;
    case Family::kNetdev:
      return NFPROTO_NETDEV;
  }
  return NFPROTO_UNSPEC;
}

ObjectPtr<nftnl_table> Lower(const Table& table) {
  ObjectPtr<nftnl_table> object(nftnl_table_alloc());
  nftnl_table_set_str(object.get(), NFTNL_TABLE_NAME, table.name.c_str());
  nftnl_table_set_u32(object.get(), NFTNL_TABLE_FAMILY, NetlinkFamily(table.family));
  if (table.hold == Hold::kOwned) nftnl_table_set_u32(object.get(), NFTNL_TABLE_FLAGS, kTableOwner);
  if (table.hold == Hold::kOwnedPersistent) nftnl_table_set_u32(object.get(), NFTNL_TABLE_FLAGS, kTableOwner | kTablePersist);
  if (table.hold == Hold::kDormant) nftnl_table_set_u32(object.get(), NFTNL_TABLE_FLAGS, NFT_TABLE_F_DORMANT);
  return object;
}

ObjectPtr<nftnl_chain> Lower(const Table& table, const Chain& chain) {
  ObjectPtr<nftnl_chain> object(nftnl_chain_alloc());
  nftnl_chain_set_str(object.get(), NFTNL_CHAIN_TABLE, table.name.c_str());
  nftnl_chain_set_u32(object.get(), NFTNL_CHAIN_FAMILY, NetlinkFamily(table.family));
  nftnl_chain_set_str(object.get(), NFTNL_CHAIN_NAME, chain.name.c_str());
  nftnl_chain_set_str(object.get(), NFTNL_CHAIN_TYPE, chain.type == ChainType::kNat ? "nat" : "filter");
  nftnl_chain_set_u32(object.get(), NFTNL_CHAIN_HOOKNUM, NetlinkHook(chain.hook));
  nftnl_chain_set_s32(object.get(), NFTNL_CHAIN_PRIO, chain.priority);
  nftnl_chain_set_u32(object.get(), NFTNL_CHAIN_POLICY, chain.policy == Policy::kAccept ? NF_ACCEPT : NF_DROP);
  if (!chain.devices.empty()) {
    std::vector<const char*> names;
    for (const std::string& device : chain.devices) names.push_back(device.c_str());
    names.push_back(nullptr);
    nftnl_chain_set_array(object.get(), NFTNL_CHAIN_DEVICES, names.data());
  }
  return object;
}

ObjectPtr<nftnl_set> Lower(const Table& table, const Set& set) {
  ObjectPtr<nftnl_set> object(nftnl_set_alloc());
  uint32_t type = 0;
  uint32_t length = 0;
  std::vector<uint8_t> fields;
  for (const KeyType key : set.key) {
    const KeyTypeFacts facts = Facts(key);
    type = type << kTypeBits | facts.number;
    fields.push_back(static_cast<uint8_t>(facts.bytes));
    length += set.key.size() == 1 ? facts.bytes : Padded(facts.bytes);
  }
  const bool concatenated = set.key.size() > 1;
  uint32_t flags = 0;
  if (set.kind == SetKind::kInterval) flags |= NFT_SET_INTERVAL | (concatenated ? kSetConcat : 0);
  if (set.timeouts) flags |= NFT_SET_TIMEOUT;
  if (set.dynamic) flags |= NFT_SET_EVAL;
  nftnl_set_set_str(object.get(), NFTNL_SET_TABLE, table.name.c_str());
  nftnl_set_set_str(object.get(), NFTNL_SET_NAME, set.name.c_str());
  nftnl_set_set_u32(object.get(), NFTNL_SET_FAMILY, NetlinkFamily(table.family));
  nftnl_set_set_u32(object.get(), NFTNL_SET_FLAGS, flags);
  nftnl_set_set_u32(object.get(), NFTNL_SET_KEY_TYPE, type);
  nftnl_set_set_u32(object.get(), NFTNL_SET_KEY_LEN, length);
  nftnl_set_set_u32(object.get(), NFTNL_SET_ID, 1);  // rules name sets by name
  if (set.size != 0) nftnl_set_set_u32(object.get(), NFTNL_SET_DESC_SIZE, set.size);
  if (set.timeout.count() != 0)
    nftnl_set_set_u64(object.get(), NFTNL_SET_TIMEOUT, static_cast<uint64_t>(std::chrono::milliseconds(set.timeout).count()));
  // Of a hash the kernel takes no fields, only the whole key.
  if (concatenated && set.kind == SetKind::kInterval)
    nftnl_set_set_data(object.get(), NFTNL_SET_DESC_CONCAT, fields.data(), static_cast<uint32_t>(fields.size()));
  return object;
}

Result<ObjectPtr<nftnl_rule>> Lower(const Table& table, const Chain& chain, const Rule& rule) {
  if (const std::string fault = Misplaced(rule); !fault.empty())
    return Fail(Code::kInvalid, fmt::format("rule \"{}\": {}", ToText(rule), fault));
  ObjectPtr<nftnl_rule> object(nftnl_rule_alloc());
  nftnl_rule_set_str(object.get(), NFTNL_RULE_TABLE, table.name.c_str());
  nftnl_rule_set_str(object.get(), NFTNL_RULE_CHAIN, chain.name.c_str());
  nftnl_rule_set_u32(object.get(), NFTNL_RULE_FAMILY, NetlinkFamily(table.family));
  RuleBuilder builder(object.get(), table.family);
  for (const Expression& expression : rule) std::visit(builder, expression);
  if (!builder.complete()) return Fail(Code::kUnsupported, fmt::format("libnftnl cannot express rule \"{}\"", ToText(rule)));
  return object;
}

}  // namespace sluice::nft
