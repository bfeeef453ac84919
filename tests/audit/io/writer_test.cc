#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "audit/audit.h"
#include "audit/record.h"
#include "base/stderr_lines.h"
#include "base/unique_fd.h"
#include "tests/audit/make.h"

namespace sluice::audit {
namespace {

namespace fs = std::filesystem;

class WriterTest : public testing::Test {
 protected:
  WriterTest() {
    std::string pattern = (fs::temp_directory_path() / "sluice-audit-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~WriterTest() override { fs::remove_all(folder_); }

  static std::vector<nlohmann::json> Read(const fs::path& path) {
    std::vector<nlohmann::json> records;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
    return records;
  }
  // Refusals that the records stand for.
  static uint64_t Counted(const std::vector<nlohmann::json>& records) {
    uint64_t sum = 0;
    for (const auto& record : records)
      if (record.at("verdict") == "deny") sum += record.value("count", uint64_t{1});
    return sum;
  }
  Options With(const std::string& name) { return {.file = (folder_ / name).string(), .console = false, .sandbox = "box"}; }

  fs::path folder_;
};

TEST_F(WriterTest, RecordsArriveInOrderAndAreCounted) {
  {
    auto writer = *Writer::Start(With("a.jsonl"));
    for (int i = 0; i < 100; ++i) {
      policy::DecisionEvent event = Denial();
      event.connection = static_cast<uint64_t>(i);
      event.target.path = "/" + std::to_string(i);
      event.decision.allowed = i % 2 == 0;
      ASSERT_TRUE(writer->Record(std::move(event)));
    }
    policy::ExchangeEvent relay;
    ASSERT_TRUE(writer->Record(std::move(relay)));
    policy::ExchangeEvent came_in;
    came_in.target.method = kPublishMethod;
    ASSERT_TRUE(writer->Record(std::move(came_in)));
    EXPECT_EQ(writer->totals().allowed, 51u) << "what came in was decided by nobody";
    EXPECT_EQ(writer->totals().denied, 50u);
    EXPECT_TRUE(writer->healthy());
  }
  const auto records = Read(folder_ / "a.jsonl");
  ASSERT_EQ(records.size(), 102u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(records[i].at("connection"), i);
}

TEST_F(WriterTest, AnUpstreamThatCannotBeReachedIsNoDenial) {
  auto writer = *Writer::Start(With("a.jsonl"));
  policy::DecisionEvent event = Denial();
  event.decision.reason = policy::Reason::kUpstream;
  ASSERT_TRUE(writer->Record(std::move(event)));
  EXPECT_EQ(writer->totals().allowed, 0u);
  EXPECT_EQ(writer->totals().denied, 0u);
}

TEST_F(WriterTest, TheFileIsPrivateAndAppended) {
  for (int i = 0; i < 2; ++i) {
    auto writer = *Writer::Start(With("a.jsonl"));
    ASSERT_TRUE(writer->Record(Denial()));
  }
  struct stat status{};
  ASSERT_EQ(stat((folder_ / "a.jsonl").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(Read(folder_ / "a.jsonl").size(), 2u);
}

TEST_F(WriterTest, LinksPipesAndFoldersAreRefused) {
  ASSERT_EQ(symlink("/tmp/elsewhere", (folder_ / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe", ".", "missing/a.jsonl"}) EXPECT_FALSE(Writer::Start(With(name))) << name;
}

TEST_F(WriterTest, AFullDiskRefusesEverythingAfter) {
  Options options = With("a.jsonl");
  options.file = "/dev/full";
  auto writer = *Writer::Start(options);
  ASSERT_TRUE(writer->Record(Denial()));
  for (int i = 0; i < 500 && writer->healthy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(writer->healthy());
  EXPECT_FALSE(writer->Record(Denial()));
  EXPECT_FALSE(writer->Record(policy::ExchangeEvent{}));
}

TEST_F(WriterTest, WithoutAFileWhatIsAllowedIsOnlyCounted) {
  auto writer = *Writer::Start({.file = "", .console = false, .sandbox = "box", .labels = {}, .queue = 8});
  policy::DecisionEvent allowed = Denial();
  allowed.decision.allowed = true;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(writer->Record(allowed)) << "there is no queue to find full";
    EXPECT_TRUE(writer->Record(policy::ExchangeEvent{}));
  }
  // Relays count by their end.
  EXPECT_EQ(writer->totals().allowed, 2000u);
}

// A character device whose reader can stop: while nobody reads the master, the writer thread waits in its write.
class StuckFile {
 public:
  StuckFile() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(grantpt(master_.get()) | unlockpt(master_.get()), 0);
    path_ = ptsname(master_.get());
    // Held open, so that the reader sees no end before the writer comes.
    slave_ = UniqueFd(open(path_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  }
  // Lets it flow until the writer has gone.
  void Drain(std::unique_ptr<Writer> writer) {
    std::thread reader([this] {
      std::string sink(65536, '\0');
      while (read(master_.get(), sink.data(), sink.size()) > 0) {
      }
    });
    slave_.Reset();
    writer.reset();
    reader.join();
  }
  const std::string& path() const { return path_; }

 private:
  UniqueFd master_, slave_;
  std::string path_;
};

policy::DecisionEvent Numbered(int pid, int n, bool allowed) {
  policy::DecisionEvent event = Denial();
  auto process = std::make_shared<policy::Process>(*event.process);
  process->pid = pid;
  event.process = process;
  event.target.path = "/" + std::to_string(n);
  event.decision.allowed = allowed;
  return event;
}

// Records until one finds no room; whether that came about.
bool Flood(Writer& writer, int pid, bool allowed) {
  for (int i = 0; i < 100'000; ++i)
    if (!writer.Record(Numbered(pid, i, allowed))) return true;
  return false;
}

TEST_F(WriterTest, AFullQueueRefuses) {
  StuckFile file;
  auto writer = *Writer::Start({.file = file.path(), .console = false, .sandbox = "box", .labels = {}, .queue = 64});
  EXPECT_TRUE(Flood(*writer, 1, true));
  EXPECT_TRUE(writer->healthy()) << "it will go on when there is room again";
  file.Drain(std::move(writer));
}

TEST_F(WriterTest, WhoeverFloodsIsRefusedAndOthersAreNot) {
  StuckFile file;
  auto writer = *Writer::Start({.file = file.path(), .console = false, .sandbox = "box", .labels = {}, .queue = 64});
  EXPECT_TRUE(Flood(*writer, 1, false));
  EXPECT_TRUE(writer->Record(Numbered(2, 0, true)));
  EXPECT_TRUE(Flood(*writer, 1, true));
  EXPECT_TRUE(writer->Record(Numbered(2, 1, true)));
  EXPECT_TRUE(writer->Record(policy::ExchangeEvent{}));
  file.Drain(std::move(writer));
}

TEST_F(WriterTest, AFloodOfEqualDenialsIsAHandfulOfRecordsThatCountThemAll) {
  constexpr uint64_t kDenials = 100'000;
  {
    auto writer = *Writer::Start(With("a.jsonl"));
    for (uint64_t i = 0; i < kDenials; ++i) ASSERT_TRUE(writer->Record(Denial()));
    EXPECT_EQ(writer->totals().denied, kDenials);
  }
  const auto records = Read(folder_ / "a.jsonl");
  EXPECT_LT(records.size(), kDenials / 100);
  EXPECT_EQ(Counted(records), kDenials);
  EXPECT_FALSE(records.front().contains("count"));
  EXPECT_LE(records.back().at("first"), records.back().at("time"));
}

TEST_F(WriterTest, AStandardErrorThatNobodyReadsHoldsUpNothing) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
  const std::string filler(4096, 'x');
  while (write(pipe_ends[1], filler.data(), filler.size()) > 0) {
  }
  ASSERT_EQ(fcntl(pipe_ends[1], F_SETFL, 0), 0);
  const int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(pipe_ends[1], STDERR_FILENO);
  constexpr int kDenials = 100'000;
  Options options = With("a.jsonl");
  options.console = true;
  auto writer = *Writer::Start(options);
  for (int i = 0; i < kDenials; ++i) (void)writer->Record(Numbered(1, i, false));
  const bool allowed = writer->Record(Numbered(2, 0, true));
  const uint64_t denied = writer->totals().denied;
  writer.reset();
  const auto records = Read(folder_ / "a.jsonl");
  std::thread reader([&] {
    std::string sink(65536, '\0');
    while (read(pipe_ends[0], sink.data(), sink.size()) != 0) std::this_thread::yield();
  });
  EXPECT_TRUE(FlushStderr(std::chrono::seconds(20)));
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(pipe_ends[1]);
  reader.join();
  close(pipe_ends[0]);
  EXPECT_TRUE(allowed);
  EXPECT_EQ(denied, static_cast<uint64_t>(kDenials));
  EXPECT_EQ(Counted(records), static_cast<uint64_t>(kDenials));
}

TEST_F(WriterTest, ADeletedFileRefusesEverythingAfter) {
  auto writer = *Writer::Start(With("a.jsonl"));
  fs::remove(folder_ / "a.jsonl");
  ASSERT_TRUE(writer->Record(Denial()));
  for (int i = 0; i < 500 && writer->healthy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(writer->Record(Denial()));
}

TEST_F(WriterTest, ManyThreadsLoseNothing) {
  {
    auto writer = *Writer::Start(With("a.jsonl"));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&writer, t] {
        for (int i = 0; i < 1000; ++i) EXPECT_TRUE(writer->Record(Numbered(t, i, false)));
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(writer->totals().denied, 4000u);
  }
  EXPECT_EQ(Read(folder_ / "a.jsonl").size(), 4000u);
}

TEST_F(WriterTest, RepeatsAreToldOnTheConsole) {
  testing::internal::CaptureStderr();
  {
    auto writer = *Writer::Start({.file = "", .console = true, .sandbox = "box", .labels = {}});
    for (int i = 0; i < 42; ++i) ASSERT_TRUE(writer->Record(Denial()));
  }
  EXPECT_TRUE(FlushStderr(std::chrono::seconds(20)));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("sluice: denied  POST https://telemetry.example/v1/event"), std::string::npos) << text;
  EXPECT_NE(text.find("… 41 more"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 3) << text;
}

TEST_F(WriterTest, DenialIdsCount) {
  auto writer = *Writer::Start({.file = "", .console = false, .sandbox = ""});
  EXPECT_EQ(writer->NextDenialId(), "d-1");
  EXPECT_EQ(writer->NextDenialId(), "d-2");
}

}  // namespace
}  // namespace sluice::audit
