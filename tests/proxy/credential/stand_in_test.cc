// Stand-ins: replaced where they may be, found where they may not, however the bytes are cut.

#include "proxy/credential/stand_in.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "proxy/credential/encoding.h"

namespace sluice::proxy {
namespace {

Field Named(std::string_view name, std::string_view value) {
  Field field;
  field.name = name;
  field.value = value;
  return field;
}

const std::vector<Swap> kSwaps = {{"sk-AAAAbbbb", "real\"one&"}, {"sk-AAAAcccc", "two"}, {"sk-AAAAbb", "short"}};

TEST(StandIn, IsAsLongAsTheSecretAndOnlyOfSafeCharacters) {
  std::array<uint8_t, kMaxStandInBytes> random{};
  std::mt19937 engine(1);
  for (uint8_t& octet : random) octet = static_cast<uint8_t>(engine());
  EXPECT_EQ(MakeStandIn("sk-", 51, random).size(), 51u);
  EXPECT_EQ(MakeStandIn("sk-", 5, random).size(), 3 + kStandInRandom);
  EXPECT_EQ(MakeStandIn("", 100000, random).size(), kMaxStandInBytes);
  const std::string text = MakeStandIn("ghp_", 40, random);
  EXPECT_TRUE(text.starts_with("ghp_"));
  EXPECT_EQ(PercentEncode(text), text);
  EXPECT_EQ(JsonEscape(text), text);
  EXPECT_EQ(UsualPrefix("sk-ant-api03-abc"), "sk-ant-api03-");
  EXPECT_EQ(UsualPrefix("sk-abc"), "sk-");
  EXPECT_EQ(UsualPrefix("abc"), "");
  EXPECT_TRUE(IsStandInPrefix("sk-ant-api03-"));
  EXPECT_FALSE(IsStandInPrefix("a b"));
  EXPECT_FALSE(IsStandInPrefix("a/b"));
  EXPECT_FALSE(IsStandInPrefix(std::string(65, 'a')));
}

TEST(StandIn, TakesTheLeftmostAndOfThoseTheLongest) {
  EXPECT_EQ(SwapAll("x sk-AAAAbbbb sk-AAAAbbx sk-AAAAcccc!", kSwaps), "x real\"one& shortx two!");
  EXPECT_EQ(SwapAll("", kSwaps), "");
  EXPECT_EQ(SwapAll("sk-AAAA", kSwaps), "sk-AAAA");
  EXPECT_EQ(SwapAll("sk-sk-AAAAcccc", kSwaps), "sk-two");
  EXPECT_EQ(SwapAll("anything", {}), "anything");
}

TEST(StandIn, ReplacesTheSameWhereverTheTextIsCut) {
  const std::string text = "sk-sk-AAAAbbbbsk-AAAAbbsk-AAAAccccsk-AAAAbsk-AAAAbbb";
  const std::string whole = SwapAll(text, kSwaps);
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      StreamSwapper swapper(kSwaps);
      std::string out;
      swapper.Push(std::string_view(text).substr(0, i), &out);
      swapper.Push(std::string_view(text).substr(i, j - i), &out);
      swapper.Push(std::string_view(text).substr(j), &out);
      EXPECT_LT(swapper.held(), 11u);
      swapper.Finish(&out);
      ASSERT_EQ(out, whole) << i << " " << j;
    }
  }
}

TEST(StandIn, IsWrittenAsTheBodyNeedsIt) {
  EXPECT_EQ(SwapsFor(kSwaps, BodyForm::kJson)[0].to, "real\\\"one&");
  EXPECT_EQ(SwapsFor(kSwaps, BodyForm::kForm)[0].to, "real%22one%26");
  EXPECT_EQ(SwapsFor(kSwaps, BodyForm::kVerbatim)[0].to, "real\"one&");
  EXPECT_TRUE(SwapsFor(kSwaps, BodyForm::kOther).empty());
  struct Row {
    const char* type;
    BodyForm form;
  };
  const Row rows[] = {{"application/json", BodyForm::kJson},
                      {"Application/JSON ; charset=utf-8", BodyForm::kJson},
                      {"application/vnd.api+json", BodyForm::kJson},
                      {"application/x-www-form-urlencoded", BodyForm::kForm},
                      {"multipart/form-data; boundary=x", BodyForm::kVerbatim},
                      {"application/octet-stream", BodyForm::kOther},
                      {"", BodyForm::kOther}};
  for (const Row& row : rows) EXPECT_EQ(BodyFormOf(row.type), row.form) << row.type;
}

TEST(StandIn, IsReplacedInAHead) {
  const std::string basic = "Basic " + Base64Encode("octo:sk-AAAAcccc");
  const std::vector<Field> fields = {Named("x-key", "k sk-AAAAbbbb"), Named("authorization", basic), Named("accept", "*/*")};
  OutgoingHead head(fields,
                    "/bot"
                    "sk-AAAAbbbb/send?k=sk-AAAAbbbb");
  EXPECT_TRUE(SwapHead(kSwaps, &head));
  EXPECT_EQ(head.fields[0].value, "k real\"one&");
  EXPECT_EQ(head.fields[1].value, "Basic " + Base64Encode("octo:two"));
  EXPECT_EQ(head.fields[2].value.data(), fields[2].value.data());
  EXPECT_EQ(head.target, "/botreal%22one%26/send?k=real%22one%26");
  OutgoingHead other(std::vector<Field>{Named("accept", "sk-")}, "/");
  EXPECT_FALSE(SwapHead(kSwaps, &other));
}

TEST(StandIn, IsFoundInAHeadInEverySpelling) {
  const std::vector<std::string> stand_ins = {"sk-AAAAbbbb", "sk-AAAAcccc"};
  const auto found = [&](std::string_view value, std::string_view target = "/") {
    const std::vector<Field> fields = {Named("x", value)};
    return FindStandIn(stand_ins, fields, target);
  };
  EXPECT_EQ(found("a"), std::nullopt);
  EXPECT_EQ(found("xsk-AAAAccccx"), 1u);
  EXPECT_EQ(found("%73k-AAAAbbbb"), 0u);
  EXPECT_EQ(found("Basic " + Base64Encode("u:sk-AAAAcccc")), 1u);
  EXPECT_EQ(found("basic  " + Base64Encode("sk-AAAAbbbb:")), 0u);
  EXPECT_EQ(found("Bearer sk-AAAAbbbb"), 0u);
  EXPECT_EQ(found("", "/a?k=sk-AAAAbbbb"), 0u);
  EXPECT_EQ(found("", "/sk%2DAAAA%62bbb"), 0u);
  EXPECT_EQ(found("", "/sk-AAAAbbb"), std::nullopt);
}

TEST(StandIn, IsFoundInABodyWhereverItIsCut) {
  const std::vector<std::string> stand_ins = {"sk-AAAAbbbb", "sk-AAAAccccdd"};
  const std::string text = "xsk-AAAAbsk-AAAAccccddy";
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      StandInScanner scanner(stand_ins);
      auto found = scanner.Push(std::string_view(text).substr(0, i));
      if (!found) found = scanner.Push(std::string_view(text).substr(i, j - i));
      if (!found) found = scanner.Push(std::string_view(text).substr(j));
      ASSERT_EQ(found, 1u) << i << " " << j;
    }
  }
  StandInScanner bytewise(stand_ins);
  std::optional<size_t> found;
  for (const char c : text)
    if (!found) found = bytewise.Push({&c, 1});
  EXPECT_EQ(found, 1u);
  StandInScanner none({});
  EXPECT_EQ(none.Push(text), std::nullopt);
}

}  // namespace
}  // namespace sluice::proxy
