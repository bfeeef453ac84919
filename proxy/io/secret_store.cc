#include "proxy/io/secret_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/random.h"
#include "proxy/credential/inject.h"
#include "proxy/credential/sigv4.h"
#include "proxy/credential/stand_in.h"

namespace sluice::proxy {
namespace {

using SourceKind = policy::SecretSource::Kind;
using UseKind = policy::CredentialUse::Kind;

constexpr size_t kMinSought = 8;  // shorter secrets stand in texts by chance

bool IsFile(const policy::SecretSource& source) {
  return source.kind == SourceKind::kFile || source.kind == SourceKind::kSystemd;
}

// The source itself and those within it, but not the one whose value is fetched.
template <class Visit>
void ForEachSource(const policy::SecretSource& source, Visit visit) {
  if (source.kind != SourceKind::kOauth) visit(source);
  for (const policy::SecretSource& inner : source.secret) visit(inner);
}

/// Whose secret it is, for people.
struct Owner {
  std::string text;
  const SourceSpan* span = nullptr;
};
Owner OwnerOf(const policy::Credential& credential) { return {fmt::format("credential {}", credential.name), &credential.span}; }
Owner OwnerOf(const policy::UpstreamProxy& proxy) { return {fmt::format("proxy {}", proxy.name), &proxy.span}; }

Error At(const Owner& owner, const policy::SecretSource& source, std::string why) {
  return Error{Code::kInvalid, fmt::format("{} ({}): {}", owner.text, SourceText(source), why), 0, *owner.span};
}

const std::optional<policy::SecretSource>& LoginOf(const policy::UpstreamProxy& proxy) {
  return proxy.basic ? proxy.basic : proxy.bearer;
}

// Whether the value can be shown to a proxy.
Result<void> CheckLogin(const policy::UpstreamProxy& proxy, std::string_view secret) {
  if (auto fit = CheckSecretText(secret); !fit) return Fail(fit.error().code, "the secret " + fit.error().message);
  if (proxy.basic && !secret.contains(':')) return Fail(Code::kInvalid, "the secret is not \"user:password\"");
  if (proxy.bearer && secret.find_first_of(" \t") != secret.npos) return Fail(Code::kInvalid, "the secret has a blank in it");
  return {};
}

// Whether the value fits its use. `secret` is what Find gives.
Result<void> CheckValue(const policy::Credential& credential, std::string_view secret) {
  if (auto use = CheckUse(credential.send); !use) return use;
  if (credential.send.kind == UseKind::kClientCertificate) {
    if (!secret.contains("-----BEGIN ")) return Fail(Code::kInvalid, "the secret is not PEM");
    return {};
  }
  if (auto fit = CheckSecretText(secret); !fit) return Fail(fit.error().code, "the secret " + fit.error().message);
  if (credential.send.kind == UseKind::kSigV4) {
    if (auto keys = ParseAwsKeys(secret); !keys) return Fail(Code::kInvalid, "the secret " + keys.error().message);
  }
  if (credential.send.kind == UseKind::kBasic && credential.send.text.empty() && !secret.contains(':'))
    return Fail(Code::kInvalid, "the secret is not \"user:password\", and `send: basic` names no user");
  if (credential.send.kind == UseKind::kPlaceholder && !IsStandInPrefix(credential.send.prefix))
    return Fail(Code::kInvalid, "a placeholder's prefix has letters, digits and -._~ only, 64 at most");
  return {};
}

}  // namespace

SecretStore::~SecretStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> SecretStore::ReadFileInto(Entry* entry) {
  auto path = SourcePath(entry->source);
  if (!path) return std::unexpected(path.error());
  auto stamp = StampFile(*path, options_.trees);
  if (!stamp) return std::unexpected(stamp.error());
  std::string warning;
  auto secret = ReadSecretFile(*stamp, &warning);
  if (!secret) return std::unexpected(secret.error());
  if (!warning.empty() && warning != entry->warned) LogWarn("{}: {}", entry->owner, warning);
  entry->warned = std::move(warning);
  entry->secret = *std::move(secret);
  entry->stamp = entry->seen = *std::move(stamp);
  return {};
}

Result<void> SecretStore::Read(Entry* entry) {
  if (IsFile(entry->source)) return ReadFileInto(entry);
  if (entry->source.kind == SourceKind::kCommand) {
    auto secret = RunSecretCommand(entry->source.command, kSecretCommandDeadline, spawner_.get());
    if (!secret) return std::unexpected(secret.error());
    entry->secret = *std::move(secret);
    return {};
  }
  // A variable is read once: afterwards it is not there any more.
  SecretPtr& taken = taken_[entry->source.text];
  if (taken == nullptr) {
    auto secret = TakeSecretVariable(entry->source.text);
    if (!secret) return std::unexpected(secret.error());
    taken = *std::move(secret);
    variables_.emplace(entry->source.text, entry->owner);
  }
  entry->secret = taken;
  return {};
}

Result<void> SecretStore::Load(std::span<const policy::Credential> credentials, std::span<const policy::UpstreamProxy> proxies) {
  std::map<std::string, Entry> before;
  {
    const std::lock_guard lock(mutex_);
    before = entries_;
  }
  std::map<std::string, Entry> next;
  std::optional<Error> error;
  const auto read = [&](const Owner& owner, const policy::SecretSource& source) {
    const auto [it, added] = next.try_emplace(SourceText(source));
    if (!added || error) return;
    if (next.size() > kMaxSecrets) {
      error = At(owner, source, fmt::format("more than {} sources of secrets", kMaxSecrets));
      return;
    }
    Entry& entry = it->second;
    if (const auto old = before.find(it->first); old != before.end()) entry = old->second;
    entry.source = source;
    entry.owner = owner.text;
    if (auto done = Read(&entry); !done) error = At(owner, source, done.error().message);
    entry.misses = 0;
    entry.fault.clear();
  };
  // Variables first, so that no command finds them in its environment.
  for (const bool variables : {true, false}) {
    const auto now = [variables](const policy::SecretSource& source) {
      return (source.kind == SourceKind::kEnvironment) == variables;
    };
    for (const policy::Credential& credential : credentials)
      ForEachSource(credential.from, [&](const policy::SecretSource& source) {
        if (now(source)) read(OwnerOf(credential), source);
      });
    for (const policy::UpstreamProxy& proxy : proxies)
      if (const auto& login = LoginOf(proxy); login && now(*login)) read(OwnerOf(proxy), *login);
  }
  if (error) return std::unexpected(*error);
  {
    const std::lock_guard lock(mutex_);
    entries_.swap(next);
  }
  if (auto fit = CheckAll(credentials, proxies); !fit) {
    const std::lock_guard lock(mutex_);
    entries_.swap(next);
    return fit;
  }
  GiveStandIns(credentials);
  return {};
}

// Whether each value that was read fits its use.
Result<void> SecretStore::CheckAll(std::span<const policy::Credential> credentials,
                                   std::span<const policy::UpstreamProxy> proxies) const {
  for (const policy::Credential& credential : credentials) {
    Result<void> fit;
    if (credential.from.kind == SourceKind::kOauth) {
      if (auto endpoint = ParseTokenEndpoint(credential.from.text); !endpoint) fit = std::unexpected(endpoint.error());
      if (fit && credential.from.secret.empty()) fit = Fail(Code::kInvalid, "it names no secret of the client");
      if (fit) fit = CheckUse(credential.send);
    } else {
      const SecretLookup found = Find(credential);
      fit = found.secret == nullptr ? Fail(Code::kInvalid, found.fault) : CheckValue(credential, found.secret->Reveal());
    }
    if (!fit) return std::unexpected(At(OwnerOf(credential), credential.from, fit.error().message));
  }
  for (const policy::UpstreamProxy& proxy : proxies) {
    const auto& login = LoginOf(proxy);
    if (!login) continue;
    const SecretLookup found = Find(*login);
    const auto fit = found.secret == nullptr ? Fail(Code::kInvalid, found.fault) : CheckLogin(proxy, found.secret->Reveal());
    if (!fit) return std::unexpected(At(OwnerOf(proxy), *login, fit.error().message));
  }
  return {};
}

void SecretStore::GiveStandIns(std::span<const policy::Credential> credentials) {
  for (const policy::Credential& credential : credentials) {
    if (credential.send.kind != UseKind::kPlaceholder) continue;
    if (std::ranges::any_of(stand_ins_, [&](const auto& given) { return given.variable == credential.send.text; })) continue;
    if (stand_ins_given_) {
      LogWarn("credential {}: the command that runs has no {}; it gets its stand-in when it is started again", credential.name,
              credential.send.text);
      continue;
    }
    std::array<uint8_t, kMaxStandInBytes> random{};
    FillRandom(random);
    const SecretLookup found = Find(credential);
    const std::string_view secret = found.secret != nullptr ? found.secret->Reveal() : std::string_view{};
    const std::string_view prefix = credential.send.prefix.empty() ? UsualPrefix(secret) : credential.send.prefix;
    stand_ins_.push_back({credential.send.text, MakeStandIn(prefix, secret.size(), random), credential.name});
  }
  stand_ins_given_ = true;
}

SecretLookup SecretStore::Find(const policy::SecretSource& source) const {
  const std::string key = SourceText(source);
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return {nullptr, "its secret was not read"};
  if (it->second.secret == nullptr) return {nullptr, it->second.fault};
  return {it->second.secret, {}};
}

SecretLookup SecretStore::Find(const policy::Credential& credential) const {
  SecretLookup found = Find(credential.from);
  if (found.secret == nullptr || credential.from.secret.empty()) return found;
  const SecretLookup rest = Find(credential.from.secret.front());
  if (rest.secret == nullptr) return rest;
  std::string both = fmt::format("{}:{}", found.secret->Reveal(), rest.secret->Reveal());
  return {std::make_shared<const Secret>(std::move(both)), {}};
}

std::vector<std::string> SecretStore::files() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> files;
  for (const auto& [key, entry] : entries_)
    if (IsFile(entry.source)) files.push_back(entry.stamp.real);
  return files;
}

std::string SecretStore::SecretIn(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_)
    if (entry.secret != nullptr && entry.secret->Reveal().size() >= kMinSought && text.contains(entry.secret->Reveal()))
      return entry.owner;
  return {};
}

void SecretStore::Watch() {
  if (thread_.joinable()) return;
  if (auto spawner = Spawner::Start()) {
    spawner_ = *std::move(spawner);
  } else {
    LogWarn("commands of credentials may be late at a reload: {}", spawner.error().message);
  }
  thread_ = std::thread([this] { Run(); });
}

void SecretStore::Run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kSecretPoll, [this] { return stop_; })) {
    lock.unlock();
    Look();
    lock.lock();
  }
}

void SecretStore::Look() {
  std::map<std::string, Entry> now;
  {
    const std::lock_guard lock(mutex_);
    now = entries_;
  }
  for (auto& [key, entry] : now)
    if (IsFile(entry.source)) LookAt(key, std::move(entry));
}

void SecretStore::LookAt(const std::string& key, Entry entry) {
  const SecretPtr before = entry.secret;
  const auto path = SourcePath(entry.source);
  const auto stamp = path ? StampFile(*path, options_.trees) : Result<FileStamp>(std::unexpected(path.error()));
  Result<void> read;
  if (!stamp) {
    read = std::unexpected(stamp.error());
  } else if (*stamp == entry.stamp && before != nullptr) {
    if (entry.misses == 0) return;
    entry.misses = 0;
  } else if (*stamp != entry.seen) {
    entry.seen = *stamp;  // still being written, perhaps: read when it looks the same once more
  } else {
    read = ReadFileInto(&entry);
    if (read)
      if (auto fit = CheckSecretText(entry.secret->Reveal()); !fit && !entry.secret->Reveal().starts_with("-----BEGIN "))
        read = Fail(Code::kInvalid, fmt::format("what {} now holds {}", entry.stamp.real, fit.error().message));
    if (read) LogInfo("{}: read again from {}", entry.owner, entry.stamp.real);
  }
  if (!read) {
    entry.secret = before;
    if (++entry.misses == kSecretGrace) {
      entry.secret = nullptr;
      entry.fault = read.error().message;
      entry.stamp = {};
      LogWarn("{}: {}; requests that need it are refused until it can be read", entry.owner, entry.fault);
    }
  } else if (entry.secret != before) {
    entry.misses = 0;
    entry.fault.clear();
  }
  const std::lock_guard lock(mutex_);
  // A load that came between has read it itself.
  if (const auto it = entries_.find(key); it != entries_.end() && it->second.secret == before) it->second = std::move(entry);
}

SecretStore::TokenStep SecretStore::TokenFor(const policy::SecretSource& source, SteadyTime now, SecretLookup* lookup) {
  const std::string key = SourceText(source);
  const std::lock_guard lock(mutex_);
  Token& token = tokens_[key];
  if (token.secret != nullptr && now < token.expires) {
    lookup->secret = token.secret;
    if (now < token.refresh || token.fetching || now < token.again) return TokenStep::kUse;
    token.fetching = true;
    return TokenStep::kUseAndFetch;
  }
  token.secret = nullptr;
  if (token.fetching) return TokenStep::kWait;
  if (now < token.again) {
    lookup->fault = token.fault;
    return TokenStep::kFail;
  }
  token.fetching = true;
  return TokenStep::kFetch;
}

void SecretStore::TokenCame(const policy::SecretSource& source, TokenAnswer&& answer, SteadyTime now) {
  const std::string key = SourceText(source);
  const std::lock_guard lock(mutex_);
  Token& token = tokens_[key];
  token.secret = std::make_shared<const Secret>(std::move(answer.token));
  token.came = now;
  token.refresh = RefreshDue(now, answer.life);
  token.expires = now + answer.life;
  token.failures = 0;
  token.again = {};
  token.fetching = false;
  token.fault.clear();
}

void SecretStore::TokenRefused(const policy::SecretSource& source, const SecretPtr& refused, SteadyTime now) {
  const std::string key = SourceText(source);
  const std::lock_guard lock(mutex_);
  const auto found = tokens_.find(key);
  // Another may have come meanwhile.
  if (found == tokens_.end() || found->second.secret != refused || now < found->second.came + kTokenTrusted) return;
  found->second.secret = nullptr;
}

void SecretStore::TokenFailed(const policy::SecretSource& source, std::string fault, SteadyTime now) {
  const std::string key = SourceText(source);
  const std::lock_guard lock(mutex_);
  Token& token = tokens_[key];
  token.fetching = false;
  token.fault = std::move(fault);
  token.again = now + TokenBackoff(++token.failures);
}

}  // namespace sluice::proxy
