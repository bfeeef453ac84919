#include "proxy/spki.h"

#include <algorithm>
#include <string_view>

namespace sluice::proxy {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kPrefix = "sha256//";

}  // namespace

std::string SpkiPinText(const SpkiPin& pin) {
  std::string text(kPrefix);
  uint32_t bits = 0;
  unsigned held = 0;
  for (const uint8_t byte : pin) {
    bits = (bits << 8) | byte;
    held += 8;
    while (held >= 6) {
      held -= 6;
      text += kAlphabet[(bits >> held) & 63];
    }
  }
  text += kAlphabet[(bits << (6 - held)) & 63];
  text += '=';
  return text;
}

bool AnyPinned(std::span<const SpkiPin> pins, std::span<const SpkiPin> keys) {
  return std::ranges::any_of(keys, [&](const SpkiPin& key) { return std::ranges::find(pins, key) != pins.end(); });
}

std::string PinSetKey(std::vector<SpkiPin> pins) {
  std::ranges::sort(pins);
  const auto repeated = std::ranges::unique(pins);
  pins.erase(repeated.begin(), repeated.end());
  std::string key;
  for (const SpkiPin& pin : pins) key.append(reinterpret_cast<const char*>(pin.data()), pin.size());
  return key;
}

}  // namespace sluice::proxy
