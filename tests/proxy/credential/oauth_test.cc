// The token endpoint's side of OAuth client credentials, without a socket.

#include "proxy/credential/oauth.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

using std::chrono::seconds;

TEST(TokenEndpoint, IsHttpsAndNothingElse) {
  const auto endpoint = ParseTokenEndpoint("https://Id.Example:8443/oauth/token?tenant=1");
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->host, "id.example");
  EXPECT_EQ(endpoint->authority, "Id.Example:8443");
  EXPECT_EQ(endpoint->port, 8443);
  EXPECT_EQ(endpoint->target, "/oauth/token?tenant=1");
  EXPECT_EQ(ParseTokenEndpoint("https://id.example")->target, "/");
  EXPECT_EQ(ParseTokenEndpoint("https://id.example?x")->target, "/?x");
  for (const char* url : {"http://id.example/", "id.example", "", "https://", "https://a@b/", "https://a/#f",
                          "https://a/\r\nx: y", "https://a b/", "https://a:0x1/", "ftp://a/"})
    EXPECT_FALSE(ParseTokenEndpoint(url)) << url;
}

TEST(TokenRequest, AuthenticatesTheClientByBasic) {
  const std::string request = TokenRequest(*ParseTokenEndpoint("https://id.example/t"), "my id", "s:/", "read write");
  EXPECT_EQ(request,
            "POST /t HTTP/1.1\r\nHost: id.example\r\nAuthorization: Basic bXklMjBpZDpzJTNBJTJG\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\nAccept: application/json\r\nUser-Agent: sluice\r\n"
            "Connection: close\r\nContent-Length: 48\r\n\r\ngrant_type=client_credentials&scope=read%20write");
}

TEST(TokenAnswer, IsAcceptedOnlyWhole) {
  const auto good = ReadTokenAnswer(200, R"({"access_token":"abc","token_type":"Bearer","expires_in":3600})");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->token, "abc");
  EXPECT_EQ(good->life, seconds(3600));
  EXPECT_EQ(ReadTokenAnswer(200, R"({"access_token":"abc","token_type":"bearer"})")->life, kTokenLifeUnknown);
  EXPECT_EQ(ReadTokenAnswer(200, R"({"access_token":"abc","expires_in":"120"})")->life, seconds(120));
  EXPECT_EQ(ReadTokenAnswer(200, R"({"access_token":"abc","expires_in":1e300})")->life, kMaxTokenLife);
  for (const char* body : {"", "[]", "{}", R"({"access_token":1})", R"({"access_token":"a\nb"})", R"({"access_token":""})",
                           R"({"access_token":"a","token_type":"mac"})", R"({"access_token":"a","expires_in":-1})",
                           R"({"access_token":"a","expires_in":0})", R"({"access_token":"a","expires_in":null})"})
    EXPECT_FALSE(ReadTokenAnswer(200, body)) << body;
  EXPECT_EQ(ReadTokenAnswer(401, R"({"error":"invalid_client","error_description":"secret s3cret is wrong"})").error().message,
            "it answered 401: invalid_client");
  EXPECT_EQ(ReadTokenAnswer(500, "<html>").error().message, "it answered 500");
}

TEST(TokenLife, IsRenewedAheadOfItsEnd) {
  const SteadyTime start{};
  EXPECT_EQ(RefreshDue(start, seconds(3600)) - start, seconds(2880));
  EXPECT_EQ(RefreshDue(start, seconds(200)) - start, seconds(140));
  EXPECT_EQ(RefreshDue(start, seconds(100)) - start, seconds(80));
  EXPECT_EQ(RefreshDue(start, seconds(1)) - start, std::chrono::milliseconds(800));
  EXPECT_EQ(TokenBackoff(1), seconds(1));
  EXPECT_EQ(TokenBackoff(3), seconds(4));
  EXPECT_EQ(TokenBackoff(100), kMaxTokenBackoff);
}

}  // namespace
}  // namespace sluice::proxy
