#include "supervisor/fence_element.h"

#include <algorithm>
#include <array>
#include <span>

namespace sluice::supervisor {

nft::Key KeyOf(const FenceElement& element) {
  return nft::Key().Address(element.address).Protocol(static_cast<uint8_t>(element.protocol)).Port(element.port);
}

std::optional<FenceElement> ElementOf(const nft::Key& key) {
  const std::span<const uint8_t> bytes = key.bytes();
  const size_t address = bytes.size() == 12 ? 4 : bytes.size() == 24 ? 16 : 0;
  if (address == 0) return std::nullopt;
  std::array<uint8_t, 16> all{};
  if (address == 4) all[10] = all[11] = 0xff;
  std::ranges::copy(bytes.first(address), all.end() - static_cast<std::ptrdiff_t>(address));
  const uint8_t* rest = bytes.data() + address;
  return FenceElement{IpAddress::FromV6(all), static_cast<nft::Protocol>(rest[0]), static_cast<uint16_t>(rest[4] << 8 | rest[5])};
}

}  // namespace sluice::supervisor
