#include "audit/io/audit_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/stderr_lines.h"

namespace sluice::audit {
namespace {

namespace fs = std::filesystem;

class AuditFileTest : public testing::Test {
 protected:
  AuditFileTest() {
    std::string pattern = (fs::temp_directory_path() / "sluice-audit-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = (folder_ / "a.jsonl").string();
  }
  ~AuditFileTest() override { fs::remove_all(folder_); }

  static std::string Content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(AuditFileTest, WhatIsNoFileIsRefusedWithWhatToDo) {
  ASSERT_EQ(symlink(path_.c_str(), (folder_ / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const std::pair<std::string, const char*> cases[] = {{(folder_ / "link").string(), "a symbolic link"},
                                                       {(folder_ / "pipe").string(), "a pipe"},
                                                       {folder_.string(), "a folder"},
                                                       {"/dev/stderr", "could forge records"},
                                                       {"/dev/fd/2", "could forge records"},
                                                       {(folder_ / "no/a.jsonl").string(), "No such file"}};
  for (const auto& [path, why] : cases) {
    const auto opened = AuditFile::Open(path);
    ASSERT_FALSE(opened) << path;
    EXPECT_NE(opened.error().message.find(path), std::string::npos) << opened.error().message;
    EXPECT_NE(opened.error().message.find(why), std::string::npos) << opened.error().message;
  }
}

TEST_F(AuditFileTest, APipeThatIsReadIsRefusedToo) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const UniqueFd reader(open((folder_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  const auto opened = AuditFile::Open((folder_ / "pipe").string());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("a pipe"), std::string::npos) << opened.error().message;
}

TEST_F(AuditFileTest, ALineThatACrashCutShortIsEnded) {
  std::ofstream(path_) << "{\"whole\":1}\n{\"cut";
  auto file = AuditFile::Open(path_);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Append("{}\n"));
  EXPECT_EQ(Content(path_), "{\"whole\":1}\n{\"cut\n{}\n");
}

TEST_F(AuditFileTest, ATruncatedFileIsWrittenFromItsBeginning) {
  auto file = AuditFile::Open(path_);
  ASSERT_TRUE(file && file->Append("{\"n\":1}\n"));
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  ASSERT_TRUE(file->Append("{\"n\":2}\n"));
  EXPECT_EQ(Content(path_), "{\"n\":2}\n");
}

TEST_F(AuditFileTest, AMovedFileIsWrittenOnAndItIsSaidOnce) {
  auto file = AuditFile::Open(path_);
  ASSERT_TRUE(file);
  fs::rename(path_, path_ + ".1");
  std::ofstream(path_) << "";  // another, as logrotate makes it
  testing::internal::CaptureStderr();
  ASSERT_TRUE(file->Append("{\"n\":1}\n"));
  ASSERT_TRUE(file->Append("{\"n\":2}\n"));
  EXPECT_TRUE(FlushStderr(std::chrono::seconds(20)));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(Content(path_ + ".1"), "{\"n\":1}\n{\"n\":2}\n");
  EXPECT_EQ(Content(path_), "");
  const size_t at = said.find("was moved");
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("was moved", at + 1), std::string::npos) << said;
}

TEST_F(AuditFileTest, ADeletedFileIsNoRecord) {
  auto file = AuditFile::Open(path_);
  ASSERT_TRUE(file && file->Append("{\"n\":1}\n"));
  fs::remove(path_);
  const auto appended = file->Append("{\"n\":2}\n");
  ASSERT_FALSE(appended);
  EXPECT_NE(appended.error().message.find("was deleted"), std::string::npos);
}

// A full disk: the file may grow to 20 octets.
TEST_F(AuditFileTest, WhereSpaceRunsOutTheFileEndsWithAWholeRecord) {
  auto file = AuditFile::Open(path_);
  ASSERT_TRUE(file && file->Append("{\"n\":1}\n"));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{20, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto appended = file->Append("{\"n\":2}\n{\"n\":3}\n");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(appended);
  EXPECT_NE(appended.error().message.find(path_), std::string::npos);
  EXPECT_EQ(Content(path_), "{\"n\":1}\n{\"n\":2}\n");
}

}  // namespace
}  // namespace sluice::audit
