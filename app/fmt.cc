#include "app/fmt.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/policy_files.h"
#include "app/standard_output.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/unique_fd.h"
#include "policy/document.h"
#include "policy/format.h"
#include "policy/io/foreign.h"
#include "policy/io/load.h"
#include "policy/io/yaml.h"

namespace sluice::app {
namespace {

constexpr int kExitWouldChange = 1;

Result<std::string> ReadStandardInput() {
  std::string text;
  char buffer[65536];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, n);
    if (text.size() > policy::kMaxFileBytes) return Fail(Code::kExhausted, "standard input is larger than 1 MiB");
  }
  return text;
}

std::vector<std::string> Meaning(const policy::Document& document) {
  std::vector<std::string> rules;
  rules.reserve(document.rules.size());
  for (const policy::Rule& rule : document.rules) rules.push_back(policy::CanonicalText(rule) + rule.note);
  return rules;
}

// The canonical text, only where it says the same as before.
Result<std::string> Formatted(const std::string& text, const std::string& name) {
  const auto root = policy::ParsePolicyTree(text, name);
  if (!root) return std::unexpected(root.error());
  if (const auto kind = policy::DetectKind(*root))
    return Fail(Code::kInvalid, fmt::format("{} is {}, and `fmt` writes native ones alone; `sluice import {}` prints it "
                                            "as one",
                                            name, policy::ImportTitle(*kind), name));
  auto result = policy::FormatPolicy(text, *root);
  if (!result) return result;
  const auto again = policy::ParseYaml(*result, name);
  if (!again) return Fail(Code::kInternal, fmt::format("{}: the canonical form does not load: {}", name, again.error().message));
  const auto before = policy::ReadDocument(*root, policy::FileRole::kTop, "");
  const auto after = policy::ReadDocument(*again, policy::FileRole::kTop, "");
  if (!before || !after || Meaning(*before) != Meaning(*after))
    return Fail(Code::kInternal, fmt::format("{}: the canonical form would say something else; left as it is", name));
  return result;
}

// Whole or not at all, with the old file's mode.
Result<void> Replace(const std::string& path, const std::string& text) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return FailErrno(fmt::format("cannot find {}", path), errno);
  const std::string real(resolved);
  std::free(resolved);
  struct stat info{};
  if (::stat(real.c_str(), &info) != 0) return FailErrno(fmt::format("cannot read {}", path), errno);
  // A rename would not ask whether the file may be written.
  if (::access(real.c_str(), W_OK) != 0) return FailErrno(fmt::format("cannot write {}", path), errno);
  if (auto free = CheckPlace(real); !free) return free;
  std::string temporary = real + ".XXXXXX";
  const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return FailErrno(fmt::format("cannot write beside {}", path), errno);
  auto written = WriteAll(fd.get(), text, path);
  if (written &&
      (::fchmod(fd.get(), info.st_mode & 07777) != 0 || ::fsync(fd.get()) != 0 || ::rename(temporary.c_str(), real.c_str()) != 0))
    written = FailErrno(fmt::format("cannot write {}", path), errno);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

struct Tally {
  size_t changed = 0;
  size_t files = 0;
  bool failed = false;
};

void Report(const Error& error, Tally* tally) {
  PrintError(policy::RenderError(error, StderrHasColor()) + "\n");
  tally->failed = true;
}

void FormatFile(const std::string& file, FormatAction action, Tally* tally) {
  const bool input = file == "-";
  const auto text = input ? ReadStandardInput() : ReadFile(file, policy::kMaxFileBytes);
  if (!text) return Report(text.error(), tally);
  const auto result = Formatted(*text, input ? "<stdin>" : file);
  if (!result) return Report(result.error(), tally);
  ++tally->files;
  if (action == FormatAction::kPrint || (input && action == FormatAction::kWrite)) {
    fmt::print("{}", *result);
    return;
  }
  if (*result == *text) return;
  ++tally->changed;
  if (action == FormatAction::kWrite) {
    if (auto written = Replace(file, *result); !written) return Report(written.error(), tally);
  }
  fmt::print("{}\n", input ? "<stdin>" : Printable(file));
}

}  // namespace

int RunFmt(const FmtOptions& options) {
  Tally tally;
  for (const std::string& path : options.files) {
    auto files =
        path == "-" ? Result<std::vector<std::string>>(std::vector<std::string>{path}) : FilesAt(path, FileKind::kPolicy);
    if (!files) {
      Report(files.error(), &tally);
      continue;
    }
    for (const std::string& file : *files) FormatFile(file, options.action, &tally);
  }
  std::fflush(stdout);
  if (tally.failed) return kExitBadInput;
  if (options.action == FormatAction::kCheck && tally.changed != 0) {
    PrintError(fmt::format("{} of {} file{} would change; run `sluice fmt` on {}\n", tally.changed, tally.files,
                           tally.files == 1 ? "" : "s", tally.changed == 1 ? "it" : "them"));
    return kExitWouldChange;
  }
  return kExitOk;
}

}  // namespace sluice::app
