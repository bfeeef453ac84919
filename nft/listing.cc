#include "nft/listing.h"

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
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "nft/lower.h"

namespace sluice::nft {
namespace {

constexpr uint32_t kFlagsCompared = 0x7;  // dormant, owner, persist
constexpr std::string_view kUnreadable = "unreadable";

std::string Text(const char* text) { return text == nullptr ? std::string() : std::string(text); }

std::string TableLine(const nftnl_table* table) {
  return fmt::format("table {} flags {:#x}", Text(nftnl_table_get_str(table, NFTNL_TABLE_NAME)),
                     nftnl_table_get_u32(table, NFTNL_TABLE_FLAGS) & kFlagsCompared);
}

std::string ChainLine(const nftnl_chain* chain) {
  std::vector<std::string> devices;
  if (nftnl_chain_is_set(chain, NFTNL_CHAIN_DEV)) devices.push_back(Text(nftnl_chain_get_str(chain, NFTNL_CHAIN_DEV)));
  if (nftnl_chain_is_set(chain, NFTNL_CHAIN_DEVICES)) {
    const char* const* names = nftnl_chain_get_array(chain, NFTNL_CHAIN_DEVICES);
    for (size_t i = 0; names != nullptr && names[i] != nullptr; ++i) devices.emplace_back(names[i]);
  }
  // The kernel names a single device in both ways.
  std::ranges::sort(devices);
  devices.erase(std::ranges::unique(devices).begin(), devices.end());
  std::string line =
      fmt::format("chain {} type {} hook {} priority {} policy {}", Text(nftnl_chain_get_str(chain, NFTNL_CHAIN_NAME)),
                  Text(nftnl_chain_get_str(chain, NFTNL_CHAIN_TYPE)), nftnl_chain_get_u32(chain, NFTNL_CHAIN_HOOKNUM),
                  nftnl_chain_get_s32(chain, NFTNL_CHAIN_PRIO), nftnl_chain_get_u32(chain, NFTNL_CHAIN_POLICY));
  for (const std::string& device : devices) line += " device " + device;
  return line;
}

std::string SetLine(const nftnl_set* set) {
  return fmt::format("set {} flags {:#x} key {} bytes of type {:#x} size {} timeout {}",
                     Text(nftnl_set_get_str(set, NFTNL_SET_NAME)), nftnl_set_get_u32(set, NFTNL_SET_FLAGS),
                     nftnl_set_get_u32(set, NFTNL_SET_KEY_LEN), nftnl_set_get_u32(set, NFTNL_SET_KEY_TYPE),
                     nftnl_set_get_u32(set, NFTNL_SET_DESC_SIZE), nftnl_set_get_u64(set, NFTNL_SET_TIMEOUT));
}

std::optional<std::string> CommentOf(const nftnl_rule* rule) {
  uint32_t length = 0;
  const auto* notes = static_cast<const uint8_t*>(nftnl_rule_get_data(rule, NFTNL_RULE_USERDATA, &length));
  // Type, length, text and its zero, as nft(8) writes a comment.
  if (notes == nullptr || length < 3 || notes[0] != NFTNL_UDATA_RULE_COMMENT || notes[1] < 1 || notes[1] + 2U > length)
    return std::nullopt;
  return std::string(reinterpret_cast<const char*>(notes + 2), notes[1] - 1U);
}

struct Expressions {
  std::string text;
  std::optional<RuleCounter> counter;
};

// nftnl_expr_foreach takes no const rule.
Expressions Describe(nftnl_rule* rule) {
  Expressions all;
  nftnl_expr_foreach(
      rule,
      [](nftnl_expr* expression, void* context) {
        auto& into = *static_cast<Expressions*>(context);
        const std::string name = Text(nftnl_expr_get_str(expression, NFTNL_EXPR_NAME));
        if (!into.text.empty()) into.text += "; ";
        into.text += name;
        if (name == "counter") {
          into.counter = RuleCounter{"", nftnl_expr_get_u64(expression, NFTNL_EXPR_CTR_PACKETS),
                                     nftnl_expr_get_u64(expression, NFTNL_EXPR_CTR_BYTES)};
          return 0;
        }
        std::array<char, 512> text{};
        const int length = nftnl_expr_snprintf(text.data(), text.size(), expression, NFTNL_OUTPUT_DEFAULT, 0);
        if (length > 0)
          into.text += " " + std::string(text.data(), std::min<size_t>(static_cast<size_t>(length), text.size() - 1));
        return 0;
      },
      &all);
  if (const auto comment = CommentOf(rule)) {
    all.text += "; comment " + *comment;
    if (all.counter) all.counter->name = *comment;
  }
  return all;
}

std::string Hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string ElementLine(const std::string& set, const Key& first, const Key& last, uint32_t flags) {
  return fmt::format("element {} {}{}{}", set, Hex(first.bytes()), last.bytes().empty() ? "" : "-" + Hex(last.bytes()),
                     (flags & NFT_SET_ELEM_INTERVAL_END) != 0 ? " end" : "");
}

// Attributes of untrusted bytes.
template <class Each>
void ForEachAttribute(std::span<const uint8_t> bytes, Each each) {
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > bytes.size()) return;
    each(static_cast<uint16_t>(header.nla_type & NLA_TYPE_MASK), bytes.subspan(sizeof header, header.nla_len - sizeof header));
    bytes = bytes.subspan(std::min<size_t>(bytes.size(), NLMSG_ALIGN(header.nla_len)));
  }
}

template <class T>
T FromNetworkOrder(std::span<const uint8_t> bytes) {
  T value = 0;
  if (bytes.size() == sizeof value)
    for (const uint8_t byte : bytes) value = static_cast<T>(value << 8 | byte);
  return value;
}

std::string TextOf(std::span<const uint8_t> bytes) {
  const auto end = std::ranges::find(bytes, uint8_t{0});
  return {bytes.begin(), end};
}

Key KeyOf(std::span<const uint8_t> bytes) {
  Key key;
  ForEachAttribute(bytes, [&](uint16_t type, std::span<const uint8_t> value) {
    if (type == NFTA_DATA_VALUE) key = Key::From(value).value_or(Key{});
  });
  return key;
}

struct ReadElement {
  Key first;
  Key last;
  uint32_t flags = 0;
  uint64_t timeout = 0;
  uint64_t left = 0;
};

// Of a NEWSETELEM message after its nfgenmsg: the table's and set's names, and the elements.
struct ElementList {
  std::string table;
  std::string set;
  std::vector<ReadElement> elements;
};

ElementList ElementsOf(std::span<const uint8_t> body) {
  ElementList list;
  ForEachAttribute(body, [&](uint16_t type, std::span<const uint8_t> value) {
    if (type == NFTA_SET_ELEM_LIST_TABLE) list.table = TextOf(value);
    if (type == NFTA_SET_ELEM_LIST_SET) list.set = TextOf(value);
    if (type != NFTA_SET_ELEM_LIST_ELEMENTS) return;
    ForEachAttribute(value, [&](uint16_t item, std::span<const uint8_t> element) {
      if (item != NFTA_LIST_ELEM) return;
      ReadElement read;
      ForEachAttribute(element, [&](uint16_t field, std::span<const uint8_t> content) {
        if (field == NFTA_SET_ELEM_KEY) read.first = KeyOf(content);
        if (field == NFTA_SET_ELEM_KEY_END) read.last = KeyOf(content);
        if (field == NFTA_SET_ELEM_FLAGS) read.flags = FromNetworkOrder<uint32_t>(content);
        if (field == NFTA_SET_ELEM_TIMEOUT) read.timeout = FromNetworkOrder<uint64_t>(content);
        if (field == NFTA_SET_ELEM_EXPIRATION) read.left = FromNetworkOrder<uint64_t>(content);
      });
      list.elements.push_back(read);
    });
  });
  return list;
}

struct RawMessage {
  uint16_t type = 0;
  uint8_t family = 0;
  std::span<const uint8_t> whole;
  std::span<const uint8_t> body;  ///< after the nfgenmsg
};

template <class Each>
void ForEachNftMessage(std::span<const uint8_t> bytes, Each each) {
  while (bytes.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > bytes.size()) return;
    const auto whole = bytes.first(header.nlmsg_len);
    if (header.nlmsg_type >> 8 == NFNL_SUBSYS_NFTABLES && whole.size() >= sizeof header + sizeof(nfgenmsg))
      each(RawMessage{static_cast<uint16_t>(header.nlmsg_type & 0xff), whole[sizeof header], whole,
                      whole.subspan(sizeof header + sizeof(nfgenmsg))});
    bytes = bytes.subspan(std::min<size_t>(bytes.size(), NLMSG_ALIGN(header.nlmsg_len)));
  }
}

// libnftnl reads through a pointer to a header, which wants alignment and the bytes that the length promises.
template <class Object, class Parse>
bool ParseInto(std::span<const uint8_t> message, Object* object, Parse parse) {
  std::vector<uint32_t> aligned((message.size() + 3) / 4);
  std::memcpy(aligned.data(), message.data(), message.size());
  return object != nullptr && parse(reinterpret_cast<const nlmsghdr*>(aligned.data()), object) >= 0;
}

void SortLines(Listing* listing) {
  // Rules of a chain carry their place in front, three digits wide, so that sorting keeps their order.
  std::ranges::sort(listing->lines);
}

}  // namespace

uint64_t Listing::Hash() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::string& line : lines) {
    for (const char c : line) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    hash = (hash ^ '\n') * 0x100000001b3;
  }
  return hash;
}

Listing Plan(const Table& table) {
  Listing listing;
  listing.exists = true;
  listing.lines.push_back(TableLine(Lower(table).get()));
  for (const Set& set : table.sets) {
    listing.lines.push_back(SetLine(Lower(table, set).get()));
    if (!set.is_static()) continue;
    const bool ends_apart = set.kind == SetKind::kInterval && set.key.size() == 1;
    for (const Element& element : set.elements) {
      listing.lines.push_back(ElementLine(set.name, element.first, ends_apart ? Key{} : element.last, 0));
      if (!ends_apart) continue;
      if (const auto end = Following(element.last))
        listing.lines.push_back(ElementLine(set.name, *end, {}, NFT_SET_ELEM_INTERVAL_END));
    }
  }
  for (const Chain& chain : table.chains) {
    listing.chains.push_back(chain.name);
    listing.lines.push_back(ChainLine(Lower(table, chain).get()));
    size_t place = 0;
    for (const Rule& rule : chain.rules) {
      const auto object = Lower(table, chain, rule);
      listing.lines.push_back(
          fmt::format("rule {} {:03}: {}", chain.name, place++, object ? Describe(object->get()).text : object.error().message));
    }
  }
  SortLines(&listing);
  return listing;
}

std::string Difference(const Listing& planned, const Listing& found) {
  std::vector<std::string> missing;
  std::vector<std::string> foreign;
  std::ranges::set_difference(planned.lines, found.lines, std::back_inserter(missing));
  std::ranges::set_difference(found.lines, planned.lines, std::back_inserter(foreign));
  if (!missing.empty())
    return fmt::format("missing: {}{}", missing.front(), foreign.empty() ? "" : "; there instead: " + foreign.front());
  if (!foreign.empty()) return "not planned: " + foreign.front();
  return "";
}

void ListingReader::Feed(std::span<const uint8_t> messages) {
  ForEachNftMessage(messages, [&](const RawMessage& message) {
    if (message.family == NetlinkFamily(of_.family)) Message(message.whole);
  });
}

void ListingReader::Message(std::span<const uint8_t> message) {
  const uint16_t type = message[4];  // the low byte of nlmsg_type
  const auto unreadable = [&](const char* what) { listing_.lines.push_back(fmt::format("{} {}", kUnreadable, what)); };
  switch (type) {
    case NFT_MSG_NEWTABLE: {
      const ObjectPtr<nftnl_table> table(nftnl_table_alloc());
      if (!ParseInto(message, table.get(), nftnl_table_nlmsg_parse)) return unreadable("table");
      if (Text(nftnl_table_get_str(table.get(), NFTNL_TABLE_NAME)) != of_.name) return;
      listing_.exists = true;
      listing_.owner = nftnl_table_get_u32(table.get(), NFTNL_TABLE_OWNER);
      listing_.lines.push_back(TableLine(table.get()));
      return;
    }
    case NFT_MSG_NEWCHAIN: {
      const ObjectPtr<nftnl_chain> chain(nftnl_chain_alloc());
      if (!ParseInto(message, chain.get(), nftnl_chain_nlmsg_parse)) return unreadable("chain");
      if (Text(nftnl_chain_get_str(chain.get(), NFTNL_CHAIN_TABLE)) != of_.name) return;
      listing_.chains.push_back(Text(nftnl_chain_get_str(chain.get(), NFTNL_CHAIN_NAME)));
      listing_.lines.push_back(ChainLine(chain.get()));
      return;
    }
    case NFT_MSG_NEWRULE: {
      const ObjectPtr<nftnl_rule> rule(nftnl_rule_alloc());
      if (!ParseInto(message, rule.get(), nftnl_rule_nlmsg_parse)) return unreadable("rule");
      if (Text(nftnl_rule_get_str(rule.get(), NFTNL_RULE_TABLE)) != of_.name) return;
      const std::string chain = Text(nftnl_rule_get_str(rule.get(), NFTNL_RULE_CHAIN));
      auto place = std::ranges::find(rules_of_, chain, &std::pair<std::string, size_t>::first);
      if (place == rules_of_.end()) place = rules_of_.insert(place, {chain, 0});
      Expressions expressions = Describe(rule.get());
      listing_.lines.push_back(fmt::format("rule {} {:03}: {}", chain, place->second++, expressions.text));
      if (expressions.counter) listing_.counters.push_back(std::move(*expressions.counter));
      return;
    }
    case NFT_MSG_NEWSET: {
      const ObjectPtr<nftnl_set> set(nftnl_set_alloc());
      if (!ParseInto(message, set.get(), nftnl_set_nlmsg_parse)) return unreadable("set");
      if (Text(nftnl_set_get_str(set.get(), NFTNL_SET_TABLE)) == of_.name) listing_.lines.push_back(SetLine(set.get()));
      return;
    }
    case NFT_MSG_NEWSETELEM: {
      const ElementList list = ElementsOf(message.subspan(sizeof(nlmsghdr) + sizeof(nfgenmsg)));
      const auto set = std::ranges::find(of_.sets, list.set, &Set::name);
      if (list.table != of_.name || set == of_.sets.end() || !set->is_static()) return;
      for (const ReadElement& element : list.elements)
        listing_.lines.push_back(ElementLine(list.set, element.first, element.last, element.flags));
      return;
    }
    default:
      return;
  }
}

Listing ListingReader::Take() {
  SortLines(&listing_);
  return std::move(listing_);
}

void ReadChainNames(std::span<const uint8_t> messages, std::vector<ChainName>* into) {
  ForEachNftMessage(messages, [&](const RawMessage& message) {
    const ObjectPtr<nftnl_chain> chain(nftnl_chain_alloc());
    if (message.type != NFT_MSG_NEWCHAIN || !ParseInto(message.whole, chain.get(), nftnl_chain_nlmsg_parse)) return;
    into->push_back(
        {Text(nftnl_chain_get_str(chain.get(), NFTNL_CHAIN_TABLE)), Text(nftnl_chain_get_str(chain.get(), NFTNL_CHAIN_NAME))});
  });
}

void ReadElements(std::span<const uint8_t> messages, const Table& table, const std::string& set, std::vector<HeldElement>* into) {
  ForEachNftMessage(messages, [&](const RawMessage& message) {
    if (message.type != NFT_MSG_NEWSETELEM || message.family != NetlinkFamily(table.family)) return;
    const ElementList list = ElementsOf(message.body);
    if (list.table != table.name || list.set != set) return;
    for (const ReadElement& element : list.elements)
      into->push_back({element.first, std::chrono::milliseconds(element.timeout), std::chrono::milliseconds(element.left)});
  });
}

}  // namespace sluice::nft
