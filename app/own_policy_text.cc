#include "app/own_policy_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "app/file.h"
#include "app/via_flags.h"
#include "base/unique_fd.h"
#include "policy/io/yaml.h"

namespace sluice::app {

Result<PolicyText> OwnPolicyText(const ServedOptions& options) {
  if (options.policy_text) return PolicyText{*options.policy_text, kPolicyTextName};
  if (options.policy.empty() || !options.allows.empty() || !options.presets.empty())
    return Fail(Code::kUnsupported,
                "the policy in force is no single text: the command line has a part in it (--allow, --preset)");
  auto text = ReadFile(options.policy, policy::kMaxFileBytes);
  if (!text) return std::unexpected(text.error());
  return PolicyText{*std::move(text), std::filesystem::path(options.policy).filename().string()};
}

Result<policy::SnapshotPtr> CompileText(const ServedOptions& options, const PolicyText& text, policy::LoadOptions load) {
  auto via = ReadVia(options.via);
  if (!via) return std::unexpected(via.error());
  load.default_proxy = *std::move(via);
  return policy::LoadText(text.text, text.name, load);
}

Result<std::string> ReadPolicyDescriptor(int number) {
  const std::string where = fmt::format("--policy-fd {}", number);
  if (number < 3) return Fail(Code::kInvalid, where + ": 0 to 2 are the command's");
  if (fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
    return Fail(Code::kInvalid, where + ": no descriptor was inherited with that number");
  const UniqueFd file(number);
  std::string text;
  for (;;) {
    const size_t before = text.size();
    if (before > policy::kMaxFileBytes) return Fail(Code::kInvalid, where + ": a policy is 1 MiB at most");
    text.resize(before + 65536);
    const ssize_t got = ::read(file.get(), text.data() + before, 65536);
    const int error = errno;
    text.resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got == 0) return text;
    if (got < 0 && error != EINTR) return FailErrno(where, error);
  }
}

}  // namespace sluice::app
