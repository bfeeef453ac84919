#include "app/operation_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "policy/rule.h"
#include "policy/rule_text.h"

namespace sluice::app {
namespace {

using policy::BodyReading;
using policy::RequestBody;

constexpr std::string_view kJsonType = "application/json";

std::string_view NextWord(std::string_view* text) {
  const size_t space = text->find(' ');
  const std::string_view word = text->substr(0, space);
  text->remove_prefix(space == std::string_view::npos ? text->size() : space + 1);
  return word;
}

// Every reading asked for, none of which is possible.
RequestBody Unreadable() {
  RequestBody body;
  body.json = BodyReading<policy::JsonLeaf>{{}, "it is not JSON"};
  body.graphql = BodyReading<policy::GraphqlItem>{{}, "it is not GraphQL"};
  body.rpc = BodyReading<policy::RpcItem>{{}, "it is not JSON-RPC"};
  body.push = BodyReading<policy::RefUpdate>{{}, "it is not a push"};
  body.lfs = BodyReading<policy::LfsOperation>{{}, "it is not an LFS batch"};
  return body;
}

policy::JsonLeaf LeafOf(const std::string& pointer, const std::string& text) {
  using Type = policy::JsonLeaf::Type;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  Type type = Type::kString;
  if (error == std::errc{} && end == text.data() + text.size()) type = Type::kNumber;
  if (text == "true" || text == "false") type = Type::kBoolean;
  if (text == "null") type = Type::kNull;
  return {pointer, type, text};
}

policy::JsonLeaves LeavesOf(const AskedBody& asked, policy::JsonLeaves leaves = {}) {
  leaves.push_back({"", policy::JsonLeaf::Type::kObject, ""});
  for (const auto& [pointer, text] : asked.json) leaves.push_back(LeafOf(pointer, text));
  std::ranges::sort(leaves, {}, &policy::JsonLeaf::pointer);
  return leaves;
}

Result<OperationRequest> Graphql(std::string_view rest, const AskedBody& asked) {
  const std::string_view word = NextWord(&rest);
  // The verb's own words for what is wrong with it.
  if (const auto cut = policy::CutCompact(fmt::format("graphql {} a.test", word)); !cut) return std::unexpected(cut.error());
  policy::GraphqlKind kind = policy::GraphqlKind::kQuery;
  for (const auto known : {policy::GraphqlKind::kMutation, policy::GraphqlKind::kSubscription})
    if (policy::GraphqlKindText(known) == word) kind = known;
  OperationRequest request{.asked = fmt::format("graphql {}", word), .method = "POST", .url = std::string(rest)};
  request.headers = {{"content-type", kJsonType}};
  request.body = Unreadable();
  auto& items = request.body->graphql.emplace().items;
  for (const std::string& field : asked.fields) items.push_back({kind, asked.operation, field});
  if (items.empty()) {
    // A name that no literal is: rules for every field hold, and no other.
    items.push_back({kind, asked.operation, "(any)"});
    request.note = "no root field is named: rules with `fields` are not met; --field NAME asks about one";
  }
  request.body->json = BodyReading<policy::JsonLeaf>{LeavesOf(asked), ""};
  return request;
}

Result<OperationRequest> Rpc(std::string_view verb, std::string_view rest, const AskedBody& asked) {
  const std::string method(NextWord(&rest));
  if (const auto cut = policy::CutCompact(fmt::format("{} {} a.test", verb, method)); !cut) return std::unexpected(cut.error());
  if (method.find('*') != std::string::npos) return Fail(Code::kInvalid, fmt::format("ask about one method, not `{}`", method));
  if (!asked.tool.empty() && method != "tools/call") return Fail(Code::kInvalid, "a tool is that of `mcp tools/call`");
  OperationRequest request{.asked = fmt::format("{} {}", verb, method), .method = "POST", .url = std::string(rest)};
  request.headers = {{"content-type", kJsonType}};
  request.body = Unreadable();
  policy::JsonLeaves known = {{"/jsonrpc", policy::JsonLeaf::Type::kString, "2.0"},
                              {"/method", policy::JsonLeaf::Type::kString, method}};
  if (!asked.tool.empty()) known.push_back({"/params/name", policy::JsonLeaf::Type::kString, asked.tool});
  policy::RpcItem item{method, std::nullopt, LeavesOf(asked, std::move(known))};
  if (!asked.tool.empty()) item.tool = asked.tool;
  if (verb == "mcp" && method == "tools/call" && asked.tool.empty())
    request.note = "no tool is named: rules with `tool` are not met; --tool NAME asks about one";
  request.body->json = BodyReading<policy::JsonLeaf>{item.message, ""};
  request.body->rpc.emplace().items.push_back(std::move(item));
  return request;
}

Result<OperationRequest> Grpc(std::string_view rest) {
  const std::string_view host = NextWord(&rest);
  if (const auto rule = policy::ParseCompact(policy::Effect::kAllow, fmt::format("grpc a.test {}", rest)); !rule)
    return std::unexpected(rule.error());
  OperationRequest request{.asked = "grpc", .method = "POST", .url = fmt::format("{}/{}", host, rest)};
  request.headers = {{"content-type", "application/grpc"}};
  return request;
}

OperationRequest WebSocket(std::string_view rest) {
  OperationRequest request{.asked = "ws", .method = "GET", .url = std::string(rest)};
  if (request.url.starts_with("ws://") || request.url.starts_with("wss://")) request.url.replace(0, 2, "http");
  request.upgrade = policy::Upgrade::kWebSocket;
  return request;
}

}  // namespace

bool IsOperationVerb(std::string_view word) {
  return word == "ws" || word == "grpc" || word == "graphql" || word == "jsonrpc" || word == "mcp";
}

Result<OperationRequest> ReadOperation(std::string_view verb, std::string_view rest, const AskedBody& body) {
  if (rest.empty()) return Fail(Code::kInvalid, fmt::format("`{}` of what? Write it as a rule does, without wildcards", verb));
  if (verb == "ws") return WebSocket(rest);
  if (verb == "grpc") return Grpc(rest);
  auto request = verb == "graphql" ? Graphql(rest, body) : Rpc(verb, rest, body);
  if (request && request->url.empty()) return Fail(Code::kInvalid, fmt::format("`{}` needs a host and a path", request->asked));
  return request;
}

Result<std::optional<RequestBody>> PushBody(const AskedBody& asked) {
  if (asked.refs.empty()) return std::nullopt;
  policy::RefChange change = policy::kRefUpdate;
  if (asked.ref_change == "create") change = policy::kRefCreate;
  if (asked.ref_change == "delete") change = policy::kRefDelete;
  if (!asked.ref_change.empty() && asked.ref_change != "update" && change == policy::kRefUpdate)
    return Fail(Code::kInvalid, fmt::format("a ref is changed by create, update or delete, not `{}`", asked.ref_change));
  RequestBody body = Unreadable();
  auto& items = body.push.emplace().items;
  for (const std::string& ref : asked.refs) items.push_back({ref, change});
  return body;
}

std::optional<RequestBody> JsonBody(const AskedBody& asked) {
  if (asked.json.empty()) return std::nullopt;
  RequestBody body = Unreadable();
  body.json = BodyReading<policy::JsonLeaf>{LeavesOf(asked), ""};
  return body;
}

}  // namespace sluice::app
