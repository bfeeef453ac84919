#include "policy/rule_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "policy/host_pattern.h"
#include "policy/target.h"

namespace sluice::policy {
namespace {

constexpr std::string_view kVerbs[] = {"http", "git", "ws",  "grpc", "graphql", "jsonrpc",
                                       "mcp",  "tls", "tcp", "udp",  "dns",     "unix"};
constexpr std::string_view kPairs[] = {"git", "graphql", "jsonrpc", "mcp"};  // with a second word
constexpr std::string_view kKinds[] = {"query", "mutation", "subscription"};
// Of the IANA registry, and of what caches and stores use beside it. The usual ones first: of two that are equally near, the
// first is the spelling that was probably meant.
constexpr std::string_view kMethods[] = {"GET",     "HEAD",    "POST",     "PUT",        "DELETE",     "PATCH",  "OPTIONS",
                                         "CONNECT", "TRACE",   "QUERY",    "PROPFIND",   "PROPPATCH",  "MKCOL",  "COPY",
                                         "MOVE",    "LOCK",    "UNLOCK",   "REPORT",     "SEARCH",     "PURGE",  "LIST",
                                         "BIND",    "UNBIND",  "REBIND",   "LABEL",      "LINK",       "UNLINK", "MERGE",
                                         "UPDATE",  "CHECKIN", "CHECKOUT", "MKACTIVITY", "MKCALENDAR", "NOTIFY", "SUBSCRIBE"};
constexpr std::string_view kGitVerbs[] = {"fetch-pack", "upload-pack", "receive-pack"};

std::unexpected<Error> TextError(std::string message, size_t column, size_t length = 1) {
  return std::unexpected(
      Error{Code::kInvalid, std::move(message), 0,
            SourceSpan{"", 1, static_cast<uint32_t>(column), static_cast<uint32_t>(std::max<size_t>(length, 1))}});
}

// Moves an error inside a piece to the text that the piece was cut from.
std::unexpected<Error> Shifted(Error error, uint32_t column) {
  if (error.span) error.span->column += column - 1;
  return std::unexpected(std::move(error));
}

template <size_t N>
bool Contains(const std::string_view (&list)[N], std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 0x20);
  return out;
}

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 0x20);
  return out;
}

bool HasUpper(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}
bool HasLower(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

std::unexpected<Error> UnknownVerb(std::string_view word, size_t column) {
  std::string hint;
  if (const std::string upper = Upper(word); upper == "ANY" || upper == "ALL" || upper == "*") {
    hint = "; every method is the verb `http`";
  } else if (Contains(kMethods, upper)) {
    hint = fmt::format("; methods are upper-case: `{}`", Upper(word));
  } else if (const std::string lower = LowerCase(word); lower != word && Contains(kVerbs, lower)) {
    hint = fmt::format("; verbs are lower-case: `{}`", lower);
  } else {
    hint = DidYouMean(word, kVerbs);
    if (hint.empty()) hint = DidYouMean(Upper(word), kMethods);
    if (hint.empty()) hint = fmt::format("; a verb is {}, or an HTTP method such as GET or GET,POST", fmt::join(kVerbs, ", "));
  }
  return TextError(fmt::format("unknown verb `{}`{}", word, hint), column, word.size());
}

Result<void> ReadMethods(Effect effect, const Piece& verb, Rule* rule) {
  size_t at = 0;
  while (at <= verb.text.size()) {
    const size_t comma = std::min(verb.text.find(',', at), verb.text.size());
    const std::string_view method = std::string_view(verb.text).substr(at, comma - at);
    const size_t column = verb.column + at;
    if (method.empty()) return TextError("an empty method; write `GET,POST`", column);
    if (auto checked = CheckMethod(method); !checked) return Shifted(checked.error(), static_cast<uint32_t>(column));
    if (effect == Effect::kAllow && (method == "CONNECT" || method == "TRACE"))
      return TextError(fmt::format("{} is never forwarded, so no rule can allow it", method), column, method.size());
    if (std::find(rule->methods.begin(), rule->methods.end(), method) != rule->methods.end())
      return TextError(fmt::format("{} is listed twice", method), column, method.size());
    rule->methods.emplace_back(method);
    at = comma + 1;
  }
  std::sort(rule->methods.begin(), rule->methods.end());
  return {};
}

Result<void> ReadKind(std::string_view kind, const Piece& piece, Rule* rule) {
  rule->verb = Verb::kGraphql;
  for (const GraphqlKind known : {GraphqlKind::kQuery, GraphqlKind::kMutation, GraphqlKind::kSubscription}) {
    if (kind != GraphqlKindText(known)) continue;
    rule->graphql = known;
    return {};
  }
  return TextError(
      fmt::format("after `graphql` stands query, mutation or subscription, not `{}`{}", kind, DidYouMean(kind, kKinds)),
      piece.column, piece.text.size());
}

// A JSON-RPC method, or a glob over them.
Result<void> ReadRpcMethod(std::string_view method, const Piece& piece, Rule* rule) {
  rule->verb = piece.text.starts_with("mcp ") ? Verb::kMcp : Verb::kJsonRpc;
  const bool good = !method.empty() && std::all_of(method.begin(), method.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f &&
           std::string_view("\"\\?[]{}").find(c) == std::string_view::npos;
  });
  if (!good)
    return TextError(fmt::format("after `{0}` stands a method, as in `{0} {1} a.example/mcp`", VerbText(rule->verb),
                                 rule->verb == Verb::kMcp ? "tools/call" : "eth_call"),
                     piece.column, piece.text.size());
  auto glob = Glob::Text(method);
  if (!glob) return Shifted(glob.error(), piece.column + static_cast<uint32_t>(piece.text.size() - method.size()));
  rule->rpc = std::move(*glob);
  return {};
}

Result<void> ReadVerb(Effect effect, const Piece& piece, Rule* rule) {
  const std::string_view verb = piece.text;
  const size_t space = verb.find(' ');
  const std::string_view word = verb.substr(0, space);
  const std::string_view second = space == std::string_view::npos ? std::string_view{} : verb.substr(space + 1);
  if (word == "graphql") return ReadKind(second, piece, rule);
  if (word == "jsonrpc" || word == "mcp") return ReadRpcMethod(second, piece, rule);
  if (word == "git") {
    const std::string_view sub = second;
    if (sub == "fetch-pack" || sub == "upload-pack") {
      rule->verb = Verb::kGitFetchPack;
    } else if (sub == "receive-pack") {
      rule->verb = Verb::kGitReceivePack;
    } else {
      std::string hint = DidYouMean(sub, kGitVerbs);
      if (sub == "clone" || sub == "fetch" || sub == "pull") hint = "; did you mean `git fetch-pack`?";
      if (sub == "push") hint = "; did you mean `git receive-pack`?";
      return TextError(fmt::format("after `git` stands fetch-pack or receive-pack, not `{}`{}", sub, hint), piece.column,
                       verb.size());
    }
    return {};
  }
  if (word == verb) {
    for (const Verb known : {Verb::kHttp, Verb::kWs, Verb::kGrpc, Verb::kTls, Verb::kTcp, Verb::kUdp, Verb::kDns, Verb::kUnix}) {
      if (verb != VerbText(known)) continue;
      rule->verb = known;
      return {};
    }
    rule->verb = Verb::kHttp;
    return ReadMethods(effect, piece, rule);
  }
  return UnknownVerb(word, piece.column);
}

Result<uint16_t> ReadPort(std::string_view digits, size_t column) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || digits.size() > 5 || error != std::errc{} || end != digits.data() + digits.size() || value == 0 ||
      value > 65535 || digits[0] == '0')
    return TextError(fmt::format("`{}` is not a port; ports are 1 to 65535, as in `443,8000-8099`", digits), column,
                     digits.size());
  return static_cast<uint16_t>(value);
}

Result<std::vector<PortRange>> ReadPorts(const Piece& piece) {
  std::vector<PortRange> ranges;
  const std::string_view text = piece.text;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    const size_t dash = item.find('-');
    const auto first = ReadPort(item.substr(0, dash), piece.column + at);
    if (!first) return std::unexpected(first.error());
    PortRange range{*first, *first};
    if (dash != std::string_view::npos) {
      const auto last = ReadPort(item.substr(dash + 1), piece.column + at + dash + 1);
      if (!last) return std::unexpected(last.error());
      range.last = *last;
    }
    if (range.last < range.first)
      return TextError(fmt::format("the range `{}` ends before it begins", item), piece.column + at, item.size());
    ranges.push_back(range);
    at = comma + 1;
  }
  std::sort(ranges.begin(), ranges.end());
  std::vector<PortRange> merged;
  for (const PortRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1u) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

// Paths of files: literal but for wildcards, and lexically normal.
Result<Glob> FileGlob(std::string_view text, std::string_view what) {
  if (!text.starts_with('/')) return TextError(fmt::format("{} is an absolute path", what), 1, text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::string_view("?[]{}\\").find(c) != std::string_view::npos) return TextError("only `*` and `**` are wildcards", i + 1);
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return TextError("a control character in a path", i + 1);
  }
  if (text.size() > 1 && text.ends_with('/')) return TextError(fmt::format("{} does not end in `/`", what), text.size());
  size_t at = 1;
  while (at <= text.size()) {
    const size_t end = std::min(text.find('/', at), text.size());
    const std::string_view segment = text.substr(at, end - at);
    if (segment == "." || segment == ".." || segment.empty())
      return TextError("write the path without `//`, `.` and `..`", at + 1, segment.size());
    at = end + 1;
  }
  return Glob::Path(text);
}

// "package.Service/Method", as the path that it is.
Result<Glob> RpcGlob(std::string_view text) {
  constexpr std::string_view kForm = "a call of gRPC is `package.Service/Method`, with `*` for any name and `**` for any of both";
  const bool clean = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._*/").find(c) != std::string_view::npos;
  });
  const auto slashes = std::count(text.begin(), text.end(), '/');
  const bool any = text.find("**") != std::string_view::npos;
  if (!clean || text.starts_with('/') || text.ends_with('/') || text.find("//") != std::string_view::npos ||
      (any ? slashes > 1 : slashes != 1))
    return TextError(std::string(kForm), 1, text.size());
  return Glob::Path(fmt::format("/{}", text));
}

Result<Glob> ReadPath(const Rule& rule, std::string_view text) {
  if (rule.verb == Verb::kUnix) return FileGlob(text, "a socket");
  if (rule.verb == Verb::kGrpc) return RpcGlob(text);
  auto canonical = CanonicalizePathGlob(text);
  if (!canonical) return std::unexpected(canonical.error());
  if (!IsGit(rule.verb)) return Glob::Path(canonical->text);
  std::string repo = LowerCase(canonical->text);
  // An escape is upper-case in the compared form; its letters never stand for themselves.
  for (size_t i = 0; i + 2 < repo.size(); ++i)
    if (repo.compare(i, 3, "%2a") == 0) repo.replace(i, 3, "%2A");
  if (repo.ends_with(".git")) repo.resize(repo.size() - 4);
  if (repo.size() < 2 || repo.ends_with('/'))
    return TextError("name a repository, such as `/octo/hello` or `/octo/*`", 1, text.size());
  return Glob::Path(repo);
}

bool TakesPorts(Verb verb) { return verb != Verb::kDns && verb != Verb::kUnix; }
bool TakesPaths(Verb verb) { return IsInner(verb) || verb == Verb::kUnix; }

Result<void> ReadHost(const RulePieces& pieces, Rule* rule) {
  if (rule->verb == Verb::kUnix) {
    if (pieces.host) return TextError("`unix` takes a path and no host", pieces.host->column, pieces.host->text.size());
    return {};
  }
  if (!pieces.host)
    return TextError(fmt::format("`{}` needs a host", VerbText(rule->verb)), pieces.verb.column, pieces.verb.text.size());
  std::string_view text = pieces.host->text;
  uint32_t column = pieces.host->column;
  if (text.starts_with('[') && text.ends_with(']')) {
    text = text.substr(1, text.size() - 2);
    ++column;
    if (text.find(':') == std::string_view::npos)
      return TextError("brackets are for IPv6 addresses", column - 1, text.size() + 2);
  } else if (std::count(text.begin(), text.end(), ':') > 1) {
    return TextError("write an IPv6 address in brackets: `[fd00::1]:443`", column, text.size());
  }
  auto host = ParseHostPattern(text);
  if (!host) return Shifted(host.error(), column);
  const bool address = host->kind == HostPattern::Kind::kAddress;
  const bool opaque = rule->verb == Verb::kTcp || rule->verb == Verb::kUdp;
  if (address && rule->verb == Verb::kDns) return TextError("`dns` takes a name", column, text.size());
  if (address && !opaque && host->cidr->length128() != 128)
    return TextError(fmt::format("a prefix is a target of `tcp` and `udp`; beside `{}` write a host and the key `ip: [{}]`",
                                 VerbText(rule->verb), text),
                     column, text.size());
  rule->host = std::move(*host);
  return {};
}

Result<void> ReadPathPieces(const RulePieces& pieces, Rule* rule) {
  if (!pieces.paths.empty() && !TakesPaths(rule->verb))
    return TextError(fmt::format("`{}` takes no path", VerbText(rule->verb)), pieces.paths[0].column,
                     pieces.paths[0].text.size());
  if (rule->verb == Verb::kGrpc && pieces.paths.empty())
    return TextError("`grpc` needs a call after the host, as in `grpc a.example package.Service/Method`", pieces.verb.column,
                     pieces.verb.text.size());
  if (rule->verb == Verb::kUnix && pieces.paths.empty())
    return TextError("`unix` needs a path", pieces.verb.column, pieces.verb.text.size());
  for (const Piece& piece : pieces.paths) {
    // `GET 10.0.0.0/8` is a prefix that was meant, not a path.
    const std::string_view tail = std::string_view(piece.text).substr(piece.text.empty() ? 0 : 1);
    if (rule->verb == Verb::kHttp && rule->host.kind == HostPattern::Kind::kAddress && !tail.empty() && tail.size() <= 3 &&
        std::all_of(tail.begin(), tail.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return TextError("a prefix is a target of `tcp` and `udp`; here write a host and the key `ip:`", piece.column,
                       piece.text.size());
    auto glob = ReadPath(*rule, piece.text);
    if (!glob) return Shifted(glob.error(), piece.column);
    rule->paths.push_back(std::move(*glob));
  }
  return {};
}

Result<void> ReadScheme(const RulePieces& pieces, Effect effect, Rule* rule) {
  if (IsInner(rule->verb) && effect == Effect::kAllow) rule->scheme = Scheme::kHttps;
  if (!pieces.scheme) return {};
  const Piece& piece = *pieces.scheme;
  if (!IsInner(rule->verb) || IsGit(rule->verb))
    return TextError(fmt::format("`{}` takes no scheme", VerbText(rule->verb)), piece.column, piece.text.size());
  const bool ws = rule->verb == Verb::kWs;
  if (piece.text == "http" || (ws && piece.text == "ws")) {
    rule->scheme = Scheme::kHttp;
  } else if (piece.text == "https" || (ws && piece.text == "wss")) {
    rule->scheme = Scheme::kHttps;
  } else if (piece.text == "ws" || piece.text == "wss") {
    return TextError(fmt::format("the scheme `{}` belongs to the verb `ws`", piece.text), piece.column, piece.text.size());
  } else {
    return TextError(fmt::format("unknown scheme `{}`; it is https (the default) or http", piece.text), piece.column,
                     piece.text.size());
  }
  return {};
}

Result<void> ReadPortsPiece(const RulePieces& pieces, Effect effect, Rule* rule) {
  if (pieces.ports) {
    if (!TakesPorts(rule->verb))
      return TextError(fmt::format("`{}` takes no port", VerbText(rule->verb)), pieces.ports->column, pieces.ports->text.size());
    auto ports = ReadPorts(*pieces.ports);
    if (!ports) return std::unexpected(ports.error());
    rule->ports = std::move(*ports);
    return {};
  }
  if (effect == Effect::kDeny || !TakesPorts(rule->verb)) return {};
  if (rule->verb == Verb::kTcp || rule->verb == Verb::kUdp)
    return TextError(fmt::format("`{0}` needs ports, as in `{0} db.internal:5432`", VerbText(rule->verb)),
                     pieces.host ? pieces.host->column : 1, pieces.host ? pieces.host->text.size() : 1);
  const uint16_t port = rule->scheme == Scheme::kHttp ? 80 : 443;
  rule->ports = {{port, port}};
  return {};
}

}  // namespace

bool IsCommonMethod(std::string_view method) { return Contains(kMethods, method); }

Result<void> CheckMethod(std::string_view method) {
  if (!IsToken(method) || HasLower(method) || !HasUpper(method)) return UnknownVerb(method, 1);
  if (IsCommonMethod(method)) return {};
  const std::string lower = LowerCase(method);
  if (lower == "any" || lower == "all" || Contains(kVerbs, lower) || !Nearest(method, kMethods).empty())
    return UnknownVerb(method, 1);
  return {};
}

Result<RulePieces> CutCompact(std::string_view text) {
  RulePieces pieces;
  size_t space = text.find(' ');
  if (Contains(kPairs, text.substr(0, space)) && space != std::string_view::npos) space = text.find(' ', space + 1);
  const std::string_view verb = text.substr(0, space);
  pieces.verb = {std::string(verb), 1};
  Rule probe;
  if (space == std::string_view::npos) {
    if (const auto known = ReadVerb(Effect::kDeny, pieces.verb, &probe);
        !known && text.find_first_of("./:") == std::string_view::npos)
      return std::unexpected(known.error());
    return TextError("a rule is `VERB TARGET`, such as `GET api.github.com/repos/**`", 1, text.size());
  }
  if (auto known = ReadVerb(Effect::kDeny, pieces.verb, &probe); !known) return std::unexpected(known.error());
  size_t at = space + 1;
  std::string_view target = text.substr(at);
  const auto column = [&](size_t offset) { return static_cast<uint32_t>(at + offset + 1); };
  if (target.empty()) return TextError("a rule is `VERB TARGET`, such as `GET api.github.com/repos/**`", 1, text.size());
  if (probe.verb == Verb::kUnix) {
    pieces.paths.push_back({std::string(target), column(0)});
    return pieces;
  }
  if (const size_t gap = target.find(' '); probe.verb == Verb::kGrpc && gap != std::string_view::npos) {
    pieces.paths.push_back({std::string(target.substr(gap + 1)), column(gap + 1)});
    target = target.substr(0, gap);
  } else if (gap != std::string_view::npos) {
    return TextError(fmt::format("one target a rule, after one space; `{}` is too much", target.substr(gap)), column(gap),
                     target.size() - gap);
  }
  if (const size_t mark = target.find("://"); mark != std::string_view::npos && mark < target.find('/')) {
    pieces.scheme = Piece{std::string(target.substr(0, mark)), column(0)};
    at += mark + 3;
    target.remove_prefix(mark + 3);
  }
  // A prefix has a slash of its own: "10.0.0.0/8:5432".
  const bool prefixes = probe.verb == Verb::kTcp || probe.verb == Verb::kUdp;
  const size_t close = target.starts_with('[') ? target.find(']') : 0;
  if (close == std::string_view::npos) return TextError("a bracket is not closed", column(0), target.size());
  const size_t slash = prefixes ? std::string_view::npos : target.find('/', close);
  const std::string_view authority = target.substr(0, slash);
  if (slash != std::string_view::npos) pieces.paths.push_back({std::string(target.substr(slash)), column(slash)});
  const size_t colon = authority.rfind(':');
  const bool bare_v6 = close == 0 && std::count(authority.begin(), authority.end(), ':') > 1;
  if (colon != std::string_view::npos && colon >= close && !bare_v6) {
    pieces.host = Piece{std::string(authority.substr(0, colon)), column(0)};
    pieces.ports = Piece{std::string(authority.substr(colon + 1)), column(colon + 1)};
  } else {
    pieces.host = Piece{std::string(authority), column(0)};
  }
  return pieces;
}

Result<Rule> BuildRule(Effect effect, const RulePieces& pieces) {
  Rule rule;
  rule.allow = effect == Effect::kAllow;
  if (auto r = ReadVerb(effect, pieces.verb, &rule); !r) return std::unexpected(r.error());
  if (auto r = ReadScheme(pieces, effect, &rule); !r) return std::unexpected(r.error());
  if (auto r = ReadHost(pieces, &rule); !r) return std::unexpected(r.error());
  if (auto r = ReadPortsPiece(pieces, effect, &rule); !r) return std::unexpected(r.error());
  if (auto r = ReadPathPieces(pieces, &rule); !r) return std::unexpected(r.error());
  if (rule.allow && rule.verb == Verb::kDns) rule.types = {kDnsA, kDnsAaaa};
  return rule;
}

Result<Rule> ParseCompact(Effect effect, std::string_view text) {
  const auto pieces = CutCompact(text);
  if (!pieces) return std::unexpected(pieces.error());
  auto rule = BuildRule(effect, *pieces);
  if (!rule) return rule;
  if (auto checked = CheckRule(*rule); !checked) return std::unexpected(checked.error());
  return rule;
}

namespace {

// Where an upstream proxy looks the name up, the address cannot be checked.
Result<void> CheckRoute(const Rule& rule) {
  if (!rule.via.empty() && !rule.ip.empty())
    return TextError("`via` with `ip`: the upstream proxy looks the name up, so the address that is dialled cannot be checked", 1,
                     1);
  if (!rule.via.empty() && rule.verb == Verb::kTcp && rule.host.cidr)
    return TextError(
        "`via` with an address as the target: the upstream proxy looks names up, so which lead there cannot be checked; "
        "write the name",
        1, 1);
  if (rule.scheme == Scheme::kHttp && !rule.with.empty())
    return TextError("`with` on a rule of http://: a credential is never sent in the clear", 1, 1);
  if (rule.scheme == Scheme::kHttp && !rule.pins.empty()) return TextError("`pins` on a rule of http://, which has no key", 1, 1);
  return {};
}

// GraphQL servers take their own keys of a URL for more than the body.
Result<void> CheckGraphqlKeys(const Rule& rule) {
  static constexpr std::string_view kOwn[] = {"query", "operationName", "variables", "extensions"};
  if (!rule.allow || rule.verb != Verb::kGraphql) return {};
  for (const std::string_view key : kOwn) {
    const bool matched = std::any_of(rule.query.begin(), rule.query.end(), [&](const ValueMatcher& m) { return m.key == key; });
    const bool listed =
        rule.query_keys && std::find(rule.query_keys->begin(), rule.query_keys->end(), key) != rule.query_keys->end();
    if (matched || listed)
      return TextError(
          fmt::format("`{}` in a URL is a GraphQL request by itself: it is read as one, and no key of the rule", key), 1, 1);
  }
  return {};
}

}  // namespace

Result<void> CheckRule(const Rule& rule) {
  if (auto checked = CheckRoute(rule); !checked) return checked;
  if (auto checked = CheckGraphqlKeys(rule); !checked) return checked;
  if (!rule.allow || !IsInner(rule.verb)) return {};
  for (const Glob& path : rule.paths) {
    const std::string& text = path.text();
    const bool slash = text.find("%2F") != std::string::npos || text.find("%2f") != std::string::npos;
    if (slash && !rule.encoded_slash) return TextError("an encoded slash matches only with the key `encoded-slash: true`", 1, 1);
    if (text.find(';') != std::string::npos && !rule.path_params)
      return TextError("`;` in a path matches only with the key `path-params: true`", 1, 1);
  }
  return {};
}

Result<ExecutablePattern> ParseExecutable(std::string_view text) {
  ExecutablePattern pattern;
  pattern.text = text;
  constexpr std::string_view kDigest = "sha256:";
  if (!text.starts_with(kDigest)) {
    auto glob = FileGlob(text, "an executable");
    if (!glob) return std::unexpected(glob.error());
    pattern.path = std::move(*glob);
    return pattern;
  }
  const std::string_view hex = text.substr(kDigest.size());
  std::array<uint8_t, 32> digest{};
  bool good = hex.size() == 64;
  for (size_t i = 0; good && i < 32; ++i) {
    const auto [end, error] = std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, digest[i], 16);
    good = error == std::errc{} && end == hex.data() + 2 * i + 2;
  }
  if (!good) return TextError("after `sha256:` stand 64 hexadecimal digits", kDigest.size() + 1, hex.size());
  pattern.text = LowerCase(text);
  pattern.sha256 = digest;
  return pattern;
}

}  // namespace sluice::policy
