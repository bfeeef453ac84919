#include "dns/encrypted_dns.h"

#include <algorithm>
#include <array>

namespace sluice::dns {
namespace {

constexpr std::array<std::string_view, 3> kCanaries = {"mask-h2.icloud.com", "mask.icloud.com", "use-application-dns.net"};

// Sorted. Each stands for itself and all below it.
constexpr std::array<std::string_view, 46> kResolvers = {
    "1dot1dot1dot1.cloudflare-dns.com",
    "adguard-dns.com",
    "anycast.dns.nextdns.io",
    "cloudflare-dns.com",
    "controld.com",
    "dns-unfiltered.adguard.com",
    "dns.adguard.com",
    "dns.alidns.com",
    "dns.digitale-gesellschaft.ch",
    "dns.google",
    "dns.google.com",
    "dns.mullvad.net",
    "dns.nextdns.io",
    "dns.njal.la",
    "dns.opendns.com",
    "dns.pub",
    "dns.quad9.net",
    "dns.sb",
    "dns.switch.ch",
    "dns.twnic.tw",
    "dns.umbrella.com",
    "dns0.eu",
    "dns10.quad9.net",
    "dns11.quad9.net",
    "dns12.quad9.net",
    "dns64.dns.google",
    "dns9.quad9.net",
    "doh.360.cn",
    "doh.applied-privacy.net",
    "doh.cleanbrowsing.org",
    "doh.dns.apple.com",
    "doh.dns.sb",
    "doh.familyshield.opendns.com",
    "doh.libredns.gr",
    "doh.opendns.com",
    "doh.pub",
    "doh.tiar.app",
    "doh.umbrella.com",
    "doh.xfinity.com",
    "dot.pub",
    "family-filter-dns.cleanbrowsing.org",
    "odvr.nic.cz",
    "one.one.one.one",
    "ordns.he.net",
    "security-filter-dns.cleanbrowsing.org",
    "wikimedia-dns.org",
};
static_assert(std::ranges::is_sorted(kResolvers));

constexpr std::string_view kDiscoveryZone = "resolver.arpa";

}  // namespace

OtherResolverName FindOtherResolver(std::string_view name) {
  if (std::ranges::find(kCanaries, name) != kCanaries.end()) return {OtherResolver::kCanary, name};
  for (std::string_view rest = name;;) {
    if (rest == kDiscoveryZone) return {OtherResolver::kDiscovery, kDiscoveryZone};
    if (const auto found = std::ranges::lower_bound(kResolvers, rest); found != kResolvers.end() && *found == rest)
      return {OtherResolver::kPublic, *found};
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return {};
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace sluice::dns
