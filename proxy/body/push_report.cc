#include "proxy/body/push_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace sluice::proxy {
namespace {

constexpr char kReportBand = 1;
constexpr char kMessageBand = 2;
constexpr size_t kSmallBand = 1000 - 5;    // side-band: the packet's length and the band's number take five bytes
constexpr size_t kLargeBand = 65'520 - 5;  // side-band-64k
constexpr size_t kLongestLine = 60'000;    // of the report, within a packet

bool Has(std::string_view capabilities, std::string_view wanted) {
  while (!capabilities.empty()) {
    const size_t space = std::min(capabilities.find(' '), capabilities.size());
    if (capabilities.substr(0, space) == wanted) return true;
    capabilities.remove_prefix(std::min(space + 1, capabilities.size()));
  }
  return false;
}

void AppendPacket(std::string* out, std::string_view payload) {
  fmt::format_to(std::back_inserter(*out), "{:04x}{}", payload.size() + 4, payload);
}

void AppendBand(std::string* out, char band, std::string_view payload, size_t longest) {
  while (!payload.empty()) {
    const std::string_view piece = payload.substr(0, longest);
    fmt::format_to(std::back_inserter(*out), "{:04x}{}{}", piece.size() + 5, band, piece);
    payload.remove_prefix(piece.size());
  }
}

}  // namespace

bool WantsPushReport(std::string_view capabilities) {
  return Has(capabilities, "report-status") || Has(capabilities, "report-status-v2");
}

std::string PushReport(std::string_view capabilities, std::span<const RefusedRef> refs, std::string_view message) {
  std::string report;
  AppendPacket(&report, "unpack ok\n");
  for (const RefusedRef& refused : refs) {
    const std::string line = fmt::format("ng {} {}", refused.ref, refused.why);
    AppendPacket(&report, fmt::format("{}\n", std::string_view(line).substr(0, kLongestLine)));
  }
  report += "0000";
  const bool large = Has(capabilities, "side-band-64k");
  if (!large && !Has(capabilities, "side-band")) return report;
  std::string out;
  const size_t longest = large ? kLargeBand : kSmallBand;
  AppendBand(&out, kMessageBand, message, longest);
  AppendBand(&out, kReportBand, report, longest);
  return out + "0000";
}

}  // namespace sluice::proxy
