#include "app/seen_credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "app/file.h"
#include "base/unique_fd.h"
#include "supervisor/environment.h"

namespace sluice::app {
namespace {

// Empty words: the name says it. "://": a URL with a login in it.
struct Known {
  std::string_view path;
  std::string_view words;
};
constexpr auto kKnown = std::to_array<Known>({
    {".netrc", ""},
    {"_netrc", ""},
    {".git-credentials", ""},
    {".config/git/credentials", ""},
    {".git/config", "://"},
    {".git/config", "authorization:"},
    {".gitconfig", "://"},
    {".npmrc", "_authToken"},
    {".npmrc", "_password"},
    {".pypirc", "password"},
    {".pgpass", ""},
    {".cargo/credentials.toml", ""},
    {".docker/config.json", "\"auth\""},
    {".aws/credentials", ""},
    {".azure/accessTokens.json", ""},
    {".config/gcloud/application_default_credentials.json", ""},
    {".config/gh/hosts.yml", "oauth_token"},
    {".kube/config", "token:"},
    {".kube/config", "client-key-data:"},
    {".terraform.d/credentials.tfrc.json", ""},
    {".ssh/id_rsa", ""},
    {".ssh/id_ecdsa", ""},
    {".ssh/id_ed25519", ""},
});

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return text;
}

// Nothing where it is no plain file with something in it.
std::string Begin(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about{};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  std::string text(kMaxCredentialFile, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

bool Holds(const std::string& text, std::string_view words) {
  if (words != "://") return !text.empty() && Lower(text).find(Lower(std::string(words))) != std::string::npos;
  return std::ranges::any_of(SplitLines(text),
                             [](const std::string& line) { return supervisor::LooksLikeCredential("LINE", line); });
}

}  // namespace

std::vector<std::string> FindSeenCredentials(const std::string& folder) {
  std::vector<std::string> found;
  for (const Known& known : kKnown) {
    std::string path = folder + "/" + std::string(known.path);
    if (std::ranges::find(found, path) == found.end() && Holds(Begin(path), known.words)) found.push_back(std::move(path));
  }
  return found;
}

}  // namespace sluice::app
