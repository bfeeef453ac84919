// What the proxy reads in bodies, for tests that compare it with other programs' readings. A line of JSON in, one out:
// {"kinds", "method", "headers": [[name, value]…], "query", "body": hexadecimal} → {"json": {"items", "fault"}, …}.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/hex.h"
#include "proxy/body/body_reader.h"

using namespace sluice;
using nlohmann::json;

namespace {

json Item(const policy::JsonLeaf& leaf) {
  static constexpr const char* kTypes[] = {"string", "number", "boolean", "null", "array", "object"};
  return {leaf.pointer, kTypes[static_cast<size_t>(leaf.type)], leaf.text};
}
json Item(const policy::GraphqlItem& item) {
  static constexpr const char* kKinds[] = {"query", "mutation", "subscription"};
  return {kKinds[static_cast<size_t>(item.kind)], item.operation, item.field};
}
json Item(const policy::RpcItem& item) { return {item.method, item.tool ? json(*item.tool) : json(nullptr)}; }
json Item(const policy::RefUpdate& item) { return {item.ref, static_cast<int>(item.change)}; }
json Item(const policy::LfsOperation& item) { return static_cast<int>(item); }

template <class Reading>
void Put(json* out, const char* name, const std::optional<Reading>& reading) {
  if (!reading) return;
  json items = json::array();
  for (const auto& item : reading->items) items.push_back(Item(item));
  (*out)[name] = {{"items", items}, {"fault", reading->fault}};
}

std::string Unhex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) out += static_cast<char>(HexValue(text[i]) * 16 + HexValue(text[i + 1]));
  return out;
}

std::string Answer(const json& in) {
  const auto headers = in.at("headers").get<std::vector<std::pair<std::string, std::string>>>();
  std::vector<policy::HeaderView> views;
  for (const auto& [name, value] : headers) views.emplace_back(name, value);
  const auto method = in.at("method").get<std::string>();
  const auto query = in.at("query").get<std::string>();
  const std::string body = Unhex(in.at("body").get<std::string>());
  const policy::RequestBody read = proxy::ReadBody(
      in.at("kinds").get<policy::BodyKinds>(), {.method = method, .headers = views, .query = query, .length = body.size()}, body);
  json out = json::object();
  Put(&out, "json", read.json);
  Put(&out, "graphql", read.graphql);
  Put(&out, "rpc", read.rpc);
  Put(&out, "push", read.push);
  Put(&out, "lfs", read.lfs);
  return out.dump();
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::puts(Answer(json::parse(line)).c_str());
  return 0;
}
