// harden-runner: the `allowed-endpoints` of a workflow's step, host and port each.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/converters.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

constexpr std::string_view kAction = "step-security/harden-runner";

const Node* Find(const Node& map, std::string_view key) {
  for (const Member& member : map.members)
    if (member.key.text == key) return &member.value;
  return nullptr;
}

struct Step {
  std::string job;
  const Node* at = nullptr;    ///< its `uses`
  const Node* with = nullptr;  ///< null where it has none
};

void AddSteps(const Node& list, const std::string& job, std::vector<Step>* out) {
  for (const Node& step : list.items) {
    const Node* uses = Find(step, "uses");
    if (uses == nullptr || !(uses->text == kAction || uses->text.starts_with(fmt::format("{}@", kAction)))) continue;
    out->push_back({job, uses, Find(step, "with")});
  }
}

std::vector<Step> FindSteps(const Node& root) {
  std::vector<Step> steps;
  if (root.kind == Node::Kind::kSequence) AddSteps(root, "", &steps);
  if (const Node* uses = Find(root, "uses")) steps.push_back({"", uses, Find(root, "with")});
  if (const Node* list = Find(root, "steps")) AddSteps(*list, "", &steps);
  if (const Node* jobs = Find(root, "jobs"))
    for (const Member& job : jobs->members)
      if (const Node* list = Find(job.value, "steps")) AddSteps(*list, job.key.text, &steps);
  return steps;
}

Result<void> Allow(const Node& node, ImportBuilder* out) {
  const std::string& text = node.text;
  if (text.find("${{") != std::string::npos || text.find("}}") != std::string::npos)
    return NodeError(node, "an expression is known only when the workflow runs; write the endpoint out");
  std::string_view host = text;
  std::string port = "443";
  if (const size_t colon = host.rfind(':'); colon != std::string_view::npos && std::count(host.begin(), host.end(), ':') == 1) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  } else if (colon != std::string_view::npos) {
    return NodeError(node, fmt::format("`{}` is not HOST:PORT", text));
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  const bool wild = host.find('*') != std::string_view::npos;
  if (wild && (!host.starts_with("*.") || host.find('*', 1) != std::string_view::npos))
    return NodeError(node, "a wildcard is the whole first label, as in `*.x.com:443`");
  if (wild)
    out->Say(RemarkKind::kNarrower,
             "how many labels this `*` stands for is decided by a service that is not public; taken as one", node.span);
  auto pattern = HostAt(node, host);
  if (!pattern) return std::unexpected(pattern.error());
  auto rule = ImportBuilder::Make({.verb = "tcp", .host = HostText(*pattern), .ports = port}, node);
  if (!rule) return std::unexpected(rule.error());
  out->Add(std::move(*rule), node.span);
  return {};
}

void OfWholeFile(const SourceSpan& span, ImportBuilder* out) {
  out->SayOfFile(RemarkKind::kNote,
                 "an endpoint without a port is port 443; a host without `*` is that host alone; requests are not read", span);
  out->SayOfFile(RemarkKind::kNarrower,
                 "harden-runner also lets through its own service and what the runner itself needs; those are in no file", span);
}

Result<void> Inputs(const Step& step, const ImportInput& input, ImportBuilder* out) {
  if (step.with == nullptr) {
    out->SayOfFile(RemarkKind::kNote, "without inputs the step blocks everything", step.at->span);
    return {};
  }
  auto fields = Fields::Of(*step.with, "`with`");
  if (!fields) return std::unexpected(fields.error());
  const Node* endpoints = fields->Get("allowed-endpoints");
  const Node* policy = fields->Get("egress-policy");
  for (const auto& [key, why] : {std::pair{"policy", "it is fetched when the workflow runs"},
                                 {"use-policy-store", "the policy is fetched when the workflow runs"}})
    if (auto refused = fields->RefuseSet(key, why); !refused) return refused;
  for (const std::string_view key : {"token", "disable-telemetry", "disable-sudo", "disable-sudo-and-containers",
                                     "disable-file-monitoring", "exempt-files", "api-key", "deploy-on-self-hosted-vm"})
    if (fields->Get(key) != nullptr)
      out->SayOfFile(RemarkKind::kNote, fmt::format("`{}` is not about egress and is not read", key), fields->KeyNode(key)->span);
  if (auto rest = fields->RefuseOthers("harden-runner's inputs"); !rest) return rest;
  if (policy != nullptr) {
    const auto word = Word(*policy, "egress-policy", {"block", "audit"});
    if (!word) return std::unexpected(word.error());
    if (*word == "audit") {
      out->Say(RemarkKind::kWider, "`egress-policy: audit` blocks nothing; its endpoints are only compared", policy->span);
      return out->Grant({.verb = "tcp", .host = "**", .ports = std::string(kAllPorts)}, *policy);
    }
  }
  if (endpoints == nullptr || IsUnset(*endpoints)) return {};
  if (auto text = Text(*endpoints, "allowed-endpoints"); !text) return std::unexpected(text.error());
  std::vector<Node> words;
  if (endpoints->style == Node::Style::kBlock) {
    // The scalar's own lines: those behind its key, as many as it has.
    uint32_t last = fields->KeyNode("allowed-endpoints")->span.line + 1;
    const size_t indent = fields->KeyNode("allowed-endpoints")->span.column;
    std::vector<Node> all = WordsOfLines(input.text, input.file, last, UINT32_MAX);
    for (Node& word : all) {
      if (word.span.column <= indent && word.span.line >= last) {
        // A line begins left of the scalar: what follows is another key.
        const bool first = words.empty() || words.back().span.line != word.span.line;
        if (first) break;
      }
      words.push_back(std::move(word));
    }
  } else {
    words = WordsOfLines(endpoints->text, input.file, 1, 2);
    for (Node& word : words) {
      if (endpoints->verbatim) word.span.column += endpoints->span.column + endpoints->text_offset - 1;
      word.span.line = endpoints->span.line;
    }
  }
  for (const Node& word : words) {
    if (auto added = Allow(word, out); !added) return added;
  }
  return {};
}

}  // namespace

Result<void> ImportHardenRunner(const Node& root, const ImportInput& input, ImportBuilder* out) {
  std::vector<Step> steps;
  if (Find(root, "allowed-endpoints") != nullptr || Find(root, "egress-policy") != nullptr) {
    steps.push_back({"", &root, &root});
  } else {
    steps = FindSteps(root);
  }
  if (!input.only.empty()) std::erase_if(steps, [&](const Step& step) { return step.job != input.only; });
  if (steps.empty()) return NodeError(root, fmt::format("no step here uses {}", kAction));
  if (steps.size() > 1)
    return NodeError(
        *steps[1].at,
        fmt::format(
            "a second step (the first is on line {}), and a policy is for one job: `sluice import --only JOB` writes it out",
            steps[0].at->span.line));
  OfWholeFile(steps[0].at->span, out);
  return Inputs(steps[0], input, out);
}

Result<void> ImportHardenRunnerList(const std::vector<Node>& entries, ImportBuilder* out) {
  if (!entries.empty()) OfWholeFile(entries[0].span, out);
  for (const Node& entry : entries) {
    if (auto added = Allow(entry, out); !added) return added;
  }
  return {};
}

}  // namespace sluice::policy
