#include "proxy/body/body_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

namespace sluice::proxy {
namespace {

using policy::HeaderView;
using testing::HasSubstr;
using Headers = std::vector<HeaderView>;
using State = BodyReader::State;

constexpr int kGzip = 15 + 16;
constexpr int kZlib = 15;
constexpr int kRaw = -15;

std::string Deflate(std::string_view text, int window = kGzip) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

const std::string kJson = R"({"a":1})";

std::string JsonFault(const Headers& headers, std::string_view body) {
  const auto read = ReadBody(policy::kBodyJson, {.method = "POST", .headers = headers, .query = ""}, body);
  EXPECT_TRUE(read.json.has_value());
  EXPECT_FALSE(read.rpc || read.graphql || read.push || read.lfs);
  return read.json->fault;
}

TEST(BodyReader, ReadsJsonOfPlainContentTypes) {
  for (const char* type :
       {"application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;charset=\"UTF-8\"",
        "application/json ; charset=utf8", "application/vnd.git-lfs+json", "application/json-rpc"})
    EXPECT_EQ(JsonFault({{"content-type", type}}, kJson), "") << type;
}

TEST(BodyReader, RefusesContentTypesThatServersTakeDifferently) {
  const struct {
    Headers headers;
    const char* fault;
  } rows[] = {
      {{}, "no Content-Type"},
      {{{"content-type", "application/x-www-form-urlencoded"}}, "a form"},
      {{{"content-type", "multipart/form-data; boundary=x"}}, "several parts"},
      {{{"content-type", "text/plain"}}, "not that of JSON"},
      {{{"content-type", "text/json"}}, "not that of JSON"},
      {{{"content-type", "application/json"}, {"content-type", "application/json"}}, "more than one way"},
      {{{"content-type", "application/json"}, {"content_type", "text/plain"}}, "more than one way"},
      {{{"content-type", "application/json, multipart/form-data"}}, "more than one way"},
      {{{"content-type", "application/json; charset=utf-7"}}, "more than one way"},
      {{{"content-type", "application/json; charset=utf-16"}}, "more than one way"},
      {{{"content-type", "application/json; charset=iso-8859-1"}}, "more than one way"},
      {{{"content-type", "application/json; charset=utf-8; charset=utf-7"}}, "more than one way"},
      {{{"content-type", "application/json; boundary=x"}}, "more than one way"},
      {{{"content-type", "application/json; x=multipart/form-data"}}, "more than one way"},
      {{{"content-type", "application/json;"}}, "more than one way"},
      {{{"content-type", "application/json charset=utf-8"}}, "more than one way"},
      {{{"content-type", "application/js\"on"}}, "more than one way"},
      {{{"content-type", ""}}, "more than one way"},
      {{{"content-type", "json"}}, "more than one way"},
  };
  for (const auto& row : rows) EXPECT_THAT(JsonFault(row.headers, kJson), HasSubstr(row.fault));
}

TEST(BodyReader, InflatesBodies) {
  for (const char* coding : {"gzip", "x-gzip", "GZip"})
    EXPECT_EQ(JsonFault({{"content-type", "application/json"}, {"content-encoding", coding}}, Deflate(kJson)), "") << coding;
  EXPECT_EQ(JsonFault({{"content-type", "application/json"}, {"content-encoding", "deflate"}}, Deflate(kJson, kZlib)), "");
  EXPECT_EQ(JsonFault({{"content-type", "application/json"}, {"content-encoding", "identity"}}, kJson), "");
}

TEST(BodyReader, RefusesCodingsThatServersTakeDifferently) {
  const std::string gzip = Deflate(kJson);
  std::string damaged = gzip;
  damaged[damaged.size() - 6] ^= 1;
  const struct {
    Headers coding;
    std::string body;
    const char* fault;
  } rows[] = {
      {{{"content-encoding", "br"}}, kJson, "Content-Encoding"},
      {{{"content-encoding", "zstd"}}, kJson, "Content-Encoding"},
      {{{"content-encoding", ""}}, kJson, "Content-Encoding"},
      {{{"content-encoding", "gzip, gzip"}}, gzip, "Content-Encoding"},
      {{{"content-encoding", "gzip"}, {"content-encoding", "identity"}}, gzip, "Content-Encoding"},
      {{{"content_encoding", "gzip"}}, gzip, "Content-Encoding"},
      {{{"content-encoding", "gzip"}}, kJson, "damaged"},
      {{{"content-encoding", "gzip"}}, damaged, "damaged"},
      {{{"content-encoding", "gzip"}}, gzip.substr(0, gzip.size() - 1), "cut short"},
      {{{"content-encoding", "gzip"}}, gzip + Deflate("{}"), "behind its end"},
      {{{"content-encoding", "gzip"}}, gzip + std::string(1, '\0'), "behind its end"},
      {{{"content-encoding", "gzip"}}, Deflate(kJson, kZlib), "damaged"},
      {{{"content-encoding", "deflate"}}, gzip, "damaged"},
      {{{"content-encoding", "deflate"}}, Deflate(kJson, kRaw), "damaged"},
      {{}, gzip, "not JSON"},
  };
  for (const auto& row : rows) {
    Headers headers = row.coding;
    headers.emplace_back("content-type", "application/json");
    EXPECT_THAT(JsonFault(headers, row.body), HasSubstr(row.fault)) << row.body.size();
  }
}

TEST(BodyReader, BoundsWhatABodyInflatesTo) {
  const Headers headers = {{"content-type", "application/json"}, {"content-encoding", "gzip"}};
  EXPECT_EQ(JsonFault(headers, Deflate(std::string(60'000, ' ') + "1")), "");
  EXPECT_THAT(JsonFault(headers, Deflate(std::string(10'000'000, ' ') + "1")), HasSubstr("a hundred times"));
  std::string noise;
  for (uint32_t i = 0, x = 1; i < 9'000'000; ++i) noise += static_cast<char>('a' + ((x = x * 1664525 + 1013904223) >> 28));
  EXPECT_THAT(JsonFault(headers, Deflate("\"" + noise + "\"")), HasSubstr("more than may be judged"));
}

// zlib's header 78 01 begins a stored block to a reader of bare deflate: one body, two texts.
TEST(BodyReader, RefusesDeflateThatReadsInTwoWays) {
  // To zlib: the header, then a stored block of 0xfffe bytes. Bare: a stored block of one byte, 01, then a stored block that
  // begins in the data of the other.
  const std::string bare = std::string("\x04\x00\xfb\xff", 4) + "evil" + std::string("\x01\x00\x00\xff\xff", 5);
  const std::string text = bare + std::string(0xfffe - bare.size(), ' ');
  std::string body = std::string("\x78\x01\x00\xfe\xff\x01\x00", 7) + text + std::string("\x01\x00\x00\xff\xff", 5);
  const auto sum = adler32(1, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  for (const int shift : {24, 16, 8, 0}) body += static_cast<char>(sum >> shift & 0xff);
  std::string out;
  EXPECT_EQ(Inflate(Coding::kDeflate, body, 100'000, &out), "the deflated body reads in two ways");
  EXPECT_EQ(out, text);
  out.clear();
  EXPECT_EQ(Inflate(Coding::kDeflate, Deflate(kJson, kZlib), 1000, &out), std::nullopt);
  EXPECT_EQ(out, kJson);
}

TEST(BodyReader, DecidesByTheHeadWhereItCan) {
  const Headers form = {{"content-type", "application/x-www-form-urlencoded"}};
  BodyReader rpc(policy::kBodyRpc, {.method = "POST", .headers = form, .query = ""});
  EXPECT_EQ(rpc.state(), State::kEnough);
  EXPECT_THAT(rpc.Take().rpc->fault, HasSubstr("a form"));
  const Headers json = {{"content-type", "application/json"}};
  BodyReader large(policy::kBodyRpc | policy::kBodyJson,
                   {.method = "POST", .headers = json, .query = "", .length = kMaxJudgedBody + 1});
  EXPECT_EQ(large.state(), State::kEnough);
  EXPECT_TRUE(large.too_large());
  EXPECT_THAT(large.Take().rpc->fault, HasSubstr("too large"));
  BodyReader none(policy::kBodyLfs, {.method = "POST", .headers = json, .query = "", .length = 0});
  EXPECT_EQ(none.state(), State::kEnough);
  EXPECT_THAT(none.Take().lfs->fault, HasSubstr("no body"));
  BodyReader put(policy::kBodyRpc, {.method = "PUT", .headers = json, .query = ""});
  EXPECT_THAT(put.Take().rpc->fault, HasSubstr("not POST"));
  BodyReader get(policy::kBodyGraphql, {.method = "GET", .headers = {}, .query = "query={a}", .length = 0});
  EXPECT_EQ(get.state(), State::kEnough);
  EXPECT_EQ(get.Take().graphql->items.at(0).field, "a");
  BodyReader odd(policy::kBodyGraphql, {.method = "GET", .headers = json, .query = "query={a}", .length = 5});
  EXPECT_THAT(odd.Take().graphql->fault, HasSubstr("a GET that has a body"));
}

TEST(BodyReader, KeepsWhatItWasFedAndReadsItAtTheEnd) {
  const Headers json = {{"content-type", "application/json"}};
  BodyReader reader(policy::kBodyRpc | policy::kBodyJson, {.method = "POST", .headers = json, .query = ""});
  const std::string body = R"({"jsonrpc":"2.0","method":"m"})";
  for (const char c : body) EXPECT_EQ(reader.Feed({&c, 1}), State::kMore);
  EXPECT_EQ(reader.Finish(), State::kEnough);
  EXPECT_EQ(reader.held(), body);
  const auto read = reader.Take();
  EXPECT_EQ(read.rpc->items.at(0).method, "m");
  EXPECT_EQ(read.json->items.size(), 3u);
}

TEST(BodyReader, StopsAtABodyThatGrowsTooLarge) {
  const Headers json = {{"content-type", "application/json"}};
  BodyReader reader(policy::kBodyJson, {.method = "POST", .headers = json, .query = ""});
  const std::string piece(1 << 20, ' ');
  size_t pieces = 0;
  while (reader.state() == State::kMore) {
    reader.Feed(piece);
    ASSERT_LT(++pieces, 10u);
  }
  EXPECT_TRUE(reader.too_large());
  EXPECT_EQ(reader.held().size(), pieces * piece.size());
}

TEST(BodyReader, ReadsGraphqlOfAllForms) {
  const Headers json = {{"content-type", "application/json"}};
  const Headers bare = {{"content-type", "application/graphql"}};
  const auto read = [](const Headers& headers, std::string_view query, std::string_view body) {
    return *ReadBody(policy::kBodyGraphql, {.method = "POST", .headers = headers, .query = query}, body).graphql;
  };
  EXPECT_EQ(read(json, "v=1", R"({"query":"{a}"})").items.at(0).field, "a");
  EXPECT_EQ(read(bare, "", "mutation{a}").items.at(0).kind, policy::GraphqlKind::kMutation);
  EXPECT_THAT(read(json, "query={b}", R"({"query":"{a}"})").fault, HasSubstr("in the URL"));
  EXPECT_THAT(read(bare, "operationName=B", "query A{a} query B{b}").fault, HasSubstr("in the URL"));
  EXPECT_THAT(read({{"content-type", "multipart/form-data; boundary=b"}}, "", "--b").fault, HasSubstr("several parts"));
}

const Headers kPush = {{"content-type", "application/x-git-receive-pack-request"}};
const std::string kCommands =
    "0067" + std::string(40, '0') + " " + std::string(40, 'a') + " refs/heads/x" + std::string(1, '\0') + " a=b0000";

TEST(BodyReader, StopsBehindTheCommandsOfAPush) {
  BodyReader reader(policy::kBodyPush, {.method = "POST", .headers = kPush, .query = ""});
  EXPECT_EQ(reader.Feed(kCommands.substr(0, 50)), State::kMore);
  EXPECT_EQ(reader.Feed(kCommands.substr(50) + "PACK"), State::kEnough);
  EXPECT_EQ(reader.held(), kCommands + "PACK");
  EXPECT_EQ(reader.push_capabilities(), " a=b");
  const auto read = reader.Take();
  EXPECT_EQ(read.push->items, (std::vector<policy::RefUpdate>{{"refs/heads/x", policy::kRefCreate}}));
}

TEST(BodyReader, ReadsTheCommandsOfACompressedPush) {
  Headers headers = kPush;
  headers.emplace_back("content-encoding", "gzip");
  std::string pack;
  for (uint32_t i = 0, x = 1; i < 300'000; ++i) pack += static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
  const std::string body = Deflate(kCommands + pack);
  BodyReader reader(policy::kBodyPush, {.method = "POST", .headers = headers, .query = ""});
  size_t fed = 0;
  while (reader.state() == State::kMore) reader.Feed(body.substr(fed++, 1));
  EXPECT_LT(fed, body.size());
  EXPECT_EQ(reader.Take().push->items.at(0).ref, "refs/heads/x");
  // Blocks that hold nothing, without end.
  BodyReader empty(policy::kBodyPush, {.method = "POST", .headers = headers, .query = ""});
  empty.Feed(std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10));
  std::string blocks;
  for (size_t i = 0; i < 100'000; ++i) blocks += std::string("\0\0\0\xff\xff", 5);
  size_t count = 0;
  while (empty.state() == State::kMore) {
    empty.Feed(blocks);
    ASSERT_LT(++count, 100u);
  }
  EXPECT_THAT(empty.Take().push->fault, HasSubstr("too large"));
}

TEST(BodyReader, RefusesAPushByItsHead) {
  const auto fault = [](Headers headers, std::string_view method) {
    return ReadBody(policy::kBodyPush, {.method = method, .headers = headers, .query = ""}, kCommands).push->fault;
  };
  EXPECT_EQ(fault(kPush, "POST"), "");
  EXPECT_THAT(fault(kPush, "PUT"), HasSubstr("no push"));
  EXPECT_THAT(fault({}, "POST"), HasSubstr("no push"));
  EXPECT_THAT(fault({{"content-type", "application/x-git-receive-pack-request"}, {"content-encoding", "deflate"}}, "POST"),
              HasSubstr("not gzip"));
  EXPECT_THAT(fault({{"content-type", "application/x-git-receive-pack-request"}, {"content-encoding", "gzip"}}, "POST"),
              HasSubstr("damaged"));
}

TEST(BodyReader, ReadsLfsBatches) {
  const Headers lfs = {{"content-type", "application/vnd.git-lfs+json; charset=utf-8"}};
  const auto read = ReadBody(policy::kBodyLfs, {.method = "POST", .headers = lfs, .query = ""}, R"({"operation":"upload"})");
  EXPECT_EQ(read.lfs->items.at(0), policy::LfsOperation::kUpload);
}

}  // namespace
}  // namespace sluice::proxy
