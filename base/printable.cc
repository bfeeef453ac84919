#include "base/printable.h"

#include <algorithm>
#include <iterator>

namespace sluice {

CodePoint DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return {};
  uint32_t value = first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = value < (size == 4 ? 0x10000u : size == 3 ? 0x800u : 0x80u);
  if (overlong || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, size};
}

void AppendUtf8(std::string* out, uint32_t code_point) {
  const auto put = [out](uint32_t byte) { *out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xc0 | (code_point >> 6));
    return put(0x80 | (code_point & 0x3f));
  }
  if (code_point < 0x10000) {
    put(0xe0 | (code_point >> 12));
  } else {
    put(0xf0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3f));
  }
  put(0x80 | ((code_point >> 6) & 0x3f));
  put(0x80 | (code_point & 0x3f));
}

bool IsInvisible(uint32_t code_point) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kRanges[] = {
      {0x00, 0x09},     {0x0b, 0x1f},     {0x7f, 0xa0},     {0xad, 0xad},       {0x34f, 0x34f},
      {0x61c, 0x61c},   {0x115f, 0x1160}, {0x1680, 0x1680}, {0x17b4, 0x17b5},   {0x180b, 0x180f},
      {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f}, {0x2800, 0x2800},   {0x3000, 0x3000},
      {0x3164, 0x3164}, {0xe000, 0xf8ff}, {0xfdd0, 0xfdef}, {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
      {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0x1d173, 0x1d17a}, {0xe0000, 0x10ffff},
  };
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const Range& r) { return code_point >= r.first && code_point <= r.last; });
}

std::string Printable(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = DecodeUtf8(text);
    const size_t size = point.size == 0 ? 1 : point.size;
    const bool shown = size == 1 && kept.find(text.front()) != std::string_view::npos;
    if (shown || (point.size != 0 && point.value != '\n' && !IsInvisible(point.value))) {
      out += text.substr(0, size);
    } else {
      out += '?';
    }
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace sluice
