#include "app/policy_state.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/file.h"
#include "base/path_error.h"
#include "policy/io/executables.h"

namespace sluice::app {
namespace {

constexpr const char* kFileName = "policy.json";
constexpr int kFormat = 1;
constexpr size_t kMaxStoredBytes = 8u << 20;  // the text may be escaped

std::unexpected<Error> Damaged(std::string_view why) {
  return Fail(Code::kInvalid, fmt::format("the stored policy is damaged: {}", why));
}

}  // namespace

std::string StoredText(const StoredPolicy& policy) {
  const auto digest = policy::TextDigest(policy.text);
  const nlohmann::json out{{"format", kFormat},
                           {"source", policy.source},
                           {"name", policy.name},
                           {"etag", policy.entity_tag},
                           {"serial", policy.serial},
                           {"over", policy.over},
                           {"signature", policy.signature},
                           {"text", policy.text},
                           {"sha256", digest ? *digest : ""}};
  return out.dump(1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<StoredPolicy> ParseStored(std::string_view text) {
  if (text.size() > kMaxStoredBytes) return Damaged("it is too long");
  const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
  if (!in.is_object()) return Damaged("it is no JSON object");
  if (const auto format = in.find("format"); format == in.end() || *format != kFormat) return Damaged("it is of another format");
  StoredPolicy policy;
  std::string digest;
  for (const auto& [key, slot] :
       {std::pair("source", &policy.source), std::pair("name", &policy.name), std::pair("etag", &policy.entity_tag),
        std::pair("over", &policy.over), std::pair("text", &policy.text), std::pair("sha256", &digest)}) {
    const auto value = in.find(key);
    if (value == in.end() || !value->is_string()) return Damaged(fmt::format("`{}` is missing", key));
    *slot = value->get<std::string>();
  }
  const auto serial = in.find("serial");
  if (serial == in.end() || !serial->is_number_unsigned()) return Damaged("`serial` is missing");
  policy.serial = serial->get<uint64_t>();
  if (const auto signature = in.find("signature"); signature != in.end()) {
    if (!signature->is_string()) return Damaged("`signature` is no text");
    policy.signature = signature->get<std::string>();
  }
  const auto is = policy::TextDigest(policy.text);
  if (!is || *is != digest) return Damaged("its digest is another");
  return policy;
}

Result<void> PrepareStateFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return FailPath(fmt::format("cannot make {}", folder), errno);
  struct stat about{};
  if (::stat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode))
    return Fail(Code::kInvalid, fmt::format("--state {}: not a folder", folder));
  if (about.st_uid != ::geteuid() && about.st_uid != 0)
    return Fail(Code::kInvalid, fmt::format("--state {}: it is another user's", folder));
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Fail(Code::kInvalid, fmt::format("--state {}: others may write it (chmod go-w)", folder));
  return {};
}

Result<PolicyState> PolicyState::Open(const std::string& folder) {
  if (auto prepared = PrepareStateFolder(folder); !prepared) return std::unexpected(prepared.error());
  return PolicyState(folder);
}

Result<std::optional<StoredPolicy>> PolicyState::Load() const {
  const std::string path = fmt::format("{}/{}", folder_, kFileName);
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return FailPath(fmt::format("cannot read {}", path), errno);
  }
  if (!S_ISREG(about.st_mode)) return Fail(Code::kInvalid, fmt::format("{} is not a regular file", path));
  auto text = ReadFile(path, kMaxStoredBytes);
  if (!text) return std::unexpected(text.error());
  auto stored = ParseStored(*text);
  if (!stored) return Fail(stored.error().code, fmt::format("{}: {}", path, stored.error().message));
  return std::optional(*std::move(stored));
}

Result<void> PolicyState::Store(const StoredPolicy& policy) const {
  const std::string path = fmt::format("{}/{}", folder_, kFileName);
  auto replaced = ReplaceFile(path, StoredText(policy), {.aside = path + ".next"});
  if (!replaced) return std::unexpected(replaced.error());
  return {};
}

Result<void> PolicyState::Forget() const {
  const std::string path = fmt::format("{}/{}", folder_, kFileName);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FailErrno(fmt::format("cannot remove {}", path), errno);
  return SyncFolder(folder_);
}

}  // namespace sluice::app
