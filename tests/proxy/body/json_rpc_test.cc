#include "proxy/body/json_rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proxy/body/json_body.h"

namespace sluice::proxy {
namespace {

using testing::HasSubstr;

// "method" or "method(tool)" of each item, a response as "-"; or the fault.
std::string Read(std::string_view text) {
  const auto reading = ReadJsonRpc(text);
  if (!reading.readable()) return "! " + reading.fault;
  std::string out;
  for (const auto& item : reading.items) {
    out += out.empty() ? "" : " ";
    out += item.method.empty() ? "-" : item.method;
    if (item.tool) out += "(" + *item.tool + ")";
  }
  return out;
}

TEST(JsonRpc, GivesMethodsAndTools) {
  const struct {
    const char* text;
    const char* items;
  } rows[] = {
      {R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})", "tools/list"},
      {R"({"jsonrpc":"2.0","method":"notifications/initialized"})", "notifications/initialized"},
      {R"({"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"read","arguments":{"name":"other"}}})",
       "tools/call(read)"},
      {R"({"jsonrpc":"2.0","id":null,"method":"sum","params":[1,2]})", "sum"},
      {R"({"jsonrpc":"2.0","id":1,"result":{}})", "-"},
      {R"({"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}})", "-"},
      {R"([{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":2,"result":1}])", "a b -"},
      {"{\"jsonrpc\":\"2.0\",\"meth\\u006fd\":\"tools\\/call\",\"params\":{\"n\\u0061me\":\"x\"}}", "tools/call(x)"},
  };
  for (const auto& row : rows) EXPECT_EQ(Read(row.text), row.items) << row.text;
}

TEST(JsonRpc, KeepsTheWholeMessageOfEachItem) {
  const auto reading = ReadJsonRpc(R"([{"jsonrpc":"2.0","method":"a","params":{"p":"v"}},{"jsonrpc":"2.0","method":"b"}])");
  ASSERT_EQ(reading.items.size(), 2u);
  EXPECT_EQ(FindLeaf(reading.items[0].message, "/params/p")->text, "v");
  EXPECT_EQ(FindLeaf(reading.items[1].message, "/method")->text, "b");
}

TEST(JsonRpc, RefusesWhatIsNotExactlyVersionTwo) {
  const struct {
    const char* text;
    const char* fault;
  } rows[] = {
      {"[]", "empty JSON-RPC batch"},
      {"1", "no object"},
      {R"([[{"jsonrpc":"2.0","method":"a"}]])", "no object"},
      {R"([{"jsonrpc":"2.0","method":"a"},1])", "no object"},
      {R"({"method":"a"})", "version 2.0"},
      {R"({"jsonrpc":2.0,"method":"a"})", "version 2.0"},
      {R"({"jsonrpc":"1.0","method":"a"})", "version 2.0"},
      {R"({"jsonrpc":"2.0","method":1})", "a method that is no name"},
      {R"({"jsonrpc":"2.0","method":["a"]})", "a method that is no name"},
      {R"({"jsonrpc":"2.0","method":""})", "a method that is no name"},
      {R"({"jsonrpc":"2.0","Method":"a"})", "does not know"},
      {R"({"jsonrpc":"2.0","method":"a","Method":"b"})", "a key stands twice"},
      {R"({"jsonrpc":"2.0","method":"a","extra":1})", "does not know"},
      {R"({"jsonrpc":"2.0","method":"a","params":1})", "neither an object nor an array"},
      {R"({"jsonrpc":"2.0","method":"a","params":null})", "neither an object nor an array"},
      {R"({"jsonrpc":"2.0","method":"a","id":{}})", "an id"},
      {R"({"jsonrpc":"2.0","method":"a","id":true})", "an id"},
      {R"({"jsonrpc":"2.0","method":"a","result":1})", "in one"},
      {R"({"jsonrpc":"2.0","id":1})", "neither a call nor a response"},
      {R"({"jsonrpc":"2.0","id":1,"result":1,"error":{}})", "neither a call nor a response"},
      {R"({"jsonrpc":"2.0","result":1})", "without an id"},
      {R"({"jsonrpc":"2.0","id":1,"error":"x"})", "no object"},
      {R"({"jsonrpc":"2.0","id":1,"result":1,"params":{}})", "with params"},
      {R"({"jsonrpc":"2.0","method":"tools/call"})", "name of a tool"},
      {R"({"jsonrpc":"2.0","method":"tools/call","params":{}})", "name of a tool"},
      {R"({"jsonrpc":"2.0","method":"tools/call","params":{"name":1}})", "name of a tool"},
      {R"({"jsonrpc":"2.0","method":"tools/call","params":{"name":""}})", "name of a tool"},
      {R"({"jsonrpc":"2.0","method":"tools/call","params":{"Name":"x"}})", "name of a tool"},
      {R"({"jsonrpc":"2.0","method":"tools/call","params":["x"]})", "name of a tool"},
      {R"({"jsonrpc":"2.0","method":"tools/call","params":{"name":"a","name":"b"}})", "a key stands twice"},
      {R"({"jsonrpc":"2.0","method":"a\u0000"})", "a NUL character"},
      {R"({"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0","method":"b"})", "text after the end"},
  };
  for (const auto& row : rows) EXPECT_THAT(Read(row.text), HasSubstr(row.fault)) << row.text;
}

TEST(JsonRpc, BoundsABatch) {
  const std::string one = R"({"jsonrpc":"2.0","method":"a"})";
  std::string batch = "[" + one;
  for (size_t i = 1; i < kMaxRpcBatch; ++i) batch += "," + one;
  EXPECT_EQ(ReadJsonRpc(batch + "]").items.size(), kMaxRpcBatch);
  EXPECT_THAT(Read(batch + "," + one + "]"), HasSubstr("more than 1000"));
}

}  // namespace
}  // namespace sluice::proxy
