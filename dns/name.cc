#include "dns/name.h"

#include <algorithm>
#include <array>

namespace sluice::dns {
namespace {

bool IsLetter(char c) { return LowerAscii(c) >= 'a' && LowerAscii(c) <= 'z'; }

void AppendEscaped(std::string* out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '.' || c == '\\') {
    *out += '\\';
    *out += c;
  } else if (byte > 0x20 && byte < 0x7f) {
    *out += c;
  } else {
    *out += '\\';
    *out += static_cast<char>('0' + byte / 100);
    *out += static_cast<char>('0' + byte / 10 % 10);
    *out += static_cast<char>('0' + byte % 10);
  }
}

}  // namespace

std::optional<Name> Name::FromText(std::string_view text) {
  Name name;
  if (text == ".") return name;
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty()) return std::nullopt;
  name.wire_.clear();
  name.wire_.reserve(std::min(text.size() + 2, kMaxNameOctets));
  for (;;) {
    const size_t dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    if (label.empty() || label.size() > kMaxLabelOctets) return std::nullopt;
    name.wire_ += static_cast<char>(label.size());
    name.wire_ += label;
    if (name.wire_.size() + 1 > kMaxNameOctets) return std::nullopt;
    if (dot == std::string_view::npos) break;
    text.remove_prefix(dot + 1);
  }
  name.wire_ += '\0';
  return name;
}

std::optional<Name> Name::Read(std::span<const uint8_t> message, size_t* position) {
  std::array<char, kMaxNameOctets> wire;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled as far as `size`
  size_t size = 0;
  size_t at = *position;
  size_t floor = at;  // a pointer must lead below this, so that each one leads further back
  bool jumped = false;
  for (;;) {
    if (at >= message.size()) return std::nullopt;
    const uint8_t length = message[at];
    if ((length & 0xc0) == 0xc0) {
      if (at + 1 >= message.size()) return std::nullopt;
      const size_t target = static_cast<size_t>(length & 0x3f) << 8 | message[at + 1];
      if (target >= floor) return std::nullopt;
      if (!jumped) *position = at + 2;
      jumped = true;
      floor = at = target;
      continue;
    }
    if ((length & 0xc0) != 0) return std::nullopt;
    ++at;
    if (length == 0) break;
    if (message.size() - at < length || size + length + 2 > kMaxNameOctets) return std::nullopt;
    wire[size++] = static_cast<char>(length);
    std::copy_n(message.data() + at, length, wire.data() + size);
    size += length;
    at += length;
  }
  wire[size++] = '\0';
  Name name;
  name.wire_.assign(wire.data(), size);
  if (!jumped) *position = at;
  return name;
}

size_t Name::label_count() const {
  size_t count = 0;
  for (size_t at = 0; wire_[at] != '\0'; at += static_cast<unsigned char>(wire_[at]) + 1u) ++count;
  return count;
}

size_t Name::longest_label() const {
  size_t longest = 0;
  for (size_t at = 0; wire_[at] != '\0'; at += static_cast<unsigned char>(wire_[at]) + 1u)
    longest = std::max<size_t>(longest, static_cast<unsigned char>(wire_[at]));
  return longest;
}

std::string Name::ToText() const {
  if (is_root()) return ".";
  std::string text;
  text.reserve(wire_.size());
  for (size_t at = 0; wire_[at] != '\0';) {
    const size_t length = static_cast<unsigned char>(wire_[at++]);
    if (!text.empty()) text += '.';
    for (size_t i = 0; i < length; ++i) AppendEscaped(&text, wire_[at + i]);
    at += length;
  }
  return text;
}

std::string Name::Canonical() const {
  std::string text = ToText();
  std::ranges::transform(text, text.begin(), LowerAscii);
  return text;
}

bool Name::EqualsIgnoringCase(const Name& other) const {
  // Length octets are at most 63, below every letter, so folding the whole form is safe.
  return wire_ == other.wire_ || std::ranges::equal(wire_, other.wire_, {}, LowerAscii, LowerAscii);
}

void Name::RandomizeCase(std::span<const uint8_t> bits) {
  size_t bit = 0;
  for (size_t at = 0; wire_[at] != '\0';) {
    const size_t length = static_cast<unsigned char>(wire_[at++]);
    for (size_t i = 0; i < length; ++i, ++at, ++bit) {
      if (!IsLetter(wire_[at])) continue;
      const bool upper = (bits[bit / 8 % bits.size()] >> (bit % 8) & 1) != 0;
      wire_[at] = upper ? static_cast<char>(LowerAscii(wire_[at]) - ('a' - 'A')) : LowerAscii(wire_[at]);
    }
  }
}

}  // namespace sluice::dns
