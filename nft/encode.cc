#include "nft/encode.h"

#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <endian.h>
#include <fmt/format.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cstring>

#include "nft/lower.h"

namespace sluice::nft {
namespace {

constexpr uint16_t kDestroyElement = 30;       // NFT_MSG_DESTROYSETELEM, Linux 6.3
constexpr size_t kMaxElementList = 60 * 1024;  // an attribute's length has sixteen bits
constexpr size_t kMaxElementBytes = 128;       // two keys of Key::kMaxBytes, a timeout, flags, and their headers

// Appends attributes to a byte vector; nesting is closed by patching the length.
class Attributes {
 public:
  explicit Attributes(std::vector<uint8_t>& bytes) : bytes_(bytes) {}

  void Put(uint16_t type, std::span<const uint8_t> value) {
    const size_t at = Open(type);
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    Close(at);
  }
  void PutText(uint16_t type, const std::string& text) {
    Put(type, {reinterpret_cast<const uint8_t*>(text.c_str()), text.size() + 1});
  }
  template <class T>
  void PutNetworkOrder(uint16_t type, T value) {
    std::array<uint8_t, sizeof(T)> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * (bytes.size() - 1 - i)));
    Put(type, bytes);
  }
  size_t Open(uint16_t type) {
    const size_t at = bytes_.size();
    const nlattr header{.nla_len = 0, .nla_type = type};
    const auto* raw = reinterpret_cast<const uint8_t*>(&header);
    bytes_.insert(bytes_.end(), raw, raw + sizeof header);
    return at;
  }
  void Close(size_t at) {
    const auto length = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(&bytes_[at], &length, sizeof length);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  void PutKey(uint16_t type, const Key& key) {
    const size_t at = Open(type | NLA_F_NESTED);
    Put(NFTA_DATA_VALUE, key.bytes());
    Close(at);
  }

 private:
  std::vector<uint8_t>& bytes_;
};

}  // namespace

void Batch::MakeFor(uint32_t generation) {
  const uint32_t value = htobe32(generation);
  std::memcpy(&bytes[generation_at], &value, sizeof value);
}

BatchBuilder::BatchBuilder(uint32_t first_sequence, size_t max_bytes, std::optional<uint32_t> generation)
    : sequence_(first_sequence), max_bytes_(max_bytes) {
  batch_.first_sequence = first_sequence;
  nlmsghdr* header = nftnl_batch_begin(reinterpret_cast<char*>(message_.data()), sequence_);
  End(header);
  if (!generation) return;
  batch_.generation_at = batch_.bytes.size() + sizeof(nlattr);
  Attributes(batch_.bytes).PutNetworkOrder(NFNL_BATCH_GENID, *generation);
  const auto length = static_cast<uint32_t>(batch_.bytes.size());
  std::memcpy(batch_.bytes.data(), &length, sizeof length);
}

void BatchBuilder::End(const nlmsghdr* header) {
  const std::span<const uint8_t> bytes(message_.data(), header->nlmsg_len);
  batch_.bytes.insert(batch_.bytes.end(), bytes.begin(), bytes.end());
  batch_.bytes.resize(NLMSG_ALIGN(batch_.bytes.size()));
  ++sequence_;
}

template <class Build>
void BatchBuilder::Object(uint16_t type, Family family, uint16_t flags, std::string what, Build build) {
  last_object_ = batch_.bytes.size();
  batch_.acknowledged = sequence_;
  nlmsghdr* header =
      nftnl_nlmsg_build_hdr(reinterpret_cast<char*>(message_.data()), type, NetlinkFamily(family), flags, sequence_);
  build(header);
  End(header);
  batch_.objects.push_back(std::move(what));
}

void BatchBuilder::CreateTable(const Table& table, Existing existing) {
  const uint16_t exclusive = existing == Existing::kRefuse ? NLM_F_EXCL : 0;
  Object(NFT_MSG_NEWTABLE, table.family, static_cast<uint16_t>(NLM_F_CREATE | exclusive), fmt::format("table {}", table.name),
         [&](nlmsghdr* header) { nftnl_table_nlmsg_build_payload(header, Lower(table).get()); });
}

void BatchBuilder::DeleteTable(const Table& table) {
  Object(NFT_MSG_DELTABLE, table.family, 0, fmt::format("the end of table {}", table.name), [&](nlmsghdr* header) {
    const Table plain{table.family, table.name, {}};
    nftnl_table_nlmsg_build_payload(header, Lower(plain).get());
  });
}

// A deletion by name alone: of a chain, or of all rules of a table.
void BatchBuilder::Named(uint16_t type, const Table& table, const std::string& chain, std::string what) {
  Object(type, table.family, 0, std::move(what), [&](nlmsghdr* header) {
    if (type == NFT_MSG_DELRULE) {
      const ObjectPtr<nftnl_rule> object(nftnl_rule_alloc());
      nftnl_rule_set_str(object.get(), NFTNL_RULE_TABLE, table.name.c_str());
      nftnl_rule_nlmsg_build_payload(header, object.get());
    } else {
      const ObjectPtr<nftnl_chain> object(nftnl_chain_alloc());
      nftnl_chain_set_str(object.get(), NFTNL_CHAIN_TABLE, table.name.c_str());
      nftnl_chain_set_str(object.get(), NFTNL_CHAIN_NAME, chain.c_str());
      nftnl_chain_nlmsg_build_payload(header, object.get());
    }
  });
}

void BatchBuilder::AddSet(const Table& table, const Set& set) {
  Object(NFT_MSG_NEWSET, table.family, NLM_F_CREATE | NLM_F_EXCL, fmt::format("set {} {}", table.name, set.name),
         [&](nlmsghdr* header) { nftnl_set_nlmsg_build_payload(header, Lower(table, set).get()); });
}

// Written here and not by libnftnl: a list of ten thousand then costs no allocation each.
template <class Item, class Put>
void BatchBuilder::ElementMessages(uint16_t type, uint16_t flags, const Table& table, const Set& set, std::span<const Item> items,
                                   std::string what, Put put) {
  while (!items.empty()) {
    Object(type, table.family, flags, what, [](nlmsghdr*) {});
    Attributes attributes(batch_.bytes);
    attributes.PutText(NFTA_SET_ELEM_LIST_TABLE, table.name);
    attributes.PutText(NFTA_SET_ELEM_LIST_SET, set.name);
    const size_t list = attributes.Open(NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED);
    while (!items.empty() && batch_.bytes.size() - list + 2 * kMaxElementBytes <= kMaxElementList) {
      put(attributes, items.front());
      items = items.subspan(1);
    }
    attributes.Close(list);
    CloseObject();
  }
}

void BatchBuilder::CloseObject() {
  const auto length = static_cast<uint32_t>(batch_.bytes.size() - last_object_);
  std::memcpy(&batch_.bytes[last_object_], &length, sizeof length);
}

void BatchBuilder::AddStatic(const Table& table, const Set& set) {
  const bool ends_apart = set.kind == SetKind::kInterval && set.key.size() == 1;
  ElementMessages(NFT_MSG_NEWSETELEM, NLM_F_CREATE, table, set, std::span<const Element>(set.elements),
                  fmt::format("elements of set {} {}", table.name, set.name),
                  [&](Attributes& attributes, const Element& element) {
                    size_t at = attributes.Open(NFTA_LIST_ELEM | NLA_F_NESTED);
                    attributes.PutKey(NFTA_SET_ELEM_KEY, element.first);
                    if (set.kind == SetKind::kInterval && !ends_apart) attributes.PutKey(NFTA_SET_ELEM_KEY_END, element.last);
                    attributes.Close(at);
                    if (!ends_apart) return;
                    const auto end = Following(element.last);
                    if (!end) return;
                    at = attributes.Open(NFTA_LIST_ELEM | NLA_F_NESTED);
                    attributes.PutNetworkOrder(NFTA_SET_ELEM_FLAGS, static_cast<uint32_t>(NFT_SET_ELEM_INTERVAL_END));
                    attributes.PutKey(NFTA_SET_ELEM_KEY, *end);
                    attributes.Close(at);
                  });
}

// A deletion that lists no element is one of all.
void BatchBuilder::DeleteSet(const Table& table, const Set& set) {
  Object(NFT_MSG_DELSET, table.family, 0, fmt::format("the end of set {} {}", table.name, set.name), [](nlmsghdr*) {});
  Attributes attributes(batch_.bytes);
  attributes.PutText(NFTA_SET_TABLE, table.name);
  attributes.PutText(NFTA_SET_NAME, set.name);
  CloseObject();
}

void BatchBuilder::AddElements(const Table& table, const Set& set, std::span<const TimedElement> elements) {
  ElementMessages(NFT_MSG_NEWSETELEM, NLM_F_CREATE, table, set, elements,
                  fmt::format("elements of set {} {}", table.name, set.name),
                  [](Attributes& attributes, const TimedElement& element) {
                    const size_t at = attributes.Open(NFTA_LIST_ELEM | NLA_F_NESTED);
                    attributes.PutKey(NFTA_SET_ELEM_KEY, element.key);
                    if (element.timeout.count() > 0) {
                      attributes.PutNetworkOrder(NFTA_SET_ELEM_TIMEOUT, static_cast<uint64_t>(element.timeout.count()));
                      // Without it a second add of the same timeout changes nothing, and the element ends when the first
                      // would have (Linux 6.18).
                      attributes.PutNetworkOrder(NFTA_SET_ELEM_EXPIRATION, static_cast<uint64_t>(element.timeout.count()));
                    }
                    attributes.Close(at);
                  });
}

void BatchBuilder::DeleteElements(const Table& table, const Set& set, std::span<const Key> keys, Absent absent) {
  ElementMessages(absent == Absent::kIgnore ? kDestroyElement : static_cast<uint16_t>(NFT_MSG_DELSETELEM), 0, table, set, keys,
                  fmt::format("the end of elements of set {} {}", table.name, set.name),
                  [](Attributes& attributes, const Key& key) {
                    const size_t at = attributes.Open(NFTA_LIST_ELEM | NLA_F_NESTED);
                    attributes.PutKey(NFTA_SET_ELEM_KEY, key);
                    attributes.Close(at);
                  });
}

void BatchBuilder::AddChain(const Table& table, const Chain& chain) {
  Object(NFT_MSG_NEWCHAIN, table.family, NLM_F_CREATE | NLM_F_EXCL, fmt::format("chain {} {}", table.name, chain.name),
         [&](nlmsghdr* header) { nftnl_chain_nlmsg_build_payload(header, Lower(table, chain).get()); });
}

Result<void> BatchBuilder::AddRules(const Table& table, const Chain& chain) {
  for (const Rule& rule : chain.rules) {
    const auto object = Lower(table, chain, rule);
    if (!object) return std::unexpected(object.error());
    Object(NFT_MSG_NEWRULE, table.family, NLM_F_CREATE | NLM_F_APPEND,
           fmt::format("rule {} {}: {}", table.name, chain.name, ToText(rule)),
           [&](nlmsghdr* header) { nftnl_rule_nlmsg_build_payload(header, object->get()); });
  }
  return {};
}

Result<void> BatchBuilder::Fill(const Table& table) {
  for (const Set& set : table.sets) AddSet(table, set);
  for (const Set& set : table.sets) AddStatic(table, set);
  for (const Chain& chain : table.chains) AddChain(table, chain);
  for (const Chain& chain : table.chains)
    if (auto added = AddRules(table, chain); !added) return added;
  return {};
}

Result<void> BatchBuilder::Refill(const Table& table, std::span<const std::string> chains, const Table* before) {
  Named(NFT_MSG_DELRULE, table, "", fmt::format("the end of the rules of table {}", table.name));
  for (const std::string& name : chains)
    if (std::ranges::find(table.chains, name, &Chain::name) == table.chains.end())
      Named(NFT_MSG_DELCHAIN, table, name, fmt::format("the end of chain {} {}", table.name, name));
  for (const Set& set : table.sets) {
    if (!set.is_static() || (before != nullptr && std::ranges::find(before->sets, set) != before->sets.end())) continue;
    // Flushing 10,000 concatenated intervals and adding others takes seconds in one transaction (Linux 6.18), a new set
    // milliseconds. Nothing uses the old one any more.
    DeleteSet(table, set);
    AddSet(table, set);
    AddStatic(table, set);
  }
  for (const Chain& chain : table.chains)
    if (std::ranges::find(chains, chain.name) == chains.end()) AddChain(table, chain);
  for (const Chain& chain : table.chains)
    if (auto added = AddRules(table, chain); !added) return added;
  return {};
}

Result<Batch> BatchBuilder::Finish() {
  if (batch_.acknowledged != 0) {
    // Only the last object asks for an answer: errors come back for any message, and one answer cannot overflow the buffer.
    auto* last = reinterpret_cast<nlmsghdr*>(batch_.bytes.data() + last_object_);
    last->nlmsg_flags = static_cast<uint16_t>(last->nlmsg_flags | NLM_F_ACK);
  }
  End(nftnl_batch_end(reinterpret_cast<char*>(message_.data()), sequence_));
  if (batch_.bytes.size() > max_bytes_)
    return Fail(Code::kExhausted, fmt::format("the change of the ruleset takes {} bytes, more than the {} of one netlink batch",
                                              batch_.bytes.size(), max_bytes_));
  return std::move(batch_);
}

Result<Batch> EncodeAdd(const Table& table, uint32_t first_sequence) {
  BatchBuilder builder(first_sequence, kMaxBatchBytes);
  builder.CreateTable(table, Existing::kRefuse);
  if (auto filled = builder.Fill(table); !filled) return std::unexpected(filled.error());
  return builder.Finish();
}

}  // namespace sluice::nft
