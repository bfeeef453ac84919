#include "app/policy_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/policy_files.h"
#include "app/question.h"
#include "app/standard_output.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/io/load.h"
#include "policy/io/yaml.h"
#include "policy/rule_keys.h"
#include "policy/rule_text.h"

namespace sluice::app {
namespace {

using policy::Node;
using policy::NodeError;

constexpr std::array<std::string_view, 16> kKeys = {"allow", "deny",       "by",   "under", "ip",        "at",
                                                    "rule",  "reason",     "note", "field", "operation", "tool",
                                                    "ref",   "ref-change", "json", "header"};
constexpr std::array<std::string_view, 3> kFileKeys = {"version", "policy", "tests"};
// What a policy says of what it refuses.
constexpr std::array<std::string_view, 13> kReasons = {"no_rule",   "method",  "path",    "query", "header",
                                                       "operation", "binary",  "port",    "dns",   "private_ip",
                                                       "deny_rule", "expired", "protocol"};

// One question and what it should be answered.
struct Test {
  bool allow = false;
  std::string question;
  SourceSpan span;
  std::string by{};
  std::vector<std::string> under{};
  std::optional<IpAddress> address{};
  std::vector<std::pair<std::string, std::string>> headers{};
  AskedBody body{};
  std::optional<WallTime> at{};
  std::string rule{};    ///< id of the rule that must decide; empty: any
  std::string reason{};  ///< code of the denial; empty: any
};

struct TestFile {
  std::string policy;  ///< as written, relative to the file
  SourceSpan policy_span{};
  std::vector<Test> tests;
};

struct Failure {
  SourceSpan span;
  std::string message;
};

struct FileResult {
  std::string file;
  policy::SnapshotPtr snapshot;
  size_t passed = 0;
  std::vector<Failure> failures;
  std::set<policy::RuleRef> decided;

  [[nodiscard]] unsigned coverage() const {
    const size_t all = snapshot->rules().size();
    return all == 0 ? 100 : static_cast<unsigned>(decided.size() * 100 / all);
  }
};

Result<void> ReadPaths(const Node& node, std::string_view key, std::vector<std::string>* out) {
  const auto take = [&](const Node& item) -> Result<void> {
    auto text = policy::ReadText(item, key);
    if (!text) return std::unexpected(text.error());
    if (!text->starts_with('/')) return NodeError(item, fmt::format("`{}` takes absolute paths", key));
    out->push_back(*std::move(text));
    return {};
  };
  if (node.kind != Node::Kind::kSequence) return take(node);
  for (const Node& item : node.items) {
    if (auto taken = take(item); !taken) return taken;
  }
  return {};
}

Result<void> ReadTexts(const Node& node, std::string_view key, std::vector<std::string>* out) {
  for (const Node& item : node.kind == Node::Kind::kSequence ? node.items : std::vector<Node>{node}) {
    auto text = policy::ReadText(item, key);
    if (!text) return std::unexpected(text.error());
    out->push_back(*std::move(text));
  }
  return {};
}

Result<void> ReadJson(const Node& node, AskedBody* body) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, "`json` is a map, as in `{ /params/name: x }`");
  for (const auto& [key, value] : node.members) {
    if (value.kind != Node::Kind::kScalar) return NodeError(value, "a value of `json` is a text, a number, true, false or null");
    if (!key.text.empty() && !key.text.starts_with('/'))
      return NodeError(key, fmt::format("`{}` is not a JSON pointer", key.text));
    body->json.emplace_back(key.text, value.text);
  }
  return {};
}

Result<void> ReadHeaders(const Node& node, std::vector<std::pair<std::string, std::string>>* headers) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, "`header` is a map, as in `{ x-team: a }`");
  for (const auto& [key, value] : node.members) {
    auto text = policy::ReadText(value, "header");
    if (!text) return std::unexpected(text.error());
    auto header = ParseHeader(fmt::format("{}: {}", key.text, *text));
    if (!header) return NodeError(key, header.error().message);
    headers->push_back(*std::move(header));
  }
  return {};
}

Result<void> ReadKey(const Node& key, const Node& value, Test* test) {
  const std::string& word = key.text;
  if (word == "header") return ReadHeaders(value, &test->headers);
  if (word == "field") return ReadTexts(value, word, &test->body.fields);
  if (word == "ref") return ReadTexts(value, word, &test->body.refs);
  if (word == "json") return ReadJson(value, &test->body);
  if (word == "under") return ReadPaths(value, word, &test->under);
  if (word == "at") {
    const auto at = ParseInstant(value.text);
    if (!at) return policy::MovedInto(value, at.error());
    test->at = *at;
    return {};
  }
  if (word == "ip") {
    test->address = IpAddress::Parse(value.text);
    if (!test->address) return NodeError(value, fmt::format("`{}` is not an address", value.text));
    return {};
  }
  auto text = policy::ReadText(value, word);
  if (!text) return std::unexpected(text.error());
  if (word == "by" && !text->starts_with('/')) return NodeError(value, "`by` takes an absolute path");
  if (word == "reason" && std::ranges::find(kReasons, *text) == kReasons.end())
    return NodeError(value, fmt::format("no denial has the reason `{}`{}", *text, policy::DidYouMean(*text, kReasons)));
  if (word == "operation") test->body.operation = *std::move(text);
  if (word == "tool") test->body.tool = *std::move(text);
  if (word == "ref-change") test->body.ref_change = *std::move(text);
  if (word == "by") test->by = *std::move(text);
  if (word == "rule") test->rule = *std::move(text);
  if (word == "reason") test->reason = *std::move(text);
  return {};
}

// An entry asks one question, or several alike.
Result<void> ReadTests(const Node& item, TestFile* file) {
  if (item.kind != Node::Kind::kMapping) return NodeError(item, "a test is `allow: QUESTION` or `deny: QUESTION`");
  Test test;
  const policy::Member* asked = nullptr;
  for (const auto& member : item.members) {
    const std::string& word = member.key.text;
    if (std::ranges::find(kKeys, word) == kKeys.end())
      return NodeError(member.key, fmt::format("unknown key `{}` in a test{}", word, policy::DidYouMean(word, kKeys)));
    if (word == "allow" || word == "deny") {
      if (asked != nullptr) return NodeError(member.key, "a test is one `allow` or one `deny`");
      asked = &member;
      continue;
    }
    if (auto read = ReadKey(member.key, member.value, &test); !read) return read;
  }
  if (asked == nullptr) return NodeError(item, "a test needs `allow` or `deny`");
  test.allow = asked->key.text == "allow";
  if (test.allow && !test.reason.empty()) return NodeError(asked->key, "`reason` is that of a denial");
  if (!test.under.empty() && test.by.empty()) return NodeError(asked->key, "`under` needs `by`: the program that asks");
  const bool list = asked->value.kind == Node::Kind::kSequence;
  for (const Node& question : list ? asked->value.items : std::vector<Node>{asked->value}) {
    auto text = policy::ReadText(question, asked->key.text);
    if (!text) return std::unexpected(text.error());
    if (file->tests.size() >= kMaxPolicyTests)
      return NodeError(question, fmt::format("more than {} tests in one file", kMaxPolicyTests));
    test.question = *std::move(text);
    test.span = question.span;
    file->tests.push_back(test);
  }
  return {};
}

Result<TestFile> ReadTestFile(const std::string& path) {
  const auto text = ReadFile(path, policy::kMaxFileBytes);
  if (!text) return std::unexpected(text.error());
  const auto root = policy::ParseYaml(*text, path);
  if (!root) return std::unexpected(root.error());
  if (root->kind != Node::Kind::kMapping) return NodeError(*root, "a test file is a map: `version: 1`, `policy:` and `tests:`");
  TestFile file;
  bool versioned = false;
  for (const auto& [key, value] : root->members) {
    if (key.text == "version") {
      if (value.text != "1") return NodeError(value, "this version reads `version: 1`");
      versioned = true;
    } else if (key.text == "policy") {
      auto name = policy::ReadText(value, "policy");
      if (!name) return std::unexpected(name.error());
      file.policy = *std::move(name);
      file.policy_span = value.span;
    } else if (key.text == "tests") {
      if (value.kind != Node::Kind::kSequence) return NodeError(value, "`tests` is a list");
      for (const Node& item : value.items) {
        if (auto read = ReadTests(item, &file); !read) return std::unexpected(read.error());
      }
    } else {
      return NodeError(key, fmt::format("unknown key `{}` in a test file{}", key.text, policy::DidYouMean(key.text, kFileKeys)));
    }
  }
  if (!versioned) return NodeError(*root, "`version: 1` is missing");
  if (file.policy.empty()) return NodeError(*root, "`policy` is missing: the file under test");
  if (file.tests.empty()) return NodeError(*root, "there is no test in it");
  return file;
}

std::string RuleText(const policy::RuleInfo& rule) {
  return fmt::format("`{}: {}` at {}:{}", rule.allow ? "allow" : "deny", rule.text, Printable(rule.span.file), rule.span.line);
}

// What a test got, where that is not what it wants.
std::optional<std::string> Complaint(const Test& test, const Answer& answer, const policy::Snapshot& snapshot) {
  const bool allowed = answer.decision.allowed && !answer.decision.audit_only;
  const policy::RuleInfo* rule = snapshot.rule(answer.decision.rule);
  if (allowed != test.allow) {
    std::string text = allowed ? "was allowed" : fmt::format("was denied ({})", policy::ReasonText(answer.decision.reason));
    if (rule != nullptr) text += fmt::format(" by {}", RuleText(*rule));
    if (const auto* nearest = snapshot.rule(answer.advice.nearest); !allowed && nearest != nullptr)
      text += fmt::format("; nearest is {}", RuleText(*nearest));
    return text;
  }
  if (!test.reason.empty() && test.reason != policy::ReasonText(answer.decision.reason))
    return fmt::format("was denied for `{}`, not `{}`", policy::ReasonText(answer.decision.reason), test.reason);
  if (!test.rule.empty() && (rule == nullptr || rule->id != test.rule))
    return fmt::format("was decided by {}, not `{}`", rule != nullptr ? RuleText(*rule) : "no rule", test.rule);
  return std::nullopt;
}

Result<void> RunOne(const Test& test, FileResult* result) {
  Asker asker;
  asker.snapshot = result->snapshot;
  asker.now = test.at.value_or(SystemClock().Wall());
  asker.address = test.address;
  asker.headers = test.headers;
  asker.body = test.body;
  if (!test.by.empty()) {
    auto process = ProcessNamed(test.by, *asker.snapshot);
    if (!process) return std::unexpected(process.error());
    for (const std::string& path : test.under) process->ancestors.push_back({.path = path, .trusted = true});
    asker.process = *std::move(process);
  }
  const auto answer = Ask(asker, test.question);
  if (!answer) return std::unexpected(Error{Code::kInvalid, answer.error().message, 0, test.span});
  if (asker.snapshot->rule(answer->decision.rule) != nullptr) result->decided.insert(answer->decision.rule);
  if (auto complaint = Complaint(test, *answer, *asker.snapshot)) {
    result->failures.push_back({test.span, fmt::format("{}: {}: {}", test.allow ? "allow" : "deny", test.question, *complaint)});
  } else {
    ++result->passed;
  }
  return {};
}

Result<FileResult> RunFile(const std::string& path) {
  const auto file = ReadTestFile(path);
  if (!file) return std::unexpected(file.error());
  FileResult result;
  result.file = path;
  policy::LoadOptions options;
  options.check_executables = false;
  auto snapshot = policy::LoadFile((std::filesystem::path(path).parent_path() / file->policy).string(), options);
  if (!snapshot) {
    // Where it is named, unless the policy itself has a place for what is wrong.
    Error error = std::move(snapshot.error());
    if (!error.span) error.span = file->policy_span;
    return std::unexpected(std::move(error));
  }
  result.snapshot = *std::move(snapshot);
  for (const Test& test : file->tests) {
    if (auto run = RunOne(test, &result); !run) return std::unexpected(run.error());
  }
  return result;
}

void PrintText(const FileResult& result) {
  const char* red = StdoutHasColor() ? "\x1b[31m" : "";
  const char* green = StdoutHasColor() ? "\x1b[32m" : "";
  const char* off = StdoutHasColor() ? "\x1b[0m" : "";
  for (const Failure& failure : result.failures)
    fmt::print("{}:{}:{}: {}failed{} {}\n", Printable(failure.span.file), failure.span.line, failure.span.column, red, off,
               Printable(failure.message));
  const auto rules = result.snapshot->rules();
  fmt::print("{}: {}{} passed{}, {} failed; {} of {} rules decided a test\n", Printable(result.file),
             result.failures.empty() ? green : "", result.passed, off, result.failures.size(), result.decided.size(),
             rules.size());
  for (size_t i = 0; i < rules.size(); ++i)
    if (!result.decided.contains(policy::RuleRef{static_cast<uint32_t>(i)})) fmt::print("  not tested: {}\n", RuleText(rules[i]));
}

nlohmann::json ToJson(const FileResult& result) {
  nlohmann::json out{{"file", result.file},
                     {"passed", result.passed},
                     {"failures", nlohmann::json::array()},
                     {"rules", result.snapshot->rules().size()},
                     {"coverage_percent", result.coverage()},
                     {"not_tested", nlohmann::json::array()}};
  for (const Failure& failure : result.failures)
    out["failures"].push_back({{"line", failure.span.line}, {"column", failure.span.column}, {"message", failure.message}});
  const auto rules = result.snapshot->rules();
  for (size_t i = 0; i < rules.size(); ++i)
    if (!result.decided.contains(policy::RuleRef{static_cast<uint32_t>(i)}))
      out["not_tested"].push_back({{"rule", rules[i].text}, {"file", rules[i].span.file}, {"line", rules[i].span.line}});
  return out;
}

}  // namespace

int RunTest(const TestOptions& options) {
  int code = kExitOk;
  nlohmann::json all = nlohmann::json::array();
  const auto report = [&code](const Error& error) {
    PrintError(policy::RenderError(error, StderrHasColor()) + "\n");
    code = kExitBadInput;
  };
  for (const std::string& path : options.files) {
    const auto files = FilesAt(path, FileKind::kPolicyTest);
    if (!files) {
      report(files.error());
      continue;
    }
    for (const std::string& file : *files) {
      const auto result = RunFile(file);
      if (!result) {
        report(result.error());
        continue;
      }
      options.format == OutputFormat::kJson ? all.push_back(ToJson(*result)) : PrintText(*result);
      const bool thin = options.min_coverage && result->coverage() < *options.min_coverage;
      if (thin)
        PrintError(fmt::format("{}: {} % of the rules decided a test; {} % are asked for\n", Printable(file), result->coverage(),
                               *options.min_coverage));
      if (thin || !result->failures.empty()) code = std::max(code, kExitNegative);
    }
  }
  if (options.format == OutputFormat::kJson)
    fmt::print("{}\n", nlohmann::json{{"files", std::move(all)}}.dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
  return code;
}

}  // namespace sluice::app
