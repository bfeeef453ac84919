#include "proxy/body/json_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

using policy::JsonLeaf;
using testing::HasSubstr;
using Type = JsonLeaf::Type;

TEST(JsonBody, GivesEveryValueUnderItsPointer) {
  const auto reading = ReadJson(R"({"b":[1,{"x":null}],"a/~b":"q\u0041","":true,"n":-0.50})");
  ASSERT_TRUE(reading.readable()) << reading.fault;
  const policy::JsonLeaves expected = {
      {"", Type::kObject, ""},         {"/", Type::kBoolean, "true"},  {"/a~1~0b", Type::kString, "qA"},
      {"/b", Type::kArray, ""},        {"/b/0", Type::kNumber, "1"},   {"/b/1", Type::kObject, ""},
      {"/b/1/x", Type::kNull, "null"}, {"/n", Type::kNumber, "-0.50"},
  };
  EXPECT_EQ(reading.items, expected);
  EXPECT_EQ(FindLeaf(reading.items, "/b/1/x")->text, "null");
  EXPECT_EQ(FindLeaf(reading.items, "/b/2"), nullptr);
}

TEST(JsonBody, TakesAnyValueAtTheTop) {
  for (const char* text : {"1", "\"x\"", "null", "[]", "{}", " false\r\n"}) {
    const auto reading = ReadJson(text);
    EXPECT_TRUE(reading.readable()) << text;
    EXPECT_EQ(reading.items.size(), 1u) << text;
  }
}

TEST(JsonBody, RefusesWhatReadersTakeDifferently) {
  const struct {
    const char* text;
    const char* fault;
  } rows[] = {
      {R"({"a":1,"a":2})", "a key stands twice"},
      {R"({"a":1,"\u0061":2})", "a key stands twice"},
      {R"({"a":1,"A":2})", "a key stands twice"},
      {R"({"x":{"method":1,"METHOD":2}})", "a key stands twice"},
      {"{\"params\":1,\"param\u017f\":2}", "a key stands twice"},
      {"{\"ok\":1,\"o\u212a\":2}", "a key stands twice"},
      {R"([{"a":1},{"a":1,"b":{"c":0,"c":0}}])", "a key stands twice"},
      {R"({"a\u0000":1})", "a NUL character"},
      {R"({"a":"x\u0000"})", "a NUL character"},
      {"{\"a\":1}\n{\"a\":2}", "text after the end"},
      {"\xEF\xBB\xBF{}", "no value"},
      {"{\"a\":NaN}", "no value"},
      {"", "the text ends"},
  };
  for (const auto& row : rows) {
    const auto reading = ReadJson(row.text);
    EXPECT_THAT(reading.fault, HasSubstr(row.fault)) << row.text;
    EXPECT_TRUE(reading.items.empty());
  }
  EXPECT_TRUE(ReadJson(R"([{"a":1},{"a":1}])").readable());
}

TEST(JsonBody, ShowsNothingOfTheBodyInAFault) {
  EXPECT_THAT(ReadJson("{\"password\": hunter2}").fault, testing::Not(HasSubstr("hunter2")));
  EXPECT_THAT(ReadJson(R"({"hunter2":1,"hunter2":1})").fault, testing::Not(HasSubstr("hunter2")));
}

TEST(JsonBody, BoundsDepthValuesAndPointers) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ReadJson(nested(kMaxBodyDepth)).readable());
  EXPECT_THAT(ReadJson(nested(kMaxBodyDepth + 1)).fault, HasSubstr("nested too deeply"));
  EXPECT_THAT(ReadJson(nested(1'000'000)).fault, HasSubstr("nested too deeply"));
  std::string many = "[0";
  for (size_t i = 2; i < kMaxBodyValues; ++i) many += ",0";
  EXPECT_TRUE(ReadJson(many + "]").readable());
  EXPECT_THAT(ReadJson(many + ",0]").fault, HasSubstr("too many values"));
  // A long key over many values would make pointers of many times the body's size.
  std::string wide = "{\"" + std::string(100'000, 'k') + "\":[0";
  for (size_t i = 0; i < 1000; ++i) wide += ",0";
  EXPECT_THAT(ReadJson(wide + "]}").fault, HasSubstr("keys that are too long"));
}

TEST(JsonBody, PartsABatchIntoMessagesWithPointersOfTheirOwn) {
  const auto one = ReadJsonMessages(R"({"a":1})");
  EXPECT_FALSE(one.batch);
  ASSERT_EQ(one.messages.size(), 1u);
  const auto batch = ReadJsonMessages(R"([{"a":1},2,[3]])");
  EXPECT_TRUE(batch.batch);
  ASSERT_EQ(batch.messages.size(), 3u);
  EXPECT_EQ(FindLeaf(batch.messages[0], "/a")->text, "1");
  EXPECT_EQ(batch.messages[1].front().pointer, "");
  EXPECT_EQ(FindLeaf(batch.messages[2], "/0")->text, "3");
  EXPECT_TRUE(ReadJsonMessages("[]").messages.empty());
  EXPECT_FALSE(ReadJsonMessages("[{},{}").fault.empty());
}

TEST(JsonBody, KnowsTheMembersOfAnObject) {
  const auto leaves = ReadJson(R"({"a":{"z":1},"b":2})").items;
  EXPECT_TRUE(HasOnlyMembers(leaves, {"a", "b", "c"}));
  EXPECT_FALSE(HasOnlyMembers(leaves, {"a"}));
}

}  // namespace
}  // namespace sluice::proxy
