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

std::vector<AddressRange> Join(std::span<const Cidr> prefixes) {
  std::vector<AddressRange> all;
  for (const Cidr& prefix : prefixes) all.push_back(EndsOf(prefix));
  std::ranges::sort(all);
  std::vector<AddressRange> joined;
  for (const AddressRange& next : all) {
    if (!joined.empty()) {
      const auto after = After(joined.back().second);
      if (!after || next.first <= *after) {
        joined.back().second = std::max(joined.back().second, next.second);
        continue;
      }
    }
    joined.push_back(next);
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
  for (const auto& [first, last] : Join(prefixes)) elements.push_back({Key().Address(first), Key().Address(last)});
  return elements;
}

// Ports are cut wherever a box of the protocol begins or ends; in each piece the addresses are joined, and neighbouring pieces
// of the same addresses are put together again.
std::vector<Element> Disjoint(std::span<const Box> boxes) {
  std::map<uint8_t, std::vector<uint32_t>> cuts;
  for (const Box& box : boxes) {
    cuts[box.protocol].push_back(box.first_port);
    cuts[box.protocol].push_back(box.last_port + 1U);
  }
  std::vector<Element> elements;
  for (auto& [protocol, at] : cuts) {
    std::ranges::sort(at);
    at.erase(std::ranges::unique(at).begin(), at.end());
    uint32_t from = 0;
    std::vector<AddressRange> open;
    const auto close = [&](uint32_t end) {
      for (const auto& [first, last] : open)
        elements.push_back({Key().Address(first).Protocol(protocol).Port(static_cast<uint16_t>(from)),
                            Key().Address(last).Protocol(protocol).Port(static_cast<uint16_t>(end - 1))});
    };
    for (const uint32_t piece : at) {
      std::vector<Cidr> covering;
      for (const Box& box : boxes)
        if (box.protocol == protocol && box.first_port <= piece && piece <= box.last_port) covering.push_back(box.prefix);
      std::vector<AddressRange> ranges = Join(covering);
      if (ranges == open) continue;
      close(piece);
      open = std::move(ranges);
      from = piece;
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
