#include "policy/credential_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "policy/host_pattern.h"
#include "policy/rule_keys.h"
#include "policy/rule_text.h"
#include "policy/target.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxNamed = 256;    // credentials, and proxies, of one file
constexpr size_t kMaxEntries = 256;  // of `to` or `except`

constexpr std::array<std::string_view, 10> kCredentialKeys = {"from",          "send",  "to",     "token-url", "client-id",
                                                              "client-secret", "scope", "region", "service",   "secret"};
constexpr std::array<std::string_view, 5> kProxyKeys = {"url", "basic", "bearer", "ca", "except"};
constexpr std::array<std::string_view, 5> kSources = {"env", "file", "command", "systemd", "oauth"};
constexpr std::array<std::string_view, 7> kUses = {
    "bearer", "basic", "header", "query", "placeholder", "sigv4", "client-certificate"};
// Fields that frame or route a message, or that the proxy makes itself.
constexpr std::array<std::string_view, 12> kNoHeader = {
    "host",    "connection", "content-length",   "transfer-encoding",   "te",     "trailer",
    "upgrade", "keep-alive", "proxy-connection", "proxy-authorization", "expect", "content-encoding"};
constexpr std::string_view kWhere =
    "a policy holds no secret; write where it is: `env NAME`, `file /PATH`, `command \"PROGRAM ARGUMENT\"` "
    "or `systemd NAME`";

std::unexpected<Error> Bad(std::string message, size_t column = 1, size_t length = 1) {
  return std::unexpected(
      Error{Code::kInvalid, std::move(message), 0,
            SourceSpan{"", 1, static_cast<uint32_t>(column), static_cast<uint32_t>(std::max<size_t>(length, 1))}});
}

bool IsVariable(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool IsFileName(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && text.find('/') == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// "WORD REST"
std::pair<std::string_view, std::string_view> Cut(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return {text, {}};
  return {text.substr(0, space), text.substr(space + 1)};
}

// Words between spaces; a shell's own characters are refused, since none runs.
Result<std::vector<std::string>> Words(std::string_view text, size_t column) {
  if (text.size() >= 2 && text.starts_with('"') && text.ends_with('"')) {
    text = text.substr(1, text.size() - 2);
    ++column;
  }
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (words.empty()) return Bad("`command` needs a program, as in `command \"gh auth token\"`", column);
  if (const size_t bad = text.find_first_of("\"'`$|;&<>\\"); bad != std::string_view::npos)
    return Bad("a command is words between spaces: no shell runs it, so nothing quotes or expands", column + bad);
  return words;
}

Result<SecretSource> SourceOf(const Node& node, std::string_view slot) {
  const auto text = ReadText(node, slot);
  if (!text) return std::unexpected(text.error());
  auto source = ParseSource(*text);
  if (!source) return MovedInto(node, source.error());
  return source;
}

Result<std::string> HeaderName(std::string_view text) {
  std::string name(text);
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  if (!IsToken(name)) return Bad(fmt::format("`{}` is not a header name", text), 8, text.size());
  if (std::find(kNoHeader.begin(), kNoHeader.end(), name) != kNoHeader.end() || name.starts_with("x-sluice"))
    return Bad(fmt::format("the header `{}` carries no credential", text), 8, text.size());
  return name;
}

Result<CredentialUse> ParseUse(std::string_view text) {
  using Kind = CredentialUse::Kind;
  const auto [word, rest] = Cut(text);
  CredentialUse use;
  const auto alone = [&](Kind kind) -> Result<CredentialUse> {
    if (!rest.empty()) return Bad(fmt::format("`{}` is too much after `{}`", rest, word), word.size() + 2, rest.size());
    use.kind = kind;
    return use;
  };
  if (word == "bearer") return alone(Kind::kBearer);
  if (word == "sigv4") return alone(Kind::kSigV4);
  if (word == "client-certificate") return alone(Kind::kClientCertificate);
  if (word == "basic") {
    if (rest.find(':') != std::string_view::npos)
      return Bad(fmt::format("after `basic` stands a user name alone; {}", kWhere), word.size() + 2, rest.size());
    use.kind = Kind::kBasic;
    use.text = rest;
    return use;
  }
  if (word == "header") {
    const auto [name, prefix] = Cut(rest);
    auto header = HeaderName(name);
    if (!header) return std::unexpected(header.error());
    use.kind = Kind::kHeader;
    use.text = std::move(*header);
    // As the usual schemes have it: "token SECRET". In quotes it is what it is.
    const bool quoted = prefix.size() >= 2 && prefix.starts_with('"') && prefix.ends_with('"');
    use.prefix = quoted ? std::string(prefix.substr(1, prefix.size() - 2)) : prefix.empty() ? "" : fmt::format("{} ", prefix);
    if (std::any_of(use.prefix.begin(), use.prefix.end(), [](char c) { return c < 0x20 || c > 0x7e; }))
      return Bad("a header value is of printable ASCII", word.size() + 2, rest.size());
    return use;
  }
  if (word == "query" || word == "placeholder") {
    const bool query = word == "query";
    if (query ? !IsFileName(rest) || rest.find_first_of("&=#?%+") != std::string_view::npos : !IsVariable(rest))
      return Bad(query ? "after `query` stands the name of a parameter, as in `query key`"
                       : "after `placeholder` stands the variable that the workload has it in, as in `placeholder API_KEY`",
                 1, text.size());
    use.kind = query ? Kind::kQuery : Kind::kPlaceholder;
    use.text = rest;
    return use;
  }
  return Bad(
      fmt::format("`send` is bearer, basic, header NAME, query NAME, placeholder VARIABLE, sigv4 or client-certificate, not "
                  "`{}`{}",
                  word, DidYouMean(word, kUses)),
      1, word.size());
}

Result<CredentialScope> ParseScope(const std::string& text) {
  constexpr std::string_view kVerb = "http ";
  const auto rule = ParseCompact(Effect::kAllow, fmt::format("{}{}", kVerb, text));
  if (!rule) {
    Error error = rule.error();
    if (error.span) error.span->column -= std::min<uint32_t>(error.span->column - 1, static_cast<uint32_t>(kVerb.size()));
    return std::unexpected(std::move(error));
  }
  if (rule->scheme == Scheme::kHttp)
    return Bad("a credential is never sent in the clear: write the target without `http://`", 1, text.size());
  if (rule->host.kind == HostPattern::Kind::kAny) return Bad("a credential is bound to hosts; `**` is every one", 1, text.size());
  return CredentialScope{rule->host, rule->ports, rule->paths, CompactText(*rule).substr(kVerb.size())};
}

Result<void> ReadScopes(const Node& node, Credential* credential) {
  const bool list = node.kind == Node::Kind::kSequence;
  if (node.kind == Node::Kind::kMapping || (list && node.items.empty()))
    return NodeError(node, "`to` lists where the credential may go, as in `[api.github.com]`");
  if (node.items.size() > kMaxEntries) return NodeError(node, fmt::format("`to` has more than {} entries", kMaxEntries));
  for (size_t i = 0; i < (list ? node.items.size() : 1); ++i) {
    const Node& item = list ? node.items[i] : node;
    const bool numeric = item.kind == Node::Kind::kScalar;  // an address looks like a number
    const auto text = numeric ? Result<std::string>(item.text) : ReadText(item, "to");
    if (!text) return std::unexpected(text.error());
    auto scope = ParseScope(*text);
    if (!scope) return MovedInto(item, scope.error());
    credential->to.push_back(std::move(*scope));
  }
  return {};
}

// "https://idp.example/token": https, no user, no fragment.
Result<void> CheckTokenUrl(const Node& node, std::string_view url) {
  constexpr std::string_view kHttps = "https://";
  if (!url.starts_with(kHttps)) return NodeError(node, "`token-url` begins with https://: the client's secret goes there");
  const std::string_view rest = url.substr(kHttps.size());
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  if (authority.find('@') != std::string_view::npos) return NodeError(node, std::string(kWhere));
  if (!ParseAuthority(authority)) return NodeError(node, fmt::format("`{}` is not a host", authority));
  if (url.find('#') != std::string_view::npos ||
      std::any_of(url.begin(), url.end(), [](char c) { return c <= 0x20 || c > 0x7e; }))
    return NodeError(node, "`token-url` is a URL without a fragment");
  return {};
}

class CredentialReader {
 public:
  Result<Credential> Read(const Member& member) {
    const Node& node = member.value;
    constexpr std::string_view kForm = "a credential is a map, as in `{ from: env TOKEN, send: bearer, to: [api.github.com] }`";
    if (node.kind != Node::Kind::kMapping) return NodeError(node, fmt::format("{}; {}", kForm, kWhere));
    credential_.name = member.key.text;
    credential_.span = member.key.span;
    for (const auto& [key, value] : node.members) {
      if (auto read = ReadKey(key, value); !read) return std::unexpected(read.error());
    }
    if (auto checked = Check(node); !checked) return std::unexpected(checked.error());
    return std::move(credential_);
  }

 private:
  Result<void> ReadKey(const Node& key, const Node& value) {
    const std::string& word = key.text;
    if (std::find(kCredentialKeys.begin(), kCredentialKeys.end(), word) == kCredentialKeys.end()) {
      static constexpr std::array<std::string_view, 5> kValues = {"value", "token", "password", "key", "literal"};
      if (std::find(kValues.begin(), kValues.end(), word) != kValues.end()) return NodeError(key, std::string(kWhere));
      return NodeError(key, fmt::format("unknown key `{}` in a credential{}", word, DidYouMean(word, kCredentialKeys)));
    }
    if (word == "to") return ReadScopes(value, &credential_);
    if (word == "client-secret" || word == "secret") {
      auto source = SourceOf(value, word);
      if (!source) return std::unexpected(source.error());
      (word == "secret" ? secret_ : client_secret_) = std::move(*source);
      return {};
    }
    const auto text = ReadText(value, word);
    if (!text) return std::unexpected(text.error());
    if (word == "from") {
      oauth_ = *text == "oauth";
      from_ = true;
      if (oauth_) return {};
      auto source = ParseSource(*text);
      if (!source) return MovedInto(value, source.error());
      credential_.from = std::move(*source);
      return {};
    }
    if (word == "send") {
      auto use = ParseUse(*text);
      if (!use) return MovedInto(value, use.error());
      credential_.send = std::move(*use);
      send_ = true;
      return {};
    }
    if (text->empty()) return NodeError(value, fmt::format("`{}` is empty", word));
    if (word == "token-url") {
      if (auto good = CheckTokenUrl(value, *text); !good) return good;
    }
    extra_.emplace_back(&key, *text);
    return {};
  }

  // The text of a key, taken; empty where it is not written.
  std::string Take(std::string_view word) {
    for (auto& [key, text] : extra_) {
      if (key->text != word) continue;
      std::string taken = std::move(text);
      std::erase_if(extra_, [&](const auto& e) { return e.first->text == word; });
      return taken;
    }
    return "";
  }

  Result<void> Check(const Node& node) {
    const std::string& name = credential_.name;
    if (!from_) return NodeError(node, fmt::format("`{}` needs `from`: {}", name, kWhere));
    if (!send_) return NodeError(node, fmt::format("`{}` needs `send`: bearer, basic, header NAME, query NAME or another", name));
    if (credential_.to.empty())
      return NodeError(node, fmt::format("`{}` needs `to`: the hosts it may go to, as in `[api.github.com]`", name));
    if (oauth_) {
      SecretSource& from = credential_.from;
      from.kind = SecretSource::Kind::kOauth;
      from.text = Take("token-url");
      from.client_id = Take("client-id");
      from.scope = Take("scope");
      if (from.text.empty() || from.client_id.empty() || !client_secret_)
        return NodeError(node, fmt::format("`{}`: `oauth` needs `token-url`, `client-id` and `client-secret: env NAME`", name));
      from.secret.push_back(std::move(*client_secret_));
      client_secret_.reset();
    }
    if (credential_.send.kind == CredentialUse::Kind::kSigV4) {
      if (oauth_) return NodeError(node, fmt::format("`{}`: sigv4 signs with a key of AWS, which oauth does not give", name));
      credential_.send.region = Take("region");
      credential_.send.service = Take("service");
      if (secret_) credential_.from.secret.push_back(std::move(*secret_));
      secret_.reset();
    }
    if (oauth_ && credential_.send.kind == CredentialUse::Kind::kClientCertificate)
      return NodeError(node, fmt::format("`{}`: a client certificate is a file, which oauth does not give", name));
    if (!extra_.empty() || client_secret_ || secret_) {
      const std::string word = !extra_.empty() ? extra_[0].first->text : client_secret_ ? "client-secret" : "secret";
      const bool oauth = word != "region" && word != "service" && word != "secret";
      return NodeError(node, fmt::format("`{}`: `{}` belongs to `{}`", name, word, oauth ? "from: oauth" : "send: sigv4"));
    }
    return {};
  }

  Credential credential_;
  bool from_ = false;
  bool send_ = false;
  bool oauth_ = false;
  std::optional<SecretSource> client_secret_;
  std::optional<SecretSource> secret_;
  std::vector<std::pair<const Node*, std::string>> extra_;
};

// "http://proxy.corp:3128"
Result<void> ParseProxyUrl(std::string_view url, UpstreamProxy* proxy) {
  using Kind = UpstreamProxy::Kind;
  const size_t mark = url.find("://");
  const std::string_view scheme = url.substr(0, mark);
  if (mark == std::string_view::npos || (scheme != "http" && scheme != "https" && scheme != "socks5" && scheme != "socks5h"))
    return Bad("`url` is http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT", 1, url.size());
  proxy->kind = scheme == "http" ? Kind::kHttp : scheme == "https" ? Kind::kHttps : Kind::kSocks5;
  std::string_view rest = url.substr(mark + 3);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find('@') != std::string_view::npos)
    return Bad("the user and password do not stand in the URL: write `basic: env NAME`, whose value is `user:password`", mark + 4,
               rest.size());
  const auto authority = ParseAuthority(rest);
  if (!authority) return Bad(fmt::format("`{}` is not HOST:PORT", rest), mark + 4, rest.size());
  if (!authority->port || *authority->port == 0)
    return Bad("write the proxy's port, as in `http://proxy.corp:3128`", mark + 4, rest.size());
  proxy->host = authority->name;
  proxy->address = authority->address;
  proxy->port = *authority->port;
  return {};
}

// A name, ".suffix", a glob, an address, a prefix; each but a prefix may have ports.
Result<UpstreamProxy::Except> ParseExcept(std::string_view text) {
  UpstreamProxy::Except except;
  std::string host(text);
  if (const auto prefix = Cidr::Parse(text)) {
    HostPattern pattern;
    pattern.kind = HostPattern::Kind::kAddress;
    pattern.text = prefix->ToString();
    pattern.cidr = *prefix;
    except.host = std::move(pattern);
    return except;
  }
  if (host.starts_with('.')) host.insert(0, "**");
  const auto rule = ParseCompact(Effect::kDeny, fmt::format("tcp {}", host));
  if (!rule) {
    Error error = rule.error();
    if (error.span) error.span = SourceSpan{"", 1, 1, static_cast<uint32_t>(text.size())};
    return std::unexpected(std::move(error));
  }
  except.host = rule->host;
  except.ports = rule->ports;
  return except;
}

Result<void> ReadProxyKey(const Node& key, const Node& value, UpstreamProxy* proxy) {
  const std::string& word = key.text;
  if (std::find(kProxyKeys.begin(), kProxyKeys.end(), word) == kProxyKeys.end())
    return NodeError(key, fmt::format("unknown key `{}` in a proxy{}", word, DidYouMean(word, kProxyKeys)));
  if (word == "basic" || word == "bearer") {
    auto source = SourceOf(value, word);
    if (!source) return std::unexpected(source.error());
    (word == "basic" ? proxy->basic : proxy->bearer) = std::move(*source);
    return {};
  }
  if (word == "except") {
    const bool list = value.kind == Node::Kind::kSequence;
    if (value.kind == Node::Kind::kMapping || value.items.size() > kMaxEntries)
      return NodeError(
          value, fmt::format("`except` lists at most {} hosts, suffixes (`.corp.example`), prefixes and host:port", kMaxEntries));
    for (size_t i = 0; i < (list ? value.items.size() : 1); ++i) {
      const Node& item = list ? value.items[i] : value;
      if (item.kind != Node::Kind::kScalar) return NodeError(item, "an entry of `except` is a text");
      auto except = ParseExcept(item.text);
      if (!except) return MovedInto(item, except.error());
      proxy->except.push_back(std::move(*except));
    }
    return {};
  }
  const auto text = ReadText(value, word);
  if (!text) return std::unexpected(text.error());
  if (word == "ca") {
    if (!text->starts_with('/')) return NodeError(value, "`ca` is the absolute path of a PEM file");
    proxy->ca_file = *text;
    return {};
  }
  if (auto parsed = ParseProxyUrl(*text, proxy); !parsed) return MovedInto(value, parsed.error());
  return {};
}

Result<UpstreamProxy> ReadProxy(const Member& member) {
  const Node& node = member.value;
  if (node.kind != Node::Kind::kMapping) return NodeError(node, "a proxy is a map, as in `{ url: http://proxy.corp:3128 }`");
  UpstreamProxy proxy;
  proxy.name = member.key.text;
  proxy.span = member.key.span;
  for (const auto& [key, value] : node.members) {
    if (auto read = ReadProxyKey(key, value, &proxy); !read) return std::unexpected(read.error());
  }
  if (proxy.port == 0) return NodeError(node, fmt::format("`{}` needs `url`, as in `http://proxy.corp:3128`", proxy.name));
  if (proxy.basic && proxy.bearer) return NodeError(node, fmt::format("`{}` has `basic` or `bearer`, not both", proxy.name));
  if (proxy.bearer && proxy.kind == UpstreamProxy::Kind::kSocks5)
    return NodeError(node, fmt::format("`{}`: SOCKS5 takes `basic`, a user and a password", proxy.name));
  if (!proxy.ca_file.empty() && proxy.kind != UpstreamProxy::Kind::kHttps)
    return NodeError(node, fmt::format("`{}`: `ca` is for a proxy of https://", proxy.name));
  return proxy;
}

Result<void> CheckName(const Node& key, std::string_view what) {
  const std::string& name = key.text;
  const bool good = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
  if (!good) return NodeError(key, fmt::format("the name of a {} is of letters, digits, `-`, `_` and `.`, at most 64", what));
  return {};
}

template <class T, class F>
Result<std::vector<T>> ReadNamed(const Node& node, std::string_view what, std::string_view slot, F read) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, fmt::format("`{}` is a map of names", slot));
  if (node.members.size() > kMaxNamed) return NodeError(node, fmt::format("`{}` has more than {} entries", slot, kMaxNamed));
  std::vector<T> out;
  for (const Member& member : node.members) {
    if (auto good = CheckName(member.key, what); !good) return std::unexpected(good.error());
    auto one = read(member);
    if (!one) return std::unexpected(one.error());
    out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace

Result<SecretSource> ParseSource(std::string_view text) {
  using Kind = SecretSource::Kind;
  const auto [word, rest] = Cut(text);
  SecretSource source;
  source.text = rest;
  const size_t column = word.size() + 2;
  if (word == "env") {
    source.kind = Kind::kEnvironment;
    if (!IsVariable(rest)) return Bad("after `env` stands the name of a variable, as in `env GITHUB_TOKEN`", column, rest.size());
  } else if (word == "file") {
    source.kind = Kind::kFile;
    if (!rest.starts_with('/')) return Bad("after `file` stands an absolute path", column, rest.size());
  } else if (word == "systemd") {
    source.kind = Kind::kSystemd;
    if (!IsFileName(rest)) return Bad("after `systemd` stands the name of a credential of the unit", column, rest.size());
  } else if (word == "command") {
    source.kind = Kind::kCommand;
    auto words = Words(rest, column);
    if (!words) return std::unexpected(words.error());
    source.command = std::move(*words);
    source.text.clear();
  } else {
    const std::string hint = rest.empty() && text.size() > 12 ? "" : DidYouMean(word, kSources);
    // The text may be the secret itself: it is not said again.
    return Bad(hint.empty() ? std::string(kWhere) : fmt::format("unknown source{}", hint), 1, 1);
  }
  return source;
}

Result<std::vector<Credential>> ReadCredentials(const Node& node) {
  return ReadNamed<Credential>(node, "credential", "credentials",
                               [](const Member& member) { return CredentialReader().Read(member); });
}

Result<std::vector<UpstreamProxy>> ReadProxies(const Node& node) {
  return ReadNamed<UpstreamProxy>(node, "proxy", "proxies", ReadProxy);
}

}  // namespace sluice::policy
