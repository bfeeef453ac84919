// OpenShell endpoints whose requests are read deeper than method and path: `websocket`, `graphql`, `json-rpc`, `mcp`. What has no
// exact form here is an error.
#include <fmt/format.h>

#include <algorithm>

#include "policy/import/openshell.h"
#include "policy/import/openshell_glob.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

using Protocol = OpenShellEndpoint::Protocol;

// What one entry becomes.
struct Operation {
  std::vector<std::string> verbs;  ///< "graphql query"
  std::vector<Glob> operation{};
  std::vector<Glob> fields{};
  std::vector<Glob> tools{};
};

std::string Lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return text;
}

class Operations {
 public:
  Operations(const OpenShellPolicy& policy, const OpenShellEndpoint& endpoint, ImportBuilder* out)
      : policy_(policy), endpoint_(endpoint), out_(out) {}

  Result<void> Run() {
    if (auto stream = Stream(); !stream) return stream;
    if (endpoint_.access != nullptr) {
      if (auto added = Access(*endpoint_.access); !added) return added;
    }
    if (endpoint_.protocol == Protocol::kWebsocket && !endpoint_.rules.empty()) {
      if (auto added = WebsocketRules(); !added) return added;
    } else {
      for (const Node* node : endpoint_.rules) {
        if (auto added = Entry(Effect::kAllow, *node); !added) return added;
      }
    }
    for (const Node* node : endpoint_.denies) {
      out_->Say(
          RemarkKind::kNarrower,
          "OpenShell refuses this to the programs of its policy alone; here to every program, since a deny cannot follow who "
          "started whom",
          node->span);
      if (auto added = Entry(Effect::kDeny, *node); !added) return added;
    }
    return {};
  }

 private:
  // The event stream of MCP, which carries no call.
  Result<void> Stream() {
    if (endpoint_.protocol != Protocol::kJsonRpc && endpoint_.protocol != Protocol::kMcp) return {};
    out_->Say(RemarkKind::kNarrower,
              "the event stream (GET) takes an `Accept` of text/event-stream here, and calls are posted as JSON",
              endpoint_.at->span);
    return Add(Effect::kAllow, "GET", *endpoint_.at,
               [](Rule* rule) { rule->headers = {{"accept", {*Glob::Text("*text/event-stream*")}}}; });
  }

  Result<void> Access(const Node& node) {
    const std::string& word = node.text;
    std::vector<std::string> verbs;
    if (endpoint_.protocol == Protocol::kWebsocket) {
      if (word == "read-only")
        return NodeError(node, "`access: read-only` cannot be kept: a WebSocket here carries messages both ways");
      verbs = {"ws"};
    } else if (endpoint_.protocol == Protocol::kGraphql) {
      verbs = {"graphql query"};
      if (word != "read-only") verbs.emplace_back("graphql mutation");
      if (word == "full") verbs.emplace_back("graphql subscription");
    } else {
      return NodeError(node, "OpenShell takes no `access` with `json-rpc` and `mcp`");
    }
    for (const std::string& verb : verbs) {
      if (auto added = Add(Effect::kAllow, verb, node, [](Rule*) {}); !added) return added;
    }
    return {};
  }

  // A connection needs the upgrade and its messages; here one rule is both.
  Result<void> WebsocketRules() {
    std::vector<std::string> upgrades;
    std::vector<std::string> messages;
    for (const Node* node : endpoint_.rules) {
      auto fields = Fields::Of(*node, "an allow rule");
      if (!fields) return std::unexpected(fields.error());
      const Node* method = fields->Get("method");
      const Node* path = fields->Get("path");
      if (auto rest = fields->RefuseOthers("a rule of `protocol: websocket`"); !rest) return rest;
      if (method == nullptr || path == nullptr)
        return NodeError(*node, "a rule of `protocol: websocket` has a `method` and a `path`");
      const std::string word = Lower(method->text);
      if (word != "get" && word != "websocket_text" && word != "*")
        return NodeError(*method, "`method` is GET, WEBSOCKET_TEXT or `*`");
      if (word != "websocket_text") upgrades.push_back(path->text);
      if (word != "get") messages.push_back(path->text);
    }
    std::sort(upgrades.begin(), upgrades.end());
    std::sort(messages.begin(), messages.end());
    if (upgrades != messages)
      return NodeError(
          *endpoint_.rules[0],
          "the paths of `GET` and of `WEBSOCKET_TEXT` differ, which cannot be kept: a `ws` rule is the upgrade and its "
          "messages");
    upgrades.erase(std::unique(upgrades.begin(), upgrades.end()), upgrades.end());
    for (const std::string& path : upgrades) {
      if (auto added = AddAt(Effect::kAllow, "ws", *endpoint_.rules[0], path, [](Rule*) {}); !added) return added;
    }
    return {};
  }

  Result<void> Entry(Effect effect, const Node& node) {
    auto operation = endpoint_.protocol == Protocol::kWebsocket ? WebsocketDeny(node)
                     : endpoint_.protocol == Protocol::kGraphql ? GraphqlEntry(effect, node)
                                                                : RpcEntry(effect, node);
    if (!operation) return std::unexpected(operation.error());
    for (const std::string& verb : operation->verbs) {
      auto added = Add(effect, verb, node, [&](Rule* rule) {
        rule->operation = operation->operation;
        rule->fields = operation->fields;
        if (!operation->tools.empty()) rule->json = {{"/params/name", operation->tools}};
      });
      if (!added) return added;
    }
    return {};
  }

  static Result<Operation> WebsocketDeny(const Node& node) {
    return NodeError(node, "`deny_rules` of `protocol: websocket` cannot be kept: messages are not judged one by one here");
  }

  Result<std::vector<Glob>> Globs(Effect effect, const Node& node, std::string_view slot) {
    std::vector<const Node*> items = {&node};
    if (node.kind == Node::Kind::kSequence) {
      const auto list = List(&node, slot);
      if (!list) return std::unexpected(list.error());
      items = *list;
    }
    std::vector<Glob> out;
    for (const Node* item : items) {
      const auto text = Text(*item, slot);
      if (!text) return std::unexpected(text.error());
      const auto rewritten = RewriteValueGlob(effect, *text);
      if (!rewritten) return NodeError(*item, rewritten.error().message);
      if (rewritten->widened)
        out_->Say(RemarkKind::kNarrower, "the pattern has no exact form here: this refuses more", item->span);
      for (const std::string& glob_text : rewritten->globs) {
        auto glob = Glob::Text(glob_text);
        if (!glob) return MovedInto(*item, glob.error());
        out.push_back(std::move(*glob));
      }
    }
    return out;
  }

  Result<Operation> GraphqlEntry(Effect effect, const Node& node) {
    auto fields = Fields::Of(node, "a rule of `protocol: graphql`");
    if (!fields) return std::unexpected(fields.error());
    const Node* type = fields->Get("operation_type");
    const Node* name = fields->Get("operation_name");
    const Node* roots = fields->Get("fields");
    if (auto rest = fields->RefuseOthers("a rule of `protocol: graphql`"); !rest) return std::unexpected(rest.error());
    if (type == nullptr) return NodeError(node, "a rule of `protocol: graphql` has an `operation_type`");
    Operation operation;
    const std::string word = Lower(type->text);
    for (const std::string_view kind : {"query", "mutation", "subscription"})
      if (word == kind || word == "*") operation.verbs.push_back(fmt::format("graphql {}", kind));
    if (operation.verbs.empty()) return NodeError(*type, "`operation_type` is query, mutation, subscription or `*`");
    if (name != nullptr && !IsUnset(*name)) {
      auto globs = Globs(effect, *name, "operation_name");
      if (!globs) return std::unexpected(globs.error());
      operation.operation = std::move(*globs);
    }
    if (roots != nullptr && !IsUnset(*roots)) {
      auto globs = Globs(effect, *roots, "fields");
      if (!globs) return std::unexpected(globs.error());
      operation.fields = std::move(*globs);
    }
    if (effect == Effect::kAllow) {
      for (const std::string& verb : operation.verbs) {
        const bool again = std::find(allowed_.begin(), allowed_.end(), verb) != allowed_.end();
        with_fields_ |= !operation.fields.empty();
        if (again && with_fields_)
          return NodeError(
              node, fmt::format("a second rule for `{}` beside one with `fields` cannot be kept: OpenShell has one rule hold "
                                "for all fields of an operation, here each field may have its own",
                                verb));
        allowed_.push_back(verb);
      }
    }
    return operation;
  }

  Result<Operation> RpcEntry(Effect effect, const Node& node) {
    const bool mcp = endpoint_.protocol == Protocol::kMcp;
    auto fields = Fields::Of(node, "a rule of JSON-RPC");
    if (!fields) return std::unexpected(fields.error());
    const Node* method = fields->Get("method");
    const Node* tool = mcp ? fields->Get("tool") : nullptr;
    if (auto refused = fields->RefuseSet("params", "`params` have no exact form here"); !refused)
      return std::unexpected(refused.error());
    if (auto rest = fields->RefuseOthers("a rule of JSON-RPC"); !rest) return std::unexpected(rest.error());
    if (method == nullptr) return NodeError(node, "a rule of JSON-RPC has a `method`");
    const auto name = Text(*method, "method");
    if (!name) return std::unexpected(name.error());
    if (name->find('*') != std::string::npos && !(mcp && *name == "tools/*"))
      return NodeError(*method, "`method` is one method, or `tools/*` with `protocol: mcp`");
    Operation operation{.verbs = {fmt::format("jsonrpc {}", *name)}};
    if (tool == nullptr || IsUnset(*tool)) return operation;
    if (*name != "tools/call") return NodeError(*tool, "`tool` belongs to the method `tools/call`");
    auto globs = Globs(effect, *tool, "tool");
    if (!globs) return std::unexpected(globs.error());
    operation.tools = std::move(*globs);
    return operation;
  }

  template <class F>
  Result<void> Add(Effect effect, const std::string& verb, const Node& at, F finish) {
    return AddAt(effect, verb, at, endpoint_.path_node == nullptr ? "/**" : endpoint_.path_node->text, finish);
  }

  template <class F>
  Result<void> AddAt(Effect effect, const std::string& verb, const Node& at, const std::string& path, F finish) {
    std::vector<std::string> paths;
    if (path != "/**" && path != "**") {
      auto rewritten = RewritePathGlob(effect, path);
      if (!rewritten) return NodeError(at, rewritten.error().message);
      paths = std::move(rewritten->globs);
      if (paths.empty()) {
        out_->Say(RemarkKind::kNothing, "no request matches this", at.span);
        return {};
      }
    }
    if (effect == Effect::kDeny) return AddOne({effect, verb, "", endpoint_.host_text, endpoint_.ports, paths}, at, finish);
    for (const std::string_view scheme : {"", "http"}) {
      std::string ports;
      for (const PortRange& port : endpoint_.ranges)
        if (port.first != (scheme.empty() ? 80 : 443)) ports += fmt::format("{}{}", ports.empty() ? "" : ",", port.first);
      if (ports.empty()) continue;
      if (auto added = AddOne({effect, verb, std::string(scheme), endpoint_.host_text, ports, paths}, at, finish); !added)
        return added;
    }
    return {};
  }

  template <class F>
  Result<void> AddOne(const RuleParts& parts, const Node& at, F finish) {
    auto rule = ImportBuilder::Make(parts, at);
    if (!rule) return std::unexpected(rule.error());
    if (parts.effect == Effect::kAllow) {
      rule->under = policy_.binaries;
      rule->ip = endpoint_.ips;
      rule->encoded_slash = endpoint_.encoded_slash;
    }
    finish(&*rule);
    if (auto checked = CheckRule(*rule); !checked) return NodeError(at, checked.error().message);
    out_->Add(std::move(*rule), at.span);
    return {};
  }

  const OpenShellPolicy& policy_;
  const OpenShellEndpoint& endpoint_;
  ImportBuilder* out_;
  std::vector<std::string> allowed_;  ///< verbs of GraphQL that a rule has
  bool with_fields_ = false;
};

}  // namespace

Result<void> ImportOpenShellOperations(const OpenShellPolicy& policy, const OpenShellEndpoint& endpoint, ImportBuilder* out) {
  return Operations(policy, endpoint, out).Run();
}

}  // namespace sluice::policy
