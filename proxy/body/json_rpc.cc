#include "proxy/body/json_rpc.h"

#include <fmt/format.h>

#include <utility>

#include "proxy/body/json_body.h"

namespace sluice::proxy {
namespace {

using policy::JsonLeaf;
using policy::JsonLeaves;
using policy::RpcItem;
using Type = policy::JsonLeaf::Type;

bool IsString(const JsonLeaf* leaf) { return leaf != nullptr && leaf->type == Type::kString; }

// The fault of a message that has no method, which must be a response.
std::string_view ReadResponse(const JsonLeaves& message) {
  const bool result = FindLeaf(message, "/result") != nullptr;
  const JsonLeaf* error = FindLeaf(message, "/error");
  if (result == (error != nullptr)) return "neither a call nor a response";
  if (error != nullptr && error->type != Type::kObject) return "an error that is no object";
  if (FindLeaf(message, "/id") == nullptr) return "a response without an id";
  if (FindLeaf(message, "/params") != nullptr) return "a response with params";
  return {};
}

// A key beside "name" that some reader takes for it.
bool HasOtherName(const JsonLeaves& message) {
  constexpr std::string_view kParams = "/params/";
  for (const JsonLeaf& leaf : message) {
    if (!leaf.pointer.starts_with(kParams)) continue;
    const std::string_view key = std::string_view(leaf.pointer).substr(kParams.size());
    if (key.size() == 4 && key != "name" && FoldCase(key) == "name") return true;
  }
  return false;
}

std::string_view ReadTool(const JsonLeaves& message, RpcItem* item) {
  const JsonLeaf* name = FindLeaf(message, "/params/name");
  if (!IsString(name) || name->text.empty() || HasOtherName(message)) return "a tools/call without the name of a tool";
  if (FindLeaf(message, "/params")->type != Type::kObject) return "a tools/call whose params are no object";
  item->tool = name->text;
  return {};
}

std::string_view ReadCall(const JsonLeaves& message, const JsonLeaf& method, RpcItem* item) {
  if (method.type != Type::kString || method.text.empty()) return "a method that is no name";
  if (FindLeaf(message, "/result") != nullptr || FindLeaf(message, "/error") != nullptr) return "a call and a response in one";
  const JsonLeaf* params = FindLeaf(message, "/params");
  if (params != nullptr && params->type != Type::kObject && params->type != Type::kArray)
    return "params that are neither an object nor an array";
  item->method = method.text;
  return item->method == "tools/call" ? ReadTool(message, item) : std::string_view{};
}

// The fault, or nothing.
std::string_view ReadMessage(const JsonLeaves& message, RpcItem* item) {
  if (message.front().type != Type::kObject) return "a message that is no object";
  if (!HasOnlyMembers(message, {"jsonrpc", "method", "params", "id", "result", "error"}))
    return "a member that JSON-RPC does not know";
  const JsonLeaf* version = FindLeaf(message, "/jsonrpc");
  if (!IsString(version) || version->text != "2.0") return "not marked as version 2.0";
  const JsonLeaf* id = FindLeaf(message, "/id");
  if (id != nullptr && id->type != Type::kString && id->type != Type::kNumber && id->type != Type::kNull)
    return "an id that is neither text nor a number";
  const JsonLeaf* method = FindLeaf(message, "/method");
  return method != nullptr ? ReadCall(message, *method, item) : ReadResponse(message);
}

}  // namespace

policy::BodyReading<RpcItem> ReadJsonRpc(std::string_view text) {
  policy::BodyReading<RpcItem> out;
  JsonMessages read = ReadJsonMessages(text);
  if (read.fault.empty() && read.messages.empty()) read.fault = "the body is an empty JSON-RPC batch";
  if (read.messages.size() > kMaxRpcBatch) read.fault = fmt::format("a JSON-RPC batch of more than {} messages", kMaxRpcBatch);
  if (!read.fault.empty()) return {{}, std::move(read.fault)};
  for (JsonLeaves& message : read.messages) {
    RpcItem& item = out.items.emplace_back();
    if (const std::string_view why = ReadMessage(message, &item); !why.empty())
      return {{}, fmt::format("the body is not JSON-RPC 2.0: {}", why)};
    item.message = std::move(message);
  }
  return out;
}

}  // namespace sluice::proxy
