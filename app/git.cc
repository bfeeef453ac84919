#include "app/git.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/pipe.h"

namespace sluice::app {
namespace {

constexpr size_t kMaxGitOutput = 4u << 20;  // a policy is at most 1 MiB, a listing a little more

struct GitAnswer {
  int status = 0;  ///< exit code
  std::string out;
  std::string err;
};

// Both streams at once, so that neither can block the other.
Result<void> Drain(Pipe* out, Pipe* err, GitAnswer* answer) {
  std::array<pollfd, 2> polled{{{out->read.get(), POLLIN, 0}, {err->read.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&answer->out, &answer->err};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return FailErrno("cannot read from git", errno);
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      std::array<char, 64 * 1024> buffer;
      const ssize_t n = ::read(polled[i].fd, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        polled[i].fd = -1;
        continue;
      }
      texts[i]->append(buffer.data(), static_cast<size_t>(n));
      if (texts[i]->size() > kMaxGitOutput) return Fail(Code::kExhausted, "git printed more than 4 MiB");
    }
  }
  return {};
}

Result<GitAnswer> RunGit(std::vector<std::string> arguments) {
  // No prompts, no pager, no other repository's settings of ours.
  arguments.insert(arguments.begin(), {"git", "--no-pager", "--literal-pathspecs"});
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  auto out = MakePipe();
  if (!out) return std::unexpected(out.error());
  auto err = MakePipe();
  if (!err) return std::unexpected(err.error());
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out->write.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err->write.get(), 2);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, "git", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) return Fail(Code::kInvalid, "`git` is not installed, and --base-git asks it for the older policy");
  if (failed != 0) return FailErrno("cannot run git", failed);
  out->write.Reset();
  err->write.Reset();
  GitAnswer answer;
  const auto drained = Drain(&*out, &*err, &answer);
  out->read.Reset();
  err->read.Reset();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!drained) return std::unexpected(drained.error());
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return answer;
}

std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with("fatal: ")) line.erase(0, 7);
  return line;
}

// Git takes a path for one from the work directory when it begins with a dot.
std::string Relative(const std::string& path) {
  std::filesystem::path relative(path);
  std::error_code ignored;
  if (relative.is_absolute()) relative = relative.lexically_relative(std::filesystem::current_path(ignored));
  const std::string normal = relative.lexically_normal().string();
  return normal.starts_with("..") ? normal : "./" + normal;
}

}  // namespace

Result<std::string> GitCommit(const std::string& revision) {
  if (revision.empty() || revision.starts_with('-'))
    return Fail(Code::kInvalid, fmt::format("--base-git `{}`: name a branch, tag or commit", revision));
  const auto answer = RunGit({"rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"});
  if (!answer) return std::unexpected(answer.error());
  if (answer->status == 0) return answer->out.substr(0, answer->out.find('\n'));
  if (!answer->err.empty()) return Fail(Code::kInvalid, fmt::format("--base-git {}: {}", revision, FirstLine(answer->err)));
  return Fail(Code::kInvalid,
              fmt::format("--base-git {}: no such commit here; fetch it first (a CI checkout may be shallow)", revision));
}

Result<std::string> GitFile(const std::string& commit, const std::string& path) {
  const auto listed = RunGit({"cat-file", "-e", fmt::format("{}:{}", commit, Relative(path))});
  if (!listed) return std::unexpected(listed.error());
  if (listed->status != 0) return Fail(Code::kNotFound, fmt::format("{} is not in {}", path, commit));
  const auto answer = RunGit({"cat-file", "blob", fmt::format("{}:{}", commit, Relative(path))});
  if (!answer) return std::unexpected(answer.error());
  if (answer->status != 0) return Fail(Code::kInvalid, fmt::format("{} in {}: {}", path, commit, FirstLine(answer->err)));
  return answer->out;
}

Result<std::vector<std::string>> GitList(const std::string& commit, const std::string& path) {
  const auto answer = RunGit({"ls-tree", "-r", "-z", "--name-only", commit, "--", Relative(path)});
  if (!answer) return std::unexpected(answer.error());
  if (answer->status != 0) return Fail(Code::kInvalid, fmt::format("{} in {}: {}", path, commit, FirstLine(answer->err)));
  std::vector<std::string> files;
  for (size_t at = 0; at < answer->out.size();) {
    const size_t end = std::min(answer->out.find('\0', at), answer->out.size());
    files.push_back(answer->out.substr(at, end - at));
    at = end + 1;
  }
  return files;
}

}  // namespace sluice::app
