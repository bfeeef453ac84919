#pragma once

// A suite as root, and again as an ordinary user: the one of SLUICE_TEST_UID, where the suite was started by root.

#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace sluice::testing {

/// A copy of a program in a folder of its own that every user may enter, as the build may not be. Goes with the object.
class ProgramForAnyone {
 public:
  explicit ProgramForAnyone(const std::filesystem::path& program) {
    folder_ = std::filesystem::temp_directory_path() / "sluice-program-XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) std::abort();
    ::chmod(folder_.c_str(), 0755);
    path_ = folder_ + "/" + program.filename().string();
    std::filesystem::copy_file(program, path_);
  }
  ~ProgramForAnyone() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ProgramForAnyone(const ProgramForAnyone&) = delete;
  ProgramForAnyone& operator=(const ProgramForAnyone&) = delete;
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string path_;
};

/// Runs `tests` in a child, as that user; gives its exit code. While this process has one thread.
template <class Tests>
int RunAsTestUser(Tests tests) {
  const pid_t child = ::fork();
  if (child == 0) {
    const char* text = std::getenv("SLUICE_TEST_UID");
    const auto uid = static_cast<uid_t>(text != nullptr ? std::atoi(text) : 0);
    if (uid != 0 && ::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0))
      ::_exit(1);
    ::prctl(PR_SET_DUMPABLE, 1);
    ::setenv("HOME", "/tmp", 1);
    ::exit(tests());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace sluice::testing
