// The native form of what was imported: rules in the order of the original, each after the remarks on it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "policy/import/import.h"

namespace sluice::policy {
namespace {

constexpr size_t kLineWidth = 118;

// Plain where every YAML reader takes it for this text, also between brackets.
bool IsPlainWord(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._@+*-").find(c) != std::string_view::npos;
  };
  return !text.empty() && text[0] != '*' && text[0] != '-' && text[0] != '@' && text[0] != '+' && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), good) && !IsAmbiguousPlain(text);
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string Word(std::string_view text) { return IsPlainWord(text) ? std::string(text) : Quoted(text); }

// After `allow: `, to the end of the line. A method may begin with a character that YAML gives a meaning (`*A`, `!A`).
std::string LineText(std::string_view text) {
  const bool letter = !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  const bool plain = letter && text.find(": ") == std::string_view::npos && text.find(" #") == std::string_view::npos &&
                     !text.ends_with(':') && std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  return plain ? std::string(text) : Quoted(text);
}

template <class T, class F>
std::string FlowList(const std::vector<T>& items, F text) {
  std::vector<std::string> words;
  words.reserve(items.size());
  for (const T& item : items) words.push_back(Word(text(item)));
  return fmt::format("[{}]", fmt::join(words, ", "));
}

std::string PortText(const PortRange& range) {
  return range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
}

// "graphql query": what stands before the host.
std::string VerbWords(Rule rule) {
  rule.paths.clear();
  const std::string text = CompactText(rule);
  return text.substr(0, text.rfind(' '));
}

// The map form, for what has no one-line form: several paths.
std::string LongForm(const Rule& rule) {
  constexpr std::string_view kIndent = "\n      ";
  std::string out;
  const auto add = [&](std::string_view key, const std::string& value) { out += fmt::format("{}{}: {}", kIndent, key, value); };
  if (rule.methods.empty()) {
    const std::string verb = VerbWords(rule);
    add("verb", verb.find('*') == std::string::npos ? LineText(verb) : Quoted(verb));
  } else {
    add("methods", FlowList(rule.methods, [](const std::string& m) { return m; }));
  }
  if (rule.scheme && (*rule.scheme == Scheme::kHttp || !rule.allow))
    add("scheme", *rule.scheme == Scheme::kHttp ? "http" : "https");
  if (rule.verb != Verb::kUnix) {
    const std::string& host = rule.host.text;
    add("host", Word(host.find(':') == std::string::npos ? host : fmt::format("[{}]", host)));
  }
  if (!rule.ports.empty()) {
    std::vector<std::string> ports;
    ports.reserve(rule.ports.size());
    for (const PortRange& range : rule.ports) ports.push_back(PortText(range));
    add("ports", fmt::format("[{}]", fmt::join(ports, ", ")));
  }
  add("path", FlowList(rule.paths, [](const Glob& g) { return g.text(); }));
  return out;
}

std::string MatchersText(const std::vector<ValueMatcher>& matchers) {
  std::vector<std::string> parts;
  parts.reserve(matchers.size());
  for (const ValueMatcher& matcher : matchers)
    parts.push_back(fmt::format("{}: {}", Word(matcher.key), FlowList(matcher.values, [](const Glob& g) { return g.text(); })));
  return fmt::format("{{ {} }}", fmt::join(parts, ", "));
}

std::string RuleYaml(const Rule& rule) {
  const char* effect = rule.allow ? "allow" : "deny";
  std::string out = rule.paths.size() > 1 ? fmt::format("  - {}:{}", effect, LongForm(rule))
                                          : fmt::format("  - {}: {}", effect, LineText(CompactText(rule)));
  const auto add = [&](std::string_view key, const std::string& value) { out += fmt::format("\n    {}: {}", key, value); };
  const auto exe = [](const ExecutablePattern& e) { return e.text; };
  const auto glob = [](const Glob& g) { return g.text(); };
  if (!rule.operation.empty()) add("operation", FlowList(rule.operation, glob));
  if (!rule.fields.empty()) add("fields", FlowList(rule.fields, glob));
  if (!rule.json.empty()) add("json", MatchersText(rule.json));
  if (!rule.by.empty()) add("by", FlowList(rule.by, exe));
  if (!rule.under.empty()) add("under", FlowList(rule.under, exe));
  if (!rule.ip.empty()) add("ip", FlowList(rule.ip, [](const Cidr& c) { return c.ToString(); }));
  if (!rule.query.empty()) add("query", MatchersText(rule.query));
  if (!rule.headers.empty()) add("headers", MatchersText(rule.headers));
  if (rule.encoded_slash) add("encoded-slash", "true");
  if (rule.path_params) add("path-params", "true");
  if (!rule.note.empty()) add("note", Quoted(rule.note));
  return out + '\n';
}

// A comment of as many lines as it takes, without a character that could end it early.
std::string Comment(std::string_view indent, std::string_view text) {
  std::string out;
  std::string line = fmt::format("{}#", indent);
  const size_t empty = line.size();
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, space - at);
    if (line.size() > empty && line.size() + 1 + word.size() > kLineWidth && line.size() > empty + 3) {
      out += line + '\n';
      line = fmt::format("{}#  ", indent);
    }
    line += ' ';
    for (const char c : word) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    at = space + 1;
  }
  return out + line + '\n';
}

std::string RemarkText(const Finding& finding) {
  constexpr std::string_view kPrefix = "import-";
  std::string_view word = finding.code;
  if (word.starts_with(kPrefix)) word.remove_prefix(kPrefix.size());
  return fmt::format("{}: {} (line {})", word == "nothing" ? "no rule" : word, finding.message, finding.span.line);
}

}  // namespace

std::string WriteNative(const Imported& imported, std::string_view source) {
  std::string out = Comment("", fmt::format("From {}, {}. Lines are those of the original.", ImportTitle(imported.kind), source));
  for (const ImportRemark& remark : imported.remarks)
    if (remark.of_file) out += Comment("", RemarkText(remark.finding));
  out += "version: 1\n";
  if (!imported.name.empty()) out += fmt::format("name: {}\n", Word(imported.name));
  out += imported.rules.empty() ? "rules: []\n" : "rules:\n";
  size_t next = 0;
  const auto say = [&](size_t before) {
    for (; next < imported.remarks.size() && imported.remarks[next].before <= before; ++next)
      if (!imported.remarks[next].of_file) out += Comment("  ", RemarkText(imported.remarks[next].finding));
  };
  for (size_t i = 0; i < imported.rules.size(); ++i) {
    say(i);
    out += RuleYaml(imported.rules[i]);
  }
  say(imported.rules.size());
  return out;
}

}  // namespace sluice::policy
