#pragma once

// A command run in this process: its exit code and what it printed, and a folder for the files it works on.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::app {

struct Captured {
  int code = 0;
  std::string out;
  std::string err;
};

template <class F>
Captured Capture(F run) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Captured outcome;
  outcome.code = run();
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

/// With a folder of its own, gone afterwards.
class InFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "commands-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// The file's path.
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string folder_;
};

}  // namespace sluice::app
