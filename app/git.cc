#include "app/git.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "base/program.h"

namespace sluice::app {
namespace {

constexpr size_t kMaxGitOutput = 4u << 20;  // a policy is at most 1 MiB, a listing a little more
constexpr size_t kMaxGitComplaint = 64u << 10;
constexpr std::chrono::seconds kGitDeadline{60};  // a partial clone may have to fetch

Result<ProgramRun> RunGit(std::vector<std::string> arguments) {
  // No prompts, no pager, no other repository's settings of ours.
  arguments.insert(arguments.begin(), {"git", "--no-pager", "--literal-pathspecs"});
  auto run = RunProgram(std::move(arguments), {.out = kMaxGitOutput, .err = kMaxGitComplaint, .deadline = kGitDeadline});
  if (!run && run.error().sys_errno == ENOENT)
    return Fail(Code::kInvalid, "`git` is not installed, and --base-git asks it for the older policy");
  if (!run) return run;
  if (run->end == ProgramRun::End::kTooMuch) return Fail(Code::kExhausted, "git printed more than 4 MiB");
  if (run->end == ProgramRun::End::kLate) return Fail(Code::kTimeout, fmt::format("git did not end within {}", kGitDeadline));
  return run;
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

// "100644" of a file, "120000" of a link, "040000" of a folder; empty of nothing.
Result<std::string> GitMode(const std::string& commit, const std::string& path) {
  const auto answer = RunGit({"ls-tree", "-z", commit, "--", Relative(path)});
  if (!answer) return std::unexpected(answer.error());
  if (!answer->Succeeded()) return Fail(Code::kInvalid, fmt::format("{} in {}: {}", path, commit, FirstLine(answer->err)));
  return answer->out.substr(0, answer->out.find(' '));
}

constexpr std::string_view kFileMode = "100";
constexpr std::string_view kLinkMode = "120000";

// The names of a path, the last one first.
std::vector<std::string> NamesFromTheEnd(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& name : std::filesystem::path(path))
    if (!name.empty() && name != ".") names.push_back(name.string());
  std::ranges::reverse(names);
  return names;
}

}  // namespace

Result<std::string> GitCommit(const std::string& revision) {
  if (revision.empty() || revision.starts_with('-'))
    return Fail(Code::kInvalid, fmt::format("--base-git `{}`: name a branch, tag or commit", revision));
  const auto answer = RunGit({"rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"});
  if (!answer) return std::unexpected(answer.error());
  if (answer->Succeeded()) return answer->out.substr(0, answer->out.find('\n'));
  if (!answer->err.empty()) return Fail(Code::kInvalid, fmt::format("--base-git {}: {}", revision, FirstLine(answer->err)));
  return Fail(Code::kInvalid,
              fmt::format("--base-git {}: no such commit here; fetch it first (a CI checkout may be shallow)", revision));
}

Result<std::string> GitRealPath(const std::string& commit, const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel's
  // Most have no link on the way.
  const auto plain = GitMode(commit, path);
  if (!plain) return std::unexpected(plain.error());
  if (plain->starts_with(kFileMode)) return path;
  std::vector<std::string> names = NamesFromTheEnd(path);
  std::filesystem::path real;
  std::string mode;
  int links = 0;
  while (!names.empty()) {
    const std::string name = std::move(names.back());
    names.pop_back();
    if (name == ".." && real.has_filename() && real.filename() != "..") {
      real = real.parent_path();
      continue;
    }
    real /= name;
    if (name == "..") continue;
    const auto found = GitMode(commit, real.string());
    if (!found) return std::unexpected(found.error());
    mode = *found;
    if (mode != kLinkMode) continue;
    const auto target = GitFile(commit, real.string());
    if (!target) return std::unexpected(target.error());
    if (target->starts_with('/') || ++links > kMaxLinks)
      return Fail(Code::kInvalid, fmt::format("{} in {}: a symbolic link leads {}", path, commit,
                                              links > kMaxLinks ? "to too many others" : "out of the repository"));
    for (std::string& next : NamesFromTheEnd(*target)) names.push_back(std::move(next));
    real = real.parent_path();
  }
  if (!mode.starts_with(kFileMode)) return Fail(Code::kNotFound, fmt::format("{} is not in {}", path, commit));
  return real.string();
}

Result<std::string> GitFile(const std::string& commit, const std::string& path) {
  const auto listed = RunGit({"cat-file", "-e", fmt::format("{}:{}", commit, Relative(path))});
  if (!listed) return std::unexpected(listed.error());
  if (!listed->Succeeded()) return Fail(Code::kNotFound, fmt::format("{} is not in {}", path, commit));
  const auto answer = RunGit({"cat-file", "blob", fmt::format("{}:{}", commit, Relative(path))});
  if (!answer) return std::unexpected(answer.error());
  if (!answer->Succeeded()) return Fail(Code::kInvalid, fmt::format("{} in {}: {}", path, commit, FirstLine(answer->err)));
  return answer->out;
}

Result<std::vector<std::string>> GitList(const std::string& commit, const std::string& path) {
  const auto answer = RunGit({"ls-tree", "-r", "-z", "--name-only", commit, "--", Relative(path)});
  if (!answer) return std::unexpected(answer.error());
  if (!answer->Succeeded()) return Fail(Code::kInvalid, fmt::format("{} in {}: {}", path, commit, FirstLine(answer->err)));
  std::vector<std::string> files;
  for (size_t at = 0; at < answer->out.size();) {
    const size_t end = std::min(answer->out.find('\0', at), answer->out.size());
    files.push_back(answer->out.substr(at, end - at));
    at = end + 1;
  }
  return files;
}

}  // namespace sluice::app
