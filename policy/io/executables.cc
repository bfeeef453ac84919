#include "policy/io/executables.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/hex.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "policy/compiled.h"
#include "policy/rule_text.h"

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

// Empty where it is not on this machine: such a rule matches nothing here.
std::string RealPath(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return "";
  std::string resolved(real);
  std::free(real);
  return resolved;
}

Result<void> CheckOne(const std::string& path, const SourceSpan& span) {
  const std::string resolved = RealPath(path);
  if (resolved.empty()) return {};
  if (resolved != path)
    return std::unexpected(
        Error{Code::kInvalid, fmt::format("`{}` is a symbolic link or lies behind one; write the real file `{}`", path, resolved),
              0, span});
  if (const std::string interpreter = Interpreter(path); !interpreter.empty())
    return std::unexpected(Error{
        Code::kInvalid,
        fmt::format("`{}` is a script; the process that runs it is its interpreter (`{}`), so name that", path, interpreter), 0,
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

void ResolveExecutables(std::vector<Rule>* rules, std::vector<Finding>* remarks) {
  std::map<std::string, std::string> seen;  // as written, resolved
  for (Rule& rule : *rules) {
    for (auto* list : {&rule.by, &rule.under}) {
      for (ExecutablePattern& pattern : *list) {
        if (pattern.sha256 || !pattern.path.is_literal()) continue;
        const auto [place, fresh] = seen.try_emplace(pattern.text, pattern.text);
        if (fresh) {
          if (std::string real = RealPath(pattern.text); !real.empty()) place->second = std::move(real);
          const auto say = [&](Finding::Severity severity, const char* code, std::string message) {
            remarks->push_back({severity, code, std::move(message), rule.span, {}});
          };
          if (place->second != pattern.text)
            say(Finding::Severity::kNote, "import-note", fmt::format("`{}` is {} on this machine", pattern.text, place->second));
          if (const std::string interpreter = Interpreter(place->second); !interpreter.empty())
            say(Finding::Severity::kWarning, "import-nothing",
                fmt::format("`{}` is a script, which no process is: what runs it is its interpreter (`{}`)", place->second,
                            interpreter));
        }
        if (place->second == pattern.text) continue;
        if (auto glob = ParseExecutable(place->second)) pattern = std::move(*glob);
      }
    }
  }
}

std::vector<Finding> MissingExecutables(const Snapshot& snapshot) {
  std::vector<Finding> findings;
  std::map<std::string, bool> there;
  const auto is_missing = [&there](const ExecutablePattern& pattern) {
    if (pattern.sha256 || !pattern.path.is_literal()) return false;
    const auto [place, fresh] = there.try_emplace(pattern.text, false);
    // What may not be looked at may be there.
    if (fresh) place->second = ::access(pattern.text.c_str(), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
    return !place->second;
  };
  for (const Rule& rule : snapshot.compiled().rules) {
    for (const auto& [key, list] : {std::pair("by", &rule.by), std::pair("under", &rule.under)}) {
      if (list->empty() || !std::ranges::all_of(*list, is_missing)) continue;
      std::string paths;
      for (const ExecutablePattern& pattern : *list) paths += fmt::format("{}`{}`", paths.empty() ? "" : ", ", pattern.text);
      findings.push_back(
          {Finding::Severity::kWarning,
           "",
           fmt::format("`{}`: there is no {} on this machine, so that nothing matches this rule until it comes", key, paths),
           rule.span,
           {},
           rule.origin});
    }
  }
  return findings;
}

Result<std::string> TextDigest(std::string_view text) { return HexText(Sha256(text)); }

Result<std::array<uint8_t, 32>> FileDigest(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return FailErrno(fmt::format("cannot open {}", path), errno);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1)
    return Fail(Code::kInternal, "no SHA-256 in this OpenSSL");
  std::array<char, 64 * 1024> buffer{};
  for (uint64_t total = 0;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(fmt::format("cannot read {}", path), errno);
    if (n == 0) break;
    total += static_cast<uint64_t>(n);
    if (total > kMaxBytes) return Fail(Code::kExhausted, fmt::format("{} is larger than 1 GiB", path));
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(n));
  }
  std::array<uint8_t, 32> digest{};
  if (EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) return Fail(Code::kInternal, "no SHA-256 in this OpenSSL");
  return digest;
}

}  // namespace sluice::policy
