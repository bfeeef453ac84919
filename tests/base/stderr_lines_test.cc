#include "base/stderr_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/unique_fd.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StderrLinesTest : public testing::Test {
 protected:
  StderrLinesTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    read_ = UniqueFd(ends[0]);
    write_ = UniqueFd(ends[1]);
  }

  void FillPipe() {
    EXPECT_EQ(fcntl(write_.get(), F_SETFL, O_NONBLOCK), 0);
    const std::string filler(4096, 'x');
    while (write(write_.get(), filler.data(), filler.size()) > 0) {
    }
    EXPECT_EQ(fcntl(write_.get(), F_SETFL, 0), 0);
  }
  // Everything up to the end of `last`.
  std::string ReadUntil(std::string_view last) {
    std::string text;
    std::array<char, 4096> buffer{};
    while (text.find(last) == std::string::npos) {
      const ssize_t n = read(read_.get(), buffer.data(), buffer.size());
      if (n <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(n));
    }
    return text.substr(std::min(text.find_first_not_of('x'), text.size()));
  }

  UniqueFd read_, write_;
};

TEST_F(StderrLinesTest, LinesArriveInOrder) {
  LineOutput output(write_.get());
  std::string expected;
  for (int i = 0; i < 500; ++i) {
    const std::string line = std::to_string(i) + "\n";
    output.Put(i % 2 == 0 ? LineKind::kLog : LineKind::kDenial, line);
    expected += line;
  }
  EXPECT_TRUE(output.Flush(seconds(20)));
  EXPECT_EQ(ReadUntil("499\n"), expected);
}

TEST_F(StderrLinesTest, AReaderThatReadsNothingHoldsUpNobodyAndIsToldWhatItMissed) {
  FillPipe();
  LineOutput output(write_.get());
  const std::string line = std::string(99, 'd') + "\n";
  constexpr size_t kLines = 100'000;
  for (size_t i = 0; i < kLines; ++i) output.Put(LineKind::kDenial, line);
  output.Put(LineKind::kLog, "sluice: an error\n");  // has room that denials do not take
  EXPECT_FALSE(output.Flush(milliseconds(1)));

  const std::string text = ReadUntil("an error\n");
  const size_t shown = static_cast<size_t>(std::ranges::count(text, 'd')) / 99;
  EXPECT_GE(shown, kMaxQueuedDenials / line.size());
  size_t told = 0;
  const std::string_view begin = "sluice: … ";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1))
    told += std::stoul(text.substr(at + begin.size()));
  EXPECT_EQ(shown + told, kLines);
  EXPECT_TRUE(text.ends_with(" lines not shown: nobody reads standard error\nsluice: an error\n"));
  EXPECT_TRUE(output.Flush(seconds(20)));
}

TEST_F(StderrLinesTest, TheNoticeComesOfItselfOnceLinesFlow) {
  FillPipe();
  LineOutput output(write_.get());
  for (int i = 0; i < 10'000; ++i) output.Put(LineKind::kDenial, std::string(99, 'd') + "\n");
  EXPECT_NE(ReadUntil("nobody reads standard error\n").find(" lines not shown: "), std::string::npos);
}

TEST_F(StderrLinesTest, ADescriptorThatTheWorkloadMadeNonBlockingLosesNothing) {
  FillPipe();
  ASSERT_EQ(fcntl(write_.get(), F_SETFL, O_NONBLOCK), 0);
  LineOutput output(write_.get());
  output.Put(LineKind::kLog, "kept\n");
  EXPECT_EQ(ReadUntil("kept\n"), "kept\n");
  EXPECT_NE(fcntl(write_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(StderrLinesTest, TheDescriptorIsNeverMadeNonBlocking) {
  LineOutput output(write_.get());
  output.Put(LineKind::kLog, "line\n");
  EXPECT_TRUE(output.Flush(seconds(20)));
  EXPECT_EQ(fcntl(write_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(StderrLinesTest, ADescriptorThatFailsEndsNothing) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  LineOutput output(full.get());
  for (int i = 0; i < 100; ++i) output.Put(LineKind::kLog, "line\n");
  EXPECT_TRUE(output.Flush(seconds(20)));
}

}  // namespace
}  // namespace sluice
