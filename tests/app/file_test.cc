#include "app/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/app/command_capture.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

using ReplacingAFile = InFolder;

TEST_F(ReplacingAFile, GivesTheNewOneToAppendToWithItsMode) {
  const std::string path = Write("state", "old");
  const mode_t before = ::umask(077);
  const auto replaced = ReplaceFile(path, "new", {.aside = path + ".next", .mode = 0644});
  ::umask(before);
  ASSERT_TRUE(replaced) << replaced.error().message;
  ASSERT_TRUE(WriteAll(replaced->get(), " and more", path));
  EXPECT_EQ(*ReadFile(path), "new and more");
  struct stat about{};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0644U);
  EXPECT_FALSE(fs::exists(path + ".next"));
}

TEST_F(ReplacingAFile, WritesThroughNothingThatLiesWhereItIsMade) {
  const std::string path = folder_ + "/state";
  const std::string other = Write("other", "somebody else's");
  for (const bool symbolic : {true, false}) {
    symbolic ? fs::create_symlink(other, path + ".next") : fs::create_hard_link(other, path + ".next");
    const auto replaced = ReplaceFile(path, "secret", {.aside = path + ".next"});
    ASSERT_TRUE(replaced) << replaced.error().message;
    EXPECT_EQ(*ReadFile(other), "somebody else's");
    EXPECT_EQ(*ReadFile(path), "secret");
    EXPECT_FALSE(fs::is_symlink(path));
  }
}

TEST_F(ReplacingAFile, ThatCannotBeReplacedLeavesNothingBeside) {
  const std::string path = folder_ + "/state";
  fs::create_directories(path);
  const auto replaced = ReplaceFile(path, "new", {.aside = path + ".next"});
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().message, "cannot write " + path + ": Is a directory");
  EXPECT_FALSE(fs::exists(path + ".next"));
  const auto nowhere = ReplaceFile(folder_ + "/none/state", "new", {.aside = folder_ + "/none/next"});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message, "cannot write beside " + folder_ + "/none/state: No such file or directory");
}

}  // namespace
}  // namespace sluice::app
