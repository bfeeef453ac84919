// Credentials wherever HTTP/2 is spoken, through the engine: by the client, by the upstream, or by both.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "proxy/credential/sigv4.h"
#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "ghp_S3cret/Value+of=the.Supervisor";
constexpr const char* kModel = "sk-Real\"Key&of the-supervisor-0123456789abcdef";
constexpr const char* kAws = "AKIDREAL:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:tok/en==";

/// What an origin shows of a request: "METHOD target", a line for each field, the body, the trailers.
std::string Shown(std::string_view method, std::string_view target, const FieldList& fields, std::string_view body,
                  std::string_view trailers) {
  std::string text = fmt::format("{} {}\n", method, target);
  for (const auto& [name, value] : fields) text += fmt::format("{}: {}\n", name, value);
  return fmt::format("{}\n{}|{}", text, body, trailers);
}

/// Shows each request in its answer's body, and says in a field what it was authorised with.
void Reflect(Peer peer) {
  if (peer.alpn() == "h2") {
    ServeH2(std::move(peer), [](const H2Message& request) -> H2Answer {
      FieldList fields;
      for (const auto& field : request.head)
        if (!field.first.starts_with(':')) fields.push_back(field);
      return {{{":status", "200"}, {"x-back", "it was (" + request.Field("authorization") + ")"}},
              Shown(request.Field(":method"), request.Field(":path"), fields, request.body, request.trailers),
              "x-sum: (" + request.Field("authorization") + ")\r\n"};
    });
    return;
  }
  for (;;) {
    const auto request = peer.ReadMessage();
    if (request.head.empty()) return;
    const std::string line = request.FirstLine();
    const size_t space = line.find(' ');
    FieldList fields;
    for (size_t at = line.size() + 2; at + 2 < request.head.size();) {
      const size_t end = request.head.find("\r\n", at);
      const size_t colon = request.head.find(": ", at);
      fields.emplace_back(request.head.substr(at, colon - at), request.head.substr(colon + 2, end - colon - 2));
      at = end + 2;
    }
    const std::string body =
        Shown(line.substr(0, space), line.substr(space + 1, line.rfind(' ') - space - 1), fields, request.body, request.trailers);
    peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Back: it was ({})\r\n\r\n{}", body.size(),
                           request.Field("authorization"), body));
  }
}

/// Who speaks HTTP/2.
struct Versions {
  std::string client;  ///< ALPN
  std::string upstream;
};
const Versions kAll[] = {{"h2", ""}, {"h2", "h2"}, {"http/1.1", "h2"}, {"http/1.1", ""}};

struct Reply {
  std::string status;
  std::string body;
  std::string back;
  std::string trailers;
};

class SecretBed {
 public:
  explicit SecretBed(const Versions& versions)
      : versions_(versions),
        origin(SharedAuthority().ServerContext("DNS:a.test", versions.upstream), Reflect),
        bed(Policy(), Options()) {
    bed.OfferAlpn({versions.client});
  }

  /// The stand-in that the workload has for kModel.
  [[nodiscard]] std::string stand_in() const { return store_->stand_ins().at(0).text; }

  /// On a connection of its own, so that what is left of one does not disturb the next.
  Reply Do(const std::string& method, const std::string& path, const FieldList& fields = {}, const std::string& body = "",
           const std::string& trailers = "") {
    Peer peer = bed.Connect("a.test", origin.port());
    const std::string authority = fmt::format("a.test:{}", origin.port());
    if (versions_.client == "h2") {
      H2Client client(std::move(peer));
      FieldList head = {{":method", method}, {":scheme", "https"}, {":authority", authority}, {":path", path}};
      head.insert(head.end(), fields.begin(), fields.end());
      if (!trailers.empty()) head.emplace_back("trailer", "x-sum, x-key");
      const bool has_body = !body.empty() || !trailers.empty();
      const int32_t id = client.Start(head, has_body ? H2Client::Body::kOpen : H2Client::Body::kNone);
      if (has_body) client.Say(id, body, true, trailers);
      client.Until([&] { return client.messages[id].ended || client.messages[id].closed; });
      const H2Message& got = client.messages[id];
      return {got.ended ? got.status() : "reset", got.body, got.Field("x-back"), got.trailers};
    }
    std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", method, path, authority);
    const bool measured = std::ranges::any_of(fields, [](const auto& field) { return field.first == "content-length"; });
    for (const auto& [name, value] : fields) text += fmt::format("{}: {}\r\n", name, value);
    if (measured) {
      text += "\r\n" + body;
    } else if (!body.empty() || !trailers.empty()) {
      text += "Trailer: x-sum, x-key\r\nTransfer-Encoding: chunked\r\n\r\n";
      if (!body.empty()) text += fmt::format("{:x}\r\n{}\r\n", body.size(), body);
      text += fmt::format("0\r\n{}\r\n", trailers);
    } else {
      text += "\r\n";
    }
    peer.Write(text);
    const auto got = peer.ReadMessage();
    return {got.head.empty() ? "reset" : got.FirstLine().substr(9, 3), got.body, got.Field("x-back"), got.trailers};
  }

 private:
  std::string Policy() {
    const std::string place = fmt::format("a.test:{}", origin.port());
    std::string text;
    const auto allow = [&](const std::string& path, const std::string& credential) {
      text += LoopbackRule(fmt::format("http {}/{}", place, path));
      if (!credential.empty()) text += "    with: " + credential + "\n";
    };
    for (const char* name : {"hub", "pair", "key", "query", "model", "aws"}) allow(std::string(name) + "/**", name);
    allow("none/**", "");
    text += "credentials:\n";
    const auto credential = [&](const char* name, const char* variable, const char* use) {
      text += fmt::format("  {}: {{ from: env {}, send: {}, to: [{}] }}\n", name, variable, use, place);
    };
    credential("hub", "SLUICE_TEST_HUB", "bearer");
    credential("pair", "SLUICE_TEST_HUB", "basic octo");
    credential("key", "SLUICE_TEST_HUB", "header X-Key");
    credential("query", "SLUICE_TEST_HUB", "query api_key");
    credential("model", "SLUICE_TEST_MODEL", "placeholder MODEL_KEY");
    credential("aws", "SLUICE_TEST_AWS", "sigv4");
    return text;
  }
  EngineOptions Options() {
    store_ = SecretsOf(Policy(), {{"SLUICE_TEST_HUB", kToken}, {"SLUICE_TEST_MODEL", kModel}, {"SLUICE_TEST_AWS", kAws}});
    EngineOptions options;
    options.secrets = store_;
    return options;
  }
  const Versions versions_;
  std::shared_ptr<SecretStore> store_;

 public:
  Origin origin;
  Testbed bed;
};

template <class Check>
void WithEach(Check check) {
  for (const Versions& versions : kAll) {
    SCOPED_TRACE(
        fmt::format("client {} upstream {}", versions.client, versions.upstream.empty() ? "http/1.1" : versions.upstream));
    SecretBed b(versions);
    check(b);
  }
}

TEST(H2Credential, TakesThePlaceOfTheWorkloadsOwn) {
  WithEach([](SecretBed& b) {
    const Reply bearer = b.Do("GET", "/hub/x", {{"authorization", "Bearer mine"}});
    EXPECT_EQ(bearer.status, "200") << bearer.body;
    EXPECT_THAT(bearer.body, AllOf(HasSubstr(fmt::format("\nauthorization: Bearer {}\n", kToken)), Not(HasSubstr("mine"))));
    EXPECT_THAT(b.Do("GET", "/pair/x").body, HasSubstr("\nauthorization: Basic b2N0bzpnaHBf"));
    const Reply key = b.Do("GET", "/key/x", {{"x_key", "mine"}, {"x-key", "mine"}});
    EXPECT_THAT(key.body, AllOf(HasSubstr(fmt::format("\nx-key: {}\n", kToken)), Not(HasSubstr("mine"))));
    EXPECT_THAT(b.Do("GET", "/query/x?a=1&api%5Fkey=mine&b=2").body,
                HasSubstr("GET /query/x?a=1&b=2&api_key=ghp_S3cret%2FValue%2Bof%3Dthe.Supervisor\n"));
    EXPECT_THAT(b.Do("GET", "/none/x", {{"authorization", "Bearer mine"}}).body, HasSubstr("\nauthorization: Bearer mine\n"));
  });
}

TEST(H2Credential, ReplacesStandInsInHeadAndBody) {
  WithEach([](SecretBed& b) {
    const std::string in = b.stand_in();
    EXPECT_THAT(
        b.Do("GET", "/model/x?k=" + in, {{"x-api-key", in}}).body,
        AllOf(HasSubstr(fmt::format("\nx-api-key: {}\n", kModel)), HasSubstr("/model/x?k=sk-Real%22Key"), Not(HasSubstr(in))));
    // Longer as JSON needs it: the length goes, and is right again upstream.
    const std::string json = R"({"key":")" + in + R"("})";
    const std::string secret = R"({"key":"sk-Real\"Key&of the-supervisor-0123456789abcdef"})";
    for (const bool measured : {false, true}) {
      FieldList fields = {{"content-type", "application/json"}};
      if (measured) fields.emplace_back("content-length", std::to_string(json.size()));
      const Reply changed = b.Do("POST", "/model/x", fields, json);
      EXPECT_EQ(changed.status, "200") << changed.body;
      EXPECT_THAT(changed.body,
                  AllOf(HasSubstr("\n\n" + secret + "|"), Not(HasSubstr(fmt::format("content-length: {}", json.size())))));
    }
    // Of the same length in plain text.
    const FieldList plain = {{"content-type", "text/plain"}, {"content-length", std::to_string(in.size() + 3)}};
    EXPECT_THAT(
        b.Do("POST", "/model/x", plain, "my " + in).body,
        AllOf(HasSubstr(fmt::format("\n\nmy {}|", kModel)), HasSubstr(fmt::format("content-length: {}\n", in.size() + 3))));
  });
}

TEST(H2Credential, ReplacesStandInsWhereverPiecesEnd) {
  for (const std::string upstream : {"", "h2"}) {
    SecretBed b({"h2", upstream});
    H2Client client(b.bed.Connect("a.test", b.origin.port()));
    const std::string in = b.stand_in();
    std::string body;
    std::string expected;
    for (int i = 0; i < 300; ++i) {
      body += std::string(997, 'x') + in;
      expected += std::string(997, 'x') + kModel;
    }
    const int32_t id = client.Start({{":method", "POST"},
                                     {":scheme", "https"},
                                     {":authority", fmt::format("a.test:{}", b.origin.port())},
                                     {":path", "/model/x"},
                                     {"content-type", "text/plain"}},
                                    H2Client::Body::kOpen);
    for (size_t at = 0; at < body.size(); at += 611) client.Say(id, body.substr(at, 611), at + 611 >= body.size());
    client.Until([&] { return client.messages[id].ended || client.messages[id].closed; });
    EXPECT_THAT(client.messages[id].body, HasSubstr("\n\n" + expected + "|"));
  }
}

TEST(H2Credential, RefusesAStandInAnywhereElseAndRecordsIt) {
  WithEach([](SecretBed& b) {
    const std::string in = b.stand_in();
    const auto refused = [&](const Reply& reply) {
      EXPECT_EQ(reply.status, "403") << reply.body;
      EXPECT_THAT(reply.body, HasSubstr("stand-in of credential model"));
    };
    refused(b.Do("GET", "/none/x?k=" + in));
    refused(b.Do("GET", "/none/x", {{"x-api-key", in}}));
    refused(b.Do("GET", "/hub/x", {{"cookie", "a=" + in}}));
    refused(b.Do("POST", "/none/x", {{"content-type", "text/plain"}}, "my " + in));
    refused(b.Do("POST", "/hub/x", {{"content-type", "application/json"}}, R"({"k":")" + in + "\"}"));
    refused(b.Do("POST", "/none/x", {{"content-type", "text/plain"}}, std::string(100'000, 'x') + in));
    refused(b.Do("POST", "/none/x", {}, "body", "x-sum: " + in + "\r\n"));
    size_t recorded = 0;
    for (const auto& decision : b.bed.sink().decisions())
      recorded += decision.detail.find("stand-in of credential model") != std::string::npos ? 1 : 0;
    EXPECT_EQ(recorded, 7u);
  });
}

TEST(H2Credential, LooksIntoTrailers) {
  WithEach([](SecretBed& b) {
    EXPECT_THAT(b.Do("POST", "/model/x", {{"content-type", "text/plain"}}, "body", "x-sum: " + b.stand_in() + "\r\n").body,
                HasSubstr(fmt::format("body|x-sum: {}\r\n", kModel)));
    // What takes the place of the workload's own field is not undone behind the body.
    const Reply own = b.Do("POST", "/key/x", {}, "body", "x-key: mine\r\nx-sum: 1\r\n");
    EXPECT_THAT(own.body, AllOf(HasSubstr("body|x-sum: 1\r\n"), Not(HasSubstr("mine"))));
  });
}

TEST(H2Credential, TakesSecretsOutOfWhatComesBack) {
  WithEach([](SecretBed& b) {
    const Reply reply = b.Do("GET", "/hub/x");
    EXPECT_THAT(reply.back, AllOf(HasSubstr("[redacted]"), Not(HasSubstr(kToken))));
    EXPECT_THAT(reply.trailers, Not(HasSubstr(kToken)));
  });
}

TEST(H2Credential, SignsAnewOverTheBody) {
  constexpr const char* kScope =
      "AWS4-HMAC-SHA256 Credential=FAKE/20261130/eu-central-1/dynamodb/aws4_request, SignedHeaders=host;x-amz-date, Signature=0";
  WithEach([&](SecretBed& b) {
    const FieldList fields = {
        {"authorization", kScope}, {"x-amz-date", "20261130T000000Z"}, {"content-type", "application/x-amz-json-1.0"}};
    const std::string body(300'000, 'b');
    const Reply reply = b.Do("POST", "/aws/x", fields, body);
    EXPECT_EQ(reply.status, "200") << reply.body;
    EXPECT_THAT(reply.body, AllOf(HasSubstr("Credential=AKIDREAL/"), HasSubstr("\ncontent-length: 300000\n"),
                                  HasSubstr("\n\n" + body + "|"), Not(HasSubstr("FAKE"))));
    EXPECT_EQ(b.Do("GET", "/aws/x", fields).status, "200");
    // Too much to be held for that, and a stand-in in what is.
    const Reply large = b.Do("POST", "/aws/x", fields, std::string(kMaxSignedBody + 1, 'b'));
    EXPECT_EQ(large.status, "413") << large.body;
    EXPECT_EQ(b.Do("POST", "/aws/x", fields, "my " + b.stand_in()).status, "403");
  });
}

TEST(H2Credential, WaitsForNoBodyThatStops) {
  for (const Versions& versions : kAll) {
    if (versions.client != "h2") continue;
    SecretBed b(versions);
    H2Client client(b.bed.Connect("a.test", b.origin.port()));
    const int32_t id = client.Start({{":method", "POST"},
                                     {":scheme", "https"},
                                     {":authority", fmt::format("a.test:{}", b.origin.port())},
                                     {":path", "/aws/x"},
                                     {"x-amz-date", "20261130T000000Z"},
                                     {"authorization",
                                      "AWS4-HMAC-SHA256 Credential=F/20261130/r/dynamodb/aws4_request, SignedHeaders=host, "
                                      "Signature=0"}},
                                    H2Client::Body::kOpen);
    client.Say(id, "half");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    client.session.Reset(id, kH2Cancel);
    client.Send();
    const auto exchanges = b.bed.sink().exchanges(1);
    ASSERT_EQ(exchanges.size(), 1u);
    EXPECT_EQ(exchanges[0].error, "the client went away");
    EXPECT_EQ(exchanges[0].status, 0);
  }
}

}  // namespace
}  // namespace sluice::proxy::testing
