#include "app/admin_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "app/explain.h"
#include "app/policy_edit.h"
#include "app/proof_json.h"
#include "app/question.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/import/import.h"
#include "policy/import/json.h"
#include "policy/io/foreign.h"
#include "policy/io/load.h"
#include "prover/prove.h"

namespace sluice::app {
namespace {

using nlohmann::json;

constexpr const char* kApiName = "policy";
constexpr std::string_view kRulesPath = "/v1/policy/rules/";
constexpr std::string_view kNamesPath = "/v1/dns/";
constexpr size_t kShownEntries = 100;  // of the resolver's cache
constexpr size_t kMaxShownEntries = 1000;
constexpr size_t kShownElements = 1000;
constexpr size_t kMaxShownElements = 20'000;
constexpr uint64_t kProofSteps = 4'000'000;  // some seconds; more is "unknown", which never passes
constexpr std::chrono::milliseconds kStopGrace{2000};
constexpr std::chrono::milliseconds kMaxStopGrace{60'000};

AdminResponse Json(const json& body, int status = 200) {
  AdminResponse response;
  response.status = status;
  response.body = body.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  return response;
}

std::string TagText(uint64_t revision) { return fmt::format("\"{}\"", revision); }

// 400 for a request that is none, 422 for a policy that is none, 500 for the rest.
AdminResponse ErrorAnswer(const Error& error, std::string_view code) {
  const bool theirs = error.code == Code::kInvalid || error.code == Code::kExhausted || error.code == Code::kNotFound;
  std::string detail;
  if (error.span && error.span->line != 0)
    detail = fmt::format("{}:{}:{}", error.span->file, error.span->line, error.span->column);
  return Problem(error.code == Code::kNotFound ? 404 : theirs ? 422 : 500, theirs ? code : "internal", error.message, detail);
}

json RuleJson(const policy::RuleInfo& rule) {
  json out{{"id", rule.id},
           {"effect", rule.allow ? "allow" : "deny"},
           {"text", rule.text},
           {"file", rule.span.file},
           {"line", rule.span.line}};
  if (!rule.note.empty()) out["note"] = rule.note;
  if (rule.origin.line != 0) out["origin"] = {{"file", rule.origin.file}, {"line", rule.origin.line}};
  return out;
}

json ChecksJson(const std::vector<ReadinessCheck>& checks) {
  json out = json::array();
  for (const ReadinessCheck& check : checks) {
    out.push_back({{"name", check.name}, {"ok", check.ok}});
    if (!check.detail.empty()) out.back()["detail"] = check.detail;
  }
  return out;
}

bool AllHold(const std::vector<ReadinessCheck>& checks) { return std::ranges::all_of(checks, &ReadinessCheck::ok); }

json PolicyJson(const ServedPolicy& served) {
  const policy::Snapshot& policy = *served.snapshot;
  return {{"revision", served.revision},
          {"digest", policy.digest()},
          {"source", served.source},
          {"name", policy.name()},
          {"rules", policy.rules().size()},
          {"mode", policy.mode() == policy::Mode::kAudit ? "audit" : "enforce"},
          {"dns", policy.settings().dns == policy::DnsMode::kReal ? "real" : "synthetic"}};
}

json ElementJson(const supervisor::Fence::Held& held) {
  return {{"address", held.element.address.ToString()},
          {"protocol", held.element.protocol == nft::Protocol::kUdp ? "udp" : "tcp"},
          {"port", held.element.port},
          {"left_ms", held.left.count()}};
}

json EntryJson(const dns::CachedEntry& entry) {
  json addresses = json::array();
  for (const IpAddress& address : entry.addresses) addresses.push_back(address.ToString());
  json out = {{"name", entry.name},       {"types", entry.types},
              {"status", entry.status},   {"addresses", std::move(addresses)},
              {"aliases", entry.aliases}, {"left_seconds", entry.left.count()}};
  if (entry.leases) out["leases"] = {{"generation", entry.leases->generation}, {"left_seconds", entry.leases->left.count()}};
  return out;
}

// A text of the given keys from a JSON object; others are refused.
Result<std::vector<std::pair<std::string, std::string>>> TextFields(std::string_view body,
                                                                    const std::set<std::string_view>& keys) {
  const auto root = policy::ParseJson(body, "the request");
  if (!root) return std::unexpected(root.error());
  if (root->kind != policy::Node::Kind::kMapping) return Fail(Code::kInvalid, "the body is a JSON object");
  std::vector<std::pair<std::string, std::string>> fields;
  for (const policy::Member& member : root->members) {
    if (!keys.contains(member.key.text)) return Fail(Code::kInvalid, fmt::format("there is no `{}`", Printable(member.key.text)));
    if (member.value.kind != policy::Node::Kind::kScalar || member.value.style == policy::Node::Style::kPlain)
      return Fail(Code::kInvalid, fmt::format("`{}` is a text", member.key.text));
    fields.emplace_back(member.key.text, member.value.text);
  }
  return fields;
}

AdminResponse BadRequest(const Error& error) { return Problem(400, "bad_request", error.message); }

// The answer to a request whose parameters are all among those of its address.
AdminResponse Asked(const AdminRequest& request, std::initializer_list<std::string_view> known,
                    const std::function<AdminResponse()>& answer) {
  if (auto good = CheckParameters(request, known); !good) return BadRequest(good.error());
  return answer();
}

// A parameter that is a number; nothing where it is absent.
Result<std::optional<uint64_t>> NumberOf(const AdminRequest& request, std::string_view name, uint64_t most) {
  const std::string* text = request.Parameter(name);
  if (text == nullptr) return std::nullopt;
  uint64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc{} || stop != end || number > most)
    return Fail(Code::kInvalid, fmt::format("`{}` is a number up to {}", name, most));
  return number;
}

AdminResponse NothingFenced() {
  return Problem(404, "not_fenced", "there is no fence here: a run has a network namespace of its own", {}, "GET /v1/status");
}

std::string_view StateText(RunStatus::State state) {
  switch (state) {
    case RunStatus::State::kWaiting:
      return "waiting";
    case RunStatus::State::kRunning:
      return "running";
    case RunStatus::State::kEnded:
      return "ended";
    case RunStatus::State::kFailed:
      break;
  }
  return "failed";
}

void TellSet(std::string_view source, uint64_t revision, const policy::Snapshot& policy) {
  const size_t rules = policy.rules().size();
  LogInfo("policy set by {}: revision {}, {} rule{}, digest {}", source, revision, rules, rules == 1 ? "" : "s",
          policy.digest().substr(0, 12));
}

}  // namespace

std::string_view EndedText(supervisor::EndedBy ended_by) {
  using supervisor::EndedBy;
  switch (ended_by) {
    case EndedBy::kCommand:
      return "command";
    case EndedBy::kTimeout:
      return "timeout";
    case EndedBy::kOutput:
      return "output";
    case EndedBy::kMemory:
      return "memory";
    case EndedBy::kPolicy:
      return "policy";
    case EndedBy::kDisconnect:
      return "disconnect";
    case EndedBy::kStopped:
      return "stopped";
  }
  return "";
}

json RunJson(const RunStatus& status) {
  json out{
      {"state", StateText(status.state)}, {"command", status.command}, {"allowed", status.allowed}, {"denied", status.denied}};
  if (status.pid != 0) out["pid"] = status.pid;
  if (status.state == RunStatus::State::kEnded || status.state == RunStatus::State::kFailed) out["exit_code"] = status.exit_code;
  if (status.state == RunStatus::State::kEnded)
    out["command_exit"] = {{"code", status.end.code},
                           {"signal", status.end.signal},
                           {"timed_out", status.end.timed_out},
                           {"ended_by", EndedText(status.end.ended_by)}};
  for (const auto& port : status.published)
    out["published"].push_back({{"outside", port.outside.ToString()}, {"inside", port.inside}});
  if (!status.error.empty()) out["error"] = status.error;
  return out;
}

AdminApi::AdminApi(AdminApiOptions options, ServedControl& control, DecisionStream& stream)
    : options_(std::move(options)), control_(control), stream_(stream), own_(options_.own), text_(options_.in_force) {
  if (text_) set_ = control_.Policy().snapshot;
}

AdminResponse AdminApi::Handle(const AdminRequest& request) {
  try {
    return Route(request);
  } catch (const std::exception& fault) {
    LogError("admin: {}", fault.what());
    return Problem(500, "internal", "the request met a fault of Sluice's own");
  }
}

AdminResponse AdminApi::HandleHealth(const AdminRequest& request) const {
  const bool known = request.path == "/healthz" || request.path == "/readyz" || request.path == "/metrics";
  if (!known) return Problem(404, "not_found", "there are /healthz, /readyz and /metrics here");
  if (request.method != "GET" && request.method != "HEAD") return WrongMethod("GET, HEAD");
  return Asked(request, {}, [&] { return Health(request.path); });
}

AdminResponse AdminApi::Health(std::string_view path) const {
  if (path == "/healthz") return Json({{"alive", true}});
  const auto checks = Checks();
  if (path == "/readyz") return Json({{"ready", AllHold(checks)}, {"checks", ChecksJson(checks)}}, AllHold(checks) ? 200 : 503);
  const ServedPolicy served = control_.Policy();
  MetricsView view;
  view.version = options_.version;
  view.policy_digest = served.snapshot->digest();
  view.policy_revision = served.revision;
  view.policy_rules = served.snapshot->rules().size();
  view.ready = AllHold(checks);
  view.open_connections = control_.OpenConnections();
  view.uptime_seconds = static_cast<uint64_t>(control_.Uptime().count());
  view.told_addresses = control_.ToldAddresses();
  stream_.FillMetrics(&view);
  if (supervisor::Fence* const fence = control_.fence()) {
    if (auto counters = fence->Counters()) view.fence = *std::move(counters);
    if (const auto held = fence->Elements())
      for (const auto& element : *held) ++(element.element.address.is_v4() ? view.set_v4 : view.set_v6);
  }
  AdminResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = PrometheusText(view);
  return response;
}

std::vector<ReadinessCheck> AdminApi::Checks() const {
  auto checks = control_.Readiness();
  if (!options_.awaits.empty()) {
    const bool came = applied_;
    checks.push_back({"policy", came, came ? "" : fmt::format("no signed policy has come yet from {}", options_.awaits)});
  }
  return checks;
}

AdminResponse AdminApi::Route(const AdminRequest& request) {
  const std::string& path = request.path;
  const bool looks = request.method == "GET" || request.method == "HEAD";
  if (path == "/healthz" || path == "/readyz" || path == "/metrics") return HandleHealth(request);
  if (path == "/v1/policy" || path == "/v1/policy/rules" || path.starts_with(kRulesPath)) return RoutePolicy(request);
  if (path == "/v1/explain")
    return request.method == "POST" ? Asked(request, {}, [&] { return Explain(request); }) : WrongMethod("POST");
  if (path == "/v1/sets") return looks ? Asked(request, {"limit"}, [&] { return Sets(request); }) : WrongMethod("GET, HEAD");
  if (path == "/v1/dns") return looks ? Names(request) : WrongMethod("GET, HEAD");
  if (path.starts_with(kNamesPath))
    return looks ? Asked(request, {}, [&] { return NamesOf(std::string_view(path).substr(kNamesPath.size())); })
                 : WrongMethod("GET, HEAD");
  if (path == "/v1/status") return looks ? Asked(request, {}, [&] { return Status(); }) : WrongMethod("GET, HEAD");
  if (path == "/v1/stop" && control_.run() != nullptr)
    return request.method == "POST" ? Asked(request, {"grace_ms"}, [&] { return Stop(request); }) : WrongMethod("POST");
  if (path == "/v1/hold" && control_.run() != nullptr) return WrongMethod("GET");
  if (path == "/v1/decisions") return WrongMethod("GET");  // what streams is the server's
  return Problem(404, "not_found", "there is no such address", {}, "docs/admin-api.md lists them; /v1/status is one");
}

AdminResponse AdminApi::RoutePolicy(const AdminRequest& request) {
  const bool looks = request.method == "GET" || request.method == "HEAD";
  const auto look = [&](const std::function<AdminResponse()>& answer) { return Asked(request, {}, answer); };
  const auto change = [&](const std::function<AdminResponse()>& answer) {
    return Asked(request, {"prove", "apply", "widen"}, answer);
  };
  if (request.path == "/v1/policy") {
    if (looks) return look([&] { return GetPolicy(request); });
    if (request.method == "PUT") return change([&] { return Put(request); });
    if (request.method == "PATCH") return change([&] { return Edit(request, ""); });
    return WrongMethod("GET, HEAD, PUT, PATCH");
  }
  if (request.path == "/v1/policy/rules") return looks ? look([&] { return GetRules(""); }) : WrongMethod("GET, HEAD");
  const std::string id = request.path.substr(kRulesPath.size());
  if (looks) return look([&] { return GetRules(id); });
  if (request.method == "PUT" || request.method == "DELETE") return change([&] { return Edit(request, id); });
  return WrongMethod("GET, HEAD, PUT, DELETE");
}

Result<PolicyText> AdminApi::TextInForce() {
  const policy::SnapshotPtr in_force = control_.Policy().snapshot;
  if (text_ && set_ == in_force) return *text_;
  auto own = options_.own_text();
  if (!own) return own;
  const auto tree = policy::ParsePolicyTree(own->text, own->name);
  if (!tree) return std::unexpected(tree.error());
  if (const auto kind = policy::DetectKind(*tree)) {
    const auto imported = policy::ReadForeign(own->text, own->name, {});
    if (!imported) return std::unexpected(imported.error());
    own->text = policy::WriteNative(*imported, own->name);
  }
  const auto compiled = options_.compile(*own);
  if (!compiled || (*compiled)->digest() != in_force->digest())
    return Fail(Code::kUnsupported,
                "the policy in force is no single text: it was put together of several files, or its file has changed since");
  return own;
}

AdminResponse AdminApi::GetPolicy(const AdminRequest& request) {
  const std::lock_guard lock(changes_);
  const ServedPolicy served = control_.Policy();
  const std::string tag = TagText(served.revision);
  AdminResponse response;
  response.fields = {{"ETag", tag}, {"Sluice-Policy-Digest", served.snapshot->digest()}};
  if (const std::string* known = request.Field("if-none-match")) {
    const auto tags = ReadEntityTags(*known);
    if (!tags) return BadRequest(tags.error());
    if (NamesRevision(*tags, served.revision, Comparison::kWeak)) {
      response.status = 304;
      return response;
    }
  }
  auto text = TextInForce();
  if (!text)
    return Problem(409, "no_single_text", text.error().message, {},
                   "GET /v1/policy/rules lists its rules; PUT /v1/policy replaces it");
  response.content_type = "application/yaml";
  response.body = std::move(text->text);
  return response;
}

AdminResponse AdminApi::GetRules(std::string_view id) const {
  const ServedPolicy served = control_.Policy();
  json rules = json::array();
  for (const policy::RuleInfo& rule : served.snapshot->rules())
    if (id.empty() || rule.id == id) rules.push_back(RuleJson(rule));
  if (!id.empty() && rules.empty())
    return Problem(404, "no_rule_of_that_id", "no rule has this id", {}, "GET /v1/policy/rules lists them");
  AdminResponse response = Json(id.empty() ? json{{"policy", PolicyJson(served)}, {"rules", std::move(rules)}} : rules.front());
  response.fields.emplace_back("ETag", TagText(served.revision));
  return response;
}

std::optional<AdminResponse> AdminApi::CheckMayChange(const AdminRequest& request, uint64_t revision) const {
  if (options_.owner == PolicyOwner::kBundle)
    return Problem(409, "owned_by_bundle", "the policy comes from --policy-url, whose publisher alone may change it");
  if (options_.owner == PolicyOwner::kOpenSandbox)
    return Problem(409, "owned_by_opensandbox", "the policy comes from the OpenSandbox front", {}, "use its /policy calls");
  const std::string* wanted = request.Field("if-match");
  if (wanted == nullptr) return std::nullopt;
  const auto tags = ReadEntityTags(*wanted);
  if (!tags) return BadRequest(tags.error());
  if (NamesRevision(*tags, revision, Comparison::kStrong)) return std::nullopt;
  AdminResponse response = Problem(412, "another_revision", fmt::format("revision {} is in force", revision), {},
                                   "GET /v1/policy, make the change in what is in force now, and try again");
  response.fields.emplace_back("ETag", TagText(revision));
  return response;
}

AdminResponse AdminApi::Put(const AdminRequest& request) {
  const std::lock_guard lock(changes_);
  const ServedPolicy served = control_.Policy();
  if (auto refused = CheckMayChange(request, served.revision)) return *std::move(refused);
  const auto tree = policy::ParsePolicyTree(request.body, kApiName);
  if (!tree) return ErrorAnswer(tree.error(), "invalid_policy");
  if (const auto kind = policy::DetectKind(*tree))
    return Problem(422, "foreign_policy", fmt::format("this is {}", policy::ImportTitle(*kind)), {},
                   "sluice import FILE prints the native policy");
  return PutInForce(request, served, {request.body, kApiName});
}

AdminResponse AdminApi::Edit(const AdminRequest& request, const std::string& rule_id) {
  const std::lock_guard lock(changes_);
  const ServedPolicy served = control_.Policy();
  if (auto refused = CheckMayChange(request, served.revision)) return *std::move(refused);
  Result<PolicyEdit> edit = PolicyEdit{};
  if (rule_id.empty()) {
    edit = ReadPolicyEdit(request.body);
  } else if (request.method == "DELETE") {
    edit->remove.push_back(rule_id);
  } else {
    auto rule = ReadRuleJson(request.body, rule_id);
    if (!rule) return BadRequest(rule.error());
    edit->replace.emplace_back(rule_id, *std::move(rule));
  }
  if (!edit) return BadRequest(edit.error());
  const bool positional = std::ranges::any_of(edit->remove, IsPositionalId) ||
                          std::ranges::any_of(edit->replace, [](const auto& pair) { return IsPositionalId(pair.first); });
  if (positional && request.Field("if-match") == nullptr)
    return Problem(428, "if_match_needed", "an id that is a line may stand for another rule by now", {},
                   "send If-Match with the ETag that the rules were read with, or give the rule an `id`");
  auto text = TextInForce();
  if (!text) return Problem(409, "no_single_text", text.error().message, {}, "edit the files, or PUT /v1/policy");
  auto edited = EditPolicy(text->text, text->name, *edit);
  if (!edited)
    return ErrorAnswer(edited.error(), edited.error().code == Code::kNotFound ? "no_rule_of_that_id" : "invalid_policy");
  return PutInForce(request, served, {*std::move(edited), text->name});
}

Result<void> AdminApi::CheckSecrets(const policy::Snapshot& next) const {
  std::set<std::string> known;
  if (own_ != nullptr) {
    for (const policy::Credential& credential : own_->credentials()) known.insert(policy::CanonicalText(credential));
    for (const policy::UpstreamProxy& proxy : own_->proxies()) known.insert(policy::CanonicalText(proxy));
  }
  const auto refuse = [](std::string_view what, const std::string& name, const SourceSpan& span) {
    return std::unexpected(Error{Code::kPermission,
                                 fmt::format("the {} `{}` is not one of the operator's policy: only what that defines, and as it "
                                             "does, may be used here",
                                             what, name),
                                 0, span});
  };
  for (const policy::Credential& credential : next.credentials())
    if (!known.contains(policy::CanonicalText(credential))) return refuse("credential", credential.name, credential.span);
  for (const policy::UpstreamProxy& proxy : next.proxies())
    if (!known.contains(policy::CanonicalText(proxy))) return refuse("upstream proxy", proxy.name, proxy.span);
  return {};
}

Result<void> AdminApi::Store(StoredPolicy next) const {
  if (!options_.state) return {};
  if (own_ != nullptr) next.over = own_->digest();
  return options_.state->Store(next);
}

AdminResponse AdminApi::PutInForce(const AdminRequest& request, const ServedPolicy& served, PolicyText next) {
  const auto prove = request.Says("prove");
  const auto apply = request.Says("apply");
  const auto widen = request.Says("widen");
  for (const auto* flag : {&prove, &apply, &widen})
    if (!*flag) return BadRequest(flag->error());
  if (!*prove && (*apply || *widen))
    return Problem(400, "bad_request", "`apply` and `widen` go with `prove=1`", {},
                   "without `prove` a policy is put in force as it is");
  const auto compiled = options_.compile(next);
  if (!compiled) return ErrorAnswer(compiled.error(), "invalid_policy");
  if (auto allowed = CheckSecrets(**compiled); !allowed) return Problem(403, "secrets", allowed.error().message);
  json answer;
  if (*prove) {
    prover::Verdict verdict = prover::Verdict::kUnknown;
    answer["proof"] = ProofJson(kApiName, served.snapshot, *compiled, kProofSteps, &verdict);
    const bool narrow = verdict == prover::Verdict::kEqual || verdict == prover::Verdict::kNarrowed;
    answer["applied"] = false;
    answer["revision"] = served.revision;
    if (!*apply) return Json(answer);
    if (!narrow && !*widen) {
      answer.update({{"error", "the policy lets out more than the one in force, or it could not be proved that it does not"},
                     {"code", "widens"},
                     {"suggest", "add widen=1 where that is meant"}});
      return Json(answer, 409);
    }
  }
  // What was proved or edited was the policy of that revision.
  const bool bound = *prove || request.method != "PUT" || request.path != "/v1/policy" || request.Field("if-match") != nullptr;
  const PolicyOutcome outcome =
      control_.SetPolicy(*compiled, options_.source, bound ? std::optional(served.revision) : std::nullopt);
  if (outcome.kind == PolicyOutcome::Kind::kConflict)
    return Problem(request.Field("if-match") != nullptr ? 412 : 409, "another_revision",
                   fmt::format("revision {} came into force meanwhile", outcome.revision), {}, "try again");
  if (outcome.kind == PolicyOutcome::Kind::kRefused) return ErrorAnswer(outcome.error, "refused_policy");
  if (outcome.kind == PolicyOutcome::Kind::kFailed) return Problem(500, "not_fenced", outcome.error.message);
  TellSet(options_.source, outcome.revision, **compiled);
  text_ = next;
  set_ = *compiled;
  StoredPolicy kept;
  kept.text = next.text;
  kept.name = next.name;
  kept.source = options_.source;
  if (auto stored = Store(std::move(kept)); !stored) {
    LogError("the policy is in force, but not kept over a restart: {}", stored.error().message);
    return Problem(500, "not_stored", "the policy is in force, but would not outlive a restart", stored.error().message);
  }
  answer.update({{"applied", true},
                 {"revision", outcome.revision},
                 {"digest", (*compiled)->digest()},
                 {"rules", (*compiled)->rules().size()}});
  AdminResponse response = Json(answer);
  response.fields.emplace_back("ETag", TagText(outcome.revision));
  return response;
}

Result<void> AdminApi::Apply(StoredPolicy next) {
  const std::lock_guard lock(changes_);
  const auto compiled = options_.compile({next.text, next.name});
  if (!compiled) {
    Error error = compiled.error();
    if (error.span && error.span->line != 0) error.message = fmt::format("line {}: {}", error.span->line, error.message);
    return Fail(error.code, fmt::format("{}: {}", next.source, error.message));
  }
  const PolicyOutcome outcome = control_.SetPolicy(*compiled, next.source, std::nullopt);
  if (outcome.kind != PolicyOutcome::Kind::kSet) return std::unexpected(outcome.error);
  TellSet(next.source, outcome.revision, **compiled);
  text_ = {next.text, next.name};
  set_ = *compiled;
  applied_ = true;
  if (auto stored = Store(std::move(next)); !stored)
    LogError("the policy is in force, but not kept over a restart: {}", stored.error().message);
  return {};
}

Result<void> AdminApi::StoreAgain() const {
  auto stored = options_.state->Load();
  if (!stored) return std::unexpected(stored.error());
  return *stored ? Store(**std::move(stored)) : Result<void>();
}

void AdminApi::OwnPolicyLoaded(policy::SnapshotPtr own, uint64_t revision) {
  const std::lock_guard lock(changes_);
  own_ = std::move(own);
  const bool in_force = control_.Policy().revision == revision;
  if (in_force) text_.reset();
  if (!options_.state) return;
  if (auto done = in_force ? options_.state->Forget() : StoreAgain(); !done) LogError("{}", done.error().message);
}

AdminResponse AdminApi::Explain(const AdminRequest& request) const {
  const auto fields = TextFields(request.body, {"question", "by", "ip", "at"});
  if (!fields) return BadRequest(fields.error());
  Asker asker;
  asker.snapshot = control_.Policy().snapshot;
  asker.now = SystemClock().Wall();
  std::string question;
  for (const auto& [key, value] : *fields) {
    if (key == "question") question = value;
    if (key == "ip" && !(asker.address = IpAddress::Parse(value))) return Problem(400, "bad_request", "`ip` is no address");
    if (key == "at") {
      const auto at = ParseInstant(value);
      if (!at) return BadRequest(at.error());
      asker.now = *at;
    }
    if (key == "by") {
      // Without a digest: a file that a caller names is not read for him.
      if (!value.starts_with('/')) return Problem(400, "bad_request", "`by` is an absolute path");
      policy::Process process;
      process.exe.path = value;
      process.exe.trusted = true;
      asker.process = std::move(process);
    }
  }
  const auto answer = Ask(asker, question);
  if (!answer) return BadRequest(answer.error());
  return Json(AnswerJson(asker, *answer));
}

AdminResponse AdminApi::Sets(const AdminRequest& request) const {
  const auto limit = NumberOf(request, "limit", kMaxShownElements);
  if (!limit) return BadRequest(limit.error());
  if (control_.fence() == nullptr) return NothingFenced();
  const auto held = control_.fence()->Elements();
  if (!held) return Problem(500, "internal", held.error().message);
  json elements = json::array();
  for (size_t i = 0; i < std::min<size_t>(limit->value_or(kShownElements), held->size()); ++i)
    elements.push_back(ElementJson((*held)[i]));
  return Json({{"count", held->size()}, {"elements", std::move(elements)}});
}

AdminResponse AdminApi::NamesOf(std::string_view address) const {
  const auto parsed = IpAddress::Parse(std::string(address));
  if (!parsed) return Problem(400, "bad_request", "after /v1/dns/ comes an address");
  return Json({{"address", parsed->ToString()}, {"names", control_.NamesOf(*parsed)}});
}

AdminResponse AdminApi::Names(const AdminRequest& request) const {
  if (control_.fence() == nullptr)
    return Asked(request, {}, [&] { return Json({{"told_addresses", control_.ToldAddresses()}}); });
  if (auto good = CheckParameters(request, {"limit", "after"}); !good) return BadRequest(good.error());
  const auto limit = NumberOf(request, "limit", kMaxShownEntries);
  if (!limit) return BadRequest(limit.error());
  const std::string* after = request.Parameter("after");
  const auto cached = control_.ResolverCache(after != nullptr ? *after : std::string(), limit->value_or(kShownEntries));
  if (!cached) return Problem(503, "busy", cached.error().message);
  json entries = json::array();
  for (const dns::CachedEntry& entry : cached->entries) entries.push_back(EntryJson(entry));
  json page = {{"count", cached->count}, {"entries", std::move(entries)}};
  if (cached->more && !cached->entries.empty()) page["next"] = cached->entries.back().Key();
  const auto held = control_.fence()->Elements();
  if (!held) return Problem(500, "internal", held.error().message);
  json leases = json::array();
  for (size_t i = 0; i < std::min(kShownElements, held->size()); ++i) {
    leases.push_back(ElementJson((*held)[i]));
    leases.back()["names"] = control_.NamesOf((*held)[i].element.address);
  }
  return Json({{"told_addresses", control_.ToldAddresses()},
               {"cache", std::move(page)},
               {"lease_count", held->size()},
               {"leases", std::move(leases)}});
}

AdminResponse AdminApi::Status() const {
  const auto checks = Checks();
  json out{{"version", options_.version},
           {"ready", AllHold(checks)},
           {"checks", ChecksJson(checks)},
           {"policy", PolicyJson(control_.Policy())},
           {"uptime_seconds", control_.Uptime().count()},
           {"open_connections", control_.OpenConnections()}};
  if (supervisor::Fence* const fence = control_.fence()) {
    json counters = json::object();
    if (const auto counted = fence->Counters())
      for (const auto& counter : *counted) counters[counter.name] = {{"packets", counter.packets}, {"bytes", counter.bytes}};
    const bool owned = fence->hold() == supervisor::FenceHold::kOwnedPersistent;
    out["fence"] = {{"hold", owned ? "owned and persistent" : "watched"},
                    {"weaknesses", fence->Weaknesses()},
                    {"counters", std::move(counters)}};
  }
  if (const RunSteering* const run = control_.run()) out["run"] = RunJson(run->Status());
  return Json(out);
}

AdminResponse AdminApi::Stop(const AdminRequest& request) const {
  const auto grace = NumberOf(request, "grace_ms", static_cast<uint64_t>(kMaxStopGrace.count()));
  if (!grace) return BadRequest(grace.error());
  control_.run()->Stop(*grace ? std::chrono::milliseconds(**grace) : kStopGrace);
  return Json({{"run", RunJson(control_.run()->Status())}}, 202);
}

}  // namespace sluice::app
