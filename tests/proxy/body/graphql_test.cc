#include "proxy/body/graphql.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "tests/base/colliding_texts.h"

namespace sluice::proxy {
namespace {

using policy::GraphqlKind;
using testing::HasSubstr;

// "q:Name.field" of each item, or the fault.
std::string Text(const GraphqlReading& reading) {
  if (!reading.readable()) {
    EXPECT_TRUE(reading.items.empty());
    return "! " + reading.fault;
  }
  std::string out;
  for (const auto& item : reading.items) {
    out += out.empty() ? "" : " ";
    out += item.kind == GraphqlKind::kQuery ? "q:" : item.kind == GraphqlKind::kMutation ? "m:" : "s:";
    out += item.operation + "." + item.field;
  }
  return out;
}
std::string Document(std::string_view text, std::string_view name = {}) { return Text(ReadGraphqlDocument(text, name)); }
std::string Json(std::string_view text) { return Text(ReadGraphqlJson(text)); }
std::string Query(std::string_view text) { return Text(ReadGraphqlQuery(text)); }

TEST(Graphql, GivesRootFieldsOfTheOperation) {
  const struct {
    const char* text;
    const char* items;
  } rows[] = {
      {"{a}", "q:.a"},
      {"{ a, b c }", "q:.a q:.b q:.c"},
      {"query Q { a { b { c } } d }", "q:Q.a q:Q.d"},
      {"mutation M($x: [Int!]! = [1, 2] @d) @e(x: 1) { alias: field(x: $x, y: {z: [\"}\", $x]}) @skip(if: true) { id } }",
       "m:M.field"},
      {"subscription { tick }", "s:.tick"},
      {"{ query mutation on fragment true null }", "q:.query q:.mutation q:.on q:.fragment q:.true q:.null"},
      {"query query { a }", "q:query.a"},
      {"{ on: off }", "q:.off"},
      {"{ __schema { types { name } } __typename }", "q:.__schema q:.__typename"},
      {"{ ...F } fragment F on Query { a ...G } fragment G on Query { b a }", "q:.a q:.b"},
      {"{ ... { a } ... on Query { b } ... @include(if: false) { c ... on X @d { d } } }", "q:.a q:.b q:.c q:.d"},
      {"{ ...F ...F ...G } fragment F on T { x ...G } fragment G on T { y }", "q:.x q:.y"},
      {"{ a { ...F } } fragment F on T { hidden }", "q:.a"},
      {"{a(s: \"\\\" } mutation { evil\", t: \"\"\" } \\\"\"\" mutation { evil \"\"\")}", "q:.a"},
      {"# } mutation { evil\r\n{ a #}\n b }", "q:.a q:.b"},
      {"{a(x:-0.5e+10 y:0 z:ENUM w:null v:true u:[] t:{})}", "q:.a"},
      {"{\u0009\n\r\n,,,a,,,}", "q:.a"},
      {"{a(s:\"\u00e9\\u00e9\")}#\u00e9", "q:.a"},
      {"fragment F on Q { a } query A { ...F }", "q:A.a"},
  };
  for (const auto& row : rows) EXPECT_EQ(Document(row.text), row.items) << row.text;
}

TEST(Graphql, SelectsTheOperationByName) {
  const char* two = "query A { a } mutation B { b }";
  EXPECT_EQ(Document(two, "A"), "q:A.a");
  EXPECT_EQ(Document(two, "B"), "m:B.b");
  EXPECT_THAT(Document(two), HasSubstr("not exactly one operation"));
  EXPECT_THAT(Document(two, "C"), HasSubstr("names no operation"));
  EXPECT_THAT(Document("{a}", "A"), HasSubstr("names no operation"));
  EXPECT_THAT(Document("fragment F on Q { a }"), HasSubstr("not exactly one operation"));
  EXPECT_THAT(Document("{a} query B { b }", "B"), HasSubstr("without a name beside others"));
  EXPECT_THAT(Document("query A { a } mutation A { b }", "A"), HasSubstr("two operations"));
  EXPECT_THAT(Document("{...F} fragment F on Q { a } fragment F on Q { b }"), HasSubstr("two fragments"));
}

TEST(Graphql, RefusesWhatIsNoExecutableDocument) {
  const char* rows[] = {
      "",
      " ",
      "#",
      "{",
      "}",
      "{}",
      "{ a",
      "{ a } }",
      "{ a { } }",
      "a",
      "query",
      "query Q",
      "query Q(",
      "query Q() { a }",
      "{ a() }",
      "{ a( }",
      "{ a(x) }",
      "{ a(x:) }",
      "{ a(x: ) }",
      "{ a(: 1) }",
      "{ a(x: $) }",
      "{ a: }",
      "{ :a }",
      "{ a @ }",
      "{ @a }",
      "{ ... }",
      "{ ...on }",
      "{ ...on { a } }",
      "{ ... on T }",
      "{ ...F(x: 1) }",
      "fragment on on T { a }",
      "fragment F { a }",
      "fragment F on T",
      "{...F} fragment F($x: Int) on T { a }",
      "query ($x: Int = $y) { a }",
      "query ($x: Int @d(a: $y)) { a }",
      "query ($x: [Int) { a }",
      "query ($x Int) { a }",
      "query (x: Int) { a }",
      "type T { a: Int }",
      "schema { query: Q }",
      "extend type T { a: Int }",
      "\"doc\" query { a }",
      "directive @d on FIELD",
      "querY { a }",
      "{ a(x: 01) }",
      "{ a(x: 1.) }",
      "{ a(x: .5) }",
      "{ a(x: 1e) }",
      "{ a(x: +1) }",
      "{ a(x: 1a) }",
      "{ a(x: 1.5.2) }",
      "{ a(x: -) }",
      "{ a(x: \"b\n\") }",
      "{ a(x: \"b) }",
      "{ a(x: \"\\x\") }",
      "{ a(x: \"\\u12\") }",
      "{ a(x: \"\\u{41}\") }",
      "{ a(x: \"\"\"b) }",
      "{ a(x: \"\"\"b\"\") }",
      "{ a(x: \"\"\"\"\"\"\"\"\") }",
      "{ a .. b }",
      "{ a . b }",
      "{ a ; b }",
      "{ a & b }",
      "{ a | b }",
      "{ a = b }",
      "{ a ! }",
      "{ a? }",
      "{ 'a' }",
      "{ \u00e9 }",
      "{ a\u00a0 }",
      "\xEF\xBB\xBF{ a }",
      "{ a \x01 }",
      "{ a } #\x01",
      "{ a } #\xff",
      "{ a(x: \"\xff\") }",
      "{ a(x: \"\x7f\") }",
      "{ a \v b }",
      // A lone carriage return, and what some reader takes for the end of a line: a comment would end, or not.
      "{ a #\r b }",
      "{ a \r b }",
      "{ a #\u2028 b }\n}",
      "{ a #\u2029 b }\n}",
      "{ a #\u0085 b }\n}",
      "{ ...F }",
      "{ ...F } fragment F on T { ...G }",
      "{ ...F } fragment F on T { ...F }",
      "{ ...F } fragment F on T { a ...G } fragment G on T { ... on T { ...F } }",
  };
  for (const char* row : rows) EXPECT_FALSE(ReadGraphqlDocument(row, {}).readable()) << row;
}

TEST(Graphql, BoundsDepthTokensAndFields) {
  const auto nested = [](size_t depth, const char* open, const char* close) {
    std::string out = "{a";
    for (size_t i = 1; i < depth; ++i) out += open;
    for (size_t i = 1; i < depth; ++i) out += close;
    return out + "}";
  };
  EXPECT_EQ(Document(nested(kMaxGraphqlDepth, "{a", "}")), "q:.a");
  EXPECT_THAT(Document(nested(kMaxGraphqlDepth + 1, "{a", "}")), HasSubstr("nested too deeply"));
  EXPECT_THAT(Document(nested(1'000'000, "{a", "}")), HasSubstr("nested too deeply"));
  EXPECT_THAT(Document("{a(x:" + std::string(1'000'000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(Document("{a(x:{b:" + std::string(100'000, '{')), HasSubstr("a name is expected"));
  EXPECT_THAT(Document("query($x:" + std::string(1'000'000, '[')), HasSubstr("nested too deeply"));
  std::string wide = "{";
  for (size_t i = 0; i < kMaxGraphqlItems; ++i) wide += fmt::format("f{} ", i);
  EXPECT_TRUE(ReadGraphqlDocument(wide + "}", {}).readable());
  EXPECT_THAT(Document(wide + "g}"), HasSubstr("more than 1000 root fields"));
  std::string tokens = "{a(x:[";
  for (size_t i = 0; i < kMaxGraphqlTokens; ++i) tokens += "1 ";
  EXPECT_THAT(Document(tokens + "])}"), HasSubstr("too many tokens"));
  // Fragments that would double at each step are entered once each.
  std::string doubling = "{...F0}";
  for (size_t i = 0; i < 500; ++i) doubling += fmt::format("fragment F{} on T {{ a{} ...F{} ...F{} }}", i, i, i + 1, i + 1);
  EXPECT_EQ(ReadGraphqlDocument(doubling + "fragment F500 on T {z}", {}).items.size(), 501u);
}

TEST(Graphql, ReadsTheJsonFormAndBatches) {
  EXPECT_EQ(Json(R"({"query":"{ a }"})"), "q:.a");
  EXPECT_EQ(Json(R"({"query":"query A{a} query B{b}","operationName":"B","variables":{"x":1},"extensions":{"trace":1}})"),
            "q:B.b");
  EXPECT_EQ(Json(R"({"query":"{a}","operationName":null,"variables":null,"extensions":null})"), "q:.a");
  EXPECT_EQ(Json(R"({"query":"{a}","operationName":""})"), "q:.a");
  EXPECT_EQ(Json("{\"query\":\"mutation\\u007b a }\"}"), "m:.a");
  EXPECT_EQ(Json(R"([{"query":"{a}"},{"query":"mutation M {b c}"}])"), "q:.a m:M.b m:M.c");
}

TEST(Graphql, RefusesJsonThatTwoServersWouldRunDifferently) {
  const struct {
    const char* text;
    const char* fault;
  } rows[] = {
      {"[]", "empty GraphQL batch"},
      {"[[]]", "no object"},
      {"\"{a}\"", "no object"},
      {"{}", "no query text"},
      {R"({"query":null})", "no query text"},
      {R"({"query":["{a}"]})", "no query text"},
      {R"({"query":"{a}","query":"mutation{b}"})", "a key stands twice"},
      {R"({"query":"{a}","Query":"mutation{b}"})", "a key stands twice"},
      {R"({"query":"{a}","id":"x"})", "a member other than"},
      {R"({"query":"{a}","documentId":"x"})", "a member other than"},
      {R"({"Query":"{a}"})", "a member other than"},
      {R"({"extensions":{"persistedQuery":{"version":1,"sha256Hash":"ab"}}})", "persisted query"},
      {R"({"query":"{a}","extensions":{"persistedQuery":{"version":1,"sha256Hash":"ab"}}})", "persisted query"},
      {R"({"query":"{a}","extensions":{"PersistedQuery":{}}})", "persisted query"},
      {R"({"query":"{a}","operationName":1})", "operationName is no text"},
      {R"({"query":"{a}","operationName":"B"})", "names no operation"},
      {R"({"query":"{a}","variables":"{}"})", "no object"},
      {R"({"query":"{a}","variables":[1]})", "no object"},
      {R"({"query":"{a}","extensions":[{"persistedQuery":1}]})", "no object"},
      {R"([{"query":"{a}"},{"extensions":{"persistedQuery":{}}}])", "persisted query"},
      {R"([{"query":"{a}"},{"query":"{"}])", "not understood"},
      {R"({"query":"{a}#\u0000"})", "a NUL character"},
  };
  for (const auto& row : rows) EXPECT_THAT(Json(row.text), HasSubstr(row.fault)) << row.text;
  std::string batch = R"([{"query":"{a}"})";
  for (size_t i = 1; i < kMaxGraphqlBatch; ++i) batch += R"(,{"query":"{a}"})";
  EXPECT_TRUE(ReadGraphqlJson(batch + "]").readable());
  EXPECT_THAT(Json(batch + R"(,{"query":"{a}"}])"), HasSubstr("more than 100 requests"));
}

TEST(Graphql, ReadsTheGetForm) {
  EXPECT_EQ(Query("query=%7Ba%7D"), "q:.a");
  EXPECT_EQ(Query("query={a+b}"), "q:.a q:.b");
  EXPECT_EQ(Query("v=1&query=query+A{a}mutation+B{b}&operationName=B&variables=%7B%22x%22:1%7D&extensions={}"), "m:B.b");
  EXPECT_EQ(Query("%71uery={a}"), "q:.a");
  EXPECT_EQ(Query("query={a}&operationName=&variables=&extensions="), "q:.a");
  const struct {
    const char* text;
    const char* fault;
  } rows[] = {
      {"", "no query text"},
      {"x=1", "no query text"},
      {"query={a}&query=mutation{b}", "twice"},
      {"query={a}&Query=mutation{b}", "takes for another"},
      {"query={a}&query[]=mutation{b}", "takes for another"},
      {"query={a}&+query=mutation{b}", "takes for another"},
      {"query={a}&operationname=B", "takes for another"},
      {"query={a};query=mutation{b}", "semicolon"},
      {"query=%7", "decoded"},
      {"query=%zz", "decoded"},
      {"query=%ff", "decoded"},
      {"query={a}%00", "decoded"},
      {"query={a}&documentId=1", "persisted"},
      {"id=1", "persisted"},
      {"extensions=%7B%22persistedQuery%22:%7B%22sha256Hash%22:%22ab%22%7D%7D", "persisted"},
      {"query={a}&extensions=%7B%22persistedQuery%22:%7B%7D%7D", "persisted"},
      {"query={a}&extensions=x", "not JSON"},
      {"query={a}&variables=[1]", "no object"},
  };
  for (const auto& row : rows) EXPECT_THAT(Query(row.text), HasSubstr(row.fault)) << row.text;
}

TEST(Graphql, SeesPartsOfARequestInTheUrlOfAPost) {
  for (const char* query : {"query={a}", "Query=", "a=1;query=x", "operationName=B", "variables={}",
                            "extensions=", "documentId=1", "query[]=", "%zz=1"})
    EXPECT_TRUE(QueryHoldsGraphql(query)) << query;
  for (const char* query : {"", "v=1", "api-version=2&x", "queries=1", "q=query"})
    EXPECT_FALSE(QueryHoldsGraphql(query)) << query;
}

// In seconds of the processor.
double CostOfFragments(const std::vector<std::string>& names) {
  std::string text = "{a}";
  for (const std::string& name : names) text += fmt::format(" fragment {} on T{{b}}", name);
  timespec begin{};
  timespec end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  EXPECT_EQ(Document(text), "q:.a");
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

// One such document held up all flows of a worker, and a body has room for several.
TEST(Graphql, CostsNoMoreForNamesThatFallOnOneHash) {
  const std::vector<std::string> chosen = CollidingTexts::Make(13);
  std::vector<std::string> others;
  for (size_t i = 0; i < chosen.size(); ++i) others.push_back(fmt::format("{:a>{}}", i, chosen.front().size()));
  for (std::string& name : others) name.insert(name.begin(), 'n');
  EXPECT_LT(CostOfFragments(chosen), 10 * CostOfFragments(others));
}

}  // namespace
}  // namespace sluice::proxy
