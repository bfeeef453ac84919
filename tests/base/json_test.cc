#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using Kind = JsonToken::Kind;

// The tokens as one text, or the fault with its offset.
std::string Scan(std::string_view text, JsonBounds bounds = {.depth = 8, .values = 100}) {
  JsonScanner scanner(text, bounds);
  std::string out;
  while (true) {
    const JsonToken token = scanner.Next();
    switch (token.kind) {
      case Kind::kBeginObject:
        out += '{';
        break;
      case Kind::kEndObject:
        out += '}';
        break;
      case Kind::kBeginArray:
        out += '[';
        break;
      case Kind::kEndArray:
        out += ']';
        break;
      case Kind::kKey:
        out += std::string(token.text) + ":";
        break;
      case Kind::kString:
        out += "'" + std::string(token.text) + "'";
        break;
      case Kind::kEnd:
        return out;
      case Kind::kFault:
        EXPECT_EQ(scanner.Next().kind, Kind::kFault);
        return std::to_string(token.offset) + " " + std::string(token.text);
      default:
        out += std::string(token.text) + ",";
    }
  }
}

TEST(JsonScanner, GivesTokensInOrder) {
  EXPECT_EQ(Scan(R"( {"a" : [1, -0.5e+3, true,false ,null, "x"], "b":{}, "":[]} )"),
            "{a:[1,-0.5e+3,true,false,null,'x']b:{}:[]}");
  EXPECT_EQ(Scan("\"\\u0041\\n\\/\\uD83D\\ude00\u00e9\""), "'A\n/\U0001F600\u00e9'");
  EXPECT_EQ(Scan("0"), "0,");
  EXPECT_EQ(Scan("[[],[[]]]"), "[[][[]]]");
}

TEST(JsonScanner, SaysWhetherATextWasEscapedAndWhereItStands) {
  JsonScanner scanner(R"(["ab", "\u0061b"])", {.depth = 1, .values = 9});
  scanner.Next();
  const JsonToken plain = scanner.Next();
  EXPECT_FALSE(plain.escaped);
  EXPECT_EQ(plain.offset, 1u);
  EXPECT_EQ(plain.length, 4u);
  const JsonToken escaped = scanner.Next();
  EXPECT_TRUE(escaped.escaped);
  EXPECT_EQ(escaped.text, "ab");
  EXPECT_EQ(escaped.length, 9u);
}

TEST(JsonScanner, RefusesWhatIsNoJson) {
  const struct {
    std::string text;
    std::string fault;
  } rows[] = {
      {"", "0 the text ends where a value should stand"},
      {"\xEF\xBB\xBF{}", "0 a word that is no value"},
      {"[1,]", "3 a value is expected"},
      {"[1 2]", "3 `,` or `]` is expected"},
      {"[,1]", "1 a value is expected"},
      {"{\"a\":1,}", "7 a key in double quotes is expected"},
      {"{a:1}", "1 a key in double quotes is expected"},
      {"{'a':1}", "1 a key in double quotes is expected"},
      {"{\"a\" 1}", "5 `:` is expected after a key"},
      {"{\"a\":}", "5 a value is expected"},
      {"{\"a\":1 \"b\":2}", "7 `,` or `}` is expected"},
      {"{]", "1 a key in double quotes is expected"},
      {"[}", "1 a value is expected"},
      {"[", "1 the text ends where a value should stand"},
      {"{\"a\":1", "6 `,` or `}` is expected"},
      {"{} {}", "3 text after the end of the JSON value"},
      {"{}]", "2 text after the end of the JSON value"},
      {"1 //c", "2 text after the end of the JSON value"},
      {"/**/1", "0 a word that is no value"},
      {"NaN", "0 a word that is no value"},
      {"-Infinity", "0 a word that is no value"},
      {"True", "0 a word that is no value"},
      {"nul", "0 a word that is no value"},
      {"01", "0 a word that is no value"},
      {"+1", "0 a word that is no value"},
      {".5", "0 a word that is no value"},
      {"1.", "0 a word that is no value"},
      {"1e", "0 a word that is no value"},
      {"1e+", "0 a word that is no value"},
      {"-", "0 a word that is no value"},
      {"0x1", "0 a word that is no value"},
      {"1_0", "0 a word that is no value"},
      {"\"a", "0 a string is not closed"},
      {"\"a\\\"", "0 a string is not closed"},
      {"\"a\nb\"", "2 a control character in a string"},
      {std::string("\"a\0b\"", 5), "2 a control character in a string"},
      {"\"\\x41\"", "1 this escape stands for nothing"},
      {"\"\\'\"", "1 this escape stands for nothing"},
      {"\"\\u12\"", "1 four hexadecimal digits are expected after `\\u`"},
      {"\"\\u{41}\"", "1 four hexadecimal digits are expected after `\\u`"},
      {"\"\\ud800\"", "1 half of a surrogate pair"},
      {"\"\\udc00\"", "1 half of a surrogate pair"},
      {"\"\\ud800\\u0041\"", "1 half of a surrogate pair"},
      {"\"\\ude00\\ud83d\"", "1 half of a surrogate pair"},
      {"\"\xff\"", "1 this byte is not UTF-8"},
      {"\"\xc0\xaf\"", "1 this byte is not UTF-8"},
      {"\"\xed\xa0\x80\"", "1 this byte is not UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "1 this byte is not UTF-8"},
      {"\"\xe2\x82\"", "1 this byte is not UTF-8"},
      {std::string("{\0}", 3), "1 a key in double quotes is expected"},
      {"\v1", "0 a word that is no value"},
      {"\u00a01", "0 a word that is no value"},
  };
  for (const auto& row : rows) EXPECT_EQ(Scan(row.text), row.fault) << row.text;
}

TEST(JsonScanner, BoundsDepthAndValues) {
  EXPECT_EQ(Scan("[[[]]]", {.depth = 3, .values = 3}), "[[[]]]");
  EXPECT_EQ(Scan("[[[]]]", {.depth = 2, .values = 9}), "2 nested too deeply");
  EXPECT_EQ(Scan("[[[]]]", {.depth = 9, .values = 2}), "2 too many values in one text");
  EXPECT_EQ(Scan("[1,2,3]", {.depth = 9, .values = 3}), "5 too many values in one text");
}

}  // namespace
}  // namespace sluice
