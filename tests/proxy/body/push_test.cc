#include "proxy/body/push.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proxy/body/lfs.h"

namespace sluice::proxy {
namespace {

using testing::HasSubstr;

const std::string kZero(40, '0');
const std::string kA(40, 'a');
const std::string kB = std::string(39, '0') + "b";

std::string Packet(std::string_view line) { return fmt::format("{:04x}{}", line.size() + 4, line); }
std::string Command(const std::string& from, const std::string& to, const std::string& ref) {
  return from + " " + to + " " + ref;
}
std::string First(const std::string& line, const std::string& capabilities = " report-status side-band-64k agent=git/2.39.5") {
  return Packet(line + std::string(1, '\0') + capabilities);
}

struct Outcome {
  std::string text;  // "+ref" created, "-ref" deleted, "=ref" updated; or the fault
  size_t used = 0;
};

Outcome Read(std::string_view bytes, size_t piece = 1 << 20) {
  PushReader reader;
  Outcome out;
  while (out.used < bytes.size() && reader.state() == PushReader::State::kMore) {
    const std::string_view part = bytes.substr(out.used, piece);
    const size_t used = reader.Feed(part);
    out.used += used;
    if (reader.state() == PushReader::State::kMore) {
      EXPECT_EQ(used, part.size());
    }
  }
  reader.Finish();
  const auto reading = reader.Take();
  if (!reading.readable()) return {"! " + reading.fault, out.used};
  for (const auto& item : reading.items) {
    out.text += out.text.empty() ? "" : " ";
    out.text += item.change == policy::kRefCreate ? "+" : item.change == policy::kRefDelete ? "-" : "=";
    out.text += item.ref;
  }
  return out;
}

TEST(Push, GivesCommandsInPiecesOfAnySizeAndStopsBehindTheFlush) {
  const std::string commands = First(Command(kZero, kA, "refs/heads/new")) + Packet(Command(kA, kB, "refs/heads/main") + "\n") +
                               Packet(Command(kB, kZero, "refs/tags/v1")) + "0000";
  const std::string body = commands + "PACK\0\0\0\2 and 500 MB";
  for (size_t piece = 1; piece < body.size() + 1; ++piece) {
    const Outcome out = Read(body, piece);
    EXPECT_EQ(out.text, "+refs/heads/new =refs/heads/main -refs/tags/v1") << piece;
    EXPECT_EQ(out.used, commands.size()) << piece;
  }
}

TEST(Push, TakesShallowLinesSha256AndEmptyPushes) {
  EXPECT_EQ(Read("0000").text, "");
  EXPECT_EQ(Read(Packet("shallow " + kA) + First(Command(kA, kB, "refs/heads/x")) + "0000").text, "=refs/heads/x");
  const std::string zero(64, '0');
  const std::string id(64, 'c');
  EXPECT_EQ(Read(First(Command(zero, id, "refs/heads/x"), " object-format=sha256") + "0000").text, "+refs/heads/x");
  EXPECT_EQ(Read(First(Command(kA, kB, "refs/for/main%topic=x,submit")) + "0000").text, "=refs/for/main%topic=x,submit");
  EXPECT_EQ(Read(First(Command(kA, kB, "refs/heads/m\xC3\xBCsli")) + "0000").text, "=refs/heads/m\xC3\xBCsli");
  EXPECT_EQ(Read(First(Command(kA, kB, "refs/heads/x")) + Packet(Command(kA, kB, "refs/heads/x")) + "0000").text,
            "=refs/heads/x =refs/heads/x");
}

TEST(Push, RefusesWhatReceiversReadInDifferentWays) {
  const std::string good = First(Command(kA, kB, "refs/heads/x"));
  const struct {
    std::string bytes;
    const char* fault;
  } rows[] = {
      {"", "ends before"},
      {good, "ends before"},
      {good + "00", "ends before"},
      {good + "0001", "a length that means nothing"},
      {good + "0002", "a length that means nothing"},
      {good + "0003", "a length that means nothing"},
      {good + "0004", "a length that means nothing"},
      {good + "fff1", "a length that means nothing"},
      {good + "ffff", "a length that means nothing"},
      {good + "00zz", "not hexadecimal"},
      {good + " 000", "not hexadecimal"},
      {good + "-001", "not hexadecimal"},
      {"PACK", "not hexadecimal"},
      {Packet("version 1") + good + "0000", "no command"},
      {Packet("push-cert" + std::string(1, '\0') + " push-options"), "signed pushes"},
      {Packet("push-cert"), "no command"},
      {First("push-cert"), "signed pushes"},
      {Packet(Command(kA, kB, "refs/heads/x")) + Packet(Command(kA, kB, "refs/heads/y") + std::string(1, '\0') + "atomic"),
       "behind a later command"},
      {good + Packet(Command(kA, kB, "refs/heads/y") + std::string(1, '\0') + "atomic"), "behind a later command"},
      {First(Command(kA, kB, "refs/heads/x"), std::string(" a\0b", 4)), "disagree"},
      {First(Command(kA, kB, "refs/heads/x"), " object-format=sha256"), "disagree"},
      {First(Command(kA, kB, "refs/heads/x"), " object-format=sha1 object-format=sha1"), "disagree"},
      {First(Command(kA, kB, "refs/heads/x"), " object-format=md5"), "disagree"},
      {good + Packet("shallow " + kA), "malformed shallow"},
      {Packet("shallow " + kA + " x"), "malformed shallow"},
      {Packet("shallow xyz"), "malformed shallow"},
      {Packet(Command(kA, std::string(64, 'b'), "refs/heads/x")), "no command"},
      {Packet(Command(kA, "b", "refs/heads/x")), "no command"},
      {Packet(Command(std::string(40, 'A'), kB, "refs/heads/x")), "no command"},
      {Packet(kA + "  " + kB + " refs/heads/x"), "no command"},
      {Packet(kA + "\t" + kB + "\trefs/heads/x"), "no command"},
      {Packet(Command(kZero, kZero, "refs/heads/x")), "neither creates nor deletes"},
      {Packet("\n"), "no command"},
      {Packet(Command(kA, kB, "")), "no name of a ref"},
      {Packet(Command(kA, kB, "HEAD")), "no name of a ref"},
      {Packet(Command(kA, kB, "refs/heads/x\n") + "\n"), "no name of a ref"},
      {Packet(Command(kA, kB, "refs/heads/x ")), "no name of a ref"},
  };
  for (const auto& row : rows) EXPECT_THAT(Read(row.bytes).text, HasSubstr(row.fault)) << row.bytes;
}

TEST(Push, KnowsNamesOfRefsAsGitDoes) {
  for (const char* name : {"refs/heads/main", "refs/heads/a/b.c", "refs/x", "refs/heads/@", "refs/heads/-x", "refs/heads/a%b"})
    EXPECT_TRUE(IsRefName(name)) << name;
  for (const char* name : {"refs/",
                           "refs",
                           "main",
                           "Refs/heads/x",
                           "refs//x",
                           "refs/heads/",
                           "refs/heads/.x",
                           "refs/heads/x.lock",
                           "refs/x.lock/y",
                           "refs/heads/a..b",
                           "refs/heads/x.",
                           "refs/heads/a b",
                           "refs/heads/a~1",
                           "refs/heads/a^",
                           "refs/heads/a:b",
                           "refs/heads/a?",
                           "refs/heads/a*",
                           "refs/heads/a[",
                           "refs/heads/a\\b",
                           "refs/heads/a@{1}",
                           "refs/heads/\x7f",
                           "refs/heads/\xff",
                           "refs/heads/a\tb"})
    EXPECT_FALSE(IsRefName(name)) << name;
}

TEST(Push, BoundsCommandsAndBytes) {
  std::string many = First(Command(kA, kB, "refs/0"));
  for (size_t i = 1; i < kMaxPushCommands; ++i) many += Packet(Command(kA, kB, fmt::format("refs/{}", i)));
  EXPECT_EQ(Read(many + "0000").text.find('!'), std::string::npos);
  EXPECT_THAT(Read(many + Packet(Command(kA, kB, "refs/x")) + "0000").text, HasSubstr("more than 10000"));
  std::string large = First(Command(kA, kB, "refs/x"));
  while (large.size() <= kMaxPushBytes) large += Packet(Command(kA, kB, "refs/" + std::string(60'000, 'x')));
  const Outcome out = Read(large + "0000", 4096);
  EXPECT_THAT(out.text, HasSubstr("more than 1048576 bytes"));
}

TEST(Lfs, GivesTheOperation) {
  using policy::LfsOperation;
  EXPECT_EQ(ReadLfsBatch(R"({"operation":"download","objects":[],"transfers":["basic"]})").items,
            std::vector{LfsOperation::kDownload});
  EXPECT_EQ(ReadLfsBatch(R"({"objects":[],"operation":"upload"})").items, std::vector{LfsOperation::kUpload});
  for (const char* text :
       {R"({"operation":"verify"})", R"({"operation":"Upload"})", R"({"Operation":"upload"})", R"({"operation":["upload"]})",
        R"({"operation":"download","Operation":"upload"})", R"({"operation":"download","operation":"upload"})", "[]", "{}", ""})
    EXPECT_FALSE(ReadLfsBatch(text).readable()) << text;
}

}  // namespace
}  // namespace sluice::proxy
