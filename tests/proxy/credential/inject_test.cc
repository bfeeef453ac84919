// What a request carries once a secret was put into it, and what of the workload's own is gone.

#include "proxy/credential/inject.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "proxy/credential/encoding.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {
namespace {

using Kind = policy::CredentialUse::Kind;

Field Named(std::string_view name, std::string_view value) {
  Field field;
  field.name = name;
  field.value = value;
  return field;
}

policy::CredentialUse Use(Kind kind, std::string text = "", std::string prefix = "") {
  policy::CredentialUse use;
  use.kind = kind;
  use.text = std::move(text);
  use.prefix = std::move(prefix);
  return use;
}

// "name: value" of every field, in order.
std::vector<std::string> Lines(const OutgoingHead& head) {
  std::vector<std::string> lines;
  for (const Field& field : head.fields) lines.push_back(std::string(field.name) + ": " + std::string(field.value));
  return lines;
}

TEST(Inject, LeavesOneValueWhateverTheWorkloadSent) {
  const std::vector<Field> sent = {Named("accept", "*/*"),
                                   Named("authorization", "Bearer mine"),
                                   Named("authorization", "Basic eA=="),
                                   Named("Authorization", "x"),
                                   Named("x_api.key", "mine"),
                                   Named("x-api-key", "mine")};
  OutgoingHead bearer(sent, "/", "x-sum, Authorization");
  ASSERT_TRUE(AddCredential(Use(Kind::kBearer), "s3cret", &bearer));
  EXPECT_EQ(Lines(bearer),
            (std::vector<std::string>{"accept: */*", "x_api.key: mine", "x-api-key: mine", "authorization: Bearer s3cret"}));
  EXPECT_EQ(bearer.trailer, "x-sum");

  OutgoingHead header(sent, "/");
  ASSERT_TRUE(AddCredential(Use(Kind::kHeader, "X-Api-Key", "key "), "s3cret", &header));
  EXPECT_EQ(header.fields.size(), 5u);
  EXPECT_EQ(Lines(header).back(), "x-api-key: key s3cret");

  OutgoingHead basic(sent, "/");
  ASSERT_TRUE(AddCredential(Use(Kind::kBasic, "octo"), "s3cret", &basic));
  EXPECT_EQ(Lines(basic).back(), "authorization: Basic b2N0bzpzM2NyZXQ=");
  OutgoingHead pair(sent, "/");
  ASSERT_TRUE(AddCredential(Use(Kind::kBasic), "octo:s3cret", &pair));
  EXPECT_EQ(Lines(pair).back(), "authorization: Basic b2N0bzpzM2NyZXQ=");
}

TEST(Inject, EditsTheQueryAndNothingElseOfIt) {
  struct Row {
    const char* target;
    const char* expected;
  };
  const Row rows[] = {
      {"/", "/?api_key=s%2Fx"},
      {"/?", "/?api_key=s%2Fx"},
      {"/?a=1&b=%20+", "/?a=1&b=%20+&api_key=s%2Fx"},
      {"/?api_key=mine", "/?api_key=s%2Fx"},
      {"/?api_key=mine&a=1&api_key&api_key=2", "/?a=1&api_key=s%2Fx"},
      {"/?%61pi%5Fkey=mine&a", "/?a&api_key=s%2Fx"},
      {"/?API_KEY=mine", "/?api_key=s%2Fx"},
      {"/?api.key=1&api+key=2&api-key=3&api_key[]=4&api_key%5B0%5D=5&+api_key=6&api_key%00x=7", "/?api_key=s%2Fx"},
      {"/?a=1;api_key=mine;b=2", "/?a=1;b=2&api_key=s%2Fx"},
      {"/?api_key=mine;b=2&c", "/?c&api_key=s%2Fx"},
      {"/?&&a&&", "/?&&a&&&api_key=s%2Fx"},
      {"/?my_api_key=1&api_keys=2", "/?my_api_key=1&api_keys=2&api_key=s%2Fx"},
      {"/api_key=1?x", "/api_key=1?x&api_key=s%2Fx"},
      {"/?a=?api_key=1", "/?a=?api_key=1&api_key=s%2Fx"},
  };
  for (const Row& row : rows) {
    OutgoingHead head({}, row.target);
    ASSERT_TRUE(AddCredential(Use(Kind::kQuery, "api_key"), "s/x", &head));
    EXPECT_EQ(head.target, row.expected) << row.target;
  }
}

TEST(Inject, RefusesASecretThatWouldEndTheField) {
  using namespace std::string_literals;
  for (const std::string& secret :
       {""s, "a\r\nx: y"s, "a\nb"s, "a\0b"s, "a\tb"s, "a\x7f"s, " a"s, "a "s, std::string(kMaxSecretOctets + 1, 'a')}) {
    for (const Kind kind : {Kind::kBearer, Kind::kBasic, Kind::kHeader, Kind::kQuery}) {
      OutgoingHead head({}, "/");
      const auto added = AddCredential(Use(kind, kind == Kind::kBasic ? "" : "x-key"), secret, &head);
      ASSERT_FALSE(added);
      EXPECT_EQ(added.error().code, Code::kInvalid);
      EXPECT_TRUE(head.fields.empty());
      EXPECT_EQ(head.target, "/");
    }
  }
  OutgoingHead head({}, "/");
  EXPECT_FALSE(AddCredential(Use(Kind::kBasic), "no-user", &head));
}

TEST(Inject, RefusesAFieldThatFramesOrRoutes) {
  for (const char* name : {"Host", "content_length", "Transfer-Encoding", "connection", "TE", "Proxy-Authorization", "x y", "",
                           "a:b", "X-Sluice-Denied", "Upgrade"})
    EXPECT_FALSE(CheckUse(Use(Kind::kHeader, name))) << name;
  for (const char* name : {"Authorization", "X-Api-Key", "PRIVATE-TOKEN", "Cookie"})
    EXPECT_TRUE(CheckUse(Use(Kind::kHeader, name))) << name;
  EXPECT_FALSE(CheckUse(Use(Kind::kHeader, "X-Key", "a\r\n")));
  EXPECT_FALSE(CheckUse(Use(Kind::kBasic, "a:b")));
  EXPECT_FALSE(CheckUse(Use(Kind::kQuery, "")));
}

TEST(Encoding, ReadsWhatItWrites) {
  std::string all;
  for (int c = 0; c < 256; ++c) {
    all.push_back(static_cast<char>(c));
    EXPECT_EQ(Base64Decode(Base64Encode(all)), all);
    EXPECT_EQ(PercentDecode(PercentEncode(all), Plus::kSpace), all);
  }
  EXPECT_EQ(Base64Decode("b2N0bzpzM2NyZXQ"), "octo:s3cret");
  EXPECT_EQ(Base64Decode("_-8="), Base64Decode("/+8="));
  EXPECT_FALSE(Base64Decode("a"));
  EXPECT_FALSE(Base64Decode("a b="));
  EXPECT_EQ(PercentDecode("%4", Plus::kLiteral), "%4");
  EXPECT_EQ(PercentDecode("%zz+", Plus::kSpace), "%zz ");
  EXPECT_EQ(JsonEscape("a\"\\\n"), "a\\\"\\\\\\u000A");
}

}  // namespace
}  // namespace sluice::proxy
