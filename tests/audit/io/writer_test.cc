#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "audit/audit.h"
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
  Options With(const std::string& name) { return {.file = (folder_ / name).string(), .console = false, .sandbox = "box"}; }

  fs::path folder_;
};

TEST_F(WriterTest, RecordsArriveInOrderAndAreCounted) {
  {
    auto writer = *Writer::Start(With("a.jsonl"));
    for (int i = 0; i < 100; ++i) {
      policy::DecisionEvent event = Denial();
      event.connection = static_cast<uint64_t>(i);
      event.decision.allowed = i % 2 == 0;
      ASSERT_TRUE(writer->Record(std::move(event)));
    }
    policy::ExchangeEvent relay;
    ASSERT_TRUE(writer->Record(std::move(relay)));
    EXPECT_EQ(writer->totals().allowed, 51u);
    EXPECT_EQ(writer->totals().denied, 50u);
    EXPECT_TRUE(writer->healthy());
  }
  const auto records = Read(folder_ / "a.jsonl");
  ASSERT_EQ(records.size(), 101u);
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

TEST_F(WriterTest, AFullQueueRefuses) {
  // Standard error is a pipe that nobody reads, so the writer thread waits in it once the pipe is full.
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  ASSERT_GE(fcntl(pipe_ends[1], F_SETPIPE_SZ, 4096), 0);
  const std::string filler(4096, 'x');
  ASSERT_EQ(write(pipe_ends[1], filler.data(), filler.size()), 4096);
  const int saved = dup(STDERR_FILENO);
  dup2(pipe_ends[1], STDERR_FILENO);
  bool refused = false;
  {
    auto writer = *Writer::Start({.file = "", .console = true, .sandbox = "box", .labels = {}, .queue = 4});
    for (int i = 0; i < 1000 && !refused; ++i) {
      refused = !writer->Record(Denial());
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::thread drain([&] {
      std::string sink(65536, '\0');
      close(pipe_ends[1]);
      while (read(pipe_ends[0], sink.data(), sink.size()) > 0) {
      }
    });
    writer.reset();
    dup2(saved, STDERR_FILENO);
    drain.join();
  }
  close(saved);
  close(pipe_ends[0]);
  EXPECT_TRUE(refused);
}

TEST_F(WriterTest, ManyThreadsLoseNothing) {
  {
    auto writer = *Writer::Start(With("a.jsonl"));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&writer] {
        for (int i = 0; i < 1000; ++i) EXPECT_TRUE(writer->Record(Denial()));
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
