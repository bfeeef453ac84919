#include "nft/encode.h"

#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <fmt/format.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <memory>
#include <span>

namespace sluice::nft {
namespace {

constexpr uint32_t kRegister = NFT_REG_1;
constexpr uint32_t kIpDestinationOffset = 16;   // RFC 791 section 3.1
constexpr uint32_t kIp6DestinationOffset = 24;  // RFC 8200 section 3
constexpr uint32_t kPortDestinationOffset = 2;  // RFC 9293 and RFC 768
constexpr uint32_t kTcpFlagsOffset = 13;        // RFC 9293 section 3.1
constexpr uint8_t kTcpSyn = 0x02;
constexpr uint8_t kTcpAck = 0x10;
constexpr uint8_t kIcmpDestinationUnreachable = 3;   // RFC 792
constexpr uint8_t kIcmp6DestinationUnreachable = 1;  // RFC 4443

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using TablePtr = std::unique_ptr<nftnl_table, Freer<nftnl_table_free>>;
using ChainPtr = std::unique_ptr<nftnl_chain, Freer<nftnl_chain_free>>;
using RulePtr = std::unique_ptr<nftnl_rule, Freer<nftnl_rule_free>>;

uint8_t NetlinkFamily(Family family) {
  switch (family) {
    case Family::kInet:
      return NFPROTO_INET;
    case Family::kIp:
      return NFPROTO_IPV4;
    case Family::kIp6:
      return NFPROTO_IPV6;
  }
  return NFPROTO_UNSPEC;
}

// Lowers expressions to the kernel's: a load into a register, then a comparison of it.
class RuleBuilder {
 public:
  explicit RuleBuilder(nftnl_rule* rule) : rule_(rule) {}

  void operator()(const DestinationIn& e) {
    const bool v4 = e.prefix.is_v4();
    MetaIs(NFT_META_NFPROTO, v4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
    const std::span<const uint8_t> all(e.prefix.base().bytes());
    const auto address = v4 ? all.subspan(12) : all;
    Payload(NFT_PAYLOAD_NETWORK_HEADER, v4 ? kIpDestinationOffset : kIp6DestinationOffset, address.size());
    const unsigned length = v4 ? e.prefix.length128() - 96 : e.prefix.length128();
    if (length < address.size() * 8) Mask(PrefixMask(address.size(), length));
    Equals(address);
  }
  void operator()(const ProtocolIs& e) { MetaIs(NFT_META_L4PROTO, static_cast<uint8_t>(e.protocol)); }
  void operator()(const DestinationPort& e) {
    MetaIs(NFT_META_L4PROTO, static_cast<uint8_t>(e.protocol));
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, kPortDestinationOffset, 2);
    Equals(NetworkOrder(e.port));
  }
  void operator()(const OpensTcp&) {
    MetaIs(NFT_META_L4PROTO, IPPROTO_TCP);
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, kTcpFlagsOffset, 1);
    Mask(std::vector<uint8_t>{kTcpSyn | kTcpAck});
    Equals(std::vector<uint8_t>{kTcpSyn});
  }
  void operator()(const SocketIsTransparent&) {
    nftnl_expr* e = Add("socket");
    nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_KEY, NFT_SOCKET_TRANSPARENT);
    nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_DREG, kRegister);
    Equals(std::vector<uint8_t>{1});
  }
  void operator()(const IcmpUnreachable& e) {
    const bool v4 = e.protocol == Protocol::kIcmp;
    MetaIs(NFT_META_L4PROTO, static_cast<uint8_t>(e.protocol));
    Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
    Equals(std::vector<uint8_t>{v4 ? kIcmpDestinationUnreachable : kIcmp6DestinationUnreachable});
  }
  void operator()(const TproxyTo& e) {
    const auto port = NetworkOrder(e.port);
    nftnl_expr* load = Add("immediate");
    nftnl_expr_set_u32(load, NFTNL_EXPR_IMM_DREG, kRegister);
    nftnl_expr_set(load, NFTNL_EXPR_IMM_DATA, port.data(), static_cast<uint32_t>(port.size()));
    nftnl_expr* tproxy = Add("tproxy");
    nftnl_expr_set_u32(tproxy, NFTNL_EXPR_TPROXY_FAMILY, NFPROTO_UNSPEC);
    nftnl_expr_set_u32(tproxy, NFTNL_EXPR_TPROXY_REG_PORT, kRegister);
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
  void MetaIs(uint32_t key, uint8_t value) {
    nftnl_expr* e = Add("meta");
    nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
    nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, kRegister);
    Equals(std::vector<uint8_t>{value});
  }
  void Payload(uint32_t base, uint32_t offset, size_t length) {
    nftnl_expr* e = Add("payload");
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_DREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, static_cast<uint32_t>(length));
  }
  void Mask(const std::vector<uint8_t>& mask) {
    const std::vector<uint8_t> zero(mask.size());
    const auto length = static_cast<uint32_t>(mask.size());
    nftnl_expr* e = Add("bitwise");
    nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_SREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_DREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_LEN, length);
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_MASK, mask.data(), length);
    nftnl_expr_set(e, NFTNL_EXPR_BITWISE_XOR, zero.data(), length);
  }
  void Equals(std::span<const uint8_t> value) {
    nftnl_expr* e = Add("cmp");
    nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, kRegister);
    nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP, NFT_CMP_EQ);
    nftnl_expr_set(e, NFTNL_EXPR_CMP_DATA, value.data(), static_cast<uint32_t>(value.size()));
  }
  static std::vector<uint8_t> NetworkOrder(uint16_t port) {
    return {static_cast<uint8_t>(port >> 8), static_cast<uint8_t>(port & 0xff)};
  }
  static std::vector<uint8_t> PrefixMask(size_t bytes, unsigned length) {
    std::vector<uint8_t> mask(bytes);
    for (unsigned bit = 0; bit < length; ++bit) mask[bit / 8] = static_cast<uint8_t>(mask[bit / 8] | (0x80U >> (bit % 8)));
    return mask;
  }

  nftnl_rule* rule_;
  bool complete_ = true;
};

// Port and flag matches read a TCP or UDP header; icmp matches only fit their own protocol; what acts comes last.
std::string Misplaced(const Rule& rule) {
  for (size_t i = 0; i < rule.size(); ++i) {
    const Expression& e = rule[i];
    if (const auto* port = std::get_if<DestinationPort>(&e);
        port != nullptr && port->protocol != Protocol::kTcp && port->protocol != Protocol::kUdp)
      return "a port belongs to TCP or UDP";
    if (const auto* icmp = std::get_if<IcmpUnreachable>(&e);
        icmp != nullptr && icmp->protocol != Protocol::kIcmp && icmp->protocol != Protocol::kIcmp6)
      return "destination-unreachable belongs to ICMP";
    const bool ends = std::holds_alternative<Reject>(e) || std::holds_alternative<Verdict>(e);
    if (ends && i + 1 != rule.size()) return "a verdict or reject ends its rule";
  }
  return rule.empty() ? "an empty rule" : "";
}

class BatchWriter {
 public:
  explicit BatchWriter(uint32_t first_sequence) : sequence_(first_sequence) { batch_.first_sequence = first_sequence; }

  void BeginBatch() { End(nftnl_batch_begin(Space(), sequence_)); }
  template <class Build>
  void Object(uint16_t type, Family family, uint16_t flags, std::string what, Build build) {
    last_object_ = batch_.bytes.size();
    batch_.acknowledged = sequence_;
    nlmsghdr* header = nftnl_nlmsg_build_hdr(Space(), type, NetlinkFamily(family), flags, sequence_);
    build(header);
    End(header);
    batch_.objects.push_back(std::move(what));
  }
  Result<Batch> Finish() {
    // Only the last object asks for an answer: errors come back for any message, and one answer cannot overflow the buffer.
    auto* last = reinterpret_cast<nlmsghdr*>(batch_.bytes.data() + last_object_);
    last->nlmsg_flags = static_cast<uint16_t>(last->nlmsg_flags | NLM_F_ACK);
    End(nftnl_batch_end(Space(), sequence_));
    if (batch_.bytes.size() > kMaxBatchBytes) return Fail(Code::kExhausted, "the ruleset is larger than one netlink batch");
    return std::move(batch_);
  }

 private:
  static constexpr size_t kMaxMessage = 16 * 1024;  // a rule of this page is under 1 KiB

  char* Space() { return reinterpret_cast<char*>(message_.data()); }
  void End(const nlmsghdr* header) {
    const std::span<const uint8_t> bytes(message_.data(), header->nlmsg_len);
    batch_.bytes.insert(batch_.bytes.end(), bytes.begin(), bytes.end());
    batch_.bytes.resize(NLMSG_ALIGN(batch_.bytes.size()));
    ++sequence_;
  }

  alignas(nlmsghdr) std::array<uint8_t, kMaxMessage> message_{};
  Batch batch_;
  uint32_t sequence_;
  size_t last_object_ = 0;
};

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
  }
  return NF_INET_PRE_ROUTING;
}

void AddChain(BatchWriter& writer, const Table& table, const Chain& chain) {
  const ChainPtr object(nftnl_chain_alloc());
  nftnl_chain_set_str(object.get(), NFTNL_CHAIN_TABLE, table.name.c_str());
  nftnl_chain_set_str(object.get(), NFTNL_CHAIN_NAME, chain.name.c_str());
  nftnl_chain_set_str(object.get(), NFTNL_CHAIN_TYPE, "filter");
  nftnl_chain_set_u32(object.get(), NFTNL_CHAIN_HOOKNUM, NetlinkHook(chain.hook));
  nftnl_chain_set_s32(object.get(), NFTNL_CHAIN_PRIO, chain.priority);
  nftnl_chain_set_u32(object.get(), NFTNL_CHAIN_POLICY, chain.policy == Policy::kAccept ? NF_ACCEPT : NF_DROP);
  writer.Object(NFT_MSG_NEWCHAIN, table.family, NLM_F_CREATE | NLM_F_EXCL, fmt::format("chain {} {}", table.name, chain.name),
                [&](nlmsghdr* header) { nftnl_chain_nlmsg_build_payload(header, object.get()); });
}

Result<void> AddRule(BatchWriter& writer, const Table& table, const Chain& chain, const Rule& rule) {
  const std::string text = ToText(rule);
  if (const std::string fault = Misplaced(rule); !fault.empty())
    return Fail(Code::kInvalid, fmt::format("rule \"{}\": {}", text, fault));
  const RulePtr object(nftnl_rule_alloc());
  nftnl_rule_set_str(object.get(), NFTNL_RULE_TABLE, table.name.c_str());
  nftnl_rule_set_str(object.get(), NFTNL_RULE_CHAIN, chain.name.c_str());
  nftnl_rule_set_u32(object.get(), NFTNL_RULE_FAMILY, NetlinkFamily(table.family));
  RuleBuilder builder(object.get());
  for (const Expression& expression : rule) std::visit(builder, expression);
  if (!builder.complete()) return Fail(Code::kUnsupported, fmt::format("libnftnl cannot express rule \"{}\"", text));
  writer.Object(NFT_MSG_NEWRULE, table.family, NLM_F_CREATE | NLM_F_APPEND,
                fmt::format("rule {} {}: {}", table.name, chain.name, text),
                [&](nlmsghdr* header) { nftnl_rule_nlmsg_build_payload(header, object.get()); });
  return {};
}

}  // namespace

Result<Batch> EncodeAdd(const Table& table, uint32_t first_sequence) {
  const auto writer = std::make_unique<BatchWriter>(first_sequence);
  writer->BeginBatch();
  const TablePtr object(nftnl_table_alloc());
  nftnl_table_set_str(object.get(), NFTNL_TABLE_NAME, table.name.c_str());
  nftnl_table_set_u32(object.get(), NFTNL_TABLE_FAMILY, NetlinkFamily(table.family));
  writer->Object(NFT_MSG_NEWTABLE, table.family, NLM_F_CREATE | NLM_F_EXCL, fmt::format("table {}", table.name),
                 [&](nlmsghdr* header) { nftnl_table_nlmsg_build_payload(header, object.get()); });
  for (const Chain& chain : table.chains) AddChain(*writer, table, chain);
  for (const Chain& chain : table.chains)
    for (const Rule& rule : chain.rules)
      if (auto added = AddRule(*writer, table, chain, rule); !added) return std::unexpected(added.error());
  return writer->Finish();
}

}  // namespace sluice::nft
