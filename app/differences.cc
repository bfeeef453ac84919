#include "app/differences.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/hex.h"

namespace sluice::app {
namespace {

nlohmann::json ProcessJson(const prover::WitnessProcess& process) {
  switch (process.kind) {
    case prover::WitnessProcess::Kind::kAny:
      return nullptr;
    case prover::WitnessProcess::Kind::kUnknown:
      return "(unknown)";
    case prover::WitnessProcess::Kind::kUntrusted:
      return "(deleted)";
    case prover::WitnessProcess::Kind::kNamed:
      break;
  }
  return process.exe;
}

nlohmann::json RegionJson(const prover::Region& region) {
  nlohmann::json out{{"text", region.Text()}};
  for (const prover::RegionField& field : region.fields) {
    out[field.name] = field.values;
    if (!field.except.empty()) out["except"][field.name] = field.except;
  }
  return out;
}

nlohmann::json RuleJson(const policy::Snapshot& policy, policy::RuleRef ref, const std::string& name) {
  const auto* info = policy.rule(ref);
  if (info == nullptr) return {{"rule", nullptr}, {"file", name}, {"line", 0}};
  nlohmann::json out{{"rule", fmt::format("{}: {}", info->allow ? "allow" : "deny", info->text)},
                     {"id", info->id},
                     {"file", info->span.file},
                     {"line", info->span.line},
                     {"column", info->span.column}};
  if (info->origin.line != 0) out["origin"] = {{"file", info->origin.file}, {"line", info->origin.line}};
  return out;
}

std::string_view ChangeText(policy::RefChange change) {
  return change == policy::kRefCreate ? "create" : change == policy::kRefDelete ? "delete" : "update";
}

nlohmann::json LeavesJson(const policy::JsonLeaves& leaves) {
  nlohmann::json out = nlohmann::json::array();
  for (const policy::JsonLeaf& leaf : leaves)
    if (leaf.type != policy::JsonLeaf::Type::kArray) out.push_back({{"pointer", leaf.pointer}, {"value", leaf.text}});
  return out;
}

nlohmann::json ReadBodyJson(const prover::WitnessBody& body) {
  using Kind = prover::WitnessBody::Kind;
  switch (body.kind) {
    case Kind::kNone:
      return {{"kind", "unread"}};
    case Kind::kJson:
      return {{"kind", "json"}, {"json", LeavesJson(body.json.value_or(policy::JsonLeaves{}))}};
    case Kind::kGraphql:
      return {{"kind", fmt::format("graphql {}", policy::GraphqlKindText(body.graphql.kind))},
              {"operation", body.graphql.operation},
              {"field", body.graphql.field},
              {"json", LeavesJson(body.json.value_or(policy::JsonLeaves{}))}};
    case Kind::kRpc: {
      nlohmann::json out{
          {"kind", "jsonrpc"}, {"method", body.rpc.method}, {"json", LeavesJson(body.rpc.message)}, {"batch", body.batch}};
      if (body.rpc.tool) out["tool"] = *body.rpc.tool;
      return out;
    }
    case Kind::kPush:
      if (body.PushesNothing()) return {{"kind", "push"}};
      return {{"kind", "push"}, {"ref", body.push.ref}, {"change", ChangeText(body.push.change)}};
    case Kind::kLfs:
      return {{"kind", "lfs"}, {"json", LeavesJson(body.json.value_or(policy::JsonLeaves{}))}};
  }
  return nullptr;
}

// The same with what it asks of git LFS, alone or besides.
nlohmann::json BodyJson(const prover::WitnessBody& body) {
  nlohmann::json out = ReadBodyJson(body);
  if (!body.lfs) return out;
  const std::string_view operation = *body.lfs == policy::LfsOperation::kDownload ? "download" : "upload";
  out[body.kind == prover::WitnessBody::Kind::kLfs ? "operation" : "lfs"] = operation;
  return out;
}

// Whether both let the witness out, each its own way.
bool IsWay(const prover::Difference& difference) { return difference.refused_because == policy::Reason::kAllowed; }

// The way that it has in the other policy.
std::string OtherWay(const prover::Difference& difference) {
  const std::string& name = difference.other_way;
  switch (difference.witness.way) {
    case prover::Way::kCredential:
      return name.empty() ? "allowed, without a credential" : fmt::format("allowed, with the credential `{}`", name);
    case prover::Way::kOwn:
      return fmt::format("allowed, with the credential `{}` in its place", name);
    case prover::Way::kVia:
      return name.empty() ? "allowed, directly" : fmt::format("allowed, through the upstream proxy `{}`", name);
    case prover::Way::kUnpinned:
      return "allowed, to an upstream with other pins alone";
    case prover::Way::kAny:
      break;
  }
  return "allowed";
}

void AddWay(const prover::Witness& witness, nlohmann::json* out) {
  if (witness.way == prover::Way::kCredential) (*out)["credential"] = witness.way_name;
  if (witness.way == prover::Way::kOwn) (*out)["own"] = witness.way_name;
  if (witness.way == prover::Way::kVia)
    (*out)["via"] = witness.way_name.empty() ? nlohmann::json(nullptr) : nlohmann::json(witness.way_name);
  if (witness.way == prover::Way::kUnpinned) (*out)["pinned"] = false;
}

}  // namespace

// "its method was not allowed": what the other policy says of the witness.
std::string_view WhyRefused(policy::Reason reason) {
  switch (reason) {
    case policy::Reason::kMethod:
      return "refused: method";
    case policy::Reason::kPath:
      return "refused: path";
    case policy::Reason::kQuery:
      return "refused: query";
    case policy::Reason::kHeader:
      return "refused: header";
    case policy::Reason::kOperation:
      return "refused: operation";
    case policy::Reason::kBinary:
      return "refused: executable";
    case policy::Reason::kPort:
      return "refused: port";
    case policy::Reason::kPrivateAddress:
      return "refused: address";
    case policy::Reason::kExpired:
      return "refused: expired by then";
    case policy::Reason::kDenyRule:
      return "refused by a deny";
    case policy::Reason::kDns:
      return "refused: the name is not in the policy";
    default:
      return "refused: no rule";
  }
}

std::string QuotedRule(const policy::RuleInfo& rule) { return fmt::format("`{}: {}`", rule.allow ? "allow" : "deny", rule.text); }

std::string RuleAtPlace(const policy::RuleInfo& rule) {
  return fmt::format("{} at {}", QuotedRule(rule), policy::PlaceText(rule.span, rule.origin));
}

Remark DifferenceRemark(const prover::Difference& difference, const policy::Snapshot& here, const policy::Snapshot& there,
                        const std::string& name, Direction direction) {
  const bool gain = direction == Direction::kGain;
  const auto* rule = here.rule(difference.rule);
  const std::string region = difference.region.Text();
  const std::string witness = difference.witness.Text();
  Remark remark;
  remark.severity = gain ? Severity::kError : Severity::kNote;
  remark.code = gain ? "widened" : "narrowed";
  remark.span = rule != nullptr ? rule->span : SourceSpan{name, 0, 0, 0};
  remark.message = fmt::format("{}: `{}`", remark.code, region);
  remark.details.emplace_back("witness", witness);
  if (rule == nullptr) {
    remark.details.emplace_back("rule", "mode: audit");
  } else if (rule->text != region || rule->origin.line != 0) {
    // Where the region is the whole rule there is nothing to add, but for a preset's own line.
    const std::string from = rule->origin.line == 0 ? "" : fmt::format("  ({})", policy::PlaceText(rule->span, rule->origin));
    remark.details.emplace_back("rule", fmt::format("{}: {}{}", rule->allow ? "allow" : "deny", rule->text, from));
  }
  const auto* deny = there.rule(difference.refused_by);
  remark.details.emplace_back(gain ? "before" : "now", deny != nullptr     ? fmt::format("refused by {}", RuleAtPlace(*deny))
                                                       : IsWay(difference) ? OtherWay(difference)
                                                                           : std::string(WhyRefused(difference.refused_because)));
  remark.identity = fmt::format("{}\n{}", rule != nullptr ? rule->text : "audit", witness);
  return remark;
}

nlohmann::json WitnessJson(const prover::Witness& witness) {
  nlohmann::json out{
      {"layer", prover::LayerText(witness.layer)}, {"process", ProcessJson(witness.process)}, {"text", witness.Text()}};
  if (witness.process.sha256) out["process_sha256"] = HexText(*witness.process.sha256);
  if (const auto& ancestors = witness.process.ancestors; !ancestors.empty()) {
    out["ancestor"] = ancestors.front().exe;
    for (const prover::WitnessAncestor& ancestor : ancestors)
      if (ancestors.size() > 1) out["ancestors"].push_back(ancestor.exe);
  }
  if (witness.layer == prover::Layer::kUnix) {
    out["path"] = witness.path;
    return out;
  }
  out["host"] = witness.host.empty() && witness.address ? witness.address->ToString() : witness.host;
  out["ip"] = witness.address ? nlohmann::json(witness.address->ToString()) : nlohmann::json(nullptr);
  if (witness.layer == prover::Layer::kDns) {
    out["dns_type"] = policy::DnsTypeText(witness.dns_type);
    return out;
  }
  out["port"] = witness.port;
  AddWay(witness, &out);
  if (witness.layer != prover::Layer::kHttp) return out;
  out["scheme"] = witness.scheme == policy::Scheme::kHttps ? "https" : "http";
  out["method"] = witness.method;
  out["path"] = witness.path;
  out["query"] = witness.query;
  out["headers"] = nlohmann::json::array();
  for (const auto& [name, value] : witness.headers) out["headers"].push_back({{"name", name}, {"value", value}});
  if (witness.operation) out["operation"] = policy::VerbText(*witness.operation);
  if (witness.upgrade == policy::Upgrade::kWebSocket) out["upgrade"] = "websocket";
  if (witness.ShowsBody()) out["body"] = BodyJson(witness.body);
  return out;
}

nlohmann::json DifferenceJson(const prover::Difference& difference, const policy::Snapshot& here, const policy::Snapshot& there,
                              const std::string& name) {
  nlohmann::json out = RuleJson(here, difference.rule, name);
  out["region"] = RegionJson(difference.region);
  out["witness"] = WitnessJson(difference.witness);
  out["refused_because"] = policy::ReasonText(difference.refused_because);
  if (there.rule(difference.refused_by) != nullptr) out["refused_by"] = RuleJson(there, difference.refused_by, name);
  return out;
}

}  // namespace sluice::app
