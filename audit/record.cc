#include "audit/record.h"

#include <fmt/format.h>

#include <iterator>

#include "audit/text.h"
#include "base/hex.h"

namespace sluice::audit {
namespace {

constexpr size_t kMaxField = 4096;  ///< octets of one string that a workload chose

// Members of an object in order; the caller opens and closes it.
class Members {
 public:
  explicit Members(std::string* out) : out_(out) {}

  void String(std::string_view key, std::string_view value) {
    Key(key);
    AppendJsonString(out_, value.substr(0, kMaxField));
  }
  /// Left out when empty.
  void Optional(std::string_view key, std::string_view value) {
    if (!value.empty()) String(key, value);
  }
  void Number(std::string_view key, uint64_t value) {
    Key(key);
    fmt::format_to(std::back_inserter(*out_), "{}", value);
  }
  void Raw(std::string_view key, std::string_view json) {
    Key(key);
    *out_ += json;
  }
  void Open(std::string_view key) {
    Key(key);
    *out_ += '{';
    first_ = true;
  }
  void Close() {
    *out_ += '}';
    first_ = false;
  }

 private:
  void Key(std::string_view key) {
    if (!first_) *out_ += ',';
    first_ = false;
    AppendJsonString(out_, key);
    *out_ += ':';
  }

  std::string* out_;
  bool first_ = true;
};

void AddProcess(Members* members, const policy::ProcessPtr& process) {
  if (process == nullptr) {
    members->Raw("process", "null");
    return;
  }
  members->Open("process");
  members->Number("pid", static_cast<uint64_t>(process->pid));
  members->Number("start", process->start_time);
  members->Number("uid", process->uid);
  members->String("exe", process->exe.path);
  if (!process->exe.trusted) members->Raw("exe_trusted", "false");
  if (process->exe.sha256) members->String("exe_sha256", HexText(*process->exe.sha256));
  members->String("comm", process->comm);
  std::string ancestors = "[";
  for (const policy::Executable& ancestor : process->ancestors) {
    if (ancestors.size() > 1) ancestors += ',';
    AppendJsonString(&ancestors, std::string_view(ancestor.path).substr(0, kMaxField));
  }
  members->Raw("ancestors", ancestors + "]");
  if (!process->client.empty()) members->String("client", process->client);
  if (!process->client_labels.empty()) members->String("client_labels", process->client_labels);
  members->Close();
}

std::string AskedArray(const std::vector<std::string>& asked) {
  std::string out = "[";
  for (const std::string& words : asked) {
    if (out.size() > 1) out += ',';
    AppendJsonString(&out, Redact(std::string_view(words).substr(0, kMaxField)));
  }
  return out + "]";
}

void AddTarget(Members* members, const policy::EventTarget& target) {
  members->Open("target");
  members->Optional("host", Redact(target.host));
  if (target.address) members->String("address", target.address->ToString());
  if (target.port != 0) members->Number("port", target.port);
  members->Optional("scheme", target.scheme);
  members->Optional("method", target.method);
  members->Optional("path", Redact(target.path));
  members->Optional("query", Redact(QueryKeys(target.query)));
  if (!target.asked.empty()) members->Raw("asked", AskedArray(target.asked));
  members->Optional("via", target.via);
  members->Close();
}

void AddRule(Members* members, std::string_view key, const policy::SnapshotPtr& snapshot, policy::RuleRef ref) {
  const policy::RuleInfo* rule = snapshot != nullptr ? snapshot->rule(ref) : nullptr;
  if (rule == nullptr) return;
  members->Open(key);
  members->String("id", rule->id);
  members->String("text", rule->text);
  members->String("file", rule->span.file);
  members->Number("line", rule->span.line);
  members->Close();
}

std::string_view VerdictText(const policy::Decision& decision) {
  if (decision.audit_only) return "would_deny";
  return decision.allowed ? "allow" : "deny";
}

}  // namespace

std::string_view LayerText(policy::EventLayer layer) {
  switch (layer) {
    case policy::EventLayer::kDns:
      return "dns";
    case policy::EventLayer::kConnect:
      return "connect";
    case policy::EventLayer::kTls:
      return "tls";
    case policy::EventLayer::kRequest:
      return "request";
    case policy::EventLayer::kUnix:
      return "unix";
    case policy::EventLayer::kUdp:
      return "udp";
    case policy::EventLayer::kSyscall:
      return "syscall";
  }
  return "unknown";
}

RecordFormat::RecordFormat(const std::string& sandbox, const std::map<std::string, std::string>& labels) {
  common_ = ",\"sandbox\":";
  AppendJsonString(&common_, sandbox);
  common_ += ",\"labels\":{";
  Members members(&common_);
  for (const auto& [key, value] : labels) members.String(key, value);
  common_ += '}';
}

void RecordFormat::Append(std::string* out, const policy::DecisionEvent& event) const { AppendDecision(out, event, nullptr); }

void RecordFormat::Append(std::string* out, const Repeated& repeated) const { AppendDecision(out, repeated.event, &repeated); }

void RecordFormat::AppendDecision(std::string* out, const policy::DecisionEvent& event, const Repeated* repeated) const {
  *out += '{';
  Members members(out);
  members.String("time", FormatRfc3339(event.time));
  members.String("type", "decision");
  *out += common_;
  if (repeated != nullptr) {
    members.Number("count", repeated->count);
    members.String("first", FormatRfc3339(repeated->first));
  }
  members.Number("connection", event.connection);
  members.Number("request", event.request);
  members.String("layer", LayerText(event.layer));
  members.String("verdict", VerdictText(event.decision));
  members.String("reason", policy::ReasonText(event.decision.reason));
  AddProcess(&members, event.process);
  AddTarget(&members, event.target);
  AddRule(&members, "rule", event.snapshot, event.decision.rule);
  AddRule(&members, "nearest_rule", event.snapshot, event.advice.nearest);
  members.Optional("suggest", RedactSuggestion(event.advice.suggest));
  members.Optional("explanation", RedactSentence(event.advice.explanation));
  members.Optional("detail", RedactSentence(event.detail));
  members.Optional("denial", event.denial_id);
  if (repeated != nullptr) members.Optional("last_denial", repeated->last_id);
  if (event.snapshot != nullptr) members.String("policy", event.snapshot->digest());
  *out += "}\n";
}

void RecordFormat::Append(std::string* out, const policy::ExchangeEvent& event) const {
  *out += '{';
  Members members(out);
  members.String("time", FormatRfc3339(event.time));
  members.String("type", "exchange");
  *out += common_;
  members.Number("connection", event.connection);
  members.Number("request", event.request);
  AddProcess(&members, event.process);
  AddTarget(&members, event.target);
  AddRule(&members, "rule", event.snapshot, event.rule);
  if (event.status != 0) members.Number("status", static_cast<uint64_t>(event.status));
  members.Number("bytes_up", event.bytes_up);
  members.Number("bytes_down", event.bytes_down);
  if (event.close_code != 0) members.Number("close_code", event.close_code);
  members.Number("duration_us", static_cast<uint64_t>(std::max<int64_t>(0, event.duration.count())));
  members.Optional("error", RedactSentence(event.error));
  if (event.snapshot != nullptr) members.String("policy", event.snapshot->digest());
  *out += "}\n";
}

}  // namespace sluice::audit
