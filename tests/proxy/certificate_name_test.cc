#include "proxy/certificate_name.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

TEST(CertificateName, CoversTheSameNameOrOneLabelUnderItsZone) {
  struct Case {
    std::string_view dns_name;
    std::string_view host;
    bool covers;
  };
  const Case cases[] = {
      {"a.test", "a.test", true},
      {"A.Test", "a.test", true},
      {"*.a.test", "x.a.test", true},
      {"*.A.test", "x.a.test", true},
      {"*.a.test", "a.test", false},
      {"*.a.test", "x.y.a.test", false},
      {"*.a.test", ".a.test", false},
      {"*.test", "a.test", false},
      {"*", "a.test", false},
      {"*.", "a.", false},
      {"x*.a.test", "xy.a.test", false},
      {"*x.a.test", "yx.a.test", false},
      {"a.*.test", "a.b.test", false},
      {"*.*.test", "x.a.test", false},
      {"b.test", "a.test", false},
      {"", "", false},
      {"a.test.", "a.test", false},
      {std::string_view("a.test\0.b", 9), "a.test", false},
      {"a test", "a test", false},
      {"*.a.test,DNS:b.test", "x.a.test,dns:b.test", false},
      {"xn--bcher-kva.test", "xn--bcher-kva.test", true},
  };
  for (const Case& c : cases) EXPECT_EQ(CoversHost(c.dns_name, c.host), c.covers) << c.dns_name << " / " << c.host;
}

}  // namespace
}  // namespace sluice::proxy
