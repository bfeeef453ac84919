#include "dns/encrypted_dns.h"

#include <gtest/gtest.h>

namespace sluice::dns {
namespace {

TEST(EncryptedDnsTest, KnownResolversAndAllBelowThemAreFound) {
  struct Case {
    const char* name;
    OtherResolver kind;
    const char* domain;
  };
  const Case cases[] = {
      {"dns.google", OtherResolver::kPublic, "dns.google"},
      {"8888.google", OtherResolver::kNone, ""},
      {"security.cloudflare-dns.com", OtherResolver::kPublic, "cloudflare-dns.com"},
      {"cloudflare-dns.com", OtherResolver::kPublic, "cloudflare-dns.com"},
      {"notcloudflare-dns.com", OtherResolver::kNone, ""},
      {"cloudflare-dns.com.evil.test", OtherResolver::kNone, ""},
      {"one.one.one.one", OtherResolver::kPublic, "one.one.one.one"},
      {"abc123.dns.nextdns.io", OtherResolver::kPublic, "dns.nextdns.io"},
      {"use-application-dns.net", OtherResolver::kCanary, "use-application-dns.net"},
      {"mask.icloud.com", OtherResolver::kCanary, "mask.icloud.com"},
      {"_dns.resolver.arpa", OtherResolver::kDiscovery, "resolver.arpa"},
      {"resolver.arpa", OtherResolver::kDiscovery, "resolver.arpa"},
      {"com", OtherResolver::kNone, ""},
      {"api.github.com", OtherResolver::kNone, ""},
  };
  for (const Case& c : cases) {
    const auto found = FindOtherResolver(c.name);
    EXPECT_EQ(found.kind, c.kind) << c.name;
    EXPECT_EQ(found.domain, c.domain) << c.name;
  }
}

}  // namespace
}  // namespace sluice::dns
