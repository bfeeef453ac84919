#include "nft/set.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sluice::nft {
namespace {

constexpr size_t FieldBytes(KeyType type) { return type == KeyType::kAddress6 ? 16 : 4; }

IpAddress AddressOf(std::span<const uint8_t> bytes) {
  std::array<uint8_t, 16> all{};
  if (bytes.size() == 4) all[10] = all[11] = 0xff;
  std::ranges::copy(bytes, all.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return IpAddress::FromV6(all);
}

// The prefix that is exactly this range; absent where none is.
std::optional<Cidr> PrefixOf(const IpAddress& first, const IpAddress& last) {
  unsigned equal = 0;
  while (equal < 128 && ((first.bytes()[equal / 8] ^ last.bytes()[equal / 8]) & (0x80 >> (equal % 8))) == 0) ++equal;
  const Cidr prefix = Cidr::Of(first, first.is_v4() ? equal - std::min(equal, 96U) : equal);
  return EndsOf(prefix) == std::pair(first, last) ? std::optional(prefix) : std::nullopt;
}

std::string FieldText(KeyType type, std::span<const uint8_t> first, std::span<const uint8_t> last) {
  const bool range = !std::ranges::equal(first, last);
  switch (type) {
    case KeyType::kAddress4:
    case KeyType::kAddress6: {
      const IpAddress low = AddressOf(first);
      const IpAddress high = AddressOf(last);
      if (!range) return low.ToString();
      if (const auto prefix = PrefixOf(low, high)) return prefix->ToString();
      return low.ToString() + "-" + high.ToString();
    }
    case KeyType::kProtocol:
      return first[0] == 6 ? "tcp" : first[0] == 17 ? "udp" : fmt::format("{}", first[0]);
    case KeyType::kPort: {
      const auto low = first[0] << 8 | first[1];
      const auto high = last[0] << 8 | last[1];
      return range ? fmt::format("{}-{}", low, high) : fmt::format("{}", low);
    }
    case KeyType::kFamily:
      return fmt::format("{}", first[0]);
    case KeyType::kMark:
      return fmt::format("0x{:02x}{:02x}{:02x}{:02x}", first[3], first[2], first[1], first[0]);
  }
  return "?";
}

std::optional<IpAddress> After(const IpAddress& address) {
  std::array<uint8_t, 16> bytes = address.bytes();
  const size_t stop = address.is_v4() ? 12 : 0;
  for (size_t i = 16; i-- > stop;)
    if (++bytes[i] != 0) return IpAddress::FromV6(bytes);
  return std::nullopt;
}

using AddressRange = std::pair<IpAddress, IpAddress>;

// Of ranges in their order.
std::vector<AddressRange> Join(const std::map<AddressRange, size_t>& ranges) {
  std::vector<AddressRange> joined;
  for (const auto& [range, count] : ranges) {
    if (!joined.empty()) {
      const auto after = After(joined.back().second);
      if (!after || range.first <= *after) {
        joined.back().second = std::max(joined.back().second, range.second);
        continue;
      }
    }
    joined.push_back(range);
  }
  return joined;
}

}  // namespace

std::optional<Key> Following(const Key& key) {
  std::array<uint8_t, Key::kMaxBytes> bytes{};
  const size_t length = key.bytes().size();
  std::ranges::copy(key.bytes(), bytes.begin());
  for (size_t i = length; i-- > 0;)
    if (++bytes[i] != 0) return Key::From(std::span(bytes).first(length));
  return std::nullopt;
}

std::pair<IpAddress, IpAddress> EndsOf(const Cidr& prefix) {
  std::array<uint8_t, 16> last = prefix.base().bytes();
  for (unsigned bit = prefix.length128(); bit < 128; ++bit)
    last[bit / 8] = static_cast<uint8_t>(last[bit / 8] | (0x80U >> (bit % 8)));
  return {prefix.base(), IpAddress::FromV6(last)};
}

std::vector<Element> Ranges(std::span<const Cidr> prefixes) {
  std::vector<Element> elements;
  std::map<AddressRange, size_t> ranges;
  for (const Cidr& prefix : prefixes) ++ranges[EndsOf(prefix)];
  for (const auto& [first, last] : Join(ranges)) elements.push_back({Key().Address(first), Key().Address(last)});
  return elements;
}

// Ports are cut wherever a box of the protocol begins or ends; in each piece the addresses are joined, and neighbouring pieces
// of the same addresses are put together again.
std::optional<std::vector<Element>> Disjoint(std::span<const Box> boxes, size_t most) {
  struct Edge {
    uint32_t port = 0;  ///< from here on
    bool begins = false;
    Cidr prefix;
  };
  std::map<uint8_t, std::vector<Edge>> edges;
  for (const Box& box : boxes) {
    edges[box.protocol].push_back({box.first_port, true, box.prefix});
    edges[box.protocol].push_back({box.last_port + 1U, false, box.prefix});
  }
  std::vector<Element> elements;
  size_t work = 0;
  for (auto& [protocol, of] : edges) {
    std::ranges::sort(of, {}, &Edge::port);
    std::map<AddressRange, size_t> covering;  // with how many boxes do
    std::vector<AddressRange> open;
    uint32_t from = 0;
    const auto close = [&](uint32_t end) {
      for (const auto& [first, last] : open)
        elements.push_back({Key().Address(first).Protocol(protocol).Port(static_cast<uint16_t>(from)),
                            Key().Address(last).Protocol(protocol).Port(static_cast<uint16_t>(end - 1))});
    };
    for (auto edge = of.begin(); edge != of.end();) {
      const uint32_t port = edge->port;
      bool changed = false;
      for (; edge != of.end() && edge->port == port; ++edge) {
        const AddressRange range = EndsOf(edge->prefix);
        if (edge->begins) {
          changed |= ++covering[range] == 1;
        } else if (const auto found = covering.find(range); --found->second == 0) {
          covering.erase(found);
          changed = true;
        }
      }
      if (!changed) continue;
      work += covering.size() + 1;
      if (work > kMaxCutWork) return std::nullopt;
      std::vector<AddressRange> ranges = Join(covering);
      if (ranges == open) continue;
      close(port);
      if (elements.size() > most) return std::nullopt;
      open = std::move(ranges);
      from = port;
    }
  }
  return elements;
}

std::string ToText(const Set& set, const Element& element) {
  const std::span<const uint8_t> first = element.first.bytes();
  const std::span<const uint8_t> last = set.kind == SetKind::kInterval ? element.last.bytes() : first;
  std::string text;
  size_t at = 0;
  for (const KeyType type : set.key) {
    const size_t size = FieldBytes(type);
    if (at + size > first.size() || at + size > last.size()) return "?";
    text += (text.empty() ? "" : " . ") + FieldText(type, first.subspan(at, size), last.subspan(at, size));
    at += size;
  }
  return text;
}

}  // namespace sluice::nft
