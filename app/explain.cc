#include "app/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/file.h"
#include "app/question.h"
#include "app/standard_output.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/compiled.h"
#include "policy/io/load.h"
#include "proxy/body/body_reader.h"
#include "proxy/spki.h"

namespace sluice::app {
namespace {

Result<Asker> ReadAsker(const ExplainOptions& options) {
  Asker asker;
  policy::LoadOptions load;
  load.check_executables = false;
  auto snapshot = policy::LoadFile(options.file, load);
  if (!snapshot) return std::unexpected(snapshot.error());
  asker.snapshot = std::move(*snapshot);
  asker.now = SystemClock().Wall();
  if (!options.at.empty()) {
    const auto at = ParseInstant(options.at);
    if (!at) return Fail(Code::kInvalid, fmt::format("--at: {}", at.error().message));
    asker.now = *at;
  }
  if (!options.ip.empty()) {
    asker.address = IpAddress::Parse(options.ip);
    if (!asker.address) return Fail(Code::kInvalid, fmt::format("--ip: `{}` is not an address", options.ip));
  }
  asker.body = options.body;
  for (const std::string& pair : options.json) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || (equals != 0 && pair[0] != '/'))
      return Fail(Code::kInvalid, fmt::format("--json: `{}` is not POINTER=VALUE, as in /params/name=x", pair));
    asker.body.json.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  if (!options.body_file.empty()) {
    auto sent = ReadFile(options.body_file, proxy::kMaxJudgedBody);
    if (!sent) return std::unexpected(sent.error());
    asker.sent_body = *std::move(sent);
  }
  if (!options.content_type.empty() && options.body_file.empty()) return Fail(Code::kInvalid, "--content-type is that of --body");
  asker.content_type = options.content_type;
  if (!options.by.empty()) {
    auto process = ProcessNamed(options.by, *asker.snapshot);
    if (!process) return Fail(Code::kInvalid, "--by takes an absolute path");
    asker.process = *std::move(process);
  }
  if (!options.under.empty() && !asker.process) return Fail(Code::kInvalid, "--under goes with --by: the program that asks");
  for (const std::string& path : options.under) {
    if (!path.starts_with('/')) return Fail(Code::kInvalid, "--under takes an absolute path");
    asker.process->ancestors.push_back({.path = path, .trusted = true});
  }
  for (const std::string& text : options.headers) {
    auto header = ParseHeader(text);
    if (!header) return Fail(Code::kInvalid, fmt::format("--header: {}", header.error().message));
    asker.headers.push_back(*std::move(header));
  }
  return asker;
}

// Whether the answer hangs on who asks, which a question without --by leaves open.
bool HangsOnProcess(const Asker& asker, const Answer& answer) {
  if (asker.process) return false;
  for (const policy::RuleRef ref : {answer.decision.rule, answer.advice.nearest}) {
    if (ref == policy::RuleRef::kNone) continue;
    const policy::Rule& rule = asker.snapshot->compiled().rules[static_cast<size_t>(ref)];
    if (!rule.by.empty() || !rule.under.empty()) return true;
  }
  return false;
}

std::string RuleLine(const policy::RuleInfo& rule) {
  return fmt::format("{}: {}   {}", rule.allow ? "allow" : "deny", rule.text, policy::PlaceText(rule.span, rule.origin));
}

std::string ProxyLine(const policy::UpstreamProxy& proxy) {
  using Kind = policy::UpstreamProxy::Kind;
  const std::string_view scheme = proxy.kind == Kind::kHttp ? "http" : proxy.kind == Kind::kHttps ? "https" : "socks5";
  const std::string place =
      proxy.address ? Endpoint{*proxy.address, proxy.port}.ToString() : fmt::format("{}:{}", proxy.host, proxy.port);
  return fmt::format("the upstream proxy {}, {}://{}", proxy.name, scheme, place);
}

std::string CredentialLine(const policy::Credential& credential) {
  using Kind = policy::CredentialUse::Kind;
  const bool certificate = credential.send.kind == Kind::kClientCertificate;
  return fmt::format("the {} {}", certificate ? "client certificate" : "credential", credential.name);
}

std::vector<std::string> PinTexts(std::span<const std::array<uint8_t, 32>> pins) {
  std::vector<std::string> texts;
  for (const auto& pin : pins) texts.push_back(proxy::SpkiPinText(pin));
  return texts;
}

std::string AnswerText(const Asker& asker, const Answer& answer) {
  const bool allowed = answer.decision.allowed;
  std::string text = fmt::format("{}  {}", allowed ? "allowed" : "denied ", Printable(answer.asked));
  if (!allowed || answer.decision.audit_only) text += fmt::format("   {}", policy::ReasonText(answer.decision.reason));
  if (answer.decision.audit_only) text += " (mode audit: only logged)";
  if (!answer.carried.empty()) text += fmt::format("   {}", answer.carried);
  const auto add = [&text](std::string_view label, std::string_view value) {
    text += fmt::format("\n  {} {}", label, Printable(value));
  };
  if (const auto* rule = asker.snapshot->rule(answer.decision.rule)) add("by      ", RuleLine(*rule));
  if (answer.travel) {
    if (answer.travel->via != nullptr) add("through ", ProxyLine(*answer.travel->via));
    if (answer.travel->credential != nullptr) add("with    ", CredentialLine(*answer.travel->credential));
    if (const auto pins = asker.snapshot->pins(answer.travel->pinned_by); !pins.empty())
      add("pins    ", fmt::format("{}", fmt::join(PinTexts(pins), ", ")));
  }
  if (!answer.advice.explanation.empty()) add("why     ", answer.advice.explanation);
  const bool named = answer.advice.explanation.find("; nearest: ") != std::string::npos;
  const bool denied_by_rule = answer.decision.reason == policy::Reason::kDenyRule;
  if (const auto* rule = asker.snapshot->rule(answer.advice.nearest); rule != nullptr && !named && !denied_by_rule)
    add("nearest ", RuleLine(*rule));
  if (!answer.advice.suggest.empty()) add("allow it - allow:", answer.advice.suggest);
  if (!answer.note.empty()) add("note    ", answer.note);
  if (HangsOnProcess(asker, answer))
    add("note    ", "that rule is for certain programs; without --by PROGRAM an allow of them is not met, and a deny is");
  return text + '\n';
}

// What is said of where and how, for programs: absent where there is none of it.
void AddTravel(const Asker& asker, const Travel& travel, nlohmann::json* out) {
  if (!asker.snapshot->proxies().empty())
    (*out)["via"] = travel.via != nullptr ? nlohmann::json(travel.via->name) : nlohmann::json(nullptr);
  if (travel.credential != nullptr) (*out)["credential"] = travel.credential->name;
  if (const auto pins = asker.snapshot->pins(travel.pinned_by); !pins.empty()) (*out)["pins"] = PinTexts(pins);
}

nlohmann::json RuleJson(const policy::RuleInfo& rule) {
  nlohmann::json out{{"id", rule.id},
                     {"effect", rule.allow ? "allow" : "deny"},
                     {"text", rule.text},
                     {"file", rule.span.file},
                     {"line", rule.span.line}};
  if (rule.origin.line != 0) out["origin"] = {{"file", rule.origin.file}, {"line", rule.origin.line}};
  return out;
}

}  // namespace

nlohmann::json AnswerJson(const Asker& asker, const Answer& answer) {
  nlohmann::json out{{"question", answer.asked},
                     {"allowed", answer.decision.allowed},
                     {"code", policy::ReasonText(answer.decision.reason)},
                     {"audit_only", answer.decision.audit_only},
                     {"policy", asker.snapshot->digest()}};
  if (!answer.carried.empty()) out["carried"] = answer.carried;
  if (const auto* rule = asker.snapshot->rule(answer.decision.rule)) out["rule"] = RuleJson(*rule);
  if (answer.travel) AddTravel(asker, *answer.travel, &out);
  if (!answer.advice.explanation.empty()) out["error"] = answer.advice.explanation;
  if (const auto* rule = asker.snapshot->rule(answer.advice.nearest)) out["nearest_rule"] = RuleJson(*rule);
  if (!answer.advice.suggest.empty()) out["suggest"] = answer.advice.suggest;
  if (!answer.note.empty()) out["note"] = answer.note;
  return out;
}

int RunExplain(const ExplainOptions& options) {
  const auto asker = ReadAsker(options);
  if (!asker) {
    PrintError(policy::RenderError(asker.error(), StderrHasColor()) + "\n");
    return 2;
  }
  const auto answer = Ask(*asker, options.question);
  if (!answer) {
    PrintError(fmt::format("error: {}\n", Printable(answer.error().message)));
    return 2;
  }
  if (options.format == OutputFormat::kJson) {
    fmt::print("{}\n", AnswerJson(*asker, *answer).dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", AnswerText(*asker, *answer));
  }
  return answer->decision.allowed ? 0 : 1;
}

}  // namespace sluice::app
