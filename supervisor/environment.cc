#include "supervisor/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace sluice::supervisor {
namespace {

constexpr auto kPassed = std::to_array<std::string_view>({
    "CARGO_HOME",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "CONDA_PREFIX",
    "DEBIAN_FRONTEND",
    "EDITOR",
    "FORCE_COLOR",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GOPATH",
    "GOROOT",
    "HOME",
    "JAVA_HOME",
    "LANG",
    "LANGUAGE",
    "LESS",
    "LINES",
    "LOGNAME",
    "LS_COLORS",
    "MAKEFLAGS",
    "MANPAGER",
    "NO_COLOR",
    "NVM_DIR",
    "PAGER",
    "PATH",
    "PWD",
    "PYENV_ROOT",
    "RUSTUP_HOME",
    "SHELL",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TERM_PROGRAM",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "VISUAL",
});

// Sockets and files that lead to credentials or to a session of the user's.
constexpr auto kAgents = std::to_array<std::string_view>({
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DISPLAY",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "GIT_ASKPASS",
    "GNOME_KEYRING_CONTROL",
    "GPG_AGENT_INFO",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KRB5CCNAME",
    "KUBECONFIG",
    "NETRC",
    "NOTIFY_SOCKET",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "TMUX",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
});
constexpr auto kCredentialPrefixes = std::to_array<std::string_view>({"AWS_", "AZURE_", "ARM_CLIENT_", "VAULT_", "OP_SESSION_"});
// Anywhere in the name, and as a whole word of it (between underscores).
constexpr auto kCredentialParts =
    std::to_array<std::string_view>({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASSFILE", "PASSCOMMAND", "SSHPASS",
                                     "CREDENTIAL", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "SSHKEY", "OAUTH", "WEBHOOK"});
constexpr auto kCredentialWords =
    std::to_array<std::string_view>({"KEY", "KEYS", "AUTH", "PASS", "PWD", "PAT", "COOKIE", "JWT", "BEARER"});

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return upper;
}

template <class List>
bool Holds(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

bool HasWord(std::string_view name, std::string_view word) {
  for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || name[at - 1] == '_') && (end == name.size() || name[end] == '_')) return true;
  }
  return false;
}

// scheme://user:password@host, scheme://token@host: no user's name is as long and as mixed as a token is.
bool CarriesPassword(std::string_view value) {
  constexpr size_t kShortestToken = 20;
  const size_t scheme = value.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view authority = value.substr(scheme + 3, value.find_first_of("/?#", scheme + 3) - (scheme + 3));
  const size_t at = authority.rfind('@');
  if (at == std::string_view::npos) return false;
  const std::string_view user = authority.substr(0, at);
  const bool mixed = user.find_first_of("0123456789") != std::string_view::npos;
  return user.find(':') != std::string_view::npos || (user.size() >= kShortestToken && mixed);
}

bool IsName(std::string_view name) {
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return false;
  return std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

bool IsProxy(std::string_view upper) {
  return upper == "PROXY" || upper.ends_with("_PROXY") || upper == "NPM_CONFIG_HTTPS_PROXY" || upper == "FTP_PROXY";
}

using Map = std::map<std::string, std::string, std::less<>>;

// One that names a variable which is not set adds nothing.
Result<void> Add(const std::string& addition, std::string_view flag, const Map& own, Map* chosen) {
  const size_t equals = addition.find('=');
  const std::string name = addition.substr(0, equals);
  if (!IsName(name) || addition.find('\0') != std::string::npos)
    return Fail(Code::kInvalid, fmt::format("{} {}: not NAME or NAME=VALUE", flag, name));
  if (equals != std::string::npos) {
    (*chosen)[name] = addition.substr(equals + 1);
  } else if (const auto it = own.find(name); it != own.end()) {
    (*chosen)[name] = it->second;
  }
  return {};
}

bool IsPassed(std::string_view name) { return Holds(kPassed, name) || name.starts_with("LC_"); }

}  // namespace

bool LooksLikeCredential(std::string_view name, std::string_view value) {
  const std::string upper = Upper(name);
  if (upper == "PWD" || upper == "OLDPWD") return false;
  if (Holds(kAgents, upper)) return true;
  for (const auto prefix : kCredentialPrefixes)
    if (upper.starts_with(prefix)) return true;
  for (const auto part : kCredentialParts)
    if (upper.find(part) != std::string::npos) return true;
  for (const auto word : kCredentialWords)
    if (HasWord(upper, word)) return true;
  return CarriesPassword(value);
}

Result<ChosenEnvironment> ChooseEnvironment(const Variables& inherited, const EnvironmentWishes& wishes) {
  if (inherited.size() > kMaxVariables || wishes.additions.size() + wishes.unsafe.size() > kMaxVariables)
    return Fail(Code::kExhausted, fmt::format("more than {} environment variables", kMaxVariables));
  Map own;
  for (const auto& [name, value] : inherited) own.emplace(name, value);
  Map chosen;
  for (const std::string& addition : wishes.additions)
    if (auto added = Add(addition, "--env", own, &chosen); !added) return std::unexpected(added.error());
  for (const auto& [name, value] : chosen)
    if (LooksLikeCredential(name, value))
      return Fail(Code::kInvalid,
                  fmt::format("--env {0}: it looks like a credential or leads to one, and the command is given none; a "
                              "`credentials:` entry of the "
                              "policy sends one for it without showing it; if it is no secret, or the command must hold it: "
                              "--unsafe-env {0}",
                              name));
  for (const std::string& addition : wishes.unsafe)
    if (auto added = Add(addition, "--unsafe-env", own, &chosen); !added) return std::unexpected(added.error());
  ChosenEnvironment result;
  for (const auto& [name, value] : own) {
    if (chosen.contains(name)) continue;
    if (IsProxy(Upper(name))) {
      result.proxies.push_back(name);
    } else if (LooksLikeCredential(name, value)) {
      result.credentials.push_back(name);
    } else if (wishes.inherit == Inherit::kUsual && IsPassed(name)) {
      chosen.emplace(name, value);
    }
  }
  result.variables.assign(chosen.begin(), chosen.end());
  return result;
}

}  // namespace sluice::supervisor
