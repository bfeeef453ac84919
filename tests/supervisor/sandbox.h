#pragma once

// Runs a command through CreateCapture and Launch and collects what it wrote.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "supervisor/io/launch.h"
#include "tests/supervisor/small_filter.h"

namespace sluice::supervisor {

/// A folder of its own, gone at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = "/tmp/sluice-test-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    if (::system(("rm -rf '" + path_ + "'").c_str()) != 0) ADD_FAILURE() << "cannot remove " << path_;
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& content) const {
    const UniqueFd file(::open((path_ + "/" + name).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
    ASSERT_EQ(::write(file.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  }
  [[nodiscard]] std::string Read(const std::string& name) const {
    const UniqueFd file(::open((path_ + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    std::string content(65536, '\0');
    const ssize_t got = ::read(file.get(), content.data(), content.size());
    content.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return content;
  }

 private:
  std::string path_;
};

struct Outcome {
  ExitStatus status;
  std::string output;  ///< standard output and error
  std::string error;   ///< of CreateCapture, Launch or Release; empty when the command ran
  Code code = Code::kInternal;
};

inline LaunchSpec SpecFor(std::vector<std::string> argv, std::string work_directory) {
  LaunchSpec spec;
  spec.argv = std::move(argv);
  spec.work_directory = std::move(work_directory);
  spec.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", "/home/tester"}, {"LANG", "C.UTF-8"}};
  return spec;
}

/// Standard output and error of the command go to a file, which is then read.
inline Outcome RunSpec(const LaunchSpec& spec, const std::function<void(Workload&)>& meanwhile = {}) {
  Outcome outcome;
  std::string name = "/tmp/sluice-output-XXXXXX";
  const UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  ::unlink(name.c_str());
  const UniqueFd saved_out(::fcntl(1, F_DUPFD_CLOEXEC, 10));
  const UniqueFd saved_error(::fcntl(2, F_DUPFD_CLOEXEC, 10));
  auto capture = CreateCapture();
  if (!capture) {
    outcome.error = capture.error().message;
    return outcome;
  }
  ::fflush(nullptr);
  ::dup2(file.get(), 1);
  ::dup2(file.get(), 2);
  auto workload = LaunchFiltered(spec, *capture, kSmallFilter);
  ::dup2(saved_out.get(), 1);
  ::dup2(saved_error.get(), 2);
  Result<void> released = workload ? (*workload)->Release() : Result<void>(std::unexpected(workload.error()));
  if (!released) {
    outcome.error = released.error().message;
    outcome.code = released.error().code;
    return outcome;
  }
  if (meanwhile) meanwhile(**workload);
  outcome.status = (*workload)->Wait();
  ::lseek(file.get(), 0, SEEK_SET);
  std::array<char, 4096> piece{};
  ssize_t got = 0;
  while ((got = ::read(file.get(), piece.data(), piece.size())) > 0)
    outcome.output.append(piece.data(), static_cast<size_t>(got));
  return outcome;
}

/// In a folder of its own.
inline Outcome Sandboxed(std::vector<std::string> argv) {
  const TemporaryFolder folder;
  return RunSpec(SpecFor(std::move(argv), folder.path()));
}

}  // namespace sluice::supervisor
