#include "dns/rdata.h"

#include "dns/svcb.h"

namespace sluice::dns {
namespace {

// `fixed` octets, then `names` names, then `tail` octets, and nothing else.
std::optional<std::string> ExpandNames(std::span<const uint8_t> message, size_t begin, size_t end, size_t fixed, int names,
                                       size_t tail) {
  if (end - begin < fixed) return std::nullopt;
  const auto* data = reinterpret_cast<const char*>(message.data());
  std::string out(data + begin, fixed);
  size_t at = begin + fixed;
  for (int i = 0; i < names; ++i) {
    const auto name = Name::Read(message.first(end), &at);
    if (!name) return std::nullopt;
    out += name->wire();
  }
  if (at > end || end - at != tail) return std::nullopt;
  out.append(data + at, tail);
  return out;
}

bool IsStrings(std::span<const uint8_t> data) {
  if (data.empty()) return false;
  while (!data.empty()) {
    const size_t length = data[0];
    if (data.size() - 1 < length) return false;
    data = data.subspan(1 + length);
  }
  return true;
}

std::optional<std::string> Copy(std::span<const uint8_t> data) {
  return std::string(reinterpret_cast<const char*>(data.data()), data.size());
}

}  // namespace

void AppendU16(std::string* out, uint16_t value) {
  *out += static_cast<char>(value >> 8);
  *out += static_cast<char>(value & 0xff);
}

void AppendU32(std::string* out, uint32_t value) {
  AppendU16(out, static_cast<uint16_t>(value >> 16));
  AppendU16(out, static_cast<uint16_t>(value & 0xffff));
}

bool IsUnderstood(Type type) {
  switch (type) {
    case Type::kA:
    case Type::kAaaa:
    case Type::kNs:
    case Type::kCname:
    case Type::kDname:
    case Type::kPtr:
    case Type::kSoa:
    case Type::kMx:
    case Type::kSrv:
    case Type::kTxt:
    case Type::kHinfo:
    case Type::kSvcb:
    case Type::kHttps:
      return true;
    default:
      return false;
  }
}

std::optional<std::string> ExpandRdata(std::span<const uint8_t> message, Type type, size_t begin, size_t end) {
  const auto data = message.subspan(begin, end - begin);
  switch (type) {
    case Type::kA:
      return data.size() == 4 ? Copy(data) : std::nullopt;
    case Type::kAaaa:
      return data.size() == 16 ? Copy(data) : std::nullopt;
    case Type::kNs:
    case Type::kCname:
    case Type::kDname:
    case Type::kPtr:
      return ExpandNames(message, begin, end, 0, 1, 0);
    case Type::kSoa:
      return ExpandNames(message, begin, end, 0, 2, 20);
    case Type::kMx:
      return ExpandNames(message, begin, end, 2, 1, 0);
    case Type::kSrv:
      return ExpandNames(message, begin, end, 6, 1, 0);
    case Type::kTxt:
    case Type::kHinfo:
      return IsStrings(data) ? Copy(data) : std::nullopt;
    case Type::kSvcb:
    case Type::kHttps:
      return ParseSvcb(data) ? Copy(data) : std::nullopt;
    default:
      return Copy(data);
  }
}

}  // namespace sluice::dns
