#include "policy/io/executables.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "base/unique_fd.h"

namespace sluice::policy {
namespace {

// The interpreter line of a script without "#!", or nothing.
std::string Interpreter(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return "";
  char buffer[256];
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
  if (n < 3 || buffer[0] != '#' || buffer[1] != '!') return "";
  std::string_view line(buffer + 2, static_cast<size_t>(n) - 2);
  line = line.substr(0, line.find('\n'));
  while (line.starts_with(' ')) line.remove_prefix(1);
  std::string printable;
  for (const char c : line)
    if (c >= 0x20 && c < 0x7f) printable += c;
  return printable;
}

Result<void> CheckOne(const std::string& path, const SourceSpan& span) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return {};  // not on this machine: such a rule matches nothing here
  const std::string resolved(real);
  std::free(real);
  if (resolved != path)
    return std::unexpected(
        Error{Code::kInvalid, fmt::format("`{}` is a symbolic link or lies behind one; write the real file `{}`", path, resolved), 0, span});
  if (const std::string interpreter = Interpreter(path); !interpreter.empty())
    return std::unexpected(Error{
        Code::kInvalid, fmt::format("`{}` is a script; the process that runs it is its interpreter (`{}`), so name that", path, interpreter), 0,
        span});
  return {};
}

}  // namespace

Result<void> CheckExecutables(const std::vector<Rule>& rules) {
  std::set<std::string> seen;
  for (const Rule& rule : rules) {
    for (const auto* list : {&rule.by, &rule.under}) {
      for (const ExecutablePattern& pattern : *list) {
        if (pattern.sha256 || !pattern.path.is_literal() || !seen.insert(pattern.text).second) continue;
        if (auto good = CheckOne(pattern.text, rule.span); !good) return good;
      }
    }
  }
  return {};
}

}  // namespace sluice::policy
