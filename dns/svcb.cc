#include "dns/svcb.h"

#include <algorithm>

#include "dns/rdata.h"

namespace sluice::dns {
namespace {

constexpr uint16_t kMandatory = 0;
constexpr uint16_t kPort = 3;
constexpr uint16_t kIpv4Hint = 4;
constexpr uint16_t kEch = 5;
constexpr uint16_t kIpv6Hint = 6;

bool IsStripped(uint16_t key) { return key == kIpv4Hint || key == kEch || key == kIpv6Hint; }

}  // namespace

std::optional<Svcb> ParseSvcb(std::span<const uint8_t> rdata) {
  if (rdata.size() < 3) return std::nullopt;
  Svcb svcb;
  svcb.priority = LoadU16(rdata, 0);
  size_t at = 0;
  const auto rest = rdata.subspan(2);
  // Read on its own octets, a pointer has nothing earlier to lead to but labels already read, which Name::Read refuses.
  const auto target = Name::Read(rest, &at);
  if (!target || target->wire().size() != at) return std::nullopt;
  svcb.target = *target;
  int last = -1;
  for (auto params = rest.subspan(at); !params.empty();) {
    if (params.size() < 4) return std::nullopt;
    const uint16_t key = LoadU16(params, 0);
    const size_t length = LoadU16(params, 2);
    if (key <= last || params.size() - 4 < length || (key == kPort && length != 2)) return std::nullopt;
    last = key;
    svcb.params.push_back({key, std::string(reinterpret_cast<const char*>(params.data()) + 4, length)});
    params = params.subspan(4 + length);
  }
  return svcb;
}

std::optional<uint16_t> PortOf(const Svcb& svcb) {
  for (const SvcParam& param : svcb.params)
    if (param.key == kPort) return LoadU16(Octets(param.value), 0);
  return std::nullopt;
}

std::string EncodeSvcb(const Svcb& svcb) {
  std::string out;
  AppendU16(&out, svcb.priority);
  out += svcb.target.wire();
  for (const SvcParam& param : svcb.params) {
    AppendU16(&out, param.key);
    AppendU16(&out, static_cast<uint16_t>(param.value.size()));
    out += param.value;
  }
  return out;
}

std::optional<Svcb> StripSvcb(Svcb svcb) {
  std::erase_if(svcb.params, [](const SvcParam& p) { return IsStripped(p.key); });
  for (SvcParam& param : svcb.params) {
    if (param.key != kMandatory) continue;
    if (param.value.empty() || param.value.size() % 2 != 0) return std::nullopt;
    std::string kept;
    for (size_t i = 0; i < param.value.size(); i += 2) {
      const uint16_t key = LoadU16(Octets(param.value), i);
      if (IsStripped(key)) continue;
      if (std::ranges::find(svcb.params, key, &SvcParam::key) == svcb.params.end()) return std::nullopt;
      AppendU16(&kept, key);
    }
    param.value = kept;
  }
  std::erase_if(svcb.params, [](const SvcParam& p) { return p.key == kMandatory && p.value.empty(); });
  return svcb;
}

}  // namespace sluice::dns
