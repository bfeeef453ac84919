#include "proxy/io/client_tokens.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/hex.h"
#include "base/keyed_hash.h"
#include "base/printable.h"
#include "proxy/http1.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::string_view kSpaces = " \t\r";
constexpr size_t kMaxClientName = 64;
using Hash = std::array<uint8_t, 32>;

std::optional<Hash> HashOf(std::string_view token) {
  Hash hash{};
  unsigned size = 0;
  if (EVP_Digest(token.data(), token.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1 || size != hash.size())
    return std::nullopt;
  return hash;
}

std::string_view NextWord(std::string_view* line) {
  line->remove_prefix(std::min(line->find_first_not_of(kSpaces), line->size()));
  const std::string_view word = line->substr(0, line->find_first_of(kSpaces));
  line->remove_prefix(word.size());
  return word;
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxClientName && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

std::optional<Hash> ParseHash(std::string_view word) {
  if (!word.starts_with(kHashPrefix)) return std::nullopt;
  word.remove_prefix(kHashPrefix.size());
  Hash hash{};
  if (word.size() != 2 * hash.size()) return std::nullopt;
  for (size_t i = 0; i < hash.size(); ++i) {
    const int high = HexValue(word[2 * i]);
    const int low = HexValue(word[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return hash;
}

// RFC 4648 section 4, padding required: two readers must not see two texts.
std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > 2 * kMaxTokenBytes) return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(text.data()),
                                static_cast<int>(text.size()));
  const size_t padding = static_cast<size_t>(text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0);
  if (n < 0 || static_cast<size_t>(n) < padding) return std::nullopt;
  out.resize(static_cast<size_t>(n) - padding);
  return out;
}

}  // namespace

Result<void> TokenTable::ParseLine(std::string_view line, std::string_view where) {
  line = line.substr(0, line.find('#'));
  const std::string_view name = NextWord(&line);
  if (name.empty()) return {};
  if (!IsName(name))
    return Fail(Code::kInvalid, fmt::format("{}: `{}` is no name: write letters, digits, '-', '_' and '.', at most {}", where,
                                            Printable(name.substr(0, kMaxClientName)), kMaxClientName));
  const auto hash = ParseHash(NextWord(&line));
  if (!hash)
    return Fail(Code::kInvalid, fmt::format("{}: after the name comes sha256: and 64 hexadecimal digits, the hash of the token "
                                            "(printf %s \"$TOKEN\" | sha256sum)",
                                            where));
  if (std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.name == name; }))
    return Fail(Code::kInvalid, fmt::format("{}: the name {} comes twice", where, name));
  if (std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.hash == *hash; }))
    return Fail(Code::kInvalid, fmt::format("{}: the token of {} is another client's too", where, name));
  if (entries_.size() == kMaxTokens) return Fail(Code::kExhausted, fmt::format("{}: more than {} tokens", where, kMaxTokens));
  auto client = std::make_shared<policy::Process>();
  client->client = name;
  for (std::string_view label = NextWord(&line); !label.empty(); label = NextWord(&line)) {
    const size_t equals = label.find('=');
    if (equals == std::string_view::npos || !IsName(label.substr(0, equals)))
      return Fail(Code::kInvalid, fmt::format("{}: `{}` is no label: write KEY=VALUE", where, Printable(label)));
    client->client_labels += fmt::format("{}{}", client->client_labels.empty() ? "" : " ", Printable(label));
  }
  clients_.insert(client.get());
  entries_.push_back({std::string(name), *hash, std::move(client)});
  return {};
}

void TokenTable::TakeOver(const TokenTable& before) {
  KeyedMap<std::string_view, const Entry*> known;
  for (const Entry& entry : before.entries_) known.emplace(entry.name, &entry);
  for (Entry& entry : entries_) {
    const auto found = known.find(entry.name);
    if (found == known.end() || found->second->hash != entry.hash ||
        found->second->client->client_labels != entry.client->client_labels)
      continue;
    clients_.erase(entry.client.get());
    entry.client = found->second->client;
    clients_.insert(entry.client.get());
  }
}

Result<TokenTable> TokenTable::Parse(std::string_view text, std::string_view file) {
  TokenTable table;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (auto ok = table.ParseLine(text.substr(0, end), fmt::format("{}:{}", file, number)); !ok)
      return std::unexpected(ok.error());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (table.entries_.empty()) return Fail(Code::kInvalid, fmt::format("{}: no tokens in it", file));
  return table;
}

policy::ProcessPtr TokenTable::Find(std::string_view name, std::string_view token) const {
  if (token.empty() || token.size() > kMaxTokenBytes) return nullptr;
  const auto hash = HashOf(token);
  if (!hash) return nullptr;
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    // What is compared are hashes, and each of them: neither the token nor its place in the file shows in the time taken.
    const bool same = CRYPTO_memcmp(entry.hash.data(), hash->data(), hash->size()) == 0;
    if (same && (name.empty() || name == entry.name)) found = &entry;
  }
  return found != nullptr ? found->client : nullptr;
}

policy::ProcessPtr TokenTable::FromField(std::string_view value) const {
  const size_t space = value.find(' ');
  if (space == std::string_view::npos) return nullptr;
  const std::string_view scheme = value.substr(0, space);
  std::string_view rest = value.substr(space);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (EqualsLower(scheme, "bearer")) return Find({}, rest);
  if (!EqualsLower(scheme, "basic")) return nullptr;
  const auto pair = DecodeBase64(rest);
  if (!pair) return nullptr;
  const size_t colon = pair->find(':');
  if (colon == std::string::npos || colon == 0) return nullptr;
  return Find(std::string_view(*pair).substr(0, colon), std::string_view(*pair).substr(colon + 1));
}

}  // namespace sluice::proxy
